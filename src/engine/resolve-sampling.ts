// One place that turns what a caller asked for into SamplingParams: defaults, ranges, vLLM's rules and vLLM's error texts.
// Server and LLM class both use it. Input is plain data in camelCase; null and undefined both mean "not given". Errors are
// PagodaError bad_request (or context_length_exceeded) whose `param` is the field's name on the wire.

import { randomBytes } from 'node:crypto';
import type { SamplingParams } from '../core/sampling-params.ts';
import { PagodaError } from '../errors.ts';
import {
  optionalBoolean,
  optionalInteger,
  optionalNumber,
  optionalTokenIds,
  refuse,
  stringList,
} from './sampling-fields.ts';

type Maybe<T> = T | null | undefined;

/** vLLM's SamplingParams in camelCase. */
export interface SamplingInput {
  n?: Maybe<number>;
  temperature?: Maybe<number>;
  topP?: Maybe<number>;
  topK?: Maybe<number>;
  minP?: Maybe<number>;
  presencePenalty?: Maybe<number>;
  frequencyPenalty?: Maybe<number>;
  repetitionPenalty?: Maybe<number>;
  /** Any 64-bit integer; -1 = none given. */
  seed?: Maybe<number | bigint>;
  stop?: Maybe<string | readonly string[]>;
  stopTokenIds?: Maybe<readonly number[]>;
  includeStopStrInOutput?: Maybe<boolean>;
  ignoreEos?: Maybe<boolean>;
  maxTokens?: Maybe<number>;
  minTokens?: Maybe<number>;
  /** Token id -> bias; values are clamped to +-100. */
  logitBias?: Maybe<Readonly<Record<string, number>>>;
  allowedTokenIds?: Maybe<readonly number[]>;
  badWords?: Maybe<readonly string[]>;
  logprobs?: Maybe<number>;
  promptLogprobs?: Maybe<number>;
  skipSpecialTokens?: Maybe<boolean>;
}

/** What generation_config.json and --override-generation-config put in place of the built-in defaults. */
export interface SamplingDefaults {
  readonly temperature?: number | undefined;
  readonly topP?: number | undefined;
  readonly topK?: number | undefined;
  readonly minP?: number | undefined;
  readonly repetitionPenalty?: number | undefined;
  /** Caps the output length of requests that do not say (max_new_tokens). */
  readonly maxTokens?: number | undefined;
}

export interface SamplingContext {
  readonly vocabSize: number;
  readonly maxModelLen: number;
  readonly numPromptTokens: number;
  readonly eosTokenIds: readonly number[];
  readonly defaults: SamplingDefaults;
  /** Output length when the request does not say: 16 for completions; null = what is left of the context (chat). */
  readonly defaultMaxTokens: number | null;
  /** Most alternatives per token; -1 = the whole vocabulary. */
  readonly maxLogprobs: number;
  /** Most sequences per request (default 128). */
  readonly maxN?: number;
  /** The name under which the caller gave the output length (default max_tokens). */
  readonly maxTokensParam?: string;
  /** Ids of a text without special tokens: needed for badWords. */
  encode(text: string): number[];
}

export interface ResolvedSampling {
  readonly sampling: SamplingParams;
  readonly n: number;
  /** Stop strings are found in the front, where text is made. */
  readonly stop: readonly string[];
  readonly includeStopStrInOutput: boolean;
  readonly skipSpecialTokens: boolean;
}

/** Below this, temperature means greedy; between this and the smallest one it is raised. Both are vLLM's. */
const GREEDY_BELOW = 1e-5;
const SMALLEST_TEMPERATURE = 0.01;
const DEFAULT_MAX_N = 128;
const MAX_STOP_STRINGS = 64;
const MAX_STOP_STRING_LENGTH = 1024;
const MAX_LIST_ENTRIES = 1024;

export function resolveSampling(input: SamplingInput, context: SamplingContext): ResolvedSampling {
  const n = resolveN(input.n, context.maxN ?? DEFAULT_MAX_N);
  const shape = resolveShape(input, context.defaults);
  if (shape.temperature === 0 && n > 1) refuse('n', `n must be 1 when using greedy sampling, got ${n}.`);
  const maxTokens = resolveMaxTokens(input, context);
  const minTokens = optionalInteger('min_tokens', input.minTokens) ?? 0;
  if (minTokens < 0) refuse('min_tokens', `min_tokens must be greater than or equal to 0, got ${minTokens}.`);
  if (minTokens > maxTokens) {
    refuse('min_tokens', `min_tokens must be less than or equal to max_tokens=${maxTokens}, got ${minTokens}.`);
  }
  const sampling: SamplingParams = {
    ...shape,
    logitBias: resolveLogitBias(input.logitBias, context.vocabSize),
    allowedTokenIds: resolveAllowed(input.allowedTokenIds, context.vocabSize),
    badWords: resolveBadWords(input.badWords, context),
    maxTokens,
    minTokens,
    eosTokenIds: context.eosTokenIds,
    ignoreEos: optionalBoolean('ignore_eos', input.ignoreEos) ?? false,
    stopTokenIds: resolveStopTokenIds(input.stopTokenIds, context.vocabSize),
    seed: resolveSeed(input.seed),
    logprobs: resolveLogprobs('logprobs', input.logprobs, context),
    promptLogprobs: resolveLogprobs('prompt_logprobs', input.promptLogprobs, context),
  };
  return {
    sampling,
    n,
    stop: resolveStop(input.stop),
    includeStopStrInOutput: optionalBoolean('include_stop_str_in_output', input.includeStopStrInOutput) ?? false,
    skipSpecialTokens: optionalBoolean('skip_special_tokens', input.skipSpecialTokens) ?? true,
  };
}

/** Parameters of choice `index` of a request with n > 1: the seed moves on by one per choice, as in vLLM. */
export function childSampling(sampling: SamplingParams, index: number): SamplingParams {
  return index === 0 ? sampling : { ...sampling, seed: BigInt.asUintN(64, sampling.seed + BigInt(index)) };
}

function resolveN(value: Maybe<number>, maxN: number): number {
  const n = optionalInteger('n', value) ?? 1;
  if (n < 1) refuse('n', `n must be at least 1, got ${n}.`);
  if (n > maxN) refuse('n', `n must be at most ${maxN}, got ${n}.`);
  return n;
}

type Shape = Pick<
  SamplingParams,
  'temperature' | 'topK' | 'topP' | 'minP' | 'repetitionPenalty' | 'presencePenalty' | 'frequencyPenalty'
>;

/** The numbers that shape the distribution. Ranges are checked even when greedy makes them irrelevant. */
function resolveShape(input: SamplingInput, defaults: SamplingDefaults): Shape {
  const presencePenalty = optionalNumber('presence_penalty', input.presencePenalty) ?? 0;
  if (Math.abs(presencePenalty) > 2) {
    refuse('presence_penalty', `presence_penalty must be in [-2, 2], got ${presencePenalty}.`);
  }
  const frequencyPenalty = optionalNumber('frequency_penalty', input.frequencyPenalty) ?? 0;
  if (Math.abs(frequencyPenalty) > 2) {
    refuse('frequency_penalty', `frequency_penalty must be in [-2, 2], got ${frequencyPenalty}.`);
  }
  const repetitionPenalty =
    optionalNumber('repetition_penalty', input.repetitionPenalty) ?? defaults.repetitionPenalty ?? 1;
  if (repetitionPenalty <= 0) {
    refuse('repetition_penalty', `repetition_penalty must be greater than zero, got ${repetitionPenalty}.`);
  }
  let temperature = optionalNumber('temperature', input.temperature) ?? defaults.temperature ?? 1;
  if (temperature < 0) refuse('temperature', `temperature must be non-negative, got ${temperature}.`);
  if (temperature > 2) refuse('temperature', `temperature must be in [0, 2], got ${temperature}.`);
  const topP = optionalNumber('top_p', input.topP) ?? defaults.topP ?? 1;
  if (topP <= 0 || topP > 1) refuse('top_p', `top_p must be in (0, 1], got ${topP}.`);
  const topK = optionalInteger('top_k', input.topK) ?? defaults.topK ?? 0;
  if (topK < -1) refuse('top_k', `top_k must be 0 (disable), or at least 1, got ${topK}.`);
  const minP = optionalNumber('min_p', input.minP) ?? defaults.minP ?? 0;
  if (minP < 0 || minP > 1) refuse('min_p', `min_p must be in [0, 1], got ${minP}.`);
  const penalties = { repetitionPenalty, presencePenalty, frequencyPenalty };
  if (temperature < GREEDY_BELOW) return { temperature: 0, topK: 0, topP: 1, minP: 0, ...penalties };
  temperature = Math.max(temperature, SMALLEST_TEMPERATURE);
  return { temperature, topK: Math.max(topK, 0), topP, minP, ...penalties };
}

function resolveMaxTokens(input: SamplingInput, context: SamplingContext): number {
  const { maxModelLen, numPromptTokens } = context;
  const param = context.maxTokensParam ?? 'max_tokens';
  const asked = optionalInteger(param, input.maxTokens);
  if (asked !== null && asked < 1) refuse(param, `${param} must be at least 1, got ${asked}.`);
  if (asked !== null && asked > maxModelLen) {
    refuse(param, `${param}=${asked} cannot be greater than max_model_len=max_total_tokens=${maxModelLen}`);
  }
  const numOutput = asked ?? 1;
  if (numPromptTokens + numOutput > maxModelLen) {
    throw new PagodaError(
      'context_length_exceeded',
      `This model's maximum context length is ${maxModelLen} tokens. However, you requested ${numOutput} output tokens and ` +
        `your prompt contains ${numPromptTokens} input tokens, for a total of ${numPromptTokens + numOutput} tokens. ` +
        'Please reduce the length of the input prompt or the number of requested output tokens.',
      { param: 'input_tokens' },
    );
  }
  const room = maxModelLen - numPromptTokens;
  return Math.min(asked ?? context.defaultMaxTokens ?? room, context.defaults.maxTokens ?? room, room);
}

function resolveSeed(value: Maybe<number | bigint>): bigint {
  if (value === null || value === undefined || value === -1 || value === -1n) {
    return randomBytes(8).readBigUInt64LE();
  }
  if (typeof value !== 'bigint' && !Number.isInteger(value)) {
    refuse('seed', `seed must be an integer, got ${String(value)}.`);
  }
  const seed = BigInt(value);
  if (seed < -(2n ** 63n) || seed >= 2n ** 64n) {
    refuse('seed', `seed must be a 64-bit integer (from -2^63 to 2^64 - 1), got ${seed}.`);
  }
  return BigInt.asUintN(64, seed);
}

function resolveStop(value: Maybe<string | readonly string[]>): readonly string[] {
  const stop = typeof value === 'string' ? [value] : stringList('stop', value);
  if (stop.length > MAX_STOP_STRINGS) {
    refuse('stop', `stop must have at most ${MAX_STOP_STRINGS} strings, got ${stop.length}.`);
  }
  for (const text of stop) {
    if (text === '') refuse('stop', 'stop cannot contain an empty string.');
    if (text.length > MAX_STOP_STRING_LENGTH) {
      refuse('stop', `stop strings must have at most ${MAX_STOP_STRING_LENGTH} characters, got ${text.length}.`);
    }
  }
  return stop;
}

function resolveStopTokenIds(value: Maybe<readonly number[]>, vocabSize: number): readonly number[] {
  const ids = optionalTokenIds('stop_token_ids', value) ?? [];
  if (ids.length > MAX_LIST_ENTRIES) {
    refuse('stop_token_ids', `stop_token_ids must have at most ${MAX_LIST_ENTRIES} ids, got ${ids.length}.`);
  }
  refuseOutOfVocabulary('stop_token_ids', ids, vocabSize);
  return ids;
}

function resolveAllowed(value: Maybe<readonly number[]>, vocabSize: number): readonly number[] | null {
  const ids = optionalTokenIds('allowed_token_ids', value);
  if (ids === null) return null;
  if (ids.length === 0) refuse('allowed_token_ids', 'allowed_token_ids is not None and empty!');
  if (ids.some((id) => id < 0 || id >= vocabSize)) {
    refuse('allowed_token_ids', 'allowed_token_ids contains out-of-vocab token id!');
  }
  return [...new Set(ids)];
}

function resolveLogitBias(
  value: Maybe<Readonly<Record<string, number>>>,
  vocabSize: number,
): ReadonlyArray<readonly [number, number]> {
  if (value === null || value === undefined) return [];
  if (typeof value !== 'object' || Array.isArray(value)) {
    refuse('logit_bias', 'logit_bias must be an object of token ids and numbers.');
  }
  const entries = Object.entries(value);
  if (entries.length > MAX_LIST_ENTRIES) {
    refuse('logit_bias', `logit_bias must have at most ${MAX_LIST_ENTRIES} entries, got ${entries.length}.`);
  }
  const pairs = entries.map(([key, bias]): readonly [number, number] => {
    if (!/^[+-]?\d+$/.test(key.trim())) {
      refuse('logit_bias', 'logit_bias contains key(s) that cannot be converted to integer token IDs');
    }
    if (typeof bias !== 'number' || !Number.isFinite(bias)) {
      refuse('logit_bias', `logit_bias values must be finite numbers, got ${String(bias)}.`);
    }
    return [Number(key), Math.min(100, Math.max(-100, bias))];
  });
  refuseOutOfVocabulary(
    'logit_bias',
    pairs.map(([id]) => id),
    vocabSize,
  );
  return pairs;
}

function refuseOutOfVocabulary(param: string, ids: readonly number[], vocabSize: number): void {
  const outside = ids.filter((id) => id < 0 || id >= vocabSize);
  if (outside.length > 0) {
    refuse(
      param,
      `token_id(s) [${outside.join(', ')}] in ${param} contain out-of-vocab token ids. Vocabulary size: ${vocabSize}`,
    );
  }
}

/** A word is forbidden at the start of a text and after a space: both spellings are encoded, as vLLM does. */
function resolveBadWords(value: Maybe<readonly string[]>, context: SamplingContext): ReadonlyArray<readonly number[]> {
  const words = stringList('bad_words', value);
  if (words.length > MAX_LIST_ENTRIES) {
    refuse('bad_words', `bad_words must have at most ${MAX_LIST_ENTRIES} words, got ${words.length}.`);
  }
  const sequences: number[][] = [];
  for (const word of words) {
    if (word.trim() === '') {
      refuse('bad_words', `bad_words cannot contain an empty string. Got bad_words=${JSON.stringify(words)}`);
    }
    const bare = context.encode(word.trimStart());
    sequences.push(bare);
    const spaced = context.encode(` ${word.trimStart()}`);
    if (spaced.length === bare.length && spaced[0] !== bare[0]) sequences.push(spaced);
  }
  return sequences;
}

function resolveLogprobs(param: string, value: Maybe<number>, context: SamplingContext): number | null {
  const asked = optionalInteger(param, value);
  if (asked === null) return null;
  if (asked < -1) refuse(param, `${param} must be non-negative or -1, got ${asked}.`);
  const count = asked === -1 ? context.vocabSize : asked;
  const allowed = context.maxLogprobs === -1 ? context.vocabSize : context.maxLogprobs;
  if (count > allowed) {
    const kind = param === 'prompt_logprobs' ? 'prompt' : 'sample';
    refuse(param, `Requested ${kind} logprobs of ${count}, which is greater than max allowed: ${allowed}`);
  }
  return asked;
}
