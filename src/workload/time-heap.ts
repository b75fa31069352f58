// What happens later, the earliest first; equal times in the order in which they were pushed, so that runs repeat exactly.

interface Entry<T> {
  readonly time: number;
  readonly order: number;
  readonly item: T;
}

export class TimeHeap<T> {
  readonly #heap: Entry<T>[] = [];
  #numPushed = 0;

  get size(): number {
    return this.#heap.length;
  }

  /** Infinity when empty. */
  get nextTime(): number {
    return this.#heap[0]?.time ?? Number.POSITIVE_INFINITY;
  }

  push(time: number, item: T): void {
    const heap = this.#heap;
    const entry = { time, order: this.#numPushed++, item };
    let index = heap.length;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (isBefore(heap[parent]!, entry)) break;
      heap[index] = heap[parent]!;
      index = parent;
    }
    heap[index] = entry;
  }

  /** Throws RangeError when empty. */
  pop(): T {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined) throw new RangeError('Nothing is left.');
    if (first === last) return first.item;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child++;
      if (isBefore(last, heap[child]!)) break;
      heap[index] = heap[child]!;
      index = child;
    }
    heap[index] = last;
    return first.item;
  }
}

function isBefore(a: Entry<unknown>, b: Entry<unknown>): boolean {
  return a.time !== b.time ? a.time < b.time : a.order < b.order;
}
