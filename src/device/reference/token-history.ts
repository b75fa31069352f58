// The tokens of one sequence as its sampler sees them: prompt and output told apart, occurrences counted when a penalty asks.

import type { SamplingParams } from '../../core/sampling-params.ts';

export class TokenHistory {
  readonly #tokens: number[];
  readonly #numPrompt: number;
  /** Null when no penalty needs them. */
  readonly #promptTokens: Set<number> | null;
  readonly #outputCounts: Map<number, number> | null;

  constructor(tokenIds: ArrayLike<number>, numPromptTokens: number, sampling: SamplingParams) {
    this.#tokens = Array.from(tokenIds);
    this.#numPrompt = numPromptTokens;
    const counted =
      sampling.repetitionPenalty !== 1 || sampling.frequencyPenalty !== 0 || sampling.presencePenalty !== 0;
    this.#promptTokens = counted ? new Set(this.#tokens.slice(0, numPromptTokens)) : null;
    this.#outputCounts = counted ? new Map() : null;
    for (let i = numPromptTokens; i < this.#tokens.length; i++) this.#count(this.#tokens[i]);
  }

  get length(): number {
    return this.#tokens.length;
  }

  get numPrompt(): number {
    return this.#numPrompt;
  }

  get numOutputs(): number {
    return this.#tokens.length - this.#numPrompt;
  }

  /** Id at a position of the sequence. */
  at(position: number): number {
    return this.#tokens[position];
  }

  push(token: number): void {
    this.#tokens.push(token);
    this.#count(token);
  }

  outputEndsWith(ids: readonly number[]): boolean {
    if (ids.length > this.numOutputs) return false;
    return ids.every((id, i) => this.#tokens[this.#tokens.length - ids.length + i] === id);
  }

  /** Every token that occurs, once, with how often it was generated. */
  *occurrences(): Generator<{ token: number; numOutputs: number }> {
    if (!this.#promptTokens || !this.#outputCounts) return;
    for (const token of this.#promptTokens) {
      if (!this.#outputCounts.has(token)) yield { token, numOutputs: 0 };
    }
    for (const [token, numOutputs] of this.#outputCounts) yield { token, numOutputs };
  }

  #count(token: number): void {
    this.#outputCounts?.set(token, (this.#outputCounts.get(token) ?? 0) + 1);
  }
}
