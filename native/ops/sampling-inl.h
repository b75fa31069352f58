// What sampling does with whole rows: the best values, and exp in double precision, defined to the last bit
// (src/device/reference/exact-exp.ts): additions and multiplications in a fixed order, none fused, so that every device and
// instruction set samples the same token from the same logits.
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

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
