// The best logits of a row, computed again with float32 activations. An output layer in int8 arithmetic is exact enough for
// the tail of the distribution; whether the first or the second token is chosen hangs on its last digits, and these few products
// cost nothing beside the whole vocabulary.
#pragma once
#include "ops/kernels.h"
#include "ops/top-values.h"

namespace pagoda {

constexpr int32_t kRescored = 4;

// What one row's logits are made of: weight row of the token times x [weight->cols], plus bias (or null). `scratch`: weight->cols floats.
struct LogitSource {
  const PackedWeight* weight;
  const float *x, *bias;
  float* scratch;
};

// What rescoring has replaced.
struct RescoredLogits {
  int32_t count = 0;
  int32_t ids[kRescored];
  float before[kRescored], after[kRescored];
};

// Replaces the kRescored largest logits, of equal ones those with the lower ids. A row that is not finite stays as it is: the sampler
// reports it.
void rescore(const Kernels& kernels, const LogitSource& source, float* logits);

// The same for a row of which the best logits are known, all or at least kRescored of them, and orders those anew.
RescoredLogits rescore(const Kernels& kernels, const LogitSource& source, TopValues* best);

}  // namespace pagoda
