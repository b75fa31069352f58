// vLLM's `random` data set: prompts of random tokens, lengths uniform in [(1 - r) L, (1 + r) L], an optional common prefix.

import { Draws } from '../draws.ts';
import type { BenchPrompt, DatasetContext } from './dataset.ts';

export interface RandomOptions {
  readonly inputLen: number;
  readonly outputLen: number;
  /** 0 = all equal; below 1. */
  readonly rangeRatio: number;
  readonly prefixLen: number;
}

export function randomPrompts(options: RandomOptions, context: DatasetContext): BenchPrompt[] {
  const { source, asIds, numPrompts, seed } = context;
  const lengths = new Draws(seed, 'lengths');
  const tokens = new Draws(seed, 'tokens');
  const prefix = source.piece(options.prefixLen, tokens);
  const length = (middle: number): number => {
    const low = Math.floor(middle * (1 - options.rangeRatio));
    return Math.max(1, lengths.integer(low, Math.ceil(middle * (1 + options.rangeRatio))));
  };
  return Array.from({ length: numPrompts }, () => {
    const numInput = length(options.inputLen);
    const numOutputTokens = length(options.outputLen);
    return {
      prompt: source.join([prefix, source.piece(numInput, tokens)], asIds),
      numPromptTokens: options.prefixLen + numInput,
      numOutputTokens,
      sendSeconds: null,
    };
  });
}
