// How one sequence chooses its tokens and when it stops: resolved, validated, plain data (safe to send between processes).
// Meanings and ranges are vLLM's (SamplingParams). Validation of user input happens in server/ and in the LLM class.

export interface SamplingParams {
  /** 0 = greedy. Values in (0, 0.01) have been raised to 0.01. */
  readonly temperature: number;
  /** 0 = off. */
  readonly topK: number;
  /** (0, 1]; 1 = off. */
  readonly topP: number;
  /** [0, 1]; 0 = off. */
  readonly minP: number;
  /** > 0; 1 = off. Applies to prompt and output tokens. */
  readonly repetitionPenalty: number;
  /** [-2, 2]; 0 = off. Output tokens only. */
  readonly presencePenalty: number;
  /** [-2, 2]; 0 = off. Output tokens only. */
  readonly frequencyPenalty: number;
  /** Pairs (token id, bias), bias clamped to +-100. */
  readonly logitBias: ReadonlyArray<readonly [number, number]>;
  /** null = every token is allowed. */
  readonly allowedTokenIds: readonly number[] | null;
  /** Token sequences whose last token is forbidden when the ones before it stand at the end of the output. */
  readonly badWords: ReadonlyArray<readonly number[]>;
  /** Output length limit, >= 1. */
  readonly maxTokens: number;
  /** End and stop tokens are masked until this many tokens were generated. */
  readonly minTokens: number;
  /** End-of-sequence ids (union of tokenizer, config and generation_config); ignored when `ignoreEos`. */
  readonly eosTokenIds: readonly number[];
  readonly ignoreEos: boolean;
  /** The request's own stop ids; they stop even when `ignoreEos`. */
  readonly stopTokenIds: readonly number[];
  /** Unsigned 64-bit seed. A request without a seed gets a random one at the door, so sampling is always seeded. */
  readonly seed: bigint;
  /** How many best alternatives to report per generated token; null = no logprobs at all; -1 = whole vocabulary. */
  readonly logprobs: number | null;
  /** The same for prompt tokens. Such a request does not read the prefix cache. */
  readonly promptLogprobs: number | null;
}

export const DEFAULT_SAMPLING: SamplingParams = Object.freeze({
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: [],
  allowedTokenIds: null,
  badWords: [],
  maxTokens: 16,
  minTokens: 0,
  eosTokenIds: [],
  ignoreEos: false,
  stopTokenIds: [],
  seed: 0n,
  logprobs: null,
  promptLogprobs: null,
});
