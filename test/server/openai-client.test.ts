// What the OpenAI client for Node makes of our replies, over a real socket: the twelve wire rules are its expectations.

import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FakeServer, greeting, startFakeServer } from './fake-server.ts';
import { bytes, EOS } from './fake-text.ts';

describe('the openai client', () => {
  let server: FakeServer;
  let client: OpenAI;
  beforeAll(async () => {
    server = await startFakeServer({
      scriptOf: (request) => {
        const prompt = Buffer.from(request.promptTokenIds.filter((id) => id < 256)).toString();
        if (prompt.includes('BREAK')) return { tokens: [], finish: 'error', message: 'the device produced NaN' };
        if (prompt.includes('EMOJI')) return { tokens: [...bytes('a🙂b'), EOS], finish: 'stop' };
        return greeting(request);
      },
    });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(() => server.close());

  const chat = { model: 'm', messages: [{ role: 'user' as const, content: 'hi' }] };

  it('reads a whole chat reply', async () => {
    const reply = await client.chat.completions.create(chat);
    expect(reply.id).toMatch(/^chatcmpl-[0-9a-f]{32}$/);
    expect(reply.choices[0]?.message).toMatchObject({ role: 'assistant', content: 'Hello!' });
    expect(reply.choices[0]?.finish_reason).toBe('stop');
    // <|user|> user:hi <|reply|>, and Hello! with its end token.
    expect(reply.usage).toMatchObject({ prompt_tokens: 9, completion_tokens: 7, total_tokens: 16 });
  });

  it('reads a stream with its helper, which checks roles and finish reasons', async () => {
    const stream = client.chat.completions.stream({ ...chat, stream_options: { include_usage: true } });
    let text = '';
    stream.on('content', (delta) => {
      text += delta;
    });
    const final = await stream.finalChatCompletion();
    expect(text).toBe('Hello!');
    expect(final.choices[0]?.message.content).toBe('Hello!');
    expect(final.usage).toMatchObject({ prompt_tokens: 9, completion_tokens: 7, total_tokens: 16 });
  });

  it('streams n choices, each with one role, one end, and the same text as without stream', async () => {
    const stream = await client.chat.completions.create({ ...chat, n: 3, temperature: 1, stream: true });
    const texts = ['', '', ''];
    const roles = [0, 0, 0];
    const ends = [0, 0, 0];
    for await (const chunk of stream) {
      for (const { index, delta, finish_reason } of chunk.choices) {
        texts[index] += delta.content ?? '';
        if (delta.role) roles[index]!++;
        if (finish_reason) ends[index]!++;
      }
    }
    expect({ texts, roles, ends }).toEqual({
      texts: ['Hello!', 'Hello!', 'Hello!'],
      roles: [1, 1, 1],
      ends: [1, 1, 1],
    });
  });

  it('never sends half a character', async () => {
    const stream = await client.chat.completions.create({
      model: 'm',
      messages: [{ role: 'user', content: 'EMOJI' }],
      stream: true,
    });
    const pieces: string[] = [];
    for await (const chunk of stream) pieces.push(chunk.choices[0]?.delta.content ?? '');
    expect(pieces.join('')).toBe('a🙂b');
    expect(pieces.some((piece) => piece.includes('\ufffd'))).toBe(false);
  });

  it('gets logprobs in the chat shape', async () => {
    const reply = await client.chat.completions.create({ ...chat, logprobs: true, top_logprobs: 2 });
    const content = reply.choices[0]?.logprobs?.content;
    expect(content).toHaveLength(7);
    expect(content?.[0]).toEqual({
      token: 'H',
      logprob: -0.5,
      bytes: [72],
      top_logprobs: [
        { token: 'H', logprob: -0.5, bytes: [72] },
        { token: 'I', logprob: -1.5, bytes: [73] },
      ],
    });
  });

  it('completes texts, lists and token ids', async () => {
    const one = await client.completions.create({ model: 'm', prompt: 'ab' });
    expect(one.choices[0]).toMatchObject({ index: 0, text: 'Hello!', finish_reason: 'stop' });
    expect(one.usage).toMatchObject({ prompt_tokens: 3, completion_tokens: 7 });
    const many = await client.completions.create({ model: 'm', prompt: ['ab', 'c'], n: 2, temperature: 1, echo: true });
    expect(many.choices.map((choice) => [choice.index, choice.text])).toEqual([
      [0, 'abHello!'],
      [1, 'abHello!'],
      [2, 'cHello!'],
      [3, 'cHello!'],
    ]);
    expect(many.usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 28 });
    const ids = await client.completions.create({ model: 'm', prompt: [97, 98], max_tokens: 2 });
    expect(ids.choices[0]).toMatchObject({ text: 'He', finish_reason: 'length' });
  });

  it('throws its typed errors', async () => {
    await expect(client.chat.completions.create({ ...chat, model: 'other' })).rejects.toThrow(OpenAI.NotFoundError);
    await expect(client.chat.completions.create({ ...chat, temperature: 3, stream: true })).rejects.toThrow(
      /temperature must be in \[0, 2\], got 3/,
    );
    const broken = { model: 'm', messages: [{ role: 'user' as const, content: 'BREAK' }] };
    await expect(client.chat.completions.create(broken)).rejects.toThrow(OpenAI.InternalServerError);
    const stream = await client.chat.completions.create({ ...broken, stream: true });
    await expect(
      (async () => {
        for await (const _ of stream);
      })(),
    ).rejects.toThrow(/the device produced NaN/);
  });

  it('lists the models', async () => {
    const page = await client.models.list();
    expect(page.data.map((model) => model.id)).toEqual(['m']);
    expect(page.data[0]).toMatchObject({ max_model_len: 1024, root: '/models/fake', parent: null });
    expect((await client.models.retrieve('m')).id).toBe('m');
  });
});
