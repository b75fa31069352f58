#include "runtime/rescore.h"

#include <algorithm>

namespace pagoda {
namespace {

constexpr int kRescored = 4;
constexpr int32_t kChunk = 256;

// The largest values seen so far, best first; of equal values the lower id.
struct Best {
  int32_t ids[kRescored];
  float values[kRescored];
  int count = 0;

  void offer(int32_t id, float value) {
    if (count == kRescored && !(value > values[count - 1])) return;
    int at = count < kRescored ? count++ : count - 1;
    for (; at > 0 && value > values[at - 1]; at--) {
      ids[at] = ids[at - 1];
      values[at] = values[at - 1];
    }
    ids[at] = id;
    values[at] = value;
  }
};

// In 16 lanes of double precision: the same sum on every instruction set.
float dot(const float* a, const float* b, int32_t n) {
  double lanes[16] = {};
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) for (int l = 0; l < 16; l++) lanes[l] += static_cast<double>(a[i + l]) * b[i + l];
  for (; i < n; i++) lanes[i & 15] += static_cast<double>(a[i]) * b[i];
  for (int width = 8; width > 0; width /= 2) for (int l = 0; l < width; l++) lanes[l] += lanes[l + width];
  return static_cast<float>(lanes[0]);
}

}  // namespace

void rescore(const Kernels& kernels, const PackedWeight& weight, const float* x, const float* bias, float* logits, float* scratch) {
  // The best values lie in the chunks with the best maxima: one vector pass, then a look into a few chunks.
  Best chunks;
  for (int32_t first = 0; first < weight.rows; first += kChunk) {
    float max;
    int32_t argmax;
    bool finite;
    kernels.row_max(logits + first, std::min(kChunk, weight.rows - first), &max, &argmax, &finite);
    if (!finite) return;
    chunks.offer(first, max);
  }
  std::sort(chunks.ids, chunks.ids + chunks.count);
  Best best;
  for (int c = 0; c < chunks.count; c++) {
    const int32_t end = std::min(chunks.ids[c] + kChunk, weight.rows);
    for (int32_t id = chunks.ids[c]; id < end; id++) best.offer(id, logits[id]);
  }
  for (int i = 0; i < best.count; i++) {
    kernels.dequantize_row(&weight, best.ids[i], scratch);
    logits[best.ids[i]] = dot(scratch, x, weight.cols) + (bias != nullptr ? bias[best.ids[i]] : 0.0f);
  }
}

}  // namespace pagoda
