// Whether a series of readings, some of them missing, rises over time beyond chance.

import { trend } from '../workload/trend.ts';

/** Fewer points say nothing. */
const MIN_POINTS = 6;

/** Null when there are too few values. */
export function isRising(seconds: readonly number[], values: ReadonlyArray<number | null>): boolean | null {
  const known = values.flatMap((value, i) => (value === null ? [] : [{ x: seconds[i]!, y: value }]));
  if (known.length < MIN_POINTS) return null;
  return trend(
    known.map(({ x }) => x),
    known.map(({ y }) => y),
  ).isRising;
}
