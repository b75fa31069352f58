// Whether a series rises over time beyond chance: slope of the least-squares line, one-sided t-test at 95 %.

/** Fewer points say nothing. */
const MIN_POINTS = 6;

/** Null when there are too few values. */
export function isRising(seconds: readonly number[], values: ReadonlyArray<number | null>): boolean | null {
  const points = values.flatMap((value, i) => (value === null ? [] : [{ x: seconds[i]!, y: value }]));
  const n = points.length;
  if (n < MIN_POINTS) return null;
  const meanX = points.reduce((sum, { x }) => sum + x, 0) / n;
  const meanY = points.reduce((sum, { y }) => sum + y, 0) / n;
  let sxx = 0;
  let sxy = 0;
  let syy = 0;
  for (const { x, y } of points) {
    sxx += (x - meanX) ** 2;
    sxy += (x - meanX) * (y - meanY);
    syy += (y - meanY) ** 2;
  }
  if (sxx === 0 || sxy <= 0) return false;
  const residual = Math.max(0, syy - (sxy * sxy) / sxx);
  const t = residual === 0 ? Number.POSITIVE_INFINITY : sxy / sxx / Math.sqrt(residual / (n - 2) / sxx);
  // Student's t, 95 %, by degrees of freedom from 4; 1.645 in the limit (within 1 % of the table).
  return t > 1.645 + 1.52 / (n - 2) + 1.4 / (n - 2) ** 2;
}
