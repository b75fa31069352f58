// JavaScript descriptions (typed in src/device/cpu/addon.ts) to the runtime's own structures.
#pragma once
#include "napi-values.h"
#include "runtime/plan.h"
#include "runtime/sampler.h"
#include "runtime/step.h"
#include "runtime/weight-store.h"

namespace pagoda {

WeightSource parse_weight(const Object& object);
Plan parse_plan(const Object& object);
SlotInit parse_sequence(const Object& object, const Plan& plan);
// Copies and checks the next arguments, a ForwardBatch in the order of submitStep, against the limits and the pool.
void parse_batch(Arguments& arguments, const Plan& plan, int64_t num_blocks, StepInput* in);

}  // namespace pagoda
