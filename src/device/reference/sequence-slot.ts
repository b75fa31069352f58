// What the device keeps about one sequence between steps: how it samples and which tokens it has.

import type { SamplingParams } from '../../core/sampling-params.ts';
import type { SequenceInit } from '../device.ts';
import { TokenHistory } from './token-history.ts';

export class SequenceSlot {
  readonly sampling: SamplingParams;
  readonly history: TokenHistory;

  constructor(init: SequenceInit) {
    this.sampling = init.sampling;
    this.history = new TokenHistory(init.tokenIds, init.numPromptTokens, init.sampling);
  }

  get lastToken(): number {
    return this.history.at(this.history.length - 1);
  }
}
