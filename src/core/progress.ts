// What the scheduler tells the engine after a step: who got a token, who ended and why.

import type { FinishReason } from './request.ts';
import type { Sequence } from './sequence.ts';

export interface SequenceProgress {
  readonly sequence: Sequence;
  /** Index in the plan's `scheduled`; -1 when it did not come from a step. */
  readonly planIndex: number;
  /** Row of the first new token in the step's results, the others follow; -1 when it did not come from a step. */
  readonly firstRow: number;
  /** Tokens added: the last `numNewTokens` of the sequence's `numTokens`. More than one only after drafts. */
  readonly numNewTokens: number;
  /** Set in the one last progress of a sequence. */
  readonly finishReason: FinishReason | null;
  /** The stop token id that ended it; null for end-of-sequence tokens. */
  readonly stopTokenId: number | null;
}

interface Entry extends SequenceProgress {
  sequence: Sequence;
  planIndex: number;
  firstRow: number;
  numNewTokens: number;
  finishReason: FinishReason | null;
  stopTokenId: number | null;
}

/** A list that is filled anew in every step without allocating. */
export class ProgressBuffer {
  readonly #entries: Entry[] = [];
  /** The first of them, at the same places. */
  readonly #list: Entry[] = [];
  #length = 0;

  begin(): void {
    this.#length = 0;
  }

  /** Adds progress without an end; the caller overwrites what differs. */
  push(sequence: Sequence, planIndex: number, firstRow: number, numNewTokens: number): Entry {
    const index = this.#length++;
    if (index === this.#entries.length) {
      this.#entries.push({ sequence, planIndex, firstRow, numNewTokens, finishReason: null, stopTokenId: null });
    }
    const entry = this.#entries[index]!;
    entry.sequence = sequence;
    entry.planIndex = planIndex;
    entry.firstRow = firstRow;
    entry.numNewTokens = numNewTokens;
    entry.finishReason = null;
    entry.stopTokenId = null;
    if (index >= this.#list.length) this.#list.push(entry);
    return entry;
  }

  /** Valid until the next `begin`. */
  end(): readonly SequenceProgress[] {
    if (this.#list.length !== this.#length) this.#list.length = this.#length;
    return this.#list;
  }
}
