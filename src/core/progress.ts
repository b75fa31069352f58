// What the scheduler tells the engine after a step: who got a token, who ended and why.

import type { FinishReason } from './request.ts';
import type { Sequence } from './sequence.ts';

export interface SequenceProgress {
  readonly sequence: Sequence;
  /** Index in the plan's `scheduled` (the row of the step's results); -1 when it did not come from a step. */
  readonly planIndex: number;
  /** 0 or 1 tokens were added: the last `numNewTokens` of the sequence's `numTokens`. */
  readonly numNewTokens: number;
  /** Set in the one last progress of a sequence. */
  readonly finishReason: FinishReason | null;
  /** The stop token id that ended it; null for end-of-sequence tokens. */
  readonly stopTokenId: number | null;
}

interface Entry extends SequenceProgress {
  sequence: Sequence;
  planIndex: number;
  numNewTokens: number;
  finishReason: FinishReason | null;
  stopTokenId: number | null;
}

/** A list that is filled anew in every step without allocating. */
export class ProgressBuffer {
  readonly #entries: Entry[] = [];
  readonly #list: Entry[] = [];
  #length = 0;

  begin(): void {
    this.#length = 0;
  }

  /** Adds progress of one token without an end; the caller overwrites what differs. */
  push(sequence: Sequence, planIndex: number): Entry {
    const index = this.#length++;
    if (index === this.#entries.length) {
      this.#entries.push({ sequence, planIndex, numNewTokens: 1, finishReason: null, stopTokenId: null });
    }
    const entry = this.#entries[index]!;
    entry.sequence = sequence;
    entry.planIndex = planIndex;
    entry.numNewTokens = 1;
    entry.finishReason = null;
    entry.stopTokenId = null;
    this.#list[index] = entry;
    return entry;
  }

  /** Valid until the next `begin`. */
  end(): readonly SequenceProgress[] {
    if (this.#list.length !== this.#length) this.#list.length = this.#length;
    return this.#list;
  }
}
