// What went wrong for people who serve models, as cases with exact answers on a scripted model, through the whole stack.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { type RealServer, type Reply, startRealServer } from './real-server.ts';
import {
  CHATML,
  chainText,
  FACES,
  STRICT,
  TEXT_END,
  TURN_END,
  writeScriptedFolder,
  writeScriptedGguf,
} from './scripted-model.ts';

let folder: string;
let server: RealServer;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'pagoda-cases-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(() => server.close());

const user = (content: string) => ({ messages: [{ role: 'user', content }], temperature: 0, max_tokens: 12 });
const text = (reply: Reply) => reply.choices[0]!.text;
const plain = async (options: Parameters<typeof startRealServer>[1] = {}) => {
  server = await startRealServer(writeScriptedFolder(join(folder, 'plain')), options);
};

describe('end tokens are the union of what the files say', () => {
  it.each([
    [
      'generation_config.json beside the tokenizer',
      'BCJ',
      { config: { eos_token_id: 2 }, generation: { eos_token_id: [TEXT_END, TURN_END] }, eos: '<|im_end|>' },
    ],
    ['a list in config.json', 'ABCJ', { config: { eos_token_id: [2, TEXT_END, TURN_END] }, eos: '<|im_end|>' }],
  ] as const)('%s', async (name, letters, options) => {
    server = await startRealServer(writeScriptedFolder(join(folder, name.replaceAll(/\W/g, '-')), options));
    for (const letter of letters as Iterable<'A' | 'B' | 'C' | 'J'>) {
      const ended = await server.complete({ prompt: letter, max_tokens: 12, temperature: 0 });
      expect(ended.choices[0]).toMatchObject({ text: chainText(letter), finish_reason: 'stop' });
      expect(ended.usage!.completion_tokens).toBe(4);
      const overrun = await server.complete({ prompt: letter, max_tokens: 12, temperature: 0, ignore_eos: true });
      expect(overrun.choices[0]!.finish_reason).toBe('length');
      expect(text(overrun)).toContain('LEAK');
    }
  });
});

describe('as many BOS tokens as the template and the file say', () => {
  const withBos = `{{ bos_token }}${CHATML}`;
  it.each([
    ['added, and in the template: one', { template: withBos, bos: 1, addBos: true }, 25, 5],
    ['only in the template: kept', { template: withBos, bos: 1, addBos: false }, 25, 4],
    ['no key: none', { template: CHATML }, 24, 4],
  ] as const)('%s', async (name, options, numChat, numCompletion) => {
    server = await startRealServer(writeScriptedGguf(join(folder, `${name.replaceAll(/\W/g, '-')}.gguf`), options));
    const chat = await server.post('/v1/chat/completions', user('hi A'));
    expect(chat.body.usage!.prompt_tokens).toBe(numChat);
    const completion = await server.complete({ prompt: 'hi A', max_tokens: 2, temperature: 0 });
    expect(completion.usage!.prompt_tokens).toBe(numCompletion);
    const { body } = await server.post('/tokenize', { messages: [{ role: 'user', content: 'hi A' }] });
    expect(body.tokens!.filter((id) => id === 1)).toHaveLength(numChat - 24);
  });
});

it('a template that refuses is a 400 with its own sentence, streamed or not, and the next request works', async () => {
  server = await startRealServer(writeScriptedFolder(join(folder, 'strict'), { template: STRICT }));
  const turn = { role: 'user', content: 'x A' };
  for (const [messages, sentence] of [
    [[{ role: 'system', content: 's' }, turn], 'this model takes no system message'],
    [[turn, turn], 'user and assistant must take turns'],
  ] as const) {
    for (const stream of [false, true]) {
      const { status, body } = await server.post('/v1/chat/completions', { messages, temperature: 0, stream });
      expect(status).toBe(400);
      expect(body.error!.message).toContain(sentence);
      expect(body.error!.message).not.toMatch(/\{%|raise_exception| at .*\.js/);
    }
  }
  const { body } = await server.post('/v1/chat/completions', user('x A'));
  expect(body.choices[0]!.message!.content).toBe(chainText('A'));
});

it('seed 0 is a seed', async () => {
  await plain();
  const roll = async (seed: number) =>
    (await server.complete({ prompt: 'D', max_tokens: 24, temperature: 1, seed, return_token_ids: true })).choices[0]!
      .token_ids!;
  const first = await roll(0);
  expect(await roll(0)).toEqual(first);
  expect(await roll(1)).not.toEqual(first);
  const events = await server.stream('/v1/completions', { prompt: 'D', max_tokens: 24, temperature: 1, seed: 0 });
  const streamed = events.flatMap((event) => event.choices.map((choice) => choice.text)).join('');
  expect(streamed).toBe(first.map((id) => `${FACES.indexOf(id) + 1} `).join(''));
});

it('takes 4, 9 and 14 stop strings, and any of them stops', async () => {
  await plain();
  for (const numOthers of [3, 8, 13]) {
    const stop = [...Array.from({ length: numOthers }, (_, i) => `<fim_${i}>`), '\n'];
    expect(text(await server.complete({ prompt: 'U', max_tokens: 12, temperature: 0, stop }))).toBe(' Mars?');
  }
});

it('values that ask for nothing change nothing, together and each alone', async () => {
  await plain();
  const neutral = {
    tools: [],
    tool_choice: 'none',
    functions: null,
    function_call: null,
    response_format: { type: 'text' },
    stream_options: null,
    logit_bias: {},
    stop: [],
    user: null,
    n: null,
    seed: null,
    metadata: null,
    store: false,
    parallel_tool_calls: true,
    service_tier: 'auto',
    frequency_penalty: 0,
    presence_penalty: 0,
    logprobs: false,
    top_logprobs: null,
    max_completion_tokens: null,
  };
  for (const fields of [neutral, ...Object.entries(neutral).map(([key, value]) => ({ [key]: value }))]) {
    const { status, body } = await server.post('/v1/chat/completions', { ...user('x A'), ...fields });
    expect([fields, status, body.choices?.[0]?.message?.content]).toEqual([fields, 200, chainText('A')]);
  }
  const refused = await server.post('/v1/chat/completions', {
    ...user('x A'),
    stream: false,
    stream_options: { include_usage: true },
  });
  expect(refused.status).toBe(400);
  expect(JSON.stringify(refused.body)).toContain('stream');
});

it('a stream gets its headers while every slot is busy', async () => {
  await plain({ maxNumSeqs: 1 });
  let isBusyOver = false;
  const busy = server
    .stream('/v1/completions', { prompt: 'W', max_tokens: 400, temperature: 0, ignore_eos: true })
    .then(() => {
      isBusyOver = true;
    });
  while ((await server.metric('vllm:num_requests_running')) === 0)
    await new Promise((resolve) => setTimeout(resolve, 5));
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', stream: true, ...user('x A') }),
  });
  expect([response.status, isBusyOver]).toEqual([200, false]);
  expect(await response.text()).toContain('[DONE]');
  await busy;
});

it('counts the end token, once, and sends usage only where it was asked for', async () => {
  await plain();
  const { usage } = await server.complete({ prompt: 'E', max_tokens: 8, temperature: 0 });
  expect(usage).toMatchObject({ prompt_tokens: 1, completion_tokens: 3, total_tokens: 4 });
  for (const options of [{ include_usage: true }, { include_usage: true, continuous_usage_stats: true }]) {
    const events = await server.stream('/v1/chat/completions', { ...user('x E'), stream_options: options });
    expect(events.every((event) => Array.isArray(event.choices))).toBe(true);
    expect(events.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 3 } });
    const counts = events.flatMap((event) => (event.usage ? [event.usage.completion_tokens] : []));
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
    expect(counts.length > 1).toBe('continuous_usage_stats' in options);
  }
  const silent = await server.stream('/v1/chat/completions', user('x E'));
  expect(silent.filter((event) => event.usage)).toEqual([]);
});

it('offsets of an echoed prompt are the same streamed and whole', async () => {
  await plain();
  const body = { prompt: 'hi E', echo: true, logprobs: 1, max_tokens: 2, temperature: 0 };
  const expected = { tokens: ['h', 'i', ' ', 'E', 'Hel', 'lo'], text_offset: [0, 1, 2, 3, 4, 7] };
  expect((await server.complete(body)).choices[0]!.logprobs).toMatchObject(expected);
  const events = await server.stream('/v1/completions', body);
  const parts = events.flatMap((event) =>
    event.choices.flatMap((choice) => (choice.logprobs ? [choice.logprobs] : [])),
  );
  expect({
    tokens: parts.flatMap((part) => part.tokens),
    text_offset: parts.flatMap((part) => part.text_offset),
  }).toEqual(expected);
});

it('a client that leaves a whole reply ends its request, and its blocks come back', async () => {
  await plain();
  const before = await server.metric('vllm:request_success_total', { finished_reason: 'abort' });
  const controller = new AbortController();
  const gone = fetch(`${server.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'm', prompt: 'W', max_tokens: 7000, n: 4, temperature: 1, ignore_eos: true }),
    signal: controller.signal,
  }).catch(() => 'gone');
  const running = () => server.metric('vllm:num_requests_running');
  while ((await running()) < 4) await new Promise((resolve) => setTimeout(resolve, 5));
  controller.abort();
  expect(await gone).toBe('gone');
  while ((await running()) > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  const numTokens = await server.metric('vllm:generation_tokens_total');
  expect(numTokens).toBeLessThan(4 * 7000);
  expect(await server.metric('vllm:request_success_total', { finished_reason: 'abort' })).toBeGreaterThan(before);
  expect(await server.metric('vllm:kv_cache_usage_perc')).toBe(0);
  expect(text(await server.complete({ prompt: 'E', max_tokens: 8, temperature: 0 }))).toBe('Hello');
});

describe('defaults of generation_config.json', () => {
  const best = Array.from({ length: 24 }, () => FACES[0]);
  const roll = async (fields: Record<string, unknown> = {}) =>
    (await server.complete({ prompt: 'D', max_tokens: 24, return_token_ids: true, ...fields })).choices[0]!.token_ids;
  const model = () =>
    writeScriptedFolder(join(folder, 'generation'), {
      generation: { do_sample: true, top_k: 1, temperature: 1, eos_token_id: 2 },
    });

  it('hold until the request says otherwise, and the log says so', async () => {
    server = await startRealServer(model());
    expect(await roll()).toEqual(best);
    expect(await roll({ top_k: null })).toEqual(best);
    expect(await roll({ top_k: 0 })).not.toEqual(best);
    expect(await roll({ top_k: -1 })).not.toEqual(best);
    expect(await roll({ temperature: 0, top_k: 0 })).toEqual(best);
    expect(server.lines.join('')).toContain('top_k=1');
  });

  it('are left aside with --generation-config vllm', async () => {
    server = await startRealServer(model(), {}, { generationConfig: 'vllm' });
    expect(await roll()).not.toEqual(best);
  });
});
