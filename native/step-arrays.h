// The results of a step in the arrays that JavaScript keeps for them (readStep in src/device/cpu/addon.ts).
#pragma once
#include "napi-values.h"
#include "runtime/step.h"

namespace pagoda {

// Reads the arrays from the next arguments and fills them. False when the lists of alternatives or of prompt rows are too short: then only the
// first array, the counts, is filled.
bool fill_arrays(const Step& step, Arguments& arguments);

}  // namespace pagoda
