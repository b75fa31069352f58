// Exponentials and sums whose every bit is defined, so that sampling chooses the same token in every language: only IEEE
// double additions and multiplications in a fixed order, none of them fused.

/** ln 2 in two parts; the first has 21 zero bits at its end, so that n * LN2_HIGH is exact. */
const LN2_HIGH = 0.6931471803691238;
const LN2_LOW = 1.9082149292705877e-10;
/** exp of anything below counts as 0. */
const MIN_EXPONENT = -708;
/** 1/11!, 1/10!, ..., 1/0!: the Taylor series in Horner's order. */
const COEFFICIENTS = Float64Array.of(
  1 / 39916800,
  1 / 3628800,
  1 / 362880,
  1 / 40320,
  1 / 5040,
  1 / 720,
  1 / 120,
  1 / 24,
  1 / 6,
  1 / 2,
  1,
  1,
);
/** 2^-i, exact. */
const POWERS = Float64Array.from({ length: 1024 }, (_, i) => 2 ** -i);

const lanes = new Float64Array(8);

/** Ids are summed in chunks of this many. */
export const SUM_CHUNK = 256;

/**
 * exp(x) for x <= 0 (-infinity included), to about 1e-14.
 * n = floor(x * Math.LOG2E + 0.5); r = (x - n * LN2_HIGH) - n * LN2_LOW; p = c[0]; p = p * r + c[i] for i = 1..11, with the
 * product rounded before the sum; result p * 2^n.
 */
export function exactExp(x: number): number {
  if (!(x > MIN_EXPONENT)) return 0;
  const n = Math.floor(x * Math.LOG2E + 0.5);
  const r = x - n * LN2_HIGH - n * LN2_LOW;
  let p = COEFFICIENTS[0];
  for (let i = 1; i < 12; i++) p = p * r + COEFFICIENTS[i];
  return p * POWERS[-n];
}

/**
 * Sum of values[start .. end) in eight lanes: lane l adds the values at start + l, start + l + 8, ... in that order;
 * the lanes are joined as ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)).
 */
export function laneSum(values: Float64Array, start: number, end: number): number {
  lanes.fill(0);
  for (let i = start; i < end; i++) lanes[(i - start) & 7] += values[i];
  return lanes[0] + lanes[4] + (lanes[2] + lanes[6]) + (lanes[1] + lanes[5] + (lanes[3] + lanes[7]));
}

/** Sum of all values: the lane sums of chunks of SUM_CHUNK, added from left to right. */
export function chunkedSum(values: Float64Array): number {
  let total = 0;
  for (let start = 0; start < values.length; start += SUM_CHUNK)
    total += laneSum(values, start, Math.min(start + SUM_CHUNK, values.length));
  return total;
}
