// Prompt and output lengths of one request after the other, correlated in rank as asked.

import { LengthSampler, type LengthSpec, SharePairs } from './lengths.ts';
import { RandomSource } from './random-source.ts';

export interface LengthPairsSpec {
  readonly seed: number;
  readonly prompt: LengthSpec;
  readonly output: LengthSpec;
  /** Spearman's rho, -1 to 1. */
  readonly rankCorrelation: number;
}

export class LengthPairs {
  readonly #prompt: LengthSampler;
  readonly #output: LengthSampler;
  readonly #shares: SharePairs;
  readonly #random: RandomSource;
  promptTokens = 0;
  outputTokens = 0;

  constructor(spec: LengthPairsSpec) {
    this.#prompt = new LengthSampler(spec.prompt);
    this.#output = new LengthSampler(spec.output);
    this.#random = new RandomSource(spec.seed, 'mixtures');
    this.#shares = new SharePairs(spec.rankCorrelation, new RandomSource(spec.seed, 'lengths'));
  }

  draw(): void {
    this.#shares.draw();
    this.promptTokens = this.#prompt.at(this.#shares.first, this.#random);
    this.outputTokens = this.#output.at(this.#shares.second, this.#random);
  }
}
