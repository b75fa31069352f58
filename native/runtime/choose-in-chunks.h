// The choice among all tokens of a row, without a filter, from the sums of its chunks: the token of
// src/device/reference/choose-in-chunks.ts. Logits are read in the chosen chunk only.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/kernels.h"
#include "runtime/rescore.h"

namespace pagoda {

struct ChunkedRow {
  ChunkSum* sums;        // of all chunks; may be changed
  int32_t vocab_size;
  RescoredLogits rescored;  // that were replaced after `sums` were made
  // Writes the logits [first, first + count) that `sums` are of.
  std::function<void(int32_t first, int32_t count, float* out)> read;
};

// float32 of log2(e) / temperature.
float power_scale(double temperature);

inline int32_t num_choice_chunks(int32_t vocab_size) { return (vocab_size + kChoiceChunk - 1) / kChoiceChunk; }

// Sums with replaced logits are first corrected by what these add: near enough for all but a few choices in a million. Where the target lies
// within `margin` times all weights of another token's, the chunks of replaced logits are summed anew.
constexpr double kChoiceMargin = 4e-6;
int32_t choose_in_chunks(const Kernels& kernels, ChunkedRow& row, double temperature, double u, std::vector<double>& scratch, double margin = kChoiceMargin);

}  // namespace pagoda
