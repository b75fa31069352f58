// vLLM's `prefix_repetition` data set: a few long prefixes, each shared by an equal part of the requests, with own endings.

import { Draws } from '../draws.ts';
import type { BenchPrompt, DatasetContext } from './dataset.ts';

export interface PrefixRepetitionOptions {
  readonly prefixLen: number;
  readonly suffixLen: number;
  readonly numPrefixes: number;
  readonly outputLen: number;
}

export function prefixRepetitionPrompts(options: PrefixRepetitionOptions, context: DatasetContext): BenchPrompt[] {
  const { source, asIds, numPrompts, seed } = context;
  const tokens = new Draws(seed, 'tokens');
  const prefixes = Array.from({ length: options.numPrefixes }, () => source.piece(options.prefixLen, tokens));
  const prompts = Array.from({ length: numPrompts }, (_, i) => ({
    prompt: source.join(
      [prefixes[Math.floor((i * options.numPrefixes) / numPrompts)]!, source.piece(options.suffixLen, tokens)],
      asIds,
    ),
    numPromptTokens: options.prefixLen + options.suffixLen,
    numOutputTokens: options.outputLen,
    sendSeconds: null,
  }));
  return context.disableShuffle ? prompts : new Draws(seed, 'order').shuffle(prompts);
}
