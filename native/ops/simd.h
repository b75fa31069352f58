// A thin 16-lane vector layer: one source compiles to one zmm (AVX-512), two ymm (AVX2) or four 128-bit registers (portable:
// SSE2, NEON or whatever the compiler has). A vector is a small struct of native vectors, which the compiler splits into
// registers. Included once per instruction-set unit, inside the namespace PAGODA_ISA_NAMESPACE, so nothing here is shared
// between units: a standard-library template compiled with AVX-512 flags could otherwise be linked into the portable path.
// Rules for everything that is included into those units: no std:: templates, every function PAGODA_INLINE or static.
// fma() is one rounding on AVX2, AVX-512 and NEON, two (multiply, then add) elsewhere.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#ifndef PAGODA_ISA_NAMESPACE
#error "define PAGODA_ISA_NAMESPACE and one of PAGODA_ISA_AVX512, PAGODA_ISA_AVX2, PAGODA_ISA_PORTABLE before including simd.h"
#endif
#ifdef PAGODA_ISA_AVX512
#define PAGODA_NATIVE_BYTES 64
#elif defined(PAGODA_ISA_AVX2)
#define PAGODA_NATIVE_BYTES 32
#else
#define PAGODA_NATIVE_BYTES 16
#endif
#define PAGODA_INLINE static inline __attribute__((always_inline))
#define PAGODA_NOINLINE static __attribute__((noinline))
#ifdef __clang__
#define PAGODA_UNROLL _Pragma("unroll")
#else
#define PAGODA_UNROLL _Pragma("GCC unroll 32")
#endif

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr int kLanes = 16;
constexpr int kNativeLanes = PAGODA_NATIVE_BYTES / 4;
constexpr int kNatives = kLanes / kNativeLanes;  // native vectors per 16 lanes

typedef float f32n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef int32_t i32n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef uint32_t u32n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef int16_t i16n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef int8_t i8n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef float f32n_u __attribute__((vector_size(PAGODA_NATIVE_BYTES), aligned(4), may_alias));
typedef int32_t i32n_u __attribute__((vector_size(PAGODA_NATIVE_BYTES), aligned(1), may_alias));

struct f32x16 { f32n v[kNatives]; };
struct i32x16 { i32n v[kNatives]; };  // also the mask type: a true lane is -1, a false lane 0

// The body for every native vector n; no loop where there is only one, which the compiler would have to unroll thousands of times.
#ifdef PAGODA_ISA_AVX512
#define PAGODA_EACH if constexpr (constexpr int n = 0; true)
#else
#define PAGODA_EACH PAGODA_UNROLL for (int n = 0; n < kNatives; ++n)
#endif

// --- construction, memory ---
PAGODA_INLINE f32x16 splat(float x) { f32x16 r; PAGODA_EACH r.v[n] = x - (f32n){}; return r; }
PAGODA_INLINE i32x16 splat_i32(int32_t x) { i32x16 r; PAGODA_EACH r.v[n] = x - (i32n){}; return r; }
PAGODA_INLINE f32x16 zero() { f32x16 r; PAGODA_EACH r.v[n] = (f32n){}; return r; }
PAGODA_INLINE f32x16 load(const float* p) { f32x16 r; PAGODA_EACH r.v[n] = *reinterpret_cast<const f32n_u*>(p + n * kNativeLanes); return r; }
PAGODA_INLINE void store(float* p, f32x16 a) { PAGODA_EACH *reinterpret_cast<f32n_u*>(p + n * kNativeLanes) = a.v[n]; }
PAGODA_INLINE i32x16 load_i32(const void* p) { i32x16 r; PAGODA_EACH r.v[n] = *reinterpret_cast<const i32n_u*>(static_cast<const char*>(p) + n * PAGODA_NATIVE_BYTES); return r; }
PAGODA_INLINE void store_i32(void* p, i32x16 a) { PAGODA_EACH *reinterpret_cast<i32n_u*>(static_cast<char*>(p) + n * PAGODA_NATIVE_BYTES) = a.v[n]; }
// First `count` (0..16) lanes; the others read as 0 and are not written.
PAGODA_INLINE f32x16 load_n(const float* p, int count) {
#ifdef PAGODA_ISA_AVX512
  f32x16 r; r.v[0] = (f32n)_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p); return r;
#else
  alignas(64) float t[16] = {};
  memcpy(t, p, sizeof(float) * (size_t)count);
  return load(t);
#endif
}
PAGODA_INLINE void store_n(float* p, f32x16 a, int count) {
#ifdef PAGODA_ISA_AVX512
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), (__m512)a.v[0]);
#else
  alignas(64) float t[16];
  store(t, a);
  memcpy(p, t, sizeof(float) * (size_t)count);
#endif
}

// --- arithmetic ---
PAGODA_INLINE f32x16 operator+(f32x16 a, f32x16 b) { PAGODA_EACH a.v[n] += b.v[n]; return a; }
PAGODA_INLINE f32x16 operator-(f32x16 a, f32x16 b) { PAGODA_EACH a.v[n] -= b.v[n]; return a; }
PAGODA_INLINE f32x16 operator*(f32x16 a, f32x16 b) { PAGODA_EACH a.v[n] *= b.v[n]; return a; }
PAGODA_INLINE f32x16 operator/(f32x16 a, f32x16 b) { PAGODA_EACH a.v[n] /= b.v[n]; return a; }
PAGODA_INLINE f32x16 operator-(f32x16 a) { PAGODA_EACH a.v[n] = -a.v[n]; return a; }
PAGODA_INLINE i32x16 operator+(i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] = (i32n)((u32n)a.v[n] + (u32n)b.v[n]); return a; }
PAGODA_INLINE i32x16 operator-(i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] = (i32n)((u32n)a.v[n] - (u32n)b.v[n]); return a; }
PAGODA_INLINE i32x16 operator*(i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] = (i32n)((u32n)a.v[n] * (u32n)b.v[n]); return a; }
PAGODA_INLINE i32x16 operator&(i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] &= b.v[n]; return a; }
PAGODA_INLINE i32x16 operator|(i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] |= b.v[n]; return a; }
PAGODA_INLINE i32x16 operator^(i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] ^= b.v[n]; return a; }
PAGODA_INLINE i32x16 operator~(i32x16 a) { PAGODA_EACH a.v[n] = ~a.v[n]; return a; }
template <int kBits> PAGODA_INLINE i32x16 shift_left(i32x16 a) { PAGODA_EACH a.v[n] = (i32n)((u32n)a.v[n] << kBits); return a; }
template <int kBits> PAGODA_INLINE i32x16 shift_right(i32x16 a) { PAGODA_EACH a.v[n] = (i32n)((u32n)a.v[n] >> kBits); return a; }  // logical
template <int kBits> PAGODA_INLINE i32x16 shift_right_signed(i32x16 a) { PAGODA_EACH a.v[n] = a.v[n] >> kBits; return a; }

PAGODA_INLINE f32n native_fma(f32n a, f32n b, f32n c) {
#ifdef PAGODA_ISA_AVX512
  return (f32n)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(PAGODA_ISA_AVX2)
  return (f32n)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (f32n)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
PAGODA_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { PAGODA_EACH a.v[n] = native_fma(a.v[n], b.v[n], c.v[n]); return a; }  // a * b + c
// The scalar twin of fma(): the same rounding as one lane.
PAGODA_INLINE float fma1(float a, float b, float c) {
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}
// max(a, b) is a > b ? a : b on x86 (b where either is NaN).
PAGODA_INLINE f32x16 max(f32x16 a, f32x16 b) {
#ifdef PAGODA_ISA_AVX512
  a.v[0] = (f32n)_mm512_max_ps((__m512)a.v[0], (__m512)b.v[0]);
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH a.v[n] = (f32n)_mm256_max_ps((__m256)a.v[n], (__m256)b.v[n]);
#elif defined(__SSE2__)
  PAGODA_EACH a.v[n] = (f32n)_mm_max_ps((__m128)a.v[n], (__m128)b.v[n]);
#else
  PAGODA_EACH a.v[n] = a.v[n] > b.v[n] ? a.v[n] : b.v[n];
#endif
  return a;
}
PAGODA_INLINE f32x16 min(f32x16 a, f32x16 b) {
#ifdef PAGODA_ISA_AVX512
  a.v[0] = (f32n)_mm512_min_ps((__m512)a.v[0], (__m512)b.v[0]);
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH a.v[n] = (f32n)_mm256_min_ps((__m256)a.v[n], (__m256)b.v[n]);
#elif defined(__SSE2__)
  PAGODA_EACH a.v[n] = (f32n)_mm_min_ps((__m128)a.v[n], (__m128)b.v[n]);
#else
  PAGODA_EACH a.v[n] = a.v[n] < b.v[n] ? a.v[n] : b.v[n];
#endif
  return a;
}
PAGODA_INLINE i32x16 bits_of(f32x16 a) { i32x16 r; PAGODA_EACH r.v[n] = (i32n)a.v[n]; return r; }
PAGODA_INLINE f32x16 float_of_bits(i32x16 a) { f32x16 r; PAGODA_EACH r.v[n] = (f32n)a.v[n]; return r; }
PAGODA_INLINE f32x16 abs(f32x16 a) { return float_of_bits(bits_of(a) & splat_i32(0x7fffffff)); }
PAGODA_INLINE i32x16 operator<(f32x16 a, f32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] < b.v[n]; return r; }
PAGODA_INLINE i32x16 operator>(f32x16 a, f32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] > b.v[n]; return r; }
PAGODA_INLINE i32x16 operator<=(f32x16 a, f32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] <= b.v[n]; return r; }
PAGODA_INLINE i32x16 operator>=(f32x16 a, f32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] >= b.v[n]; return r; }
PAGODA_INLINE i32x16 operator==(f32x16 a, f32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] == b.v[n]; return r; }
PAGODA_INLINE i32x16 operator<(i32x16 a, i32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] < b.v[n]; return r; }
PAGODA_INLINE i32x16 operator==(i32x16 a, i32x16 b) { i32x16 r; PAGODA_EACH r.v[n] = a.v[n] == b.v[n]; return r; }
PAGODA_INLINE f32x16 select(i32x16 mask, f32x16 a, f32x16 b) { PAGODA_EACH a.v[n] = mask.v[n] ? a.v[n] : b.v[n]; return a; }  // mask ? a : b
PAGODA_INLINE i32x16 select(i32x16 mask, i32x16 a, i32x16 b) { PAGODA_EACH a.v[n] = mask.v[n] ? a.v[n] : b.v[n]; return a; }

PAGODA_INLINE f32x16 to_float(i32x16 a) { f32x16 r; PAGODA_EACH r.v[n] = __builtin_convertvector(a.v[n], f32n); return r; }
// Round to nearest, ties to even; |a| must be below 2^31.
PAGODA_INLINE i32x16 round_to_int(f32x16 a) {
  i32x16 r;
#ifdef PAGODA_ISA_AVX512
  r.v[0] = (i32n)_mm512_cvtps_epi32((__m512)a.v[0]);
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH r.v[n] = (i32n)_mm256_cvtps_epi32((__m256)a.v[n]);
#elif defined(__SSE2__)
  PAGODA_EACH r.v[n] = (i32n)_mm_cvtps_epi32((__m128)a.v[n]);
#elif defined(__aarch64__)
  PAGODA_EACH r.v[n] = (i32n)vcvtnq_s32_f32((float32x4_t)a.v[n]);
#else
  PAGODA_EACH PAGODA_UNROLL for (int i = 0; i < kNativeLanes; ++i) r.v[n][i] = (int32_t)__builtin_rintf(a.v[n][i]);
#endif
  return r;
}

// --- reductions: one fixed tree (lane i with i + 8, then + 4, + 2, + 1) on every instruction set ---
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
PAGODA_INLINE __m256 lower_half(f32x16 a) {
#ifdef PAGODA_ISA_AVX512
  return _mm512_castps512_ps256((__m512)a.v[0]);
#else
  return (__m256)a.v[0];
#endif
}
PAGODA_INLINE __m256 upper_half(f32x16 a) {
#ifdef PAGODA_ISA_AVX512
  return _mm512_extractf32x8_ps((__m512)a.v[0], 1);
#else
  return (__m256)a.v[1];
#endif
}
#endif
PAGODA_INLINE float reduce_add(f32x16 a) {
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
  const __m256 eight = _mm256_add_ps(lower_half(a), upper_half(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  alignas(64) float t[16];
  store(t, a);
  PAGODA_UNROLL for (int i = 0; i < 8; ++i) t[i] += t[i + 8];
  PAGODA_UNROLL for (int i = 0; i < 4; ++i) t[i] += t[i + 4];
  return (t[0] + t[2]) + (t[1] + t[3]);
#endif
}
PAGODA_INLINE float reduce_max(f32x16 a) {
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
  const __m256 eight = _mm256_max_ps(lower_half(a), upper_half(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
#else
  alignas(64) float t[16];
  store(t, a);
  float m = t[0];
  PAGODA_UNROLL for (int i = 1; i < 16; ++i) m = t[i] > m ? t[i] : m;
  return m;
#endif
}
PAGODA_INLINE i32x16 max(i32x16 a, i32x16 b) {
#ifdef PAGODA_ISA_AVX512
  a.v[0] = (i32n)_mm512_max_epi32((__m512i)a.v[0], (__m512i)b.v[0]);
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH a.v[n] = (i32n)_mm256_max_epi32((__m256i)a.v[n], (__m256i)b.v[n]);
#else
  PAGODA_EACH { const i32n mask = a.v[n] > b.v[n]; a.v[n] = (a.v[n] & mask) | (b.v[n] & ~mask); }
#endif
  return a;
}
PAGODA_INLINE int32_t reduce_max(i32x16 a) {
#ifdef PAGODA_ISA_AVX512
  return _mm512_reduce_max_epi32((__m512i)a.v[0]);
#elif defined(PAGODA_ISA_AVX2)
  const __m256i m = _mm256_max_epi32((__m256i)a.v[0], (__m256i)a.v[1]);
  __m128i h = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  h = _mm_max_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
#else
  alignas(64) int32_t t[16];
  store_i32(t, a);
  int32_t m = t[0];
  PAGODA_UNROLL for (int i = 1; i < 16; ++i) m = t[i] > m ? t[i] : m;
  return m;
#endif
}
PAGODA_INLINE bool any(i32x16 mask) {
#ifdef PAGODA_ISA_AVX512
  return _mm512_test_epi32_mask((__m512i)mask.v[0], (__m512i)mask.v[0]) != 0;
#elif defined(PAGODA_ISA_AVX2)
  return !_mm256_testz_si256((__m256i)(mask.v[0] | mask.v[1]), (__m256i)(mask.v[0] | mask.v[1]));
#else
  alignas(64) int32_t t[16];
  store_i32(t, mask);
  int32_t all = 0;
  for (int i = 0; i < 16; ++i) all |= t[i];
  return all != 0;
#endif
}

// --- 16-bit floats ---
PAGODA_INLINE float f32_of_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
PAGODA_INLINE uint32_t bits_of_f32(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
PAGODA_INLINE float bf16_to_f32(uint16_t h) { return f32_of_bits((uint32_t)h << 16); }
PAGODA_INLINE uint16_t f32_to_bf16(float f) {
  const uint32_t u = bits_of_f32(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 0x40);
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
PAGODA_INLINE float f16_to_f32(uint16_t h) {
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
  return _cvtsh_ss(h);
#else
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return f32_of_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | (magnitude > 0x7c00u ? 0x400000u : 0));
  // 2^112 moves the exponent from half to single; subnormal halves become normal singles by the same exact multiplication.
  return f32_of_bits(sign | bits_of_f32(f32_of_bits(magnitude << 13) * 0x1p112f));
#endif
}
PAGODA_INLINE uint16_t f32_to_f16(float f) {
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
  return _cvtss_sh(f, 0);
#else
  const uint32_t u = bits_of_f32(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);  // rounds to infinity
  if (magnitude < 0x38800000u) return (uint16_t)(sign | (bits_of_f32(f32_of_bits(magnitude) + 0.5f) - 0x3f000000u));  // subnormal: the add rounds
  return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13));
#endif
}
// 16 unsigned 16-bit values as 32-bit lanes.
PAGODA_INLINE i32x16 load_u16(const uint16_t* p) {
  i32x16 r;
#ifdef PAGODA_ISA_AVX512
  r.v[0] = (i32n)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH r.v[n] = (i32n)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)(p + n * 8)));
#elif defined(__SSE2__)
  PAGODA_UNROLL for (int n = 0; n < 2; ++n) {
    const __m128i eight = _mm_loadu_si128((const __m128i*)(p + n * 8));
    r.v[2 * n] = (i32n)_mm_unpacklo_epi16(eight, _mm_setzero_si128());
    r.v[2 * n + 1] = (i32n)_mm_unpackhi_epi16(eight, _mm_setzero_si128());
  }
#elif defined(__aarch64__)
  PAGODA_EACH r.v[n] = (i32n)vmovl_u16(vld1_u16(p + n * 4));
#else
  alignas(64) uint32_t t[16];
  for (int i = 0; i < 16; ++i) t[i] = p[i];
  r = load_i32(t);
#endif
  return r;
}
PAGODA_INLINE f32x16 load_f16(const uint16_t* p) {
  f32x16 r;
#ifdef PAGODA_ISA_AVX512
  r.v[0] = (f32n)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH r.v[n] = (f32n)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + n * 8)));
#elif defined(__aarch64__)
  PAGODA_EACH r.v[n] = (f32n)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + n * 4)));
#else
  // As f16_to_f32: the exponent is moved by an exact multiplication; infinity and NaN get their exponent back.
  const i32x16 half = load_u16(p), magnitude = shift_left<13>(half & splat_i32(0x7fff));
  const i32x16 moved = bits_of(float_of_bits(magnitude) * splat(0x1p112f));
  const i32x16 special = splat_i32((0x7c00 << 13) - 1) < magnitude;
  r = float_of_bits(moved | (special & splat_i32(0x7f800000)) | shift_left<16>(half & splat_i32(0x8000)));
#endif
  return r;
}
PAGODA_INLINE void store_f16(uint16_t* p, f32x16 a) {
#ifdef PAGODA_ISA_AVX512
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph((__m512)a.v[0], 0));
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH _mm_storeu_si128((__m128i*)(p + n * 8), _mm256_cvtps_ph((__m256)a.v[n], 0));
#else
  alignas(64) float t[16];
  store(t, a);
  for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(t[i]);
#endif
}
PAGODA_INLINE f32x16 load_bf16(const uint16_t* p) { return float_of_bits(shift_left<16>(load_u16(p))); }
PAGODA_INLINE void store_bf16(uint16_t* p, f32x16 a) {
  const i32x16 u = bits_of(a);
  const i32x16 rounded = shift_right<16>(u + splat_i32(0x7fff) + (shift_right<16>(u) & splat_i32(1)));
  const i32x16 quiet = shift_right<16>(u) | splat_i32(0x40);
  const i32x16 r = select(a == a, rounded, quiet);
#ifdef PAGODA_ISA_AVX512
  _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16((__m512i)r.v[0]));
#else
  alignas(64) uint32_t t[16];
  store_i32(t, r);
  for (int i = 0; i < 16; ++i) p[i] = (uint16_t)t[i];
#endif
}
// 16 bytes as 32-bit lanes.
PAGODA_INLINE i32x16 load_u8(const uint8_t* p) {
  i32x16 r;
#ifdef PAGODA_ISA_AVX512
  r.v[0] = (i32n)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH r.v[n] = (i32n)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)(p + n * 8)));
#else
  alignas(64) int32_t t[16];
  for (int i = 0; i < 16; ++i) t[i] = p[i];
  r = load_i32(t);
#endif
  return r;
}
PAGODA_INLINE i32x16 load_i8(const int8_t* p) {
  i32x16 r;
#ifdef PAGODA_ISA_AVX512
  r.v[0] = (i32n)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p));
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH r.v[n] = (i32n)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)(p + n * 8)));
#else
  alignas(64) int32_t t[16];
  for (int i = 0; i < 16; ++i) t[i] = p[i];
  r = load_i32(t);
#endif
  return r;
}

PAGODA_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
PAGODA_INLINE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1, 3); }  // for this core alone
PAGODA_INLINE void prefetch_to_second_level(const void* p) { __builtin_prefetch(p, 0, 2); }
PAGODA_INLINE void prefetch(const void* p, bool to_second_level) {
  if (to_second_level) prefetch_to_second_level(p);
  else prefetch(p);
}

// AMD's cores up to Zen 4 wait for at most 24 lines of the first-level cache at a time: what many prefetches at once bring from memory comes
// sooner into the second level (docs/log.md).
static bool waits_for_few_lines() {
#if defined(__x86_64__)
  static const bool few = __builtin_cpu_is("amdfam17h") || __builtin_cpu_is("amdfam19h");
  return few;
#else
  return false;
#endif
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
