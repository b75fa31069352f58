// How the test programs write down plans.
#pragma once
#include "runtime/plan.h"

namespace pagoda::test {

inline Op& add_op(Plan& plan, OpKind kind, int32_t phase, int32_t in, int32_t out, int32_t weight, int32_t cols) {
  Op& made = plan.ops.emplace_back();
  made.kind = kind;
  made.phase = phase;
  made.in = in;
  made.out = out;
  made.weight = weight;
  made.cols = cols;
  return made;
}

}  // namespace pagoda::test
