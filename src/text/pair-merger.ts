// The loop at the heart of BPE and of SentencePiece's BPE: merge the adjacent pair with the lowest rank (leftmost first) until none is left.
// A heap of candidates over a linked list in typed arrays: n symbols cost O(n log n), so a word of a megabyte is no attack.

/** (left id, right id) -> rank and merged id; open addressing in flat arrays. Ids are >= 0. */
export class PairTable {
  readonly #left: Int32Array;
  readonly #right: Int32Array;
  readonly #rank: Int32Array;
  readonly #merged: Int32Array;
  readonly #mask: number;

  constructor(numPairs: number) {
    let capacity = 16;
    while (capacity < numPairs * 2) capacity *= 2;
    this.#mask = capacity - 1;
    this.#left = new Int32Array(capacity).fill(-1);
    this.#right = new Int32Array(capacity);
    this.#rank = new Int32Array(capacity);
    this.#merged = new Int32Array(capacity);
  }

  /** The first entry of a pair stays. At most as many pairs as the constructor was told. */
  add(left: number, right: number, rank: number, merged: number): void {
    let slot = this.#hash(left, right);
    while (this.#left[slot] !== -1) {
      if (this.#left[slot] === left && this.#right[slot] === right) return;
      slot = (slot + 1) & this.#mask;
    }
    this.#left[slot] = left;
    this.#right[slot] = right;
    this.#rank[slot] = rank;
    this.#merged[slot] = merged;
  }

  /** Slot of a pair, -1 when it does not merge. */
  find(left: number, right: number): number {
    if (left < 0 || right < 0) return -1;
    let slot = this.#hash(left, right);
    while (this.#left[slot] !== -1) {
      if (this.#left[slot] === left && this.#right[slot] === right) return slot;
      slot = (slot + 1) & this.#mask;
    }
    return -1;
  }

  rank(slot: number): number {
    return this.#rank[slot]!;
  }

  merged(slot: number): number {
    return this.#merged[slot]!;
  }

  #hash(left: number, right: number): number {
    let h = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    h ^= h >>> 15;
    h = Math.imul(h, 0x2c1b3c6d);
    return (h ^ (h >>> 13)) & this.#mask;
  }
}

// A candidate is one number: rank * 2^31 + position. Ranks stay below 2^21, so it is exact in a double.
const POSITIONS = 2 ** 31;
/** Scratch beyond this many symbols is given back after the call. */
const KEPT_SYMBOLS = 1 << 16;

export class PairMerger {
  readonly #table: PairTable;
  #next = new Int32Array(256);
  #previous = new Int32Array(256);
  #heap = new Float64Array(512);
  #heapSize = 0;
  /** Heap insertions and removals so far: what tests count instead of seconds. */
  numOperations = 0;

  constructor(table: PairTable) {
    this.#table = table;
  }

  /**
   * Merges `ids[0..numIds)` in place and returns how many are left. A negative id never merges.
   * `positions[i]`, when given, becomes the index that the first symbol of the i-th result had.
   */
  merge(ids: Int32Array, numIds: number, positions?: Int32Array): number {
    if (numIds > 1) this.#mergeAll(ids, numIds);
    let numLeft = 0;
    for (let i = numIds > 0 ? 0 : -1; i !== -1; i = numIds > 1 ? this.#next[i]! : -1) {
      ids[numLeft] = ids[i]!;
      if (positions) positions[numLeft] = i;
      numLeft++;
    }
    if (this.#next.length > KEPT_SYMBOLS) this.#resize(KEPT_SYMBOLS);
    return numLeft;
  }

  #mergeAll(ids: Int32Array, numIds: number): void {
    if (numIds > this.#next.length) this.#resize(Math.max(numIds, this.#next.length * 2));
    const next = this.#next;
    const previous = this.#previous;
    for (let i = 0; i < numIds; i++) {
      next[i] = i + 1 < numIds ? i + 1 : -1;
      previous[i] = i - 1;
    }
    this.#heapSize = 0;
    for (let i = 0; i + 1 < numIds; i++) this.#offer(ids, i, i + 1);
    const dead = -1;
    while (this.#heapSize > 0) {
      const candidate = this.#pop();
      const rank = Math.floor(candidate / POSITIONS);
      const left = candidate - rank * POSITIONS;
      const right = next[left]!;
      if (ids[left] === dead || right === -1) continue;
      const slot = this.#table.find(ids[left]!, ids[right]!);
      // A neighbour changed since this candidate was offered.
      if (slot < 0 || this.#table.rank(slot) !== rank) continue;
      ids[left] = this.#table.merged(slot);
      ids[right] = dead;
      const after = next[right]!;
      next[left] = after;
      if (after !== -1) previous[after] = left;
      if (previous[left] !== -1) this.#offer(ids, previous[left]!, left);
      if (after !== -1) this.#offer(ids, left, after);
    }
  }

  #offer(ids: Int32Array, left: number, right: number): void {
    const slot = this.#table.find(ids[left]!, ids[right]!);
    if (slot >= 0) this.#push(this.#table.rank(slot) * POSITIONS + left);
  }

  #push(candidate: number): void {
    this.numOperations++;
    const heap = this.#heap;
    let i = this.#heapSize++;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (heap[parent]! <= candidate) break;
      heap[i] = heap[parent]!;
      i = parent;
    }
    heap[i] = candidate;
  }

  #pop(): number {
    this.numOperations++;
    const heap = this.#heap;
    const top = heap[0]!;
    const last = heap[--this.#heapSize]!;
    const size = this.#heapSize;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= size) break;
      if (child + 1 < size && heap[child + 1]! < heap[child]!) child++;
      if (heap[child]! >= last) break;
      heap[i] = heap[child]!;
      i = child;
    }
    heap[i] = last;
    return top;
  }

  #resize(numSymbols: number): void {
    this.#next = new Int32Array(numSymbols);
    this.#previous = new Int32Array(numSymbols);
    // n - 1 candidates at first; a merge removes one and adds at most two.
    this.#heap = new Float64Array(2 * numSymbols);
  }
}
