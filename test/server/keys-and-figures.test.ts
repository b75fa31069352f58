// API keys on every route, /tokenize and /detokenize, and what /metrics and the log say after known traffic.

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createFakeApp, type FakeServer, startFakeServer } from './fake-server.ts';

describe('with an API key', () => {
  let fake: Awaited<ReturnType<typeof createFakeApp>>;
  beforeAll(async () => {
    fake = await createFakeApp({ options: { apiKeys: ['K1', 'K2'] } });
  });
  afterAll(async () => {
    fake.telemetry.close();
    await fake.app.close();
  });

  const statusOf = async (
    method: 'GET' | 'POST' | 'OPTIONS' | 'HEAD',
    url: string,
    headers: Record<string, string>,
  ) => {
    const payload =
      method === 'POST' ? '{"model":"m","prompt":"x","messages":[{"role":"user","content":"x"}],"tokens":[1]}' : '';
    const response = await fake.app.inject({
      method,
      url,
      headers: { 'content-type': 'application/json', ...headers },
      payload,
    });
    if (response.statusCode === 401 && method !== 'HEAD')
      expect(JSON.parse(response.body)).toEqual({ error: 'Unauthorized' });
    return response.statusCode;
  };

  const guarded = [
    ['POST', '/v1/chat/completions'],
    ['POST', '/v1/completions'],
    ['GET', '/v1/models'],
    ['HEAD', '/v1/models'],
    ['POST', '/tokenize'],
    ['POST', '/detokenize'],
    ['GET', '/nothing'],
    ['OPTIONS', '/v1/models'],
  ] as const;

  it.each(guarded)('%s %s needs it', async (method, url) => {
    for (const authorization of ['Bearer', 'Bearer K', 'Bearer K1x', 'Basic K1', 'K1', '']) {
      expect(await statusOf(method, url, { authorization })).toBe(401);
    }
    expect(await statusOf(method, url, {})).toBe(401);
    expect(await statusOf(method, url, { 'x-api-key': 'K3' })).toBe(401);
    for (const headers of [{ authorization: 'Bearer K1' }, { authorization: 'bearer K2' }, { 'x-api-key': 'K1' }]) {
      expect(await statusOf(method, url, headers as Record<string, string>)).not.toBe(401);
    }
  });

  it('leaves probes and figures open', async () => {
    for (const url of ['/health', '/live', '/ready', '/ping', '/version', '/metrics', '/load', '/openapi.json']) {
      expect(await statusOf('GET', url, {})).toBe(200);
    }
    expect(await statusOf('POST', '/ping', {})).toBe(200);
  });
});

describe('plain routes', () => {
  let server: FakeServer;
  beforeAll(async () => {
    server = await startFakeServer({ model: { overriddenDefaults: { top_k: 1 } } });
  });
  afterAll(() => server.close());
  const post = async (path: string, body: unknown) => {
    const response = await fetch(`${server.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return (await response.json()) as Record<string, unknown>;
  };

  it('tokenize and detokenize', async () => {
    expect(await post('/tokenize', { prompt: 'hi', return_token_strs: true })).toEqual({
      count: 3,
      max_model_len: 1024,
      tokens: [256, 104, 105],
      token_strs: ['<bos>', '<0x68>', '<0x69>'],
    });
    expect(await post('/tokenize', { prompt: 'hi', add_special_tokens: false })).toMatchObject({
      tokens: [104, 105],
      token_strs: null,
    });
    const messages = [{ role: 'user', content: 'x' }];
    expect(await post('/tokenize', { messages })).toMatchObject({ tokens: [258, 117, 115, 101, 114, 58, 120, 259] });
    expect(await post('/tokenize', { messages, add_generation_prompt: false })).toMatchObject({ count: 7 });
    expect(await post('/detokenize', { tokens: [256, 104, 105] })).toEqual({ prompt: '<bos>hi' });
    expect(await post('/detokenize', { tokens: [900] })).toMatchObject({ error: { code: 400, param: 'tokens' } });
    expect(await post('/tokenize', {})).toMatchObject({ error: { code: 400, param: 'prompt' } });
  });

  it('describe themselves', async () => {
    const document = (await (await fetch(`${server.url}/openapi.json`)).json()) as {
      paths: Record<string, unknown>;
      components: { schemas: Record<string, { properties: Record<string, { type?: string }>; required: string[] }> };
    };
    expect(Object.keys(document.paths)).toContain('/v1/chat/completions');
    const chat = document.components.schemas.ChatCompletionRequest;
    expect(chat?.required).toEqual(['messages']);
    expect(chat?.properties.messages?.type).toBe('array');
    expect(await (await fetch(`${server.url}/version`)).json()).toEqual({ version: '0.0.0' });
    expect(await (await fetch(`${server.url}/load`)).json()).toEqual({ server_load: 0 });
  });

  it('the log names the defaults that the model changed', () => {
    expect(server.lines.join('')).toMatch(
      /^WARNING \d\d-\d\d \d\d:\d\d:\d\d \[sampling\] Default sampling .*: top_k=1\. /m,
    );
  });
});

describe('figures', () => {
  it('after 3 requests to their stop, 1 stop string, 1 of n=2 to their length, and 2 refused ones', async () => {
    const server = await startFakeServer();
    const send = (body: object) =>
      fetch(`${server.url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'm', prompt: 'abc', ...body }),
      }).then((response) => response.json());
    for (let i = 0; i < 3; i++) await send({});
    await send({ stop: ['l'] });
    await send({ n: 2, temperature: 1, max_tokens: 5, ignore_eos: true });
    await send({ max_tokens: -5 });
    await send({ temperature: 9 });
    while (server.engine.numOpen > 0) await new Promise((resolve) => setTimeout(resolve, 2));
    const metric = server.metric;
    expect(await metric('vllm:request_success_total', { finished_reason: 'stop' })).toBe(4);
    expect(await metric('vllm:request_success_total', { finished_reason: 'length' })).toBe(2);
    expect(await metric('vllm:request_success_total')).toBe(6);
    expect(await metric('vllm:time_to_first_token_seconds_count')).toBe(6);
    expect(await metric('vllm:e2e_request_latency_seconds_count')).toBe(6);
    expect(await metric('vllm:request_queue_time_seconds_count')).toBe(6);
    // Each choice counts its prompt of 4; 7 tokens to the end, 3 to the stop string (H, e, l), 5 to the length.
    expect(await metric('vllm:prompt_tokens_total')).toBe(24);
    expect(await metric('vllm:generation_tokens_total')).toBe(3 * 7 + 3 + 2 * 5);
    expect(await metric('vllm:request_params_n_sum')).toBe(4 + 2);
    expect(await metric('vllm:request_max_num_generation_tokens_count')).toBe(5);
    expect(await metric('vllm:request_params_max_tokens_bucket', { le: '10' })).toBe(2);
    expect(await metric('pagoda:engine_steps_total')).toBe(server.engine.numSteps);
    expect(await metric('vllm:iteration_tokens_total_count')).toBe(server.engine.numSteps);
    expect(await metric('vllm:num_requests_running')).toBe(0);
    const text = await server.telemetry.scrape();
    expect(text).toContain('vllm:num_requests_running{model_name="m",engine="0"} 0');
    expect(text).toContain('vllm:time_to_first_token_seconds_bucket{le="0.001",model_name="m",engine="0"}');
    await server.close();
  });
});
