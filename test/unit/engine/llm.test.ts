import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LLM } from '../../../src/engine/llm.ts';
import { PagodaError } from '../../../src/errors.ts';
import type { StepRecord } from '../../../src/trace/step-record.ts';

interface Golden {
  readonly name: string;
  readonly prompt: string;
  readonly prompt_ids: number[];
  readonly greedy_ids: number[];
  readonly close_calls: number[];
}

const assets = resolve(import.meta.dirname, '../../../assets');
const { cases } = JSON.parse(readFileSync(join(assets, 'goldens.json'), 'utf8')) as { cases: Golden[] };
const NUM_TOKENS = 6;

describe('LLM on the reference device', () => {
  let llm: LLM;
  const records: StepRecord[] = [];

  beforeAll(async () => {
    llm = await LLM.load({
      model: join(assets, 'pagoda-mini.F16.gguf'),
      device: 'reference',
      kvCacheDtype: 'f32',
      maxModelLen: 256,
      maxNumSeqs: 4,
      onStep: (record) => records.push(record),
    });
  });
  afterAll(() => llm.dispose());

  it('equals the goldens for several prompts at once, given as texts and as ids', async () => {
    const some = cases.slice(0, 3);
    const prompts = some.map((golden, i) => (i === 1 ? golden.prompt_ids : golden.prompt));
    const results = await llm.generate(prompts, { temperature: 0, maxTokens: NUM_TOKENS, ignoreEos: true });
    for (const [i, golden] of some.entries()) {
      const firstClose = golden.close_calls[0] ?? NUM_TOKENS;
      expect(results[i]!.promptTokenIds).toEqual(golden.prompt_ids);
      expect(results[i]!.outputs[0]!.tokenIds.slice(0, firstClose)).toEqual(
        golden.greedy_ids.slice(0, Math.min(firstClose, NUM_TOKENS)),
      );
      expect(results[i]!.outputs[0]).toMatchObject({ finishReason: 'length', stopReason: null, logprobs: null });
    }
    expect(records.some((record) => record.numRunning > 1)).toBe(true);
  });

  it('streams the same text as it generates', async () => {
    const params = { temperature: 0.8, seed: 5, maxTokens: NUM_TOKENS, ignoreEos: true };
    const [whole] = await llm.generate('Once upon a time', params);
    let text = '';
    for await (const chunk of llm.stream('Once upon a time', params)) text += chunk.text;
    expect(text).toBe(whole!.outputs[0]!.text);
  });

  it('n choices have their own seeds, and choice i is the request with seed + i', async () => {
    const params = { temperature: 1, maxTokens: NUM_TOKENS, ignoreEos: true };
    const [both] = await llm.generate('The', { ...params, n: 2, seed: 0 });
    const [second] = await llm.generate('The', { ...params, seed: 1 });
    expect(both!.outputs.map(({ index }) => index)).toEqual([0, 1]);
    expect(both!.outputs[1]!.tokenIds).toEqual(second!.outputs[0]!.tokenIds);
    expect(both!.outputs[0]!.tokenIds).not.toEqual(both!.outputs[1]!.tokenIds);
  });

  it('stops at the end token and at a stop string', async () => {
    const golden = cases[0]!;
    const [ended] = await llm.generate(golden.prompt, { temperature: 0, maxTokens: 16 });
    expect(ended!.outputs[0]).toMatchObject({
      text: ' Paris.',
      tokenIds: [2703, 16, 0],
      finishReason: 'stop',
      stopReason: null,
    });
    const [stopped] = await llm.generate(golden.prompt, { temperature: 0, maxTokens: 16, stop: ['ris'] });
    expect(stopped!.outputs[0]).toMatchObject({ text: ' Pa', finishReason: 'stop', stopReason: 'ris' });
  });

  it('gives logprobs of output and prompt when asked', async () => {
    const [result] = await llm.generate(cases[0]!.prompt, {
      temperature: 0,
      maxTokens: 2,
      logprobs: 2,
      promptLogprobs: 1,
    });
    const { logprobs, tokenIds } = result!.outputs[0]!;
    expect(logprobs!.map(({ tokenId }) => tokenId)).toEqual(tokenIds);
    expect(logprobs![0]!.logprob).toBeCloseTo(-0.00911, 3);
    expect(logprobs![0]!.top.map(({ tokenId }) => tokenId)).toEqual([2703, 3622]);
    expect(result!.promptLogprobs!.map((entry) => entry?.tokenId ?? null)).toEqual([
      null,
      ...cases[0]!.prompt_ids.slice(1),
    ]);
  });

  it('aborts by signal and when the loop is left, and gives everything back', async () => {
    const controller = new AbortController();
    const params = { maxTokens: 200, ignoreEos: true };
    const pending = llm.generate('The', params, { signal: controller.signal });
    setTimeout(() => controller.abort(), 20);
    await expect(pending).rejects.toMatchObject({ code: 'aborted' });
    for await (const _ of llm.stream('The', params)) break;
    // Whoever comes next finds all four places free.
    await llm.generate(['a', 'b', 'c', 'd'], { maxTokens: 1 });
    expect(records.at(-1)!.numRunning).toBe(0);
  });

  it('refuses in words what it cannot do', async () => {
    await expect(llm.generate([[1, 99_999]])).rejects.toMatchObject({ code: 'bad_request', param: 'prompt' });
    await expect(llm.generate('x', { temperature: 3 })).rejects.toThrow('temperature must be in [0, 2], got 3.');
    await expect(llm.generate('x', { maxTokens: 256 })).rejects.toMatchObject({ code: 'context_length_exceeded' });
    await expect(LLM.load({ maxModelLen: 4096, device: 'reference' })).rejects.toThrow(
      'greater than the derived max_model_len',
    );
    await expect(LLM.load('./no-such-file.gguf')).rejects.toMatchObject({ code: 'not_found' });
    await expect(LLM.load({ blocksize: 16 } as object)).rejects.toBeInstanceOf(PagodaError);
  });
});

it('gives the same tokens without the KV cache', async () => {
  const options = { device: 'reference', kvCacheDtype: 'f32', maxModelLen: 64, maxNumSeqs: 1 } as const;
  const texts: string[] = [];
  for (const useKvCache of [true, false]) {
    await using llm = await LLM.load({ ...options, useKvCache });
    const [result] = await llm.generate('The capital of France is', { temperature: 0, maxTokens: 4, ignoreEos: true });
    texts.push(result!.outputs[0]!.text);
  }
  expect(texts[1]).toBe(texts[0]);
});
