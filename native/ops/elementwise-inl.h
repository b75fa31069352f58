// Row kernels: norms, activations, rotary embedding, writing the KV cache, and the passes over a logits row. Every sum has one
// fixed order that depends on the number of columns only.
#pragma once
#include "kernels.h"
#include "sampling-inl.h"
#include "simd.h"
#include "vector-math-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Sum over a row of term(vector): four partial sums, vector i goes to sum i % 4.
template <typename Term>
PAGODA_INLINE float sum_row(const float* x, int32_t cols, Term term) {
  f32x16 sums[4] = {zero(), zero(), zero(), zero()};
  int32_t c = 0;
  for (; c + 64 <= cols; c += 64) PAGODA_UNROLL for (int i = 0; i < 4; i++) sums[i] = sums[i] + term(load(x + c + i * 16));
  for (int i = 0; c + 16 <= cols; c += 16, i++) sums[i] = sums[i] + term(load(x + c));
  float sum = reduce_add((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; c < cols; c++) {
    alignas(64) float lane[16];
    store(lane, term(splat(x[c])));
    sum += lane[0];
  }
  return sum;
}

// Applies f(vector, column, count) over a row and stores the result.
template <typename F>
PAGODA_INLINE void map_row(float* out, int32_t cols, F f) {
  int32_t c = 0;
  for (; c + 16 <= cols; c += 16) store(out + c, f(c, 16));
  if (c < cols) store_n(out + c, f(c, cols - c), cols - c);
}
PAGODA_INLINE f32x16 load_some(const float* p, int count) { return count == 16 ? load(p) : load_n(p, count); }

static void rms_norm(const float* x, float* out, const float* weight, int32_t cols, int32_t group_cols, float eps) {
  for (int32_t g = 0; g < cols; g += group_cols) {
    const float squares = sum_row(x + g, group_cols, [](f32x16 v) { return v * v; });
    const f32x16 scale = splat(1.0f / __builtin_sqrtf(squares / static_cast<float>(group_cols) + eps));
    map_row(out + g, group_cols, [&](int32_t c, int count) { return load_some(x + g + c, count) * scale * load_some(weight + c, count); });
  }
}

static void layer_norm(const float* x, float* out, const float* weight, const float* bias, int32_t cols, float eps) {
  const f32x16 mean = splat(sum_row(x, cols, [](f32x16 v) { return v; }) / static_cast<float>(cols));
  const float variance = sum_row(x, cols, [&](f32x16 v) { const f32x16 d = v - mean; return d * d; }) / static_cast<float>(cols);
  const f32x16 scale = splat(1.0f / __builtin_sqrtf(variance + eps));
  map_row(out, cols, [&](int32_t c, int count) {
    const f32x16 y = (load_some(x + c, count) - mean) * scale * load_some(weight + c, count);
    return bias ? y + load_some(bias + c, count) : y;
  });
}

template <ActivationKind kKind>
PAGODA_INLINE f32x16 activate(f32x16 x) {
  switch (kKind) {
    case ActivationKind::Silu:
      return x / (splat(1.0f) + exp(-x));
    case ActivationKind::Gelu: {
      const f32x16 half_tail = splat(0.5f) * erfc_positive(abs(x) * splat(0.70710678f));
      return x * select(x < zero(), half_tail, splat(1.0f) - half_tail);
    }
    case ActivationKind::GeluTanh: {
      const f32x16 inner = splat(0.79788456f) * fma(splat(0.044715f) * x * x, x, x);
      return splat(0.5f) * x * (splat(1.0f) + tanh(inner));
    }
    case ActivationKind::Relu:
      return max(zero(), x);
  }
  return x;
}

template <ActivationKind kKind>
PAGODA_INLINE void activation_row(const float* x, const float* up, float* out, int32_t cols) {
  if (up) map_row(out, cols, [&](int32_t c, int count) { return activate<kKind>(load_some(x + c, count)) * load_some(up + c, count); });
  else map_row(out, cols, [&](int32_t c, int count) { return activate<kKind>(load_some(x + c, count)); });
}

static void gated_activation(const float* gate, const float* up, float* out, int32_t cols, ActivationKind kind) {
  switch (kind) {
    case ActivationKind::Silu: return activation_row<ActivationKind::Silu>(gate, up, out, cols);
    case ActivationKind::Gelu: return activation_row<ActivationKind::Gelu>(gate, up, out, cols);
    case ActivationKind::GeluTanh: return activation_row<ActivationKind::GeluTanh>(gate, up, out, cols);
    case ActivationKind::Relu: return activation_row<ActivationKind::Relu>(gate, up, out, cols);
  }
}
static void activation(const float* x, float* out, int32_t cols, ActivationKind kind) { gated_activation(x, nullptr, out, cols, kind); }

static void add(const float* a, const float* b, float* out, int32_t cols) {
  map_row(out, cols, [&](int32_t c, int count) { return load_some(a + c, count) + load_some(b + c, count); });
}

PAGODA_INLINE f32x16 softcap_vector(f32x16 x, f32x16 cap, f32x16 inverse_cap) { return cap * tanh(x * inverse_cap); }

static void softcap(float* x, int32_t cols, float cap) {
  const f32x16 c16 = splat(cap), inverse = splat(1.0f / cap);
  map_row(x, cols, [&](int32_t c, int count) { return softcap_vector(load_some(x + c, count), c16, inverse); });
}

typedef uint64_t u64n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
// Lanes 2i and 2i + 1 exchanged.
PAGODA_INLINE f32x16 swap_pairs(f32x16 a) {
  PAGODA_EACH {
    const u64n u = (u64n)a.v[n];
    a.v[n] = (f32n)((u << 32) | (u >> 32));
  }
  return a;
}

constexpr int kMaxRotaryDim = 256;

static void rope_interleaved(float* x, int32_t num_heads, int32_t head_dim, int32_t rotary_dim, const float* cos, const float* sin) {
  alignas(64) float c2[kMaxRotaryDim], s2[kMaxRotaryDim];
  for (int32_t i = 0; i < rotary_dim / 2; i++) {
    c2[2 * i] = c2[2 * i + 1] = cos[i];
    s2[2 * i] = -sin[i];
    s2[2 * i + 1] = sin[i];
  }
  for (int32_t h = 0; h < num_heads; h++) {
    float* head = x + static_cast<size_t>(h) * head_dim;
    map_row(head, rotary_dim, [&](int32_t c, int count) {
      const f32x16 v = load_some(head + c, count);
      return fma(swap_pairs(v), load_some(s2 + c, count), v * load_some(c2 + c, count));
    });
  }
}

static void rope(float* x, int32_t num_heads, int32_t head_dim, int32_t rotary_dim, bool interleaved, const float* cos, const float* sin) {
  if (interleaved) return rope_interleaved(x, num_heads, head_dim, rotary_dim, cos, sin);
  const int32_t half = rotary_dim / 2;
  for (int32_t h = 0; h < num_heads; h++) {
    float* low = x + static_cast<size_t>(h) * head_dim;
    float* high = low + half;
    for (int32_t c = 0; c < half; c += 16) {
      const int count = half - c < 16 ? half - c : 16;
      const f32x16 a = load_some(low + c, count), b = load_some(high + c, count);
      const f32x16 co = load_some(cos + c, count), si = load_some(sin + c, count);
      store_n(low + c, fma(-b, si, a * co), count);
      store_n(high + c, fma(a, si, b * co), count);
    }
  }
}

static void fill_elementwise(Kernels& kernels) {
  kernels.rms_norm = rms_norm;
  kernels.layer_norm = layer_norm;
  kernels.gated_activation = gated_activation;
  kernels.activation = activation;
  kernels.add = add;
  kernels.softcap = softcap;
  kernels.rope = rope;
  kernels.keep_top = keep_top;
  kernels.exact_weights = exact_weights;
  kernels.weight_sums = weight_sums;
  kernels.weights_above = weights_above;
  kernels.sum_chunks = sum_chunks;
  kernels.chunk_weights = chunk_weights;
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
