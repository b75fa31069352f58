import { percentile, sorted } from '../dist/bench/statistics.js';

/** The middle value; the mean of the middle two for an even count. */
export function median(values) {
  return quantile(values, 0.5);
}

export function quantile(values, share) {
  return percentile(sorted(values), 100 * share);
}
