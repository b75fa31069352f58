// What sampling does with whole rows: the best values, exp in double precision and powers of two in float32, both defined to the last bit
// (src/device/reference/exact-exp.ts, choose-in-chunks.ts): additions and multiplications in a fixed order, none fused, so that every
// device and instruction set samples the same token from the same logits.
#pragma once
#include "kernels.h"
#include "simd.h"
#include "top-values.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

typedef double f64n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef int64_t i64n __attribute__((vector_size(PAGODA_NATIVE_BYTES)));
typedef double f64n_u __attribute__((vector_size(PAGODA_NATIVE_BYTES), aligned(8), may_alias));
constexpr int kDoubleLanes = PAGODA_NATIVE_BYTES / 8;

static void keep_top(const float* x, int32_t n, int32_t first_id, TopValues* top) {
  const auto limit = [&] { return is_full(*top) ? top->values[top->count - 1] : -__builtin_inff(); };
  f32x16 least = splat(limit()), check = zero();
  int32_t c = 0;
  for (; c + 16 <= n; c += 16) {
    const f32x16 v = load(x + c);
    check = fma(v, zero(), check);  // NaN or infinity times 0 is NaN and stays
    if (!any(v >= least)) continue;
    for (int32_t i = c; i < c + 16; i++) if (x[i] >= least.v[0][0]) offer_value(top, x[i], first_id + i);
    least = splat(limit());
  }
  float bad = reduce_add(check);
  for (; c < n; c++) {
    bad += x[c] * 0.0f;
    offer_value(top, x[c], first_id + c);
  }
  top->finite = top->finite && bad == 0.0f;
}

// exp of x <= 0; 0 at and below -708.
PAGODA_INLINE f64n exact_exp(f64n x) {
  const f64n magic = 6755399441055744.0 - (f64n){};  // 1.5 * 2^52: adding it rounds to an integer
  const f64n t = x * 1.4426950408889634 + 0.5;
  f64n n = (t + magic) - magic;
  n = n > t ? n - 1.0 : n;  // floor
  const f64n r = (x - n * 6.93147180369123816490e-1) - n * 1.90821492927058770002e-10;
  f64n p = (f64n){} + 1.0 / 39916800;
  p = p * r + 1.0 / 3628800;
  p = p * r + 1.0 / 362880;
  p = p * r + 1.0 / 40320;
  p = p * r + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 1.0 / 2;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // The low bits of n + magic are the integer n: as an exponent they make 2^n, n from -1021 to 0.
  const i64n power = ((i64n)(n + magic) + 1023) << 52;
  const f64n result = p * (f64n)power;
  return x > -708.0 ? result : (f64n){};
}

static void exact_weights(const double* x, int32_t n, double max_value, double temperature, double* weights) {
  int32_t i = 0;
  for (; i + kDoubleLanes <= n; i += kDoubleLanes) {
    const f64n v = *reinterpret_cast<const f64n_u*>(x + i);
    *reinterpret_cast<f64n_u*>(weights + i) = exact_exp((v - max_value) / temperature);
  }
  for (; i < n; i++) weights[i] = exact_exp((x[i] - max_value) / temperature + (f64n){})[0];
}

// The same of logits as they are, summed in chunks of kWeightChunk without storing them: eight lanes, id modulo 8, joined in the order
// of src/device/reference/exact-exp.ts.
static void weight_sums(const float* x, int32_t n, double max_value, double temperature, double* sums) {
  typedef float f32h __attribute__((vector_size(PAGODA_NATIVE_BYTES / 2), aligned(4), may_alias));
  constexpr int kVectors = 8 / kDoubleLanes;
  for (int32_t start = 0; start < n; start += kWeightChunk) {
    const int32_t end = n - start < kWeightChunk ? n : start + kWeightChunk;
    f64n lanes[kVectors] = {};
    int32_t i = start;
    for (; i + 8 <= end; i += 8) {
      PAGODA_UNROLL for (int v = 0; v < kVectors; ++v) {
        const f64n value = __builtin_convertvector(*reinterpret_cast<const f32h*>(x + i + v * kDoubleLanes), f64n);
        lanes[v] += exact_exp((value - max_value) / temperature);
      }
    }
    double l[8];
    memcpy(l, lanes, sizeof l);
    for (; i < end; i++) l[(i - start) & 7] += exact_exp((static_cast<double>(x[i]) - max_value) / temperature + (f64n){})[0];
    *sums++ = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
  }
}

static WeightsAbove weights_above(const double* weights, int32_t n, double least) {
  f64n sums[2] = {}, counts[2] = {};
  const f64n one = (f64n){} + 1.0;
  const auto take = [&](f64n weight, int v) {
    const f64n rounded = (weight + kWeightRounding) - kWeightRounding;
    sums[v] += rounded >= least ? rounded : (f64n){};
    counts[v] += rounded >= least ? one : (f64n){};
  };
  int32_t i = 0;
  for (; i + 2 * kDoubleLanes <= n; i += 2 * kDoubleLanes) {
    take(*reinterpret_cast<const f64n_u*>(weights + i), 0);
    take(*reinterpret_cast<const f64n_u*>(weights + i + kDoubleLanes), 1);
  }
  for (; i < n; i++) {
    f64n weight = {};
    weight[0] = weights[i];
    take(weight, 0);
  }
  WeightsAbove above = {};
  double count = 0;
  for (int l = 0; l < kDoubleLanes; l++) {
    above.sum += sums[0][l] + sums[1][l];
    count += counts[0][l] + counts[1][l];
  }
  above.count = static_cast<int32_t>(count);
  return above;
}

// 2^((x - max) * scale) for x <= max; 0 below 2^-125 (and of -infinity). A Taylor series: 1.2e-7 at most from 2^r, |r| <= 0.5.
PAGODA_INLINE f32x16 chunk_weight(f32x16 x, f32x16 max, f32x16 scale) {
  const f32x16 magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, whose bits are the lowest of the sum
  const f32x16 power = (x - max) * scale;
  const f32x16 shifted = power + magic;
  const f32x16 r = power - (shifted - magic);
  f32x16 p = splat(0.00015403530393381606f);
  p = p * r + splat(0.0013333558146428443f);
  p = p * r + splat(0.009618129107628477f);
  p = p * r + splat(0.055504108664821576f);
  p = p * r + splat(0.2402265069591007f);
  p = p * r + splat(0.6931471805599453f);
  p = p * r + splat(1.0f);
  return select(power >= splat(-125.0f), float_of_bits(bits_of(p) + shift_left<23>(bits_of(shifted))), zero());
}

// Lanes from `count` on become `rest`.
PAGODA_INLINE f32x16 load_filled(const float* p, int count, float rest) {
  alignas(64) float t[16];
  for (int i = 0; i < 16; ++i) t[i] = i < count ? p[i] : rest;
  return load(t);
}

static void sum_chunks(const float* x, int32_t n, float scale, ChunkSum* chunks) {
  const f32x16 scales = splat(scale);
  for (int32_t start = 0; start < n; start += kChoiceChunk) {
    const int32_t end = n - start < kChoiceChunk ? n : start + kChoiceChunk;
    const int32_t whole = start + (end - start) / 16 * 16;
    const f32x16 rest = load_filled(x + whole, end - whole, -__builtin_inff());
    f32x16 max_a = rest, max_b = rest;
    int32_t i = start;
    for (; i + 32 <= whole; i += 32) {
      max_a = max(max_a, load(x + i));
      max_b = max(max_b, load(x + i + 16));
    }
    if (i < whole) max_a = max(max_a, load(x + i));
    const float largest = reduce_max(max(max_a, max_b));
    ChunkSum* const chunk = chunks++;
    chunk->max = largest;
    chunk->sum = 0;
    if (largest == -__builtin_inff()) continue;
    const f32x16 maxes = splat(largest);
    f32x16 sum = zero();
    for (i = start; i < whole; i += 16) sum = sum + chunk_weight(load(x + i), maxes, scales);
    if (whole < end) sum = sum + chunk_weight(rest, maxes, scales);
    chunk->sum = reduce_add(sum);
  }
}

static void chunk_weights(const float* x, int32_t n, float max_value, float scale, float* weights) {
  for (int32_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? n - i : 16;
    store_n(weights + i, chunk_weight(load_filled(x + i, count, -__builtin_inff()), splat(max_value), splat(scale)), count);
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
