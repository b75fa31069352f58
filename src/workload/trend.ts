// Whether a series rises beyond chance: slope of the least-squares line, one-sided t-test at 95 %.

export interface Trend {
  /** Units per second. */
  readonly slope: number;
  /** Slope over its standard error; 0 below three points. */
  readonly t: number;
  readonly isRising: boolean;
}

/** Least squares through (x, y), and whether the slope is above zero with 95 % confidence. */
export function trend(xs: readonly number[], ys: readonly number[]): Trend {
  const n = xs.length;
  if (n < 3) return { slope: 0, t: 0, isRising: false };
  const meanX = xs.reduce((sum, x) => sum + x, 0) / n;
  const meanY = ys.reduce((sum, y) => sum + y, 0) / n;
  let sxx = 0;
  let sxy = 0;
  let syy = 0;
  for (let i = 0; i < n; i++) {
    const dx = xs[i]! - meanX;
    const dy = ys[i]! - meanY;
    sxx += dx * dx;
    sxy += dx * dy;
    syy += dy * dy;
  }
  if (sxx === 0) return { slope: 0, t: 0, isRising: false };
  const slope = sxy / sxx;
  const residual = Math.max(0, syy - slope * sxy);
  const error = Math.sqrt(residual / (n - 2) / sxx);
  const t = error > 0 ? slope / error : slope === 0 ? 0 : Math.sign(slope) * Number.POSITIVE_INFINITY;
  return { slope, t, isRising: t > criticalT(n - 2) };
}

/** One-sided 95 % point of Student's t; within 1 % from 3 degrees of freedom on (Cornish-Fisher expansion). */
function criticalT(degrees: number): number {
  if (degrees <= 2) return degrees === 1 ? 6.314 : 2.92;
  const z = 1.6449;
  return z + (z ** 3 + z) / (4 * degrees) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * degrees ** 2);
}
