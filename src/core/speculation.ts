// Draft tokens in plans, and what became of them. A draft is a guess at the tokens after a sequence's last known one; a decode
// with k drafts computes 1 + k tokens, and the device samples after each as it would without them, until a sample differs from
// the next draft. So drafts change how many tokens a step gives, never which.
//
// Drafts are the last to get anything of a step, and only what is free: no sequence waits or is preempted for them, and what
// rejected ones held is given back at once. They need the last token to be known, so a sequence with a token in flight gets none.

import type { KvManager } from './kv-manager.ts';
import { type NgramOptions, NgramProposer } from './ngram-proposer.ts';
import type { Sequence } from './sequence.ts';
import type { PlanBuffer } from './step-plan.ts';

export interface SpeculationOptions extends NgramOptions {
  /** No drafts in a step with more sequences than this: the tokens of many keep the arithmetic busy, and wrong drafts cost. */
  readonly maxSeqs: number;
}

/** Since the start. */
export interface SpeculationCounts {
  /** Times that a sequence got drafts. */
  readonly numDrafts: number;
  readonly numDraftTokens: number;
  /** [numDraftTokens of the options] how often the draft token at this position was the sampled one. */
  readonly numAcceptedAt: readonly number[];
}

export class Speculation {
  readonly #options: SpeculationOptions;
  readonly #kv: KvManager;
  readonly #proposer: NgramProposer;
  readonly #numAcceptedAt: number[];
  #numDrafts = 0;
  #numDraftTokens = 0;

  constructor(options: SpeculationOptions, kv: KvManager) {
    this.#options = options;
    this.#kv = kv;
    this.#proposer = new NgramProposer(options);
    this.#numAcceptedAt = new Array<number>(options.numDraftTokens).fill(0);
  }

  get counts(): SpeculationCounts {
    return {
      numDrafts: this.#numDrafts,
      numDraftTokens: this.#numDraftTokens,
      numAcceptedAt: [...this.#numAcceptedAt],
    };
  }

  isOnFor(numSequences: number): boolean {
    return numSequences <= this.#options.maxSeqs;
  }

  /** Lengthens decodes of a plan that has everything else. */
  addDrafts(plan: PlanBuffer): void {
    if (!this.isOnFor(plan.numScheduled)) return;
    for (let index = 0; index < plan.numScheduled && plan.tokensLeft > 0; index++) {
      const { sequence, samples, isPrefill } = plan.scheduled[index]!;
      // One placeholder is the token of this very step; with two, the one it starts from is not known.
      if (!samples || isPrefill || sequence.numPlaceholders !== 1) continue;
      const numDrafts = this.#propose(sequence, plan.tokensLeft);
      if (numDrafts > 0) plan.addDrafts(index, numDrafts);
    }
  }

  /** After the device compared: the first `numAccepted` drafts are tokens of the sequence now, and computed. */
  settle(sequence: Sequence, numAccepted: number): void {
    this.#numDrafts++;
    this.#numDraftTokens += sequence.numDrafts;
    for (let i = 0; i < numAccepted; i++) this.#numAcceptedAt[i]!++;
    sequence.numDrafts = 0;
    if (sequence.status !== 'running') return; // a preemption took everything meanwhile
    sequence.computedTokens += numAccepted;
    this.#kv.trim(sequence, sequence.computedTokens);
  }

  /** Drafts for a sequence whose last known token is planned; returns how many. */
  #propose(sequence: Sequence, tokensLeft: number): number {
    // Sampling after the last draft must not lead beyond the end.
    const limit = Math.min(tokensLeft, sequence.maxTotalTokens - sequence.numTokens - 1);
    if (sequence.draftTokenIds.length === 0) sequence.draftTokenIds = new Int32Array(this.#options.numDraftTokens);
    let count = this.#proposer.propose(sequence.tokenIds, sequence.numTokens, limit, sequence.draftTokenIds);
    const { numTokens } = sequence;
    if (count > 0 && !this.#kv.extend(sequence, numTokens + count)) {
      count = Math.min(count, sequence.capacityTokens - numTokens);
    }
    sequence.numDrafts = count;
    return count;
  }
}
