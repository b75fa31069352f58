// Bytes on the wire: headers before the first token, ping comments, usage chunks, error events, disconnects, time-outs.
// Raw sockets and node:http only, so that nothing smooths over what is really sent.

import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { type FakeServer, type FakeSetup, startFakeServer } from './fake-server.ts';
import { bytes, EOS } from './fake-text.ts';

let server: FakeServer;
afterEach(() => server.close());
const start = async (setup: FakeSetup = {}): Promise<void> => {
  server = await startFakeServer(setup);
};

const post = (path: string, body: unknown, headers: Record<string, string> = {}): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const request = httpRequest(`${server.url}${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
    });
    request.on('response', resolve);
    request.on('error', reject);
    request.end(JSON.stringify(body));
  });

const textOf = async (response: IncomingMessage): Promise<string> => {
  const parts: Buffer[] = [];
  for await (const part of response) parts.push(part as Buffer);
  return Buffer.concat(parts).toString();
};

interface Chunk {
  choices: Array<{
    index: number;
    text?: string;
    delta?: Record<string, unknown>;
    finish_reason: string | null;
    logprobs: { tokens: string[]; text_offset: number[] } | null;
    [extra: string]: unknown;
  }>;
  usage?: { prompt_tokens: number; completion_tokens: number; total_tokens: number };
  error?: { message: string; type: string; param: string | null; code: number };
}

/** The parsed data events; checks that [DONE] stands once, last. */
const eventsOf = (text: string): Chunk[] => {
  const lines = text.split('\n\n').filter((frame) => frame !== '' && !frame.startsWith(':'));
  expect(lines.at(-1)).toBe('data: [DONE]');
  expect(lines.every((line) => line.startsWith('data: '))).toBe(true);
  return lines.slice(0, -1).map((line) => JSON.parse(line.slice(6)) as Chunk);
};

const sse = async (path: string, body: Record<string, unknown>): Promise<Chunk[]> =>
  eventsOf(await textOf(await post(path, { model: 'm', stream: true, ...body })));

const until = async (condition: () => boolean | Promise<boolean>): Promise<void> => {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
};

const user = [{ role: 'user', content: 'hi' }];

/** All that comes back for these bytes until the connection closes. */
const raw = (request: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(server.url);
    const socket = connect(Number(port), hostname, () => socket.write(request));
    let text = '';
    socket.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    socket.on('close', () => resolve(text));
    socket.on('error', reject);
  });

const rawPost = (version: string, connection: string): string => {
  const body = JSON.stringify({ model: 'm', prompt: 'p', stream: true });
  return (
    `POST /v1/completions HTTP/${version}\r\nHost: x\r\nConnection: ${connection}\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${body.length}\r\n\r\n${body}`
  );
};

/** The frames in a body of chunks; checks every chunk's length. */
const unchunked = (body: string): string => {
  let rest = Buffer.from(body);
  let frames = '';
  for (;;) {
    const lineEnd = rest.indexOf('\r\n');
    const length = Number.parseInt(rest.toString('latin1', 0, lineEnd), 16);
    const end = lineEnd + 2 + length;
    expect(rest.toString('latin1', end, end + 2)).toBe('\r\n');
    frames += rest.toString('utf8', lineEnd + 2, end);
    rest = rest.subarray(end + 2);
    if (length === 0) return frames;
  }
};

describe('streams', () => {
  it('are chunks of HTTP/1.1, one after the other when requests are pipelined, and plain text for HTTP/1.0', async () => {
    await start({ scriptOf: () => ({ tokens: [...bytes('né🙂'), EOS], finish: 'stop' }) });
    const textIn = (frames: string) =>
      eventsOf(frames)
        .map((chunk) => chunk.choices[0]!.text)
        .join('');
    const both = await raw(rawPost('1.1', 'keep-alive') + rawPost('1.1', 'close'));
    const [, first, second] = both
      .split(/HTTP\/1\.1 200 OK\r\n/)
      .map((reply) => reply.slice(reply.indexOf('\r\n\r\n') + 4));
    expect([textIn(unchunked(first!)), textIn(unchunked(second!))]).toEqual(['né🙂', 'né🙂']);
    const old = await raw(rawPost('1.0', 'close'));
    expect(textIn(old.slice(old.indexOf('\r\n\r\n') + 4))).toBe('né🙂');
  });

  it('send their headers while the request still waits, then pings, and the role only with the first token', async () => {
    await start({ limits: { pingSeconds: 0.02 } });
    server.engine.isStepping = false;
    const response = await post('/v1/chat/completions', { model: 'm', messages: user, stream: true });
    expect(response.headers['content-type']).toBe('text/event-stream; charset=utf-8');
    let text = '';
    response.on('data', (data: Buffer) => {
      text += data.toString();
    });
    await until(() => text.split(': ping\n\n').length > 3);
    expect(text.replaceAll(': ping\n\n', '')).toBe('');
    server.engine.isStepping = true;
    await until(() => text.includes('[DONE]'));
    expect(eventsOf(text)[0]?.choices[0]).toEqual({
      index: 0,
      delta: { role: 'assistant', content: '' },
      logprobs: null,
      finish_reason: null,
    });
  });

  it('end with finish and stop reason, and hold usage only where it was asked for', async () => {
    await start();
    const plain = await sse('/v1/chat/completions', { messages: user });
    expect(plain.at(-1)?.choices[0]).toMatchObject({ finish_reason: 'stop', stop_reason: null });
    expect(plain.every((chunk) => chunk.usage === undefined)).toBe(true);
    const atEnd = await sse('/v1/chat/completions', { messages: user, stream_options: { include_usage: true } });
    expect(atEnd.at(-1)).toMatchObject({
      choices: [],
      usage: { prompt_tokens: 9, completion_tokens: 7, total_tokens: 16 },
    });
    expect(atEnd.filter((chunk) => chunk.usage !== undefined)).toHaveLength(1);
    const always = await sse('/v1/completions', {
      prompt: 'x',
      stream_options: { include_usage: true, continuous_usage_stats: true },
    });
    const counts = always.map((chunk) => chunk.usage?.completion_tokens);
    expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7, 7]);
    const onlyContinuous = await sse('/v1/completions', {
      prompt: 'x',
      stream_options: { continuous_usage_stats: true },
    });
    expect(onlyContinuous.every((chunk) => chunk.usage === undefined)).toBe(true);
  });

  it('send a chunk for every few tokens where that was asked for, but the first token and the end at once', async () => {
    await start({ options: { streamInterval: 3 } });
    const body = { prompt: 'x', n: 2, logprobs: 0, return_token_ids: true };
    const textsOf = (chunks: readonly Chunk[], index: number) =>
      chunks.filter((chunk) => chunk.choices[0]!.index === index).map((chunk) => chunk.choices[0]!.text);
    const chunks = await sse('/v1/completions', body);
    for (const index of [0, 1]) expect(textsOf(chunks, index)).toEqual(['H', 'ell', 'o!']);
    expect(chunks[2]!.choices[0]).toMatchObject({ token_ids: bytes('ell'), finish_reason: null });
    expect(chunks[2]!.choices[0]!.logprobs!.text_offset).toEqual([1, 2, 3]);
    expect(chunks.at(-1)!.choices[0]).toMatchObject({ finish_reason: 'stop' });
    // The request's own wins.
    expect(textsOf(await sse('/v1/completions', { ...body, stream_interval: 1 }), 0)).toHaveLength(7);
    expect(textsOf(await sse('/v1/completions', { ...body, stream_interval: 100 }), 0)).toEqual(['H', 'ello!']);
    for (const stream_interval of [0, -1, 1.5]) {
      const response = await post('/v1/completions', { model: 'm', prompt: 'x', stream: true, stream_interval });
      expect(response.statusCode).toBe(400);
      expect(JSON.parse(await textOf(response)).error).toMatchObject({
        message: `stream_interval must be at least 1, got ${stream_interval}.`,
        param: 'stream_interval',
      });
    }
  });

  it('say what they held back before they report a failure', async () => {
    await start({ scriptOf: () => ({ tokens: bytes('abcd'), finish: 'error', message: 'no luck' }) });
    const chunks = await sse('/v1/completions', { prompt: 'x', stream_interval: 4 });
    expect(chunks.map((chunk) => chunk.choices?.[0]?.text ?? chunk.error)).toMatchObject(['a', 'bc', { code: 500 }]);
  });

  it('report a failure after their start as an error event', async () => {
    await start({ scriptOf: () => ({ tokens: [], finish: 'error', message: 'no luck' }) });
    expect(await sse('/v1/chat/completions', { messages: user })).toEqual([
      { error: { message: 'no luck', type: 'InternalServerError', param: null, code: 500 } },
    ]);
  });

  it('are refused before any stream header, as plain JSON', async () => {
    await start();
    for (const body of [
      { temperature: -1 },
      { n: 100 },
      { top_logprobs: 3 },
      { max_tokens: 2000 },
      { messages: [{ role: 'user', content: 'RAISE' }] },
    ]) {
      const response = await post('/v1/chat/completions', { model: 'm', messages: user, stream: true, ...body });
      expect(response.statusCode).toBe(400);
      expect(response.headers['content-type']).toMatch(/^application\/json/);
      expect(Object.keys(JSON.parse(await textOf(response)).error)).toEqual(['message', 'type', 'param', 'code']);
    }
    expect(server.engine.submitted).toEqual([]);
  });

  it('join to what the whole reply says: text, ids, logprobs and offsets, with echo and stop strings', async () => {
    await start({ scriptOf: () => ({ tokens: [...bytes('né🙂 one two'), EOS], finish: 'stop' }) });
    for (const extra of [
      {},
      { stop: ['two'] },
      { stop: ['e t', 'zzz'] },
      { include_stop_str_in_output: true, stop: [' on'] },
    ]) {
      const body = { prompt: 'hi', echo: true, logprobs: 1, return_token_ids: true, max_tokens: 40, ...extra };
      const whole = JSON.parse(await textOf(await post('/v1/completions', { model: 'm', ...body }))).choices[0];
      const chunks = (await sse('/v1/completions', body)).map((chunk) => chunk.choices[0]!);
      expect(chunks.map((choice) => choice.text).join('')).toBe(whole.text);
      expect(chunks.flatMap((choice) => choice.token_ids)).toEqual(whole.token_ids);
      for (const key of ['tokens', 'text_offset', 'token_logprobs', 'top_logprobs']) {
        const joined = chunks.flatMap((choice) => (choice.logprobs as Record<string, unknown[]> | null)?.[key] ?? []);
        expect(joined).toEqual(whole.logprobs[key]);
      }
      expect(chunks.at(-1)).toMatchObject({ finish_reason: whole.finish_reason, stop_reason: whole.stop_reason });
      expect(chunks[0]?.prompt_token_ids).toEqual(whole.prompt_token_ids);
    }
  });

  it('put offsets at the characters, also where several tokens make one', async () => {
    await start({ scriptOf: () => ({ tokens: [...bytes('é🙂x'), EOS], finish: 'stop' }) });
    const body = { prompt: [104, 105], echo: true, logprobs: 0, max_tokens: 40 };
    const { logprobs } = JSON.parse(await textOf(await post('/v1/completions', { model: 'm', ...body }))).choices[0];
    // h i, then two bytes of é, four of the face, x, and the end token, which shows nothing.
    expect(logprobs.text_offset).toEqual([0, 1, 2, 2, 3, 3, 3, 3, 4, 5]);
    expect(logprobs.token_logprobs[0]).toBeNull();
    expect(logprobs.top_logprobs[0]).toBeNull();
    expect(logprobs.top_logprobs[1]).toEqual({ i: -0.5 });
  });

  it('score only the prompt with echo and max_tokens 0', async () => {
    await start();
    const body = { prompt: 'hi', echo: true, max_tokens: 0, logprobs: 1, add_special_tokens: false };
    const whole = JSON.parse(await textOf(await post('/v1/completions', { model: 'm', ...body })));
    expect(whole.choices[0]).toMatchObject({ text: 'hi', finish_reason: 'length', stop_reason: null });
    expect(whole.choices[0].logprobs.tokens).toEqual(['h', 'i']);
    expect(whole.usage).toMatchObject({ prompt_tokens: 2, completion_tokens: 0, total_tokens: 2 });
    const refused = await post('/v1/completions', { model: 'm', prompt: 'hi', max_tokens: 0 });
    expect(JSON.parse(await textOf(refused)).error).toMatchObject({
      message: 'max_tokens must be at least 1, got 0.',
      param: 'max_tokens',
    });
  });
});

describe('a client that goes away', () => {
  const body = { model: 'm', prompt: 'x', max_tokens: 900, n: 4, temperature: 1, ignore_eos: true };
  for (const stream of [false, true]) {
    it(`ends its request (stream: ${stream}), which counts as abort`, async () => {
      await start();
      const socket = connect(server.port, '127.0.0.1');
      const payload = JSON.stringify({ ...body, stream });
      socket.write(
        `POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${payload.length}\r\n\r\n${payload}`,
      );
      await until(async () => (await server.metric('vllm:generation_tokens_total')) > 20);
      expect(await server.metric('vllm:num_requests_running')).toBe(4);
      socket.destroy();
      await until(() => server.engine.numOpen === 0);
      const tokens = await server.metric('vllm:generation_tokens_total');
      expect(tokens).toBeLessThan(3600);
      expect(server.engine.aborted).toHaveLength(4);
      expect(await server.metric('vllm:request_success_total', { finished_reason: 'abort' })).toBe(4);
      expect(await server.metric('vllm:num_requests_running')).toBe(0);
      expect(await server.metric('vllm:kv_cache_usage_perc')).toBe(0);
    });
  }

  it('ends a request that still waits', async () => {
    await start();
    server.engine.isStepping = false;
    const socket = connect(server.port, '127.0.0.1');
    const payload = JSON.stringify({ ...body, n: 1 });
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${payload.length}\r\n\r\n${payload}`,
    );
    await until(() => server.engine.numOpen === 1);
    expect(await server.metric('vllm:num_requests_waiting')).toBe(1);
    socket.destroy();
    await until(() => server.engine.numOpen === 0);
    expect(await server.metric('vllm:num_requests_waiting')).toBe(0);
    expect(await server.metric('vllm:time_to_first_token_seconds_count')).toBe(0);
  });

  it('that stops reading is given up when its buffer stays full', async () => {
    await start({
      limits: { streamBufferBytes: 16 * 1024, streamStallSeconds: 0.05 },
      options: { maxLogprobs: -1 },
      info: { maxModelLen: 1_000_000 },
      scriptOf: () => ({ tokens: Array.from({ length: 500_000 }, () => 97), finish: 'length' }),
    });
    server.engine.stepsPerTick = 20;
    const socket = connect(server.port, '127.0.0.1');
    const payload = JSON.stringify({ model: 'm', prompt: 'x', max_tokens: 500_000, stream: true, logprobs: 250 });
    socket.pause();
    socket.write(
      `POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${payload.length}\r\n\r\n${payload}`,
    );
    await until(() => server.engine.aborted.length === 1);
    await until(() => server.engine.numOpen === 0);
    socket.destroy();
  });
});

describe('limits of time and place', () => {
  it('a request beyond its time gets an error, streamed or not', async () => {
    await start({ limits: { requestTimeoutSeconds: 0.05 } });
    server.engine.isStepping = false;
    const whole = await post('/v1/completions', { model: 'm', prompt: 'x' });
    expect(whole.statusCode).toBe(504);
    expect(whole.headers['x-should-retry']).toBe('false');
    const events = await sse('/v1/completions', { prompt: 'x' });
    expect(events[0]?.error).toMatchObject({ type: 'TimeoutError', code: 504 });
    await until(() => server.engine.numOpen === 0);
  });

  it('a full queue is 429 with both retry headers, and nothing of it was run', async () => {
    await start();
    server.engine.maxQueued = 3;
    const response = await post('/v1/completions', { model: 'm', prompt: 'x', n: 4, temperature: 1, stream: true });
    expect(response.statusCode).toBe(429);
    expect(response.headers).toMatchObject({ 'retry-after': '1', 'retry-after-ms': '1000' });
    expect(server.engine.submitted).toEqual([]);
    expect(await server.metric('vllm:admission_rejections_total')).toBe(1);
    expect(await server.metric('vllm:e2e_request_latency_seconds_count')).toBe(0);
  });

  it('a dead engine is 503 for new requests and one error event for open ones, and health says so', async () => {
    await start();
    server.engine.isStepping = false;
    const open = await post('/v1/completions', { model: 'm', prompt: 'x', stream: true });
    const whole = post('/v1/completions', { model: 'm', prompt: 'x' });
    await until(() => server.engine.numOpen === 2);
    server.engine.crash();
    expect(eventsOf(await textOf(open))[0]?.error?.code).toBe(500);
    expect((await whole).statusCode).toBe(500);
    expect((await post('/v1/completions', { model: 'm', prompt: 'x' })).statusCode).toBe(503);
    expect((await fetch(`${server.url}/health`)).status).toBe(503);
    expect((await fetch(`${server.url}/live`)).status).toBe(200);
    server.engine.recover();
    server.engine.isStepping = true;
    expect((await post('/v1/completions', { model: 'm', prompt: 'x' })).statusCode).toBe(200);
    expect(await server.metric('pagoda:engine_restarts_total')).toBe(1);
  });

  it('closing waits for open requests while there is time', async () => {
    await start();
    server.engine.isStepping = false;
    const whole = post('/v1/completions', { model: 'm', prompt: 'x' });
    const stream = await post('/v1/completions', { model: 'm', prompt: 'x', stream: true });
    await until(() => server.engine.numOpen === 2);
    const closed = server.server.close(60);
    server.engine.isStepping = true;
    const events = eventsOf(await textOf(stream));
    expect(events.map((chunk) => chunk.choices[0]?.text).join('')).toBe('Hello!');
    expect(JSON.parse(await textOf(await whole)).choices[0].text).toBe('Hello!');
    await closed;
  });

  it('closing ends what does not finish with an error, and refuses new requests', async () => {
    await start();
    server.engine.isStepping = false;
    const whole = post('/v1/completions', { model: 'm', prompt: 'x' });
    const stream = await post('/v1/completions', { model: 'm', prompt: 'x', stream: true });
    await until(() => server.engine.numOpen === 2);
    const closed = server.server.close(0);
    expect(eventsOf(await textOf(stream))[0]?.error).toMatchObject({ type: 'ServiceUnavailableError', code: 503 });
    expect((await whole).statusCode).toBe(503);
    await closed;
    await until(() => server.engine.numOpen === 0);
    await expect(fetch(`${server.url}/health`)).rejects.toThrow();
  });

  it('headers: too large, too many, two hosts', async () => {
    await start();
    const raw = (head: string): Promise<string> =>
      new Promise((resolve) => {
        const socket = connect(server.port, '127.0.0.1');
        let text = '';
        socket.on('data', (data) => {
          text += data.toString();
        });
        socket.on('close', () => resolve(text));
        socket.on('error', () => resolve(text));
        socket.write(`GET /health HTTP/1.1\r\n${head}Connection: close\r\n\r\n`);
      });
    expect(await raw('Host: x\r\n')).toMatch(/^HTTP\/1.1 200 /);
    expect(await raw(`Host: x\r\nx-big: ${'a'.repeat(20_000)}\r\n`)).toMatch(/^HTTP\/1.1 431 /);
    expect(await raw(`Host: x\r\n${'x-h: 1\r\n'.repeat(300)}`)).toMatch(/^HTTP\/1.1 431 /);
    expect(await raw('Host: x\r\nHost: y\r\n')).toMatch(/^HTTP\/1.1 400 /);
    expect(await raw('nonsense\r\n')).toMatch(/^HTTP\/1.1 400 /);
  });
});

describe('request ids', () => {
  it('come from the body, the header or chance, stay unique in the engine, and are echoed on request', async () => {
    await start({ options: { enableRequestIdHeaders: true } });
    const byHeader = await post('/v1/completions', { model: 'm', prompt: 'x' }, { 'x-request-id': 'abc' });
    expect(byHeader.headers['x-request-id']).toBe('abc');
    expect(JSON.parse(await textOf(byHeader)).id).toBe('cmpl-abc');
    server.engine.isStepping = false;
    const twins = [1, 2].map(() => post('/v1/completions', { model: 'm', prompt: 'x', request_id: 'twin' }));
    await until(() => server.engine.numOpen === 2);
    expect(new Set(server.engine.submitted.map((request) => request.id)).size).toBe(3);
    server.engine.isStepping = true;
    for (const twin of twins) expect(JSON.parse(await textOf(await twin)).id).toBe('cmpl-twin');
  });
});
