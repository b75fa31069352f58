// A buddy allocator over token slots, as serving systems before paging used for contiguous KV: blocks of powers of two, split on
// demand and merged with their neighbour when both are free. Only counts; nothing is stored.

export interface BuddyBlock {
  readonly offset: number;
  readonly numSlots: number;
}

export class BuddyAllocator {
  readonly numSlots: number;
  readonly #largestOrder: number;
  /** [order] offsets of free blocks of 2^order slots. */
  readonly #free: Array<Set<number>>;

  /** `largestBlock`: a power of two; blocks never merge beyond it. */
  constructor(numSlots: number, largestBlock: number) {
    this.numSlots = numSlots;
    this.#largestOrder = Math.log2(largestBlock);
    this.#free = Array.from({ length: this.#largestOrder + 1 }, () => new Set<number>());
    for (let offset = 0; offset < numSlots; ) {
      const order = Math.min(this.#largestOrder, Math.floor(Math.log2(numSlots - offset)));
      this.#free[order]!.add(offset);
      offset += 2 ** order;
    }
  }

  /** The lowest free block of at least so many slots, cut to the next power of two; null when there is none. */
  allocate(numSlots: number): BuddyBlock | null {
    const order = Math.max(0, Math.ceil(Math.log2(numSlots)));
    for (let from = order; from <= this.#largestOrder; from++) {
      if (this.#free[from]!.size === 0) continue;
      const offset = Math.min(...this.#free[from]!);
      this.#free[from]!.delete(offset);
      for (let half = from - 1; half >= order; half--) this.#free[half]!.add(offset + 2 ** half);
      return { offset, numSlots: 2 ** order };
    }
    return null;
  }

  release({ offset, numSlots }: BuddyBlock): void {
    let order = Math.log2(numSlots);
    let start = offset;
    while (order < this.#largestOrder) {
      const neighbour = start % 2 ** (order + 1) === 0 ? start + 2 ** order : start - 2 ** order;
      if (!this.#free[order]!.delete(neighbour)) break;
      start = Math.min(start, neighbour);
      order++;
    }
    this.#free[order]!.add(start);
  }
}
