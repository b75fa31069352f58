import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  childSampling,
  resolveSampling,
  type SamplingContext,
  type SamplingInput,
} from '../../../src/engine/resolve-sampling.ts';
import { PagodaError } from '../../../src/errors.ts';

const context: SamplingContext = {
  vocabSize: 100,
  maxModelLen: 50,
  numPromptTokens: 10,
  eosTokenIds: [7],
  defaults: {},
  defaultMaxTokens: 16,
  maxLogprobs: 20,
  encode: (text) => [...text].map((letter) => letter.charCodeAt(0) % 100),
};

function failure(input: SamplingInput, over: Partial<SamplingContext> = {}): PagodaError {
  try {
    resolveSampling(input, { ...context, ...over });
  } catch (error) {
    if (error instanceof PagodaError) return error;
    throw error;
  }
  throw new Error('accepted');
}

describe('resolveSampling', () => {
  it("gives vLLM's defaults", () => {
    const { sampling, n, stop, skipSpecialTokens, includeStopStrInOutput } = resolveSampling({}, context);
    expect({ ...sampling, seed: 0n }).toEqual({
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
      eosTokenIds: [7],
      ignoreEos: false,
      stopTokenIds: [],
      seed: 0n,
      logprobs: null,
      promptLogprobs: null,
    });
    expect([n, stop, skipSpecialTokens, includeStopStrInOutput]).toEqual([1, [], true, false]);
  });

  // [input, message, param]: the texts are vLLM's.
  const refused: Array<[SamplingInput, string, string]> = [
    [{ presencePenalty: 2.1 }, 'presence_penalty must be in [-2, 2], got 2.1.', 'presence_penalty'],
    [{ frequencyPenalty: -3 }, 'frequency_penalty must be in [-2, 2], got -3.', 'frequency_penalty'],
    [{ repetitionPenalty: 0 }, 'repetition_penalty must be greater than zero, got 0.', 'repetition_penalty'],
    [{ temperature: -1 }, 'temperature must be non-negative, got -1.', 'temperature'],
    [{ temperature: 2.5 }, 'temperature must be in [0, 2], got 2.5.', 'temperature'],
    [{ temperature: Number.NaN }, 'temperature must be a finite number, got NaN.', 'temperature'],
    [{ topP: 0 }, 'top_p must be in (0, 1], got 0.', 'top_p'],
    [{ topK: -2 }, 'top_k must be 0 (disable), or at least 1, got -2.', 'top_k'],
    [{ topK: 1.5 }, '`top_k` must be an integer, got 1.5.', 'top_k'],
    [{ minP: 1.1 }, 'min_p must be in [0, 1], got 1.1.', 'min_p'],
    [{ maxTokens: 0 }, 'max_tokens must be at least 1, got 0.', 'max_tokens'],
    [{ maxTokens: 51 }, 'max_tokens=51 cannot be greater than max_model_len=max_total_tokens=50', 'max_tokens'],
    [{ minTokens: -1 }, 'min_tokens must be greater than or equal to 0, got -1.', 'min_tokens'],
    [{ minTokens: 9, maxTokens: 8 }, 'min_tokens must be less than or equal to max_tokens=8, got 9.', 'min_tokens'],
    [{ logprobs: -2 }, 'logprobs must be non-negative or -1, got -2.', 'logprobs'],
    [{ logprobs: 21 }, 'Requested sample logprobs of 21, which is greater than max allowed: 20', 'logprobs'],
    [{ logprobs: -1 }, 'Requested sample logprobs of 100, which is greater than max allowed: 20', 'logprobs'],
    [
      { promptLogprobs: 21 },
      'Requested prompt logprobs of 21, which is greater than max allowed: 20',
      'prompt_logprobs',
    ],
    [{ stop: ['a', ''] }, 'stop cannot contain an empty string.', 'stop'],
    [{ badWords: [''] }, 'bad_words cannot contain an empty string. Got bad_words=[""]', 'bad_words'],
    [{ n: 2, temperature: 0 }, 'n must be 1 when using greedy sampling, got 2.', 'n'],
    [{ n: 0 }, 'n must be at least 1, got 0.', 'n'],
    [{ n: 1e6 }, 'n must be at most 128, got 1000000.', 'n'],
    [
      { stopTokenIds: [5, 100, -1] },
      'token_id(s) [100, -1] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: 100',
      'stop_token_ids',
    ],
    [
      { logitBias: { 100: 1 } },
      'token_id(s) [100] in logit_bias contain out-of-vocab token ids. Vocabulary size: 100',
      'logit_bias',
    ],
    [{ logitBias: { x: 1 } }, 'logit_bias contains key(s) that cannot be converted to integer token IDs', 'logit_bias'],
    [{ allowedTokenIds: [] }, 'allowed_token_ids is not None and empty!', 'allowed_token_ids'],
    [{ allowedTokenIds: [100] }, 'allowed_token_ids contains out-of-vocab token id!', 'allowed_token_ids'],
    [{ seed: 2n ** 64n }, 'seed must be a 64-bit integer (from -2^63 to 2^64 - 1), got 18446744073709551616.', 'seed'],
  ];
  it.each(refused)('refuses %o', (input, message, param) => {
    expect(failure(input)).toMatchObject({ code: 'bad_request', message, param });
  });

  it('treats temperatures near zero as vLLM does', () => {
    const at = (temperature: number) =>
      resolveSampling({ temperature, topP: 0.5, topK: 3, minP: 0.1 }, context).sampling;
    expect(at(0)).toMatchObject({ temperature: 0, topP: 1, topK: 0, minP: 0 });
    expect(at(9e-6)).toMatchObject({ temperature: 0, topP: 1, topK: 0, minP: 0 });
    expect(at(1e-5)).toMatchObject({ temperature: 0.01, topP: 0.5, topK: 3, minP: 0.1 });
    expect(at(0.009).temperature).toBe(0.01);
  });

  it('takes defaults from the generation config only when the request is silent', () => {
    const defaults = { topK: 1, temperature: 0.7, maxTokens: 5 };
    const top = (topK: number | null | undefined) => resolveSampling({ topK }, { ...context, defaults }).sampling.topK;
    expect([top(undefined), top(null), top(0), top(-1), top(4)]).toEqual([1, 1, 0, 0, 4]);
    expect(resolveSampling({}, { ...context, defaults }).sampling).toMatchObject({ temperature: 0.7, maxTokens: 5 });
    expect(resolveSampling({ temperature: 0 }, { ...context, defaults }).sampling.temperature).toBe(0);
  });

  it('keeps seeds, 0 and negative ones included, and draws one when there is none', () => {
    const seed = (value: number | bigint | null) => resolveSampling({ seed: value }, context).sampling.seed;
    expect([seed(0), seed(1), seed(2n ** 64n - 1n), seed(-2)]).toEqual([0n, 1n, 2n ** 64n - 1n, 2n ** 64n - 2n]);
    expect(new Set([seed(null), seed(null), seed(-1), seed(-1)]).size).toBe(4);
    const { sampling } = resolveSampling({ seed: 2n ** 64n - 1n }, context);
    expect([0, 1, 2].map((i) => childSampling(sampling, i).seed)).toEqual([2n ** 64n - 1n, 0n, 1n]);
  });

  it('never lets prompt and output exceed the context', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 60 }),
        fc.option(fc.integer({ min: 1, max: 50 })),
        fc.option(fc.integer({ min: 1, max: 99 })),
        (numPromptTokens, maxTokens, defaultMaxTokens) => {
          const over = { ...context, numPromptTokens, defaultMaxTokens };
          const fits = numPromptTokens + (maxTokens ?? 1) <= 50;
          if (!fits) {
            expect(failure({ maxTokens }, over)).toMatchObject({
              code: 'context_length_exceeded',
              param: 'input_tokens',
            });
            return;
          }
          const got = resolveSampling({ maxTokens }, over).sampling.maxTokens;
          expect(got).toBe(maxTokens ?? Math.min(defaultMaxTokens ?? 50, 50 - numPromptTokens));
        },
      ),
    );
    expect(failure({ maxTokens: 41 }).message).toBe(
      "This model's maximum context length is 50 tokens. However, you requested 41 output tokens and your prompt contains 10 input " +
        'tokens, for a total of 51 tokens. Please reduce the length of the input prompt or the number of requested output tokens.',
    );
  });

  it('encodes bad words with and without a space', () => {
    const encode = (text: string) => (text === 'no' ? [1] : text === ' no' ? [2] : [9, 9]);
    expect(resolveSampling({ badWords: ['no', ' no', 'other'] }, { ...context, encode }).sampling.badWords).toEqual([
      [1],
      [2],
      [1],
      [2],
      [9, 9],
    ]);
  });

  it('clamps biases and accepts fourteen stop strings', () => {
    expect(resolveSampling({ logitBias: { 3: 500, 4: -500, 5: 0.5 } }, context).sampling.logitBias).toEqual([
      [3, 100],
      [4, -100],
      [5, 0.5],
    ]);
    const stop = Array.from({ length: 14 }, (_, i) => `<fim_${i}>`);
    expect(resolveSampling({ stop }, context).stop).toEqual(stop);
    expect(resolveSampling({ stop: 'x' }, context).stop).toEqual(['x']);
  });
});
