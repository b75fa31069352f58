// Sequences that wait for admission, best first: a binary heap in which each sequence knows its place, so that an aborted one
// is taken out in O(log n). The order is total, hence a preempted sequence returns to where it came from: the head.

import type { Sequence } from './sequence.ts';

export type SchedulingPolicy = 'fcfs' | 'priority';
export type IsBefore = (a: Sequence, b: Sequence) => boolean;

/** fcfs: order of arrival. priority: smaller priority value, then earlier arrival time, then order of arrival. */
export function isBeforeUnder(policy: SchedulingPolicy): IsBefore {
  if (policy === 'fcfs') return (a, b) => a.order < b.order;
  return (a, b) => {
    if (a.request.priority !== b.request.priority) return a.request.priority < b.request.priority;
    if (a.request.arrivalTime !== b.request.arrivalTime) return a.request.arrivalTime < b.request.arrivalTime;
    return a.order < b.order;
  };
}

export class WaitingQueue {
  readonly #heap: Sequence[] = [];
  readonly #isBefore: IsBefore;

  constructor(isBefore: IsBefore) {
    this.#isBefore = isBefore;
  }

  get size(): number {
    return this.#heap.length;
  }

  /** In no particular order; the array is the queue's own and must not be changed. */
  get sequences(): readonly Sequence[] {
    return this.#heap;
  }

  peek(): Sequence | null {
    return this.#heap[0] ?? null;
  }

  push(sequence: Sequence): void {
    this.#heap.push(sequence);
    this.#raise(sequence, this.#heap.length - 1);
  }

  remove(sequence: Sequence): void {
    const index = sequence.waitingIndex;
    const last = this.#heap.pop()!;
    sequence.waitingIndex = -1;
    if (last === sequence) return;
    // The last one fills the gap; it may have to move either way.
    this.#raise(last, index);
    this.#lower(last, last.waitingIndex);
  }

  #raise(sequence: Sequence, from: number): void {
    let index = from;
    while (index > 0) {
      const parentIndex = (index - 1) >> 1;
      const parent = this.#heap[parentIndex]!;
      if (!this.#isBefore(sequence, parent)) break;
      this.#put(parent, index);
      index = parentIndex;
    }
    this.#put(sequence, index);
  }

  #lower(sequence: Sequence, from: number): void {
    let index = from;
    for (;;) {
      let childIndex = 2 * index + 1;
      const right = this.#heap[childIndex + 1];
      if (right !== undefined && this.#isBefore(right, this.#heap[childIndex]!)) childIndex++;
      const child = this.#heap[childIndex];
      if (child === undefined || !this.#isBefore(child, sequence)) break;
      this.#put(child, index);
      index = childIndex;
    }
    this.#put(sequence, index);
  }

  #put(sequence: Sequence, index: number): void {
    this.#heap[index] = sequence;
    sequence.waitingIndex = index;
  }
}
