// The seam between policy and execution: a plan says which sequence gets how many tokens in one step; the device answers
// with what it sampled. `core/` makes plans and takes results; the engine turns a plan into a ForwardBatch and runs it.

import type { Sequence } from './sequence.ts';

export interface ScheduledSequence {
  readonly sequence: Sequence;
  /** Tokens of this sequence in this step, >= 1. They start at position `numComputed`. */
  readonly numTokens: number;
  /** Tokens whose KV was in the cache before this step (context length), fixed when the plan was made. */
  readonly numComputed: number;
  /** True when the step reaches the sequence's last known token, so a new token is sampled from its last row. */
  readonly samples: boolean;
  /** How many of its tokens, at the end, are drafts (`sequence.draftTokenIds`): then it samples after each until one differs. */
  readonly numDrafts: number;
}

export interface Preemption {
  readonly sequence: Sequence;
  /** The device slot it had. */
  readonly slot: number;
  /** The sequence that needed a block; may be the same one. */
  readonly neededBy: Sequence;
  readonly numBlocksFreed: number;
  /** Tokens whose KV must be computed again (before any prefix-cache hit on its return). */
  readonly numTokensToRecompute: number;
}

/**
 * Valid until the plan after the next one is made: plans are reused. A plan that is not empty must be executed, whole: a
 * sequence may read blocks that an earlier entry of the same plan, or of an earlier plan, fills, even if that one was aborted.
 */
export interface StepPlan {
  /** Monotonic number of the plan. */
  readonly stepId: number;
  /** In execution order. Empty when there is nothing to do. */
  readonly scheduled: readonly ScheduledSequence[];
  readonly numTokens: number;
  /** How many of them catch up with tokens known before: prompts, and what a preemption lost. The others are decodes. */
  readonly numPrefillTokens: number;
  readonly preempted: readonly Preemption[];
  /** Sequences that came from the waiting queue in this step: the device must learn about them before it runs the step. */
  readonly admitted: readonly Sequence[];
}
