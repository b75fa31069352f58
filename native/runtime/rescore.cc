#include "runtime/rescore.h"

#include <algorithm>

namespace pagoda {
namespace {

// In 16 lanes of double precision: the same sum on every instruction set.
float dot(const float* a, const float* b, int32_t n) {
  double lanes[16] = {};
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) for (int l = 0; l < 16; l++) lanes[l] += static_cast<double>(a[i + l]) * b[i + l];
  for (; i < n; i++) lanes[i & 15] += static_cast<double>(a[i]) * b[i];
  for (int width = 8; width > 0; width /= 2) for (int l = 0; l < width; l++) lanes[l] += lanes[l + width];
  return static_cast<float>(lanes[0]);
}

float logit_of(const Kernels& kernels, const LogitSource& source, int32_t id) {
  kernels.dequantize_row(source.weight, id, source.scratch);
  return dot(source.scratch, source.x, source.weight->cols) + (source.bias != nullptr ? source.bias[id] : 0.0f);
}

}  // namespace

void rescore(const Kernels& kernels, const LogitSource& source, float* logits) {
  TopValues best;
  clear_top(&best, kRescored);
  kernels.keep_top(logits, source.weight->rows, 0, &best);
  if (!best.finite) return;
  for (int32_t i = 0; i < best.count; i++) logits[best.ids[i]] = logit_of(kernels, source, best.ids[i]);
}

RescoredLogits rescore(const Kernels& kernels, const LogitSource& source, TopValues* best) {
  RescoredLogits rescored;
  if (!best->finite) return rescored;
  const TopValues before = *best;
  rescored.count = std::min(kRescored, before.count);
  clear_top(best, before.capacity);
  for (int32_t i = 0; i < before.count; i++) {
    float value = before.values[i];
    if (i < rescored.count) {
      rescored.ids[i] = before.ids[i];
      rescored.before[i] = value;
      rescored.after[i] = value = logit_of(kernels, source, before.ids[i]);
    }
    best->finite = best->finite && value * 0.0f == 0.0f;
    offer_value(best, value, before.ids[i]);
  }
  return rescored;
}

}  // namespace pagoda
