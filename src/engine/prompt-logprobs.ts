// Collects the logprobs of one prompt over its chunks. A preemption makes the device compute rows again: they overwrite
// equal entries. Once the list has been sent with the first token, nothing more is asked of the device.

import type { TokenLogprob } from '../core/request.ts';
import type { PromptRowLogprob } from '../device/forward-batch.ts';

export class PromptLogprobs {
  readonly #entries: Array<TokenLogprob | null>;
  #isSent = false;

  constructor(numPromptTokens: number) {
    this.#entries = new Array<TokenLogprob | null>(numPromptTokens).fill(null);
  }

  /** Whether a chunk that starts at `position` has rows that predict prompt tokens still wanted. */
  needs(position: number): boolean {
    return !this.#isSent && position < this.#entries.length - 1;
  }

  add(row: PromptRowLogprob): void {
    if (this.#isSent || row.position >= this.#entries.length) return;
    this.#entries[row.position] = {
      tokenId: row.tokenId,
      logprob: row.logprob,
      rank: row.rank,
      top: row.topTokens.map((tokenId, i) => ({ tokenId, logprob: row.topLogprobs[i]!, rank: i + 1 })),
    };
  }

  /** The whole list, once; null afterwards. */
  take(): ReadonlyArray<TokenLogprob | null> | null {
    if (this.#isSent) return null;
    this.#isSent = true;
    return this.#entries;
  }
}
