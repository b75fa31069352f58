// The best logits of a row, computed again with float32 activations. An output layer in int8 arithmetic is exact enough for
// the tail of the distribution; whether the first or the second token is chosen hangs on its last digits, and these few products
// cost nothing beside the whole vocabulary.
#pragma once
#include "ops/kernels.h"

namespace pagoda {

// logits[token] of the four largest = weight row of the token times x [weight.cols], plus bias. `scratch`: weight.cols floats.
// A row that is not finite stays as it is: the sampler reports it.
void rescore(const Kernels& kernels, const PackedWeight& weight, const float* x, const float* bias, float* logits, float* scratch);

}  // namespace pagoda
