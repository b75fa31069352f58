// Measures a plan of the scheduler as a cost model wants it: one object, filled anew for every step.

import type { StepPlan } from '../core/step.ts';
import type { StepLoad } from './step-cost.ts';

export class StepMeter implements StepLoad {
  numSequences = 0;
  numTokens = 0;
  numPrefillTokens = 0;
  numDecodes = 0;
  decodeContextTokens = 0;
  prefillPairs = 0;

  /** A token that follows generated ones is a decode; the tail of a prompt is not, even if it is one token. */
  measure(plan: StepPlan): void {
    const { scheduled } = plan;
    let numPrefillTokens = 0;
    let numDecodes = 0;
    let decodeContextTokens = 0;
    let prefillPairs = 0;
    for (let i = 0; i < scheduled.length; i++) {
      const { numTokens, numComputed, sequence } = scheduled[i]!;
      if (numTokens === 1 && numComputed >= sequence.numPromptTokens) {
        numDecodes++;
        decodeContextTokens += numComputed + 1;
      } else {
        numPrefillTokens += numTokens;
        // Position p attends to p + 1 keys.
        prefillPairs += numTokens * numComputed + (numTokens * (numTokens + 1)) / 2;
      }
    }
    this.numSequences = scheduled.length;
    this.numTokens = plan.numTokens;
    this.numPrefillTokens = numPrefillTokens;
    this.numDecodes = numDecodes;
    this.decodeContextTokens = decodeContextTokens;
    this.prefillPairs = prefillPairs;
  }
}
