// The forms of the KV cache and how attention multiplies with each; attention.h has the layout.
#pragma once
#include "attention.h"
#include "gemm-bf16-avx512-inl.h"
#include "kernels.h"
#include "simd.h"
#include "vector-math-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// A form has units of kUnit elements (dimensions of a key, tokens of a value) that lie together for each of 16 lanes. They are multiplied in
// kParts steps, in the order of the elements, with inputs (queries, weights) of type Input. weights(x) is exp(x) as exact as Input is.
template <int kBytes> struct KvSingles {
  typedef float Input;
  static constexpr int kElement = kBytes, kUnit = 1, kParts = 1;
  static constexpr bool kPrefetches = true, kWidens = kBytes < 4;
  PAGODA_INLINE f32x16 weights(f32x16 x) { return exp(x); }
  PAGODA_INLINE f32x16 spread(const float* x) { return splat(*x); }
  PAGODA_INLINE f32x16 multiply_add(f32x16 x, f32x16 v, f32x16 sum) { return fma(x, v, sum); }
};
struct KvF32 : KvSingles<4> {
  template <int> PAGODA_INLINE f32x16 load_part(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
// A tile that was brought to float32, and its successor prefetched, before.
struct KvWide : KvF32 {
  static constexpr bool kPrefetches = false;
};
struct KvF16 : KvSingles<2> {
  template <int> PAGODA_INLINE f32x16 load_part(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
};
struct KvInt8 : KvSingles<1> {
  template <int> PAGODA_INLINE f32x16 load_part(const uint8_t* p) { return to_float(load_i8(reinterpret_cast<const int8_t*>(p))); }
};
// Pairs in one 32-bit lane, the first in the low half; in float32.
struct KvBf16 {
  typedef float Input;
  static constexpr int kElement = 2, kUnit = 2, kParts = 2;
  static constexpr bool kPrefetches = true, kWidens = true;
  template <int kPart> PAGODA_INLINE f32x16 load_part(const uint8_t* p) {
    const i32x16 pair = load_i32(p);
    return float_of_bits(kPart == 0 ? shift_left<16>(pair) : pair & splat_i32(static_cast<int32_t>(0xffff0000u)));
  }
  PAGODA_INLINE f32x16 weights(f32x16 x) { return exp(x); }
  PAGODA_INLINE f32x16 spread(const float* x) { return splat(*x); }
  PAGODA_INLINE f32x16 multiply_add(f32x16 x, f32x16 v, f32x16 sum) { return fma(x, v, sum); }
};
#ifdef PAGODA_HAS_BF16
// Pairs at once: queries and weights are rounded to bf16, too.
struct KvBf16Pairs {
  typedef uint16_t Input;
  static constexpr int kElement = 2, kUnit = 2, kParts = 1;
  static constexpr bool kPrefetches = true, kWidens = false;
  PAGODA_INLINE f32x16 weights(f32x16 x) { return exp_coarse(x); }
  template <int> PAGODA_INLINE i32x16 load_part(const uint8_t* p) { return load_i32(p); }
  PAGODA_INLINE i32x16 spread(const uint16_t* x) {
    int32_t pair;
    memcpy(&pair, x, 4);
    return splat_i32(pair);
  }
  PAGODA_INLINE f32x16 multiply_add(i32x16 x, i32x16 v, f32x16 sum) {
    sum.v[0] = (f32n)_mm512_dpbf16_ps((__m512)sum.v[0], (__m512bh)v.v[0], (__m512bh)x.v[0]);
    return sum;
  }
};
#endif

template <typename Kv> constexpr int kVectorBytes = 16 * Kv::kUnit * Kv::kElement;

PAGODA_INLINE void store_inputs(float* out, f32x16 x) { store(out, x); }
#ifdef PAGODA_HAS_BF16
PAGODA_INLINE void store_inputs(uint16_t* out, f32x16 x) { _mm256_storeu_si256((__m256i*)out, (__m256i)_mm512_cvtneps_pbh((__m512)x.v[0])); }
#endif

PAGODA_INLINE size_t element_bytes(KvType type) { return type == KvType::F32 ? 4 : type == KvType::Int8 ? 1 : 2; }

// --- writing ---

constexpr int kMaxHeadDim = 256;  // runtime/plan.cc refuses larger ones
PAGODA_INLINE float clamp_f16(float x) { return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x; }

// Int8 of one head's vector; NaN or infinity in it makes the scale NaN, so that it is seen in the logits.
PAGODA_INLINE float quantize_vector(const float* x, int32_t n, int8_t* out, int32_t stride) {
  float largest = 0, bad = 0;
  for (int32_t i = 0; i < n; i++) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    largest = a > largest ? a : largest;
    bad += x[i] * 0.0f;
  }
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const bool ok = bad == 0.0f;
  for (int32_t i = 0; i < n; i++) out[i * stride] = ok ? static_cast<int8_t>(__builtin_rintf(x[i] * inverse)) : 0;
  return ok ? largest / 127.0f : __builtin_nanf("");
}

PAGODA_INLINE void round_to_bf16(const float* x, int32_t n, uint16_t* out) {
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) store_bf16(out + i, load(x + i));
  for (; i < n; i++) out[i] = f32_to_bf16(x[i]);
}

PAGODA_INLINE void round_to_f16(const float* x, int32_t n, uint16_t* out) {
  const f32x16 most = splat(65504.0f);
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const f32x16 v = load(x + i);
    store_f16(out + i, select(most < v, most, select(v < -most, -most, v)));
  }
  for (; i < n; i++) out[i] = f32_to_f16(clamp_f16(x[i]));
}

// Token `t` of a run of 16: its key to k [head_dim / unit][16][unit].
PAGODA_INLINE void write_key(const float* x, int32_t head_dim, KvType type, uint8_t* k, int32_t t) {
  if (type == KvType::F32) {
    float* out = reinterpret_cast<float*>(k) + t;
    for (int32_t d = 0; d < head_dim; d++) out[d * 16] = x[d];
    return;
  }
  alignas(64) uint16_t values[kMaxHeadDim];
  if (type == KvType::BF16) {
    round_to_bf16(x, head_dim, values);
    for (int32_t d = 0; d < head_dim; d += 2) memcpy(k + (d * 16 + t * 2) * sizeof(uint16_t), values + d, 2 * sizeof(uint16_t));
  } else {
    round_to_f16(x, head_dim, values);
    uint16_t* out = reinterpret_cast<uint16_t*>(k) + t;
    for (int32_t d = 0; d < head_dim; d++) out[d * 16] = values[d];
  }
}

// Its value to v [16 / unit][head_dim][unit]. The other value of a pair may be written by another thread at the same time.
PAGODA_INLINE void write_value(const float* x, int32_t head_dim, KvType type, uint8_t* v, int32_t t) {
  if (type == KvType::F32) {
    memcpy(v + static_cast<size_t>(t) * head_dim * sizeof(float), x, sizeof(float) * static_cast<size_t>(head_dim));
  } else if (type == KvType::F16) {
    round_to_f16(x, head_dim, reinterpret_cast<uint16_t*>(v) + t * head_dim);
  } else {
    alignas(64) uint16_t values[kMaxHeadDim];
    round_to_bf16(x, head_dim, values);
    uint16_t* out = reinterpret_cast<uint16_t*>(v) + static_cast<size_t>(t / 2) * head_dim * 2 + t % 2;
#ifdef PAGODA_ISA_AVX512
    // 16 bits of each lane, the others stay as they are in memory.
    for (int32_t c = 0; c < head_dim; c += 16) {
      const int count = head_dim - c < 16 ? head_dim - c : 16;
      const __m512i lanes = _mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i*)(values + c)));
      _mm512_mask_storeu_epi16(out + c * 2, (__mmask32)(0x55555555u >> (32 - 2 * count)), lanes);
    }
#else
    for (int32_t c = 0; c < head_dim; c++) out[c * 2] = values[c];
#endif
  }
}

// Either of k and v may be null: then the other is written alone.
static void kv_write(uint8_t* block_layer, int32_t block_size, int32_t offset, const float* k, const float* v, int32_t num_kv_heads, int32_t head_dim, KvType type) {
  const size_t element = element_bytes(type);
  const size_t part = static_cast<size_t>(block_size) * head_dim * element;
  const size_t scales = type == KvType::Int8 ? static_cast<size_t>(block_size) * 4 : 0;
  const size_t run = static_cast<size_t>(offset / 16) * 16 * head_dim * element;
  for (int32_t h = 0; h < num_kv_heads; h++) {
    uint8_t* keys = block_layer + static_cast<size_t>(h) * 2 * (part + scales);
    uint8_t* values = keys + part + scales;
    const float* key = k == nullptr ? nullptr : k + static_cast<size_t>(h) * head_dim;
    const float* value = v == nullptr ? nullptr : v + static_cast<size_t>(h) * head_dim;
    if (type == KvType::Int8) {
      if (key) reinterpret_cast<float*>(keys + part)[offset] = quantize_vector(key, head_dim, reinterpret_cast<int8_t*>(keys + run) + offset % 16, 16);
      if (value) reinterpret_cast<float*>(values + part)[offset] = quantize_vector(value, head_dim, reinterpret_cast<int8_t*>(values + run) + offset % 16 * head_dim, 1);
    } else {
      if (key) write_key(key, head_dim, type, keys + run, offset % 16);
      if (value) write_value(value, head_dim, type, values + run, offset % 16);
    }
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
