// A StepPlan under construction. Two of them take turns (one in flight, one being made), so that a step allocates nothing.

import type { Sequence } from './sequence.ts';
import type { Preemption, ScheduledSequence, StepPlan } from './step.ts';

interface Entry extends ScheduledSequence {
  sequence: Sequence;
  numTokens: number;
  numComputed: number;
  samples: boolean;
  numDrafts: number;
  isPrefill: boolean;
}

export class PlanBuffer implements StepPlan {
  stepId = 0;
  /** Made, not empty, and its result not taken yet. */
  isInFlight = false;
  readonly scheduled: Entry[] = [];
  numTokens = 0;
  numPrefillTokens = 0;
  readonly preempted: Preemption[] = [];
  readonly admitted: Sequence[] = [];
  /** What the budgets of the step still allow. */
  tokensLeft = 0;
  prefillTokensLeft = 0;

  /** Entries to reuse. Those of `scheduled`, whose length is set at the end, are the first of them, at the same places. */
  readonly #entries: Entry[] = [];
  numScheduled = 0;

  begin(stepId: number, maxTokens: number, maxPrefillTokens: number): void {
    this.stepId = stepId;
    this.numTokens = 0;
    this.numPrefillTokens = 0;
    this.tokensLeft = maxTokens;
    this.prefillTokensLeft = maxPrefillTokens;
    this.numScheduled = 0;
    if (this.preempted.length > 0) this.preempted.length = 0;
    if (this.admitted.length > 0) this.admitted.length = 0;
  }

  /** Adds a sequence that goes on from its `computedTokens`, and takes its tokens out of the budgets. */
  push(sequence: Sequence, numTokens: number, samples: boolean, isPrefill: boolean): void {
    const index = this.numScheduled++;
    if (index === this.#entries.length) {
      this.#entries.push({ sequence, numTokens: 0, numComputed: 0, samples: false, numDrafts: 0, isPrefill: false });
    }
    const entry = this.#entries[index]!;
    entry.sequence = sequence;
    entry.numTokens = numTokens;
    entry.numComputed = sequence.computedTokens;
    entry.samples = samples;
    entry.numDrafts = 0;
    entry.isPrefill = isPrefill;
    if (index >= this.scheduled.length) this.scheduled.push(entry);
    this.#spend(numTokens, isPrefill);
  }

  /** Lengthens the entry at `index`, a decode. */
  addDrafts(index: number, numDrafts: number): void {
    const entry = this.#entries[index]!;
    entry.numTokens += numDrafts;
    entry.numDrafts = numDrafts;
    this.#spend(numDrafts, false);
  }

  /** Takes a sequence out again and gives its tokens back to the budgets; null when it is not in the plan. */
  drop(sequence: Sequence): ScheduledSequence | null {
    for (let index = 0; index < this.numScheduled; index++) {
      const entry = this.#entries[index]!;
      if (entry.sequence !== sequence) continue;
      this.#entries.splice(index, 1);
      this.#entries.push(entry);
      this.scheduled.splice(index, 1);
      this.numScheduled--;
      this.#spend(-entry.numTokens, entry.isPrefill);
      return entry;
    }
    return null;
  }

  end(): void {
    if (this.scheduled.length !== this.numScheduled) this.scheduled.length = this.numScheduled;
    this.isInFlight = this.numScheduled > 0;
  }

  #spend(numTokens: number, isPrefill: boolean): void {
    this.numTokens += numTokens;
    this.tokensLeft -= numTokens;
    if (!isPrefill) return;
    this.numPrefillTokens += numTokens;
    this.prefillTokensLeft -= numTokens;
  }
}
