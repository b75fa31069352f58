// The random numbers of a load: those of workloads, with what data sets need on top.

import { RandomSource } from '../workload/random-source.ts';

export class Draws extends RandomSource {
  /** A whole number in [low, high]. */
  integer(low: number, high: number): number {
    return low + this.below(high - low + 1);
  }

  /** In place. */
  shuffle<T>(items: T[]): T[] {
    for (let i = items.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [items[i], items[j]] = [items[j]!, items[i]!];
    }
    return items;
  }
}
