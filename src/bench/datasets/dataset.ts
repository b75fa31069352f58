// A data set gives the requests of a load, one after the other, before it starts. Each kind is one file of this folder.

import type { Draws } from '../draws.ts';
import type { PromptSource, PromptText } from '../prompt-source.ts';

export interface BenchPrompt {
  readonly prompt: PromptText;
  /** What the client believes. */
  readonly numPromptTokens: number;
  /** max_tokens of the request. */
  readonly numOutputTokens: number;
  /** Only in traces: when it is due, seconds after the start. */
  readonly sendSeconds: number | null;
  /** Only in traces: requests of one conversation have the same. */
  readonly sessionId?: number;
}

export interface DatasetContext {
  readonly numPrompts: number;
  readonly seed: number;
  readonly source: PromptSource;
  /** Token ids as prompts (text completion only). */
  readonly asIds: boolean;
  /** Fewer rows than prompts: false = the rows are used again, true = fewer requests. */
  readonly noOversample: boolean;
  readonly disableShuffle: boolean;
}

/** Repeats rows until there are enough, as `vllm bench serve` does unless --no-oversample. */
export function oversample(prompts: readonly BenchPrompt[], context: DatasetContext, draws: Draws): BenchPrompt[] {
  if (prompts.length >= context.numPrompts) return prompts.slice(0, context.numPrompts);
  if (context.noOversample || prompts.length === 0) return [...prompts];
  const all = [...prompts];
  while (all.length < context.numPrompts) all.push(prompts[draws.integer(0, prompts.length - 1)]!);
  return all;
}
