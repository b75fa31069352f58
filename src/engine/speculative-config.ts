// `--speculative-config`: vLLM's names, defaults and texts (config/speculative.py), as far as they are about prompt lookup.

import type { SpeculationOptions } from '../core/speculation.ts';

export interface SpeculativeConfig {
  readonly method: 'ngram';
  /** Most draft tokens per sequence and step. */
  readonly num_speculative_tokens: number;
  /** Longest and shortest n-gram that is looked up. Both 5 when neither is given, equal when one is. */
  readonly prompt_lookup_max?: number;
  readonly prompt_lookup_min?: number;
  /** No drafts in a step with more sequences than this; at least 2. */
  readonly disable_by_batch_size?: number;
}

/** A device takes at most 255 sampled rows per sequence. */
const MOST_DRAFT_TOKENS = 254;
const DEFAULT_NGRAM = 5;
/**
 * From arithmetic, not from measurement: a step of up to about seven rows costs the reading of the weights and no more (q4_0 on a
 * CPU that does 11.8 multiplications for each byte it reads). Four sequences with four drafts each are twenty rows.
 */
const DEFAULT_DISABLE_BY_BATCH_SIZE = 4;

const KEYS = [
  'method',
  'num_speculative_tokens',
  'prompt_lookup_max',
  'prompt_lookup_min',
  'disable_by_batch_size',
] as const;
const NO_DRAFT_MODELS = 'there are no draft models; ngram looks up the text so far';

/** Throws an Error that says which values are allowed. */
export function speculationOptions(config: Readonly<Record<string, unknown>> | SpeculativeConfig): SpeculationOptions {
  const given: Readonly<Record<string, unknown>> = { ...config };
  for (const key of Object.keys(given)) {
    if (!KEYS.some((known) => known === key)) throw new Error(`has no '${key}'; it takes ${KEYS.join(', ')}`);
  }
  if (given.method !== 'ngram' && given.method !== '[ngram]') {
    throw new Error(`method must be one of ngram, got '${String(given.method)}': ${NO_DRAFT_MODELS}`);
  }
  const numDraftTokens = count(given, 'num_speculative_tokens');
  if (numDraftTokens === null) throw new Error('num_speculative_tokens must be provided');
  if (numDraftTokens < 1 || numDraftTokens > MOST_DRAFT_TOKENS) {
    throw new Error(
      `Expected num_speculative_tokens to be greater than zero (${numDraftTokens}) and at most ${MOST_DRAFT_TOKENS}`,
    );
  }
  const most = count(given, 'prompt_lookup_max');
  const least = count(given, 'prompt_lookup_min');
  const maxNgram = most ?? least ?? DEFAULT_NGRAM;
  const minNgram = least ?? most ?? DEFAULT_NGRAM;
  if (minNgram < 1) throw new Error(`prompt_lookup_min=${minNgram} must be > 0`);
  if (maxNgram < 1) throw new Error(`prompt_lookup_max=${maxNgram} must be > 0`);
  if (minNgram > maxNgram) throw new Error(`prompt_lookup_min=${minNgram} must be <= prompt_lookup_max=${maxNgram}`);
  const maxSeqs = count(given, 'disable_by_batch_size') ?? DEFAULT_DISABLE_BY_BATCH_SIZE;
  if (maxSeqs < 2) {
    throw new Error(`Expect the batch size threshold of disabling speculative decoding is > 1, but got ${maxSeqs}`);
  }
  return { numDraftTokens, minNgram, maxNgram, maxSeqs };
}

/** null = not given. */
function count(given: Readonly<Record<string, unknown>>, key: (typeof KEYS)[number]): number | null {
  const value = given[key] ?? null;
  if (value === null) return null;
  if (!Number.isSafeInteger(value)) throw new Error(`${key} must be a whole number, got ${JSON.stringify(value)}`);
  return value as number;
}
