// Cases about scheduling and about what is counted, with exact answers.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEFAULT_SAMPLING } from '../../src/core/sampling-params.ts';
import { Scheduler } from '../../src/core/scheduler.ts';
import { type RealServer, startRealServer } from './real-server.ts';
import { writeScriptedFolder } from './scripted-model.ts';

describe('a long prompt beside a decoding sequence', () => {
  // The running sequence takes one token of every step, so a budget of 512 leaves 511: ceil(5112 / 511) = 11 steps.
  it.each([
    [512, null, 11],
    [2048, null, 3],
    [8192, null, 1],
    [1024, 512, 10],
  ])('budget %i, chunk %s: %i steps with prefill, a token for the decoder in each', (budget, chunk, numWanted) => {
    const scheduler = new Scheduler({
      maxNumSeqs: 8,
      maxNumBatchedTokens: budget,
      chunkedPrefillSize: chunk,
      enableChunkedPrefill: true,
      enablePrefixCaching: false,
      policy: 'fcfs',
      watermark: 0,
      maxModelLen: 8192,
      kvAllocation: 'paged',
      useKvCache: true,
      blockSize: 16,
      numBlocks: 2000,
      groups: [{ window: 0 }],
      maxNumQueuedReqs: 10,
      cacheSecret: new Uint8Array(32),
      speculation: null,
    });
    const add = (id: string, numPromptTokens: number, maxTokens: number) =>
      scheduler.add({
        id,
        promptTokenIds: new Array<number>(numPromptTokens).fill(5),
        sampling: { ...DEFAULT_SAMPLING, maxTokens },
        priority: 0,
        arrivalTime: 0,
        cacheSalt: null,
      });
    const step = () => {
      const plan = scheduler.schedule(0);
      const entries = plan.scheduled.map(({ sequence, numTokens }) => ({ id: sequence.id, numTokens }));
      scheduler.update(plan, new Int32Array(plan.scheduled.length).fill(7), null, 0);
      return { numPrefillTokens: plan.numPrefillTokens, entries };
    };
    add('decoder', 8, 200);
    step();
    add('long', 5112, 4);
    const steps = [];
    for (let found = step(); found.numPrefillTokens > 0; found = step()) steps.push(found);
    expect(steps).toHaveLength(numWanted);
    for (const { entries } of steps) expect(entries[0]).toEqual({ id: 'decoder', numTokens: 1 });
    expect(steps.reduce((sum, { numPrefillTokens }) => sum + numPrefillTokens, 0)).toBe(5112);
  });
});

describe('on a server', () => {
  let folder: string;
  let model: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'pagoda-cases-'));
    model = writeScriptedFolder(join(folder, 'plain'));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const withServer = async (
    options: Parameters<typeof startRealServer>[1],
    check: (server: RealServer) => Promise<void>,
  ) => {
    const server = await startRealServer(model, { blockSize: 16, maxModelLen: 2048, ...options });
    try {
      await check(server);
    } finally {
      await server.close();
    }
  };
  /** So many tokens, the last of which starts the endless chain. */
  const long = (numTokens: number) => `${'x'.repeat(numTokens - 1)}W`;

  it('the context is not divided by the number of slots', () =>
    withServer({ numGpuBlocksOverride: 129, kvCacheMemoryBytes: null, maxNumSeqs: 8 }, async (server) => {
      const one = { prompt: long(2000), max_tokens: 20, temperature: 0, ignore_eos: true };
      expect((await server.complete(one)).usage).toMatchObject({ prompt_tokens: 2000, completion_tokens: 20 });
      const eight = await Promise.all(
        Array.from({ length: 8 }, () =>
          server.complete({ prompt: long(200), max_tokens: 40, temperature: 0, ignore_eos: true }),
        ),
      );
      expect(eight.map((reply) => reply.usage!.completion_tokens)).toEqual(new Array(8).fill(40));
      expect(await server.metric('vllm:num_preemptions_total')).toBe(0);
      const models = (await (await fetch(`${server.url}/v1/models`)).json()) as { data: [{ max_model_len: number }] };
      expect(models.data[0].max_model_len).toBe(2048);
    }));

  it('n choices count n times what they generate, and the prompt as documented', () =>
    withServer({}, async (server) => {
      for (let i = 0; i < 3; i++) {
        await server.complete({ prompt: long(30), max_tokens: 50, n: 4, temperature: 1, ignore_eos: true });
      }
      expect(await server.metric('vllm:generation_tokens_total')).toBe(3 * 4 * 50);
      expect([3 * 30, 3 * 4 * 30]).toContain(await server.metric('vllm:prompt_tokens_total'));
    }));

  it('every request that had a first token is counted once, refused ones nowhere', () =>
    withServer({ maxModelLen: 8192 }, async (server) => {
      for (let i = 0; i < 20; i++) await server.complete({ prompt: 'E', max_tokens: 8, temperature: 0 });
      for (let i = 0; i < 3; i++)
        expect((await server.post('/v1/completions', { prompt: 'E', max_tokens: -5 })).status).toBe(400);
      for (let i = 0; i < 5; i++) {
        const controller = new AbortController();
        const response = await fetch(`${server.url}/v1/completions`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ model: 'm', prompt: 'W', stream: true, max_tokens: 7000, ignore_eos: true }),
          signal: controller.signal,
        });
        const reader = response.body!.getReader();
        for (let seen = ''; !seen.includes('data: {'); ) seen += new TextDecoder().decode((await reader.read()).value);
        controller.abort();
        await reader.read().catch(() => undefined);
      }
      while ((await server.metric('vllm:num_requests_running')) > 0)
        await new Promise((resolve) => setTimeout(resolve, 5));
      const count = (reason: string) => server.metric('vllm:request_success_total', { finished_reason: reason });
      expect(await server.metric('vllm:time_to_first_token_seconds_count')).toBe(25);
      expect([await count('stop'), await count('abort')]).toEqual([20, 5]);
    }));
});
