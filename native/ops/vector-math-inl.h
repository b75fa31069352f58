// exp, tanh and erfc on 16 lanes: polynomials with one fixed order of operations, so a value never depends on its lane or on
// the loop around it. Relative error of exp below 2e-7, of tanh and erfc below 4e-7.
#pragma once
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// p * 2^n, rounded once; n from -126 to 128, also given as floats.
PAGODA_INLINE f32x16 scale_by_power(f32x16 p, i32x16 n, f32x16 n_float) {
#ifdef PAGODA_ISA_AVX512
  (void)n;
  p.v[0] = (f32n)_mm512_scalef_ps((__m512)p.v[0], (__m512)n_float.v[0]);
  return p;
#else
  // In two factors: n reaches 128, one more than a float's exponent holds.
  (void)n_float;
  const i32x16 half = shift_right_signed<1>(n);
  const f32x16 scale_a = float_of_bits(shift_left<23>(half + splat_i32(127)));
  const f32x16 scale_b = float_of_bits(shift_left<23>(n - half + splat_i32(127)));
  return p * scale_a * scale_b;
#endif
}

// exp(x); exactly 1 at 0, exactly 0 below -87.3 (and at -infinity), about 2.4e38 above 88.37; NaN stays NaN.
PAGODA_INLINE f32x16 exp(f32x16 x) {
  const f32x16 clamped = min(splat(88.37f), max(splat(-87.33f), x));
  const i32x16 n = round_to_int(clamped * splat(1.44269504f));
  const f32x16 nf = to_float(n);
  f32x16 r = fma(nf, splat(-0.693359375f), clamped);
  r = fma(nf, splat(2.12194440e-4f), r);
  f32x16 p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  return select(x < splat(-87.33f), zero(), scale_by_power(p, n, nf));
}

#ifdef PAGODA_ISA_AVX512
// exp(x) for x <= 0 with a relative error of 3e-6 (minimax for 2^r, |r| <= 0.5): for weights that are rounded to bf16. Exactly 1 at 0, exactly 0
// at -infinity; NaN stays NaN.
PAGODA_INLINE f32x16 exp_coarse(f32x16 x) {
  const f32x16 t = max(splat(-160.0f), x * splat(1.44269504f));
  f32x16 n, r;
  n.v[0] = (f32n)_mm512_roundscale_ps((__m512)t.v[0], 0);
  r = t - n;
  f32x16 p = splat(9.582852944731712e-3f);
  p = fma(p, r, splat(5.5906426161527634e-2f));
  p = fma(p, r, splat(2.4024099111557007e-1f));
  p = fma(p, r, splat(6.931241750717163e-1f));
  p = fma(p, r, splat(1.0f));
  p.v[0] = (f32n)_mm512_scalef_ps((__m512)p.v[0], (__m512)n.v[0]);
  return p;
}
#endif

PAGODA_INLINE f32x16 tanh(f32x16 x) {
  const f32x16 a = abs(x);
  const f32x16 z = x * x;
  f32x16 p = splat(-5.70498872745e-3f);
  p = fma(p, z, splat(2.06390887954e-2f));
  p = fma(p, z, splat(-5.37397155531e-2f));
  p = fma(p, z, splat(1.33314422036e-1f));
  p = fma(p, z, splat(-3.33332819422e-1f));
  const f32x16 small = fma(p * z, x, x);
  const f32x16 large = splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f));
  const f32x16 signed_large = float_of_bits(bits_of(large) | (bits_of(x) & splat_i32(static_cast<int32_t>(0x80000000u))));
  return select(a < splat(0.625f), small, signed_large);
}

// erfc(z) for z >= 0 (Numerical Recipes, section 6.2: relative error below 1.2e-7 before rounding).
PAGODA_INLINE f32x16 erfc_positive(f32x16 z) {
  const f32x16 t = splat(1.0f) / fma(z, splat(0.5f), splat(1.0f));
  f32x16 p = splat(0.17087277f);
  p = fma(p, t, splat(-0.82215223f));
  p = fma(p, t, splat(1.48851587f));
  p = fma(p, t, splat(-1.13520398f));
  p = fma(p, t, splat(0.27886807f));
  p = fma(p, t, splat(-0.18628806f));
  p = fma(p, t, splat(0.09678418f));
  p = fma(p, t, splat(0.37409196f));
  p = fma(p, t, splat(1.00002368f));
  p = fma(p, t, splat(-1.26551223f));
  return t * exp(p - z * z);
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
