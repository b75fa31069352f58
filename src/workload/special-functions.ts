// The few special functions that distributions need: the normal distribution function, the gamma function and the inverse of
// the incomplete gamma function. Accurate to about 1e-7, far below the whole tokens that they end up as.

/** Lanczos approximation, g = 7, nine coefficients (Godfrey). */
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

/** ln of the gamma function, x > 0. */
export function logGamma(x: number): number {
  if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
  let sum = LANCZOS[0]!;
  for (let i = 1; i < LANCZOS.length; i++) sum += LANCZOS[i]! / (x - 1 + i);
  const t = x + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

/** Share of a standard normal variable below z (Numerical Recipes' erfc, fractional error below 1.2e-7). */
export function normalCdf(z: number): number {
  const x = Math.abs(z) / Math.SQRT2;
  const t = 1 / (1 + 0.5 * x);
  const series =
    -1.26551223 +
    t * (1.00002368 + t * (0.37409196 + t * (0.09678418 + t * (-0.18628806 + t * (0.27886807 + t * LAST(t))))));
  const upper = 0.5 * t * Math.exp(-x * x + series);
  return z >= 0 ? 1 - upper : upper;
}

const LAST = (t: number): number => -1.13520398 + t * (1.48851587 + t * (-0.82215223 + t * 0.17087277));

/** Inverse of `normalCdf` (Acklam's rational approximation, relative error below 1.2e-9), 0 < share < 1. */
export function normalQuantile(share: number): number {
  const tail = Math.min(share, 1 - share);
  if (tail >= 0.02425) {
    const q = share - 0.5;
    const r = q * q;
    return (q * polynomial(CENTRE_TOP, r)) / (polynomial(CENTRE_BOTTOM, r) * r + 1);
  }
  const q = Math.sqrt(-2 * Math.log(tail));
  const value = polynomial(TAIL_TOP, q) / (polynomial(TAIL_BOTTOM, q) * q + 1);
  return share < 0.5 ? value : -value;
}

const CENTRE_TOP = [
  -39.69683028665376, 220.9460984245205, -275.9285104469687, 138.357751867269, -30.66479806614716, 2.506628277459239,
];
const CENTRE_BOTTOM = [
  -54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572,
];
const TAIL_TOP = [
  -0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968,
  2.938163982698783,
];
const TAIL_BOTTOM = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];

/** Horner, highest power first. */
function polynomial(coefficients: readonly number[], x: number): number {
  let value = 0;
  for (const coefficient of coefficients) value = value * x + coefficient;
  return value;
}

/** Share of a gamma variable of this shape and scale 1 below x: the regularized lower incomplete gamma function. */
export function gammaCdf(shape: number, x: number): number {
  if (x <= 0) return 0;
  const factor = Math.exp(-x + shape * Math.log(x) - logGamma(shape));
  if (x < shape + 1) {
    let term = 1 / shape;
    let sum = term;
    for (let n = 1; n < 500 && term > sum * 1e-14; n++) {
      term *= x / (shape + n);
      sum += term;
    }
    return Math.min(1, sum * factor);
  }
  // Lentz's continued fraction of the upper part.
  let b = x + 1 - shape;
  let c = 1e300;
  let d = 1 / b;
  let fraction = d;
  for (let n = 1; n < 500; n++) {
    const a = -n * (n - shape);
    b += 2;
    d = 1 / (a * d + b || 1e-300);
    c = b + a / c || 1e-300;
    fraction *= d * c;
    if (Math.abs(d * c - 1) < 1e-14) break;
  }
  return Math.max(0, 1 - factor * fraction);
}

/** The x below which this share of a gamma variable of scale 1 lies: bisection between bounds found by doubling. */
export function gammaQuantile(shape: number, share: number): number {
  let high = Math.max(1, shape);
  while (gammaCdf(shape, high) < share && high < 1e12) high *= 2;
  let low = 0;
  for (let i = 0; i < 60 && high - low > 1e-9 * high; i++) {
    const middle = 0.5 * (low + high);
    if (gammaCdf(shape, middle) < share) low = middle;
    else high = middle;
  }
  return 0.5 * (low + high);
}
