// Gives sequences KV blocks and takes them back; finds and files shared prefixes. It decides nothing: the scheduler asks
// whether something fits and says who gets it. Positions of a sequence are written in order, each exactly once per admission.
//
//   [0 ........... computedTokens) in the cache     [computedTokens ... capacityTokens) held, empty     the rest: no blocks

import { BlockHasher } from './block-hash.ts';
import { BlockPool } from './block-pool.ts';
import type { Sequence } from './sequence.ts';

/** One kind of attention layer; 0 = full attention, else a query sees itself and the `window - 1` positions before it. */
export interface WindowGroup {
  readonly window: number;
}

export interface KvManagerOptions {
  readonly blockSize: number;
  /** Including the null block. */
  readonly numBlocks: number;
  readonly groups: readonly WindowGroup[];
  readonly enablePrefixCaching: boolean;
  readonly cacheSecret: Uint8Array;
  /** Most tokens of one sequence in one step. */
  readonly maxTokensPerStep: number;
  /** A sequence keeps the blocks it was given until its end. */
  readonly keepsAll: boolean;
}

export class KvManager {
  readonly blockSize: number;
  readonly pool: BlockPool;
  /** [numGroups] window of each group, 0 = full attention. */
  readonly windows: Int32Array;
  readonly enablePrefixCaching: boolean;
  readonly #maxTokensPerStep: number;
  readonly #keepsAll: boolean;
  readonly #hasher: BlockHasher;

  constructor(options: KvManagerOptions) {
    this.blockSize = options.blockSize;
    this.windows = Int32Array.from(options.groups, (group) => group.window);
    this.pool = new BlockPool(options.numBlocks);
    this.enablePrefixCaching = options.enablePrefixCaching;
    this.#maxTokensPerStep = options.maxTokensPerStep;
    this.#keepsAll = options.keepsAll;
    this.#hasher = new BlockHasher({ blockSize: options.blockSize, secret: options.cacheSecret });
  }

  /** Prepares a new sequence. */
  register(sequence: Sequence): void {
    sequence.nextHashTokens = this.enablePrefixCaching ? this.blockSize : Number.MAX_SAFE_INTEGER;
  }

  /** Most blocks that a sequence holds at any time while its first `numTokens` positions are computed. */
  peakBlocks(numTokens: number): number {
    let total = 0;
    for (let group = 0; group < this.windows.length; group++) total += this.#peakOfGroup(group, numTokens, 0);
    return total;
  }

  /**
   * Length of the longest cached prefix that the sequence may skip, a multiple of the block size and below numTokens, so
   * that at least one token is computed. Full-attention groups need all its blocks, windowed groups those inside the window.
   * Changes nothing; valid until blocks are allocated.
   */
  findPrefix(sequence: Sequence): number {
    if (!this.enablePrefixCaching || sequence.request.sampling.promptLogprobs !== null) return 0;
    const limit = Math.floor((sequence.numTokens - 1) / this.blockSize);
    let length = 0;
    while (length < limit && this.#fullGroupsHave(sequence, length)) length++;
    return this.#longestWithWindows(sequence, length) * this.blockSize;
  }

  /**
   * Free blocks that admitting the sequence takes until its first `numTokens` positions are computed, when the first
   * `prefixTokens` come from the cache. Cached blocks that nobody uses count: taking one makes it unavailable.
   */
  blocksToAdmit(sequence: Sequence, prefixTokens: number, numTokens: number): number {
    const prefixBlocks = prefixTokens / this.blockSize;
    let needed = 0;
    for (let group = 0; group < this.windows.length; group++) {
      needed += this.#peakOfGroup(group, numTokens, prefixTokens);
      if (this.windows[group] !== 0) continue;
      for (let index = 0; index < prefixBlocks; index++) {
        if (this.pool.refCounts[this.#findBlock(sequence, group, index)] !== 0) needed--;
      }
    }
    return needed;
  }

  /** Puts the blocks of a prefix that `findPrefix` just found into the tables of a sequence that holds none. */
  adoptPrefix(sequence: Sequence, prefixTokens: number): void {
    const numBlocks = prefixTokens / this.blockSize;
    for (let group = 0; group < this.windows.length; group++) {
      const table = this.#reserveTable(sequence, group, numBlocks);
      const first = this.#firstVisibleBlock(group, prefixTokens);
      table.fill(0, 0, first);
      for (let index = first; index < numBlocks; index++) {
        const block = this.#findBlock(sequence, group, index);
        this.pool.retain(block);
        table[index] = block;
      }
    }
    this.#setTableLength(sequence, numBlocks);
    if (this.enablePrefixCaching) sequence.nextHashTokens = prefixTokens + this.blockSize;
  }

  /**
   * Makes the tables cover positions [0, numTokens); first gives up blocks wholly before the window of the next token to
   * compute. Returns false, with nothing allocated, when there are not enough free blocks.
   */
  grow(sequence: Sequence, numTokens: number): boolean {
    if (numTokens <= sequence.capacityTokens) return true;
    this.#releaseBeforeWindows(sequence);
    return this.extend(sequence, numTokens);
  }

  /** As `grow`, but gives up nothing: for positions beyond those that the sequence already has in a plan. */
  extend(sequence: Sequence, numTokens: number): boolean {
    const from = sequence.numTableBlocks;
    const to = Math.ceil(numTokens / this.blockSize);
    if (to <= from) return true;
    if ((to - from) * this.windows.length > this.pool.numFree) return false;
    for (let group = 0; group < this.windows.length; group++) {
      const table = this.#reserveTable(sequence, group, to);
      for (let index = from; index < to; index++) table[index] = this.pool.allocate();
    }
    this.#setTableLength(sequence, to);
    return true;
  }

  /** Gives back blocks at the end that positions [0, numTokens) do not need; nothing was filed for them. */
  trim(sequence: Sequence, numTokens: number): void {
    const kept = Math.ceil(numTokens / this.blockSize);
    if (this.#keepsAll || kept >= sequence.numTableBlocks) return;
    for (let index = sequence.numTableBlocks - 1; index >= kept; index--) {
      for (const table of sequence.blockTables) this.pool.release(table[index]!);
    }
    this.#setTableLength(sequence, kept);
  }

  /** Files the blocks that became full. */
  fileFullBlocks(sequence: Sequence): void {
    while (sequence.hasFullBlock) {
      const index = sequence.nextHashTokens / this.blockSize - 1;
      this.#hashTo(sequence, index + 1);
      const { words } = sequence.blockHashes;
      const at = sequence.blockHashes.offsetOf(index);
      for (let group = 0; group < this.windows.length; group++) {
        const block = sequence.blockTables[group]![index]!;
        if (block !== 0) this.pool.file(block, group, words, at);
      }
      sequence.nextHashTokens += this.blockSize;
    }
  }

  /**
   * Gives all blocks of the sequence back, the last ones first so that they are evicted first. Returns how many became
   * free. The tables keep their contents for a step in flight; call `clearTables` when the sequence will run again.
   */
  release(sequence: Sequence): number {
    let numFreed = 0;
    for (let index = sequence.numTableBlocks - 1; index >= 0; index--) {
      for (let group = 0; group < this.windows.length; group++) {
        const block = sequence.blockTables[group]![index]!;
        if (block !== 0 && this.pool.release(block)) numFreed++;
      }
    }
    return numFreed;
  }

  clearTables(sequence: Sequence): void {
    this.#setTableLength(sequence, 0);
    this.register(sequence);
  }

  /** Makes everything filed for the sequence unfindable: the contents may be wrong. Works after a release, too. */
  forgetContents(sequence: Sequence): void {
    for (let index = 0; index < sequence.blockHashes.numBlocks; index++) {
      for (let group = 0; group < this.windows.length; group++)
        this.pool.forget(this.#findBlock(sequence, group, index));
    }
  }

  /** Tokens to compute again if the sequence lost its blocks now: what other running sequences keep in the cache is not lost. */
  tokensToRecompute(sequence: Sequence): number {
    let kept = 0;
    while ((kept + 1) * this.blockSize <= sequence.computedTokens && this.#isShared(sequence, kept)) kept++;
    return sequence.computedTokens - kept * this.blockSize;
  }

  /** Whether the pool gets any block back if the sequence gives up its own. */
  holdsUnsharedBlock(sequence: Sequence): boolean {
    for (let index = sequence.numTableBlocks - 1; index >= 0; index--) {
      for (let group = 0; group < this.windows.length; group++) {
        const block = sequence.blockTables[group]![index]!;
        if (block !== 0 && this.pool.refCounts[block] === 1) return true;
      }
    }
    return false;
  }

  /** First block that a query at `position` or later still sees. */
  #firstVisibleBlock(group: number, position: number): number {
    const window = this.windows[group]!;
    return window === 0 ? 0 : Math.max(0, Math.floor((position - window + 1) / this.blockSize));
  }

  /** Most blocks of one group held at once while positions [prefixTokens, numTokens) are computed, prefix blocks included for windows only. */
  #peakOfGroup(group: number, numTokens: number, prefixTokens: number): number {
    const numBlocks = Math.ceil(numTokens / this.blockSize);
    const window = this.windows[group]!;
    if (window === 0) return numBlocks;
    // The tokens of a step and the window before the first of them, at the worst alignment to block borders.
    const span = window - 1 + Math.min(this.#maxTokensPerStep, numTokens);
    const worst = Math.ceil((span - 1) / this.blockSize) + 1;
    return Math.min(numBlocks - this.#firstVisibleBlock(group, prefixTokens), worst);
  }

  #fullGroupsHave(sequence: Sequence, index: number): boolean {
    this.#hashTo(sequence, index + 1);
    for (let group = 0; group < this.windows.length; group++) {
      if (this.windows[group] === 0 && this.#findBlock(sequence, group, index) === 0) return false;
    }
    return true;
  }

  /** The largest number of leading blocks, at most `length`, before which each windowed group has every visible block. */
  #longestWithWindows(sequence: Sequence, length: number): number {
    for (let group = 0; group < this.windows.length && length > 0; ) {
      const missing = this.#lastMissing(sequence, group, length);
      if (missing < 0) {
        group++;
      } else {
        length = missing; // any longer prefix up to here would see the missing block
        group = 0;
      }
    }
    return length;
  }

  /** Index of the last block the group lacks among those visible after `length` leading blocks; -1 = it has them all. */
  #lastMissing(sequence: Sequence, group: number, length: number): number {
    if (this.windows[group] === 0) return -1;
    const first = this.#firstVisibleBlock(group, length * this.blockSize);
    for (let index = length - 1; index >= first; index--) {
      if (this.#findBlock(sequence, group, index) === 0) return index;
    }
    return -1;
  }

  #hashTo(sequence: Sequence, numBlocks: number): void {
    this.#hasher.extend(sequence.blockHashes, numBlocks, sequence.tokenIds, sequence.request.cacheSalt);
  }

  /** The cached block with the content of the sequence's block `index` (which is hashed already), or 0. */
  #findBlock(sequence: Sequence, group: number, index: number): number {
    return this.pool.find(group, sequence.blockHashes.words, sequence.blockHashes.offsetOf(index));
  }

  #releaseBeforeWindows(sequence: Sequence): void {
    for (let group = 0; group < this.windows.length; group++) {
      const table = sequence.blockTables[group]!;
      // Everything before an entry already given up was given up too.
      for (let index = this.#firstVisibleBlock(group, sequence.computedTokens) - 1; index >= 0; index--) {
        const block = table[index]!;
        if (block === 0) break;
        this.pool.release(block);
        table[index] = 0;
      }
    }
  }

  #isShared(sequence: Sequence, index: number): boolean {
    let isShared = false;
    for (let group = 0; group < this.windows.length; group++) {
      if (this.windows[group] !== 0) continue;
      const block = sequence.blockTables[group]![index]!;
      if (this.pool.refCounts[block]! < 2) return false;
      isShared = true;
    }
    return isShared;
  }

  #reserveTable(sequence: Sequence, group: number, numBlocks: number): Int32Array {
    const table = sequence.blockTables[group]!;
    if (numBlocks <= table.length) return table;
    const larger = new Int32Array(Math.max(numBlocks, 2 * table.length, 8));
    larger.set(table);
    sequence.blockTables[group] = larger;
    return larger;
  }

  #setTableLength(sequence: Sequence, numBlocks: number): void {
    sequence.numTableBlocks = numBlocks;
    sequence.capacityTokens = numBlocks * this.blockSize;
  }
}
