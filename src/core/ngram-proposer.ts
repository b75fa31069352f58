// Prompt lookup: what followed the last time that the text stood as it stands now. Finds the longest n-gram, of [minNgram,
// maxNgram] tokens, that ends the known tokens and occurs earlier in them; of equally long ones the earliest. The tokens after
// it are the drafts. The choice is vLLM's (v1/spec_decode/ngram_proposer.py). Time O(known tokens), nothing is allocated.
//
// Read backwards, the ending n-gram is a prefix, and an earlier occurrence a place where that prefix stands again: the table
// of Knuth, Morris and Pratt finds the longest in one pass, and only its first `maxNgram` entries are ever looked at.

export interface NgramOptions {
  /** Most draft tokens of one proposal. */
  readonly numDraftTokens: number;
  readonly minNgram: number;
  readonly maxNgram: number;
}

export class NgramProposer {
  readonly #options: NgramOptions;
  /** [maxNgram] of the last i + 1 tokens, read backwards: the length of the longest proper prefix that is also a suffix. */
  readonly #borders: Int32Array;

  constructor(options: NgramOptions) {
    this.#options = options;
    this.#borders = new Int32Array(options.maxNgram);
  }

  /** Writes at most `limit` drafts that continue tokenIds[0 .. numTokens) to the front of `drafts`; returns how many. */
  propose(tokenIds: Int32Array, numTokens: number, limit: number, drafts: Int32Array): number {
    const most = Math.min(limit, this.#options.numDraftTokens);
    if (most <= 0 || numTokens <= this.#options.minNgram) return 0;
    const start = this.#endOfMatch(tokenIds, numTokens);
    if (start < 0) return 0;
    const count = Math.min(most, numTokens - start);
    for (let i = 0; i < count; i++) drafts[i] = tokenIds[start + i]!;
    return count;
  }

  /** Position after the earlier occurrence of the longest n-gram; -1 = there is none that is long enough. */
  #endOfMatch(tokenIds: Int32Array, numTokens: number): number {
    const { minNgram, maxNgram } = this.#options;
    const borders = this.#borders;
    const last = numTokens - 1;
    let longest = 0;
    let matchEnd = -1;
    let length = 0;
    borders[0] = 0;
    // Token i counts from the end; `length` tokens before it (towards the end) match the end of the text.
    for (let i = 1; i < numTokens; i++) {
      const token = tokenIds[last - i]!;
      while (length > 0 && tokenIds[last - length] !== token) length = borders[length - 1]!;
      if (tokenIds[last - length] === token) {
        length++;
        // Equal lengths count, too: further from the end is earlier in the text.
        if (length >= longest) {
          longest = length;
          matchEnd = last - i + length;
        }
      }
      if (i < maxNgram) borders[i] = length;
      if (length === maxNgram) length = borders[maxNgram - 1]!;
    }
    return longest >= minNgram ? matchEnd : -1;
  }
}
