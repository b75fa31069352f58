// The KV blocks of the device as numbers: who uses them, which are free, which free ones still hold a prefix worth finding.
// - Block 0 is the null block: never handed out, never free, never cached.
// - The free list is a doubly linked list in two Int32Arrays; its front is handed out first. Blocks with a known content are
//   returned to the back, so the front of them is the least recently used: the free list is also the eviction order.
// - Every operation is O(1).

import { PagodaError } from '../errors.ts';
import { ContentIndex } from './content-index.ts';

export class BlockPool {
  /** Blocks including the null block. */
  readonly numBlocks: number;
  /** [numBlocks] how many block table entries name the block. */
  readonly refCounts: Int32Array;
  /** [numBlocks + 1] free list links; index `numBlocks` is the sentinel between back and front. */
  readonly next: Int32Array;
  readonly previous: Int32Array;
  /** Content -> block. Of several blocks with the same content only the first is filed. */
  readonly contents: ContentIndex;
  numFree = 0;
  /** Free blocks whose content can still be found. */
  numFreeCached = 0;

  constructor(numBlocks: number) {
    this.numBlocks = numBlocks;
    this.refCounts = new Int32Array(numBlocks);
    this.next = new Int32Array(numBlocks + 1);
    this.previous = new Int32Array(numBlocks + 1);
    this.contents = new ContentIndex(numBlocks);
    const sentinel = numBlocks;
    this.next[sentinel] = this.previous[sentinel] = sentinel;
    for (let block = 1; block < numBlocks; block++) this.#link(block, this.previous[sentinel]!, sentinel);
  }

  /** Blocks that can be handed out at all. */
  get numUsable(): number {
    return this.numBlocks - 1;
  }

  get numUsed(): number {
    return this.numUsable - this.numFree;
  }

  /** Hands out the first free block with one reference; what it held is forgotten. */
  allocate(): number {
    if (this.numFree === 0)
      throw new PagodaError('internal', 'The block pool is empty: check numFree before allocating.');
    const block = this.next[this.numBlocks]!;
    this.forget(block);
    this.#unlink(block);
    this.refCounts[block] = 1;
    return block;
  }

  /** Adds a reference to a block found by `find`; takes it off the free list if nobody used it. */
  retain(block: number): void {
    if (this.refCounts[block] === 0) {
      this.#unlink(block);
      if (this.contents.has(block)) this.numFreeCached--;
    }
    this.refCounts[block]!++;
  }

  /** Drops a reference. Returns true when it was the last one: the block is free then, its content still to be found. */
  release(block: number): boolean {
    const left = this.refCounts[block]! - 1;
    if (left < 0 || block === 0)
      throw new PagodaError('internal', `Block ${block} was released more often than retained.`);
    this.refCounts[block] = left;
    if (left > 0) return false;
    const sentinel = this.numBlocks;
    if (!this.contents.has(block)) {
      this.#link(block, sentinel, this.next[sentinel]!);
    } else {
      this.#link(block, this.previous[sentinel]!, sentinel);
      this.numFreeCached++;
    }
    return true;
  }

  /** Files a block in use under its content (digest at digests[at]), unless another block with that content is filed already. */
  file(block: number, group: number, digests: Int32Array, at: number): void {
    if (this.contents.has(block) || this.contents.find(group, digests, at) !== 0) return;
    this.contents.insert(block, group, digests, at);
  }

  /** The block that holds this content, or 0. Does not change anything; valid until the next allocation. */
  find(group: number, digests: Int32Array, at: number): number {
    return this.contents.find(group, digests, at);
  }

  /** The block's content can no longer be found. */
  forget(block: number): void {
    if (!this.contents.has(block)) return;
    this.contents.remove(block);
    if (this.refCounts[block] === 0) this.numFreeCached--;
  }

  #link(block: number, before: number, after: number): void {
    this.previous[block] = before;
    this.next[block] = after;
    this.next[before] = block;
    this.previous[after] = block;
    this.numFree++;
  }

  #unlink(block: number): void {
    const before = this.previous[block]!;
    const after = this.next[block]!;
    this.next[before] = after;
    this.previous[after] = before;
    this.next[block] = this.previous[block] = 0;
    this.numFree--;
  }
}
