// Phases that need no barrier between them: a product whose items can go on with what follows on the same columns, attention whose
// items can bring their own heads into the form of the next product, and rows of logits that are sampled from. Fewer barriers, and
// values that stay in one core's cache.
#pragma once
#include "runtime/plan.h"

namespace pagoda {

// Joins phases of a checked plan. Results are the same bits either way.
void fuse_phases(Plan& plan);

}  // namespace pagoda
