// What a modelled device answers when it is asked how long a step takes: the seam between cost models and the simulator.

/** One step of the scheduler as far as its cost goes. Everything is summed over the step's sequences. */
export interface StepLoad {
  /** Sequences in the step. */
  readonly numSequences: number;
  /** Tokens in the step, prefill and decode. */
  readonly numTokens: number;
  /** Tokens that catch up with known ones (prompts and what a preemption lost). */
  readonly numPrefillTokens: number;
  /** Sequences with one new token each. */
  readonly numDecodes: number;
  /** Keys that decode tokens read: the sum of their context lengths. */
  readonly decodeContextTokens: number;
  /** Query-key pairs of prefill tokens: the sum over these tokens of position + 1. */
  readonly prefillPairs: number;
}

export interface StepCost {
  /** Seconds on the device, everything included that delays the next step. */
  stepSeconds(load: StepLoad): number;
  /** Seconds before the first token that are not steps: tokenizing, HTTP, hand-over. */
  readonly requestOverheadSeconds: number;
}
