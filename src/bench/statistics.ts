// The statistics of load reports, by the conventions of `vllm bench serve`: numpy's linear percentiles, population deviation.

import type { Distribution } from '../workload/streaming-distribution.ts';

/** Ascending copy. */
export function sorted(values: readonly number[]): Float64Array {
  return Float64Array.from(values).sort();
}

/** numpy's default: linear between the neighbours of rank q/100 * (n - 1). 0 for no values, as in vLLM's reports. */
export function percentile(ascending: Float64Array, percent: number): number {
  const n = ascending.length;
  if (n === 0) return 0;
  const rank = (percent / 100) * (n - 1);
  const low = Math.floor(rank);
  const below = ascending[low]!;
  const above = ascending[Math.min(low + 1, n - 1)]!;
  const share = rank - low;
  // numpy goes from the nearer end, which keeps the last digit.
  return share < 0.5 ? below + (above - below) * share : above - (above - below) * (1 - share);
}

/** MLPerf's: the smallest value that at least this share of the values does not exceed. */
export function nearestRank(ascending: Float64Array, percent: number): number {
  const n = ascending.length;
  if (n === 0) return 0;
  return ascending[Math.max(0, Math.ceil((percent / 100) * n) - 1)]!;
}

export function mean(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i]!;
  return values.length === 0 ? 0 : sum / values.length;
}

/** Of the population (divided by n). */
export function standardDeviation(values: ArrayLike<number>): number {
  const center = mean(values);
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += (values[i]! - center) ** 2;
  return values.length === 0 ? 0 : Math.sqrt(sum / values.length);
}

export function distribution(values: readonly number[]): Distribution {
  const ascending = sorted(values);
  return {
    mean: mean(ascending),
    p50: percentile(ascending, 50),
    p90: percentile(ascending, 90),
    p95: percentile(ascending, 95),
    p99: percentile(ascending, 99),
    max: ascending.at(-1) ?? 0,
  };
}
