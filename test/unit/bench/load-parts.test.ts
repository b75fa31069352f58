import { describe, expect, it } from 'vitest';
import { customPrompts } from '../../../src/bench/datasets/custom.ts';
import type { DatasetContext } from '../../../src/bench/datasets/dataset.ts';
import { prefixRepetitionPrompts } from '../../../src/bench/datasets/prefix-repetition.ts';
import { randomPrompts } from '../../../src/bench/datasets/random.ts';
import { shareGptPrompts } from '../../../src/bench/datasets/sharegpt.ts';
import { tracePrompts } from '../../../src/bench/datasets/trace.ts';
import { overSaturatedAt } from '../../../src/bench/over-saturation.ts';
import { idSource, tokenizerSource, wordSource } from '../../../src/bench/prompt-source.ts';
import { requestBody } from '../../../src/bench/request-body.ts';
import { sendTimes } from '../../../src/bench/send-times.ts';
import { PagodaError } from '../../../src/errors.ts';
import { trend } from '../../../src/workload/trend.ts';
import type { Workload } from '../../../src/workload/workload.ts';

const ids = idSource(Array.from({ length: 200 }, (_, i) => 1000 + i));
const context: DatasetContext = {
  numPrompts: 50,
  seed: 7,
  source: ids,
  asIds: true,
  noOversample: false,
  disableShuffle: false,
};

describe('data sets', () => {
  it('random: exact lengths, a shared prefix, the same seed the same prompts', () => {
    const options = { inputLen: 100, outputLen: 20, rangeRatio: 0.5, prefixLen: 8 };
    const prompts = randomPrompts(options, context);
    expect(randomPrompts(options, context)).toEqual(prompts);
    expect(randomPrompts(options, { ...context, seed: 8 })).not.toEqual(prompts);
    const prefix = (prompts[0]!.prompt as number[]).slice(0, 8);
    for (const { prompt, numPromptTokens, numOutputTokens } of prompts) {
      expect(prompt).toHaveLength(numPromptTokens);
      expect((prompt as number[]).slice(0, 8)).toEqual(prefix);
      expect(numPromptTokens).toBeGreaterThanOrEqual(58);
      expect(numPromptTokens).toBeLessThanOrEqual(158);
      expect(numOutputTokens).toBeGreaterThanOrEqual(10);
      expect(numOutputTokens).toBeLessThanOrEqual(30);
    }
    expect(new Set(prompts.map((prompt) => prompt.numPromptTokens)).size).toBeGreaterThan(5);
  });

  it('prefix_repetition: equal shares of the prefixes', () => {
    const options = { prefixLen: 30, suffixLen: 5, numPrefixes: 5, outputLen: 9 };
    const prompts = prefixRepetitionPrompts(options, context);
    const counts = new Map<string, number>();
    for (const { prompt } of prompts) {
      const prefix = (prompt as number[]).slice(0, 30).join();
      counts.set(prefix, (counts.get(prefix) ?? 0) + 1);
    }
    expect([...counts.values()]).toEqual([10, 10, 10, 10, 10]);
  });

  it('sharegpt: filter of vLLM, rows again when there are too few', () => {
    const turns = (prompt: string, answer: string) => ({ conversations: [{ value: prompt }, { value: answer }] });
    const json = JSON.stringify([
      turns('x'.repeat(40), 'y'.repeat(40)),
      turns('no', 'y'.repeat(40)),
      turns('x'.repeat(40), 'no'),
      turns('x'.repeat(5000), 'y'.repeat(40)),
      { conversations: [{ value: 'alone' }] },
    ]);
    const text: DatasetContext = { ...context, source: wordSource(), asIds: false };
    const prompts = shareGptPrompts({ json, path: 'f', outputLen: null }, text);
    expect(prompts).toHaveLength(50);
    expect(prompts[0]).toMatchObject({ numPromptTokens: 10, numOutputTokens: 10 });
    expect(shareGptPrompts({ json, path: 'f', outputLen: 3 }, { ...text, noOversample: true })).toHaveLength(2);
    expect(() => shareGptPrompts({ json: '{}', path: 'f', outputLen: null }, text)).toThrow(/f is not a ShareGPT file/);
    expect(() => shareGptPrompts({ json: '[]', path: 'f', outputLen: null }, text)).toThrow(PagodaError);
  });

  it('custom: names the line that is wrong', () => {
    const text: DatasetContext = {
      ...context,
      source: wordSource(),
      asIds: false,
      disableShuffle: true,
      numPrompts: 2,
    };
    const jsonl = '{"prompt":"hello there","output_tokens":4}\n\n{"prompt":"and again","output_tokens":5}\n';
    expect(customPrompts({ jsonl, path: 'f', outputLen: -1 }, text).map((p) => p.numOutputTokens)).toEqual([4, 5]);
    const bad = (lines: string) => () => customPrompts({ jsonl: lines, path: 'f', outputLen: -1 }, text);
    expect(bad('{"prompt":"a","output_tokens":1}\n{"prompt":3,"output_tokens":1}')).toThrow(
      /f, line 2: it needs a text/,
    );
    expect(bad('{"prompt":"a"}')).toThrow(/line 1: --custom-output-len -1/);
    expect(bad('nonsense')).toThrow(/line 1/);
    expect(bad('')).toThrow(/empty/);
  });

  it('trace: equal hash ids are equal tokens, times are kept', () => {
    const request = (arrivalSeconds: number, hashIds: number[] | null, numPromptTokens: number) => ({
      arrivalSeconds,
      numPromptTokens,
      numOutputTokens: 3,
      hashIds,
      sessionId: null,
      priority: 0,
    });
    const workload: Workload = {
      name: 't',
      seed: 1,
      hashBlockTokens: 16,
      closedLoop: null,
      numRequests: 3,
      requests: () => [request(0, [1, 2, 3], 40), request(1.5, [1, 2, 9], 48), request(2, null, 7)],
    };
    const prompts = tracePrompts(workload, context);
    expect(prompts.map((prompt) => prompt.sendSeconds)).toEqual([0, 1.5, 2]);
    expect(prompts.map((prompt) => (prompt.prompt as number[]).length)).toEqual([40, 48, 7]);
    const [first, second] = prompts.map((prompt) => prompt.prompt as number[]);
    expect(first!.slice(0, 32)).toEqual(second!.slice(0, 32));
    expect(first!.slice(32)).not.toEqual(second!.slice(32, 40));
  });

  it('texts of a tokenizer that merges are trimmed and filled to their length', () => {
    // Ids 0-25 are letters, 26-51 are pairs of the same letter: encoding merges what decoding set side by side.
    const letter = (id: number) => String.fromCharCode(97 + (id % 26));
    const tokenizer = {
      vocabSize: 53,
      isOrdinary: (id: number) => id < 52,
      decode: (list: readonly number[]) => list.map((id) => letter(id).repeat(id < 26 ? 1 : 2)).join(''),
      encode: (text: string) =>
        [...text.matchAll(/(.)\1|./g)].map(([match]) => match.charCodeAt(0) - 97 + (match.length - 1) * 26),
    };
    const source = tokenizerSource(tokenizer);
    const prompts = randomPrompts(
      { inputLen: 60, outputLen: 1, rangeRatio: 0, prefixLen: 0 },
      { ...context, source, asIds: false },
    );
    for (const { prompt } of prompts) expect(tokenizer.encode(prompt as string)).toHaveLength(60);
  });

  it('bodies hold what was asked for and nothing else', () => {
    const prompt = { prompt: 'hi', numPromptTokens: 1, numOutputTokens: 5, sendSeconds: null };
    const body = (backend: 'openai' | 'openai-chat') =>
      JSON.parse(requestBody(prompt, { backend, model: 'm', ignoreEos: backend === 'openai', fields: { top_k: 3 } }));
    expect(body('openai')).toEqual({
      model: 'm',
      prompt: 'hi',
      max_tokens: 5,
      stream: true,
      stream_options: { include_usage: true },
      ignore_eos: true,
      top_k: 3,
    });
    expect(body('openai-chat')).toMatchObject({
      messages: [{ role: 'user', content: 'hi' }],
      max_completion_tokens: 5,
    });
  });
});

describe('sendTimes', () => {
  const plan = { numRequests: 1000, requestRate: 4, burstiness: 1, rampUp: null, seed: 3 };
  const gaps = (times: Float64Array) => Array.from(times, (time, i) => time - (times[i - 1] ?? 0));
  const cv = (values: number[]) => {
    const middle = values.reduce((sum, value) => sum + value, 0) / values.length;
    return Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / values.length) / middle;
  };

  it('meets the rate exactly, with the burstiness asked for', () => {
    expect(sendTimes(plan).at(-1)).toBeCloseTo(250, 9);
    expect(cv(gaps(sendTimes(plan)))).toBeGreaterThan(0.9);
    expect(cv(gaps(sendTimes(plan)))).toBeLessThan(1.1);
    // cv = 1 / sqrt(burstiness)
    expect(cv(gaps(sendTimes({ ...plan, burstiness: 0.25 })))).toBeGreaterThan(1.7);
    expect(cv(gaps(sendTimes({ ...plan, burstiness: 100 })))).toBeLessThan(0.12);
    expect(cv(gaps(sendTimes({ ...plan, burstiness: Number.POSITIVE_INFINITY })))).toBeLessThan(1e-9);
    expect(sendTimes(plan)).toEqual(sendTimes(plan));
  });

  it('all at once, or along a ramp', () => {
    expect([...sendTimes({ ...plan, numRequests: 3, requestRate: Number.POSITIVE_INFINITY })]).toEqual([0, 0, 0]);
    const rampUp = { strategy: 'linear', startRps: 1, endRps: 5 } as const;
    const infinite = {
      numRequests: 5,
      requestRate: Number.POSITIVE_INFINITY,
      burstiness: Number.POSITIVE_INFINITY,
      seed: 0,
    };
    const ramp = gaps(sendTimes({ ...infinite, rampUp }));
    expect(ramp.map((gap) => 1 / gap).map(Math.round)).toEqual([1, 2, 3, 4, 5]);
    const steep = gaps(sendTimes({ ...infinite, rampUp: { strategy: 'exponential', startRps: 1, endRps: 16 } }));
    expect(steep.map((gap) => Math.round(1 / gap))).toEqual([1, 2, 4, 8, 16]);
  });
});

describe('over-saturation', () => {
  /** One request per second for `seconds`; each takes `serviceSeconds(i)` to its first token. */
  const replay = (seconds: number, ttft: (i: number) => number) => {
    const scheduledSeconds = Array.from({ length: seconds }, (_, i) => 1000 + i);
    const firstTokens = scheduledSeconds.map((time, i) => ({ seconds: time + ttft(i), ttftSeconds: ttft(i) }));
    const endSeconds = firstTokens.map(({ seconds: time }) => time + 1);
    return overSaturatedAt({ scheduledSeconds, firstTokens, endSeconds, untilSeconds: Number.POSITIVE_INFINITY });
  };

  it('sees a queue that grows, not before half a minute', () => {
    const at = replay(300, (i) => 1 + 0.5 * i);
    expect(at).not.toBeNull();
    expect(at! - 1000).toBeGreaterThanOrEqual(30);
    expect(at! - 1000).toBeLessThan(90);
  });

  it('leaves a steady server alone, slow or quick', () => {
    expect(replay(300, (i) => 5 + (i % 7) * 0.1)).toBeNull();
    expect(replay(300, (i) => 0.1 + (i % 3) * 0.01)).toBeNull();
    expect(replay(20, (i) => 1 + i)).toBeNull();
  });

  it('trend: exact line, noise, too few points', () => {
    expect(trend([0, 1, 2, 3], [1, 3, 5, 7])).toMatchObject({ slope: 2, isRising: true });
    expect(trend([0, 1, 2, 3], [1, -1, 1, -1]).isRising).toBe(false);
    expect(trend([0, 1], [0, 5]).isRising).toBe(false);
  });
});
