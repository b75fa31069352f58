// Bad input of every kind ends in a 4xx with the error body, names its field, costs the engine nothing, and never is a 5xx.

import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { createFakeApp } from './fake-server.ts';

type App = Awaited<ReturnType<typeof createFakeApp>>;
const CHAT = '/v1/chat/completions';
const COMPLETIONS = '/v1/completions';
const chat = { model: 'm', messages: [{ role: 'user', content: 'hi' }] };
const completion = { model: 'm', prompt: 'hi' };

let fake: App;
beforeAll(async () => {
  fake = await createFakeApp();
});
afterEach(() => {
  fake.engine.submitted.length = 0;
});
afterAll(async () => {
  await fake.app.close();
  fake.telemetry.close();
  await fake.engine.close();
});

const send = async (url: string, payload: string | Buffer | object, headers: Record<string, string> = {}) => {
  const response = await fake.app.inject({
    method: 'POST',
    url,
    payload: typeof payload === 'string' || Buffer.isBuffer(payload) ? payload : JSON.stringify(payload),
    headers: { 'content-type': 'application/json', ...headers },
  });
  return { status: response.statusCode, text: response.body, headers: response.headers };
};

const refused = async (url: string, payload: string | Buffer | object, headers?: Record<string, string>) => {
  const { status, text } = await send(url, payload, headers);
  const { error } = JSON.parse(text) as {
    error: { message: string; type: string; param: string | null; code: number };
  };
  expect(error.code).toBe(status);
  expect(Object.keys(error)).toEqual(['message', 'type', 'param', 'code']);
  expect(fake.engine.submitted).toEqual([]);
  return { status, ...error };
};

describe('bodies', () => {
  it.each([
    ['nothing', '', 400],
    ['half an object', '{', 400],
    ['a list', '[]', 400],
    ['a number', '42', 400],
    ['null', 'null', 400],
    ['a string', '"x"', 400],
    ['not UTF-8', Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]), 400],
    ['UTF-16', Buffer.from(JSON.stringify(completion), 'utf16le'), 400],
    ['100,000 levels', `{"prompt":${'['.repeat(100_000)}${']'.repeat(100_000)}}`, 400],
    ['too large', JSON.stringify({ prompt: 'a'.repeat(5 * 1024 * 1024) }), 413],
  ])('%s', async (_name, payload, status) => {
    expect((await refused(COMPLETIONS, payload)).status).toBe(status);
  });

  it('of other types or compressed are 415', async () => {
    expect((await refused(COMPLETIONS, JSON.stringify(completion), { 'content-type': 'text/plain' })).status).toBe(415);
    expect((await refused(COMPLETIONS, JSON.stringify(completion), { 'content-encoding': 'gzip' })).status).toBe(415);
  });

  it('cannot reach a prototype', async () => {
    const payload =
      '{"model":"m","prompt":"hi","__proto__":{"polluted":1},"\\u005f_proto__":{"polluted":2},"constructor":1}';
    expect((await send(COMPLETIONS, payload)).status).toBe(200);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });
});

describe('routes', () => {
  it('unknown paths are 404, known ones with another method 405', async () => {
    expect(await refused('/v1/nothing', {})).toMatchObject({
      status: 404,
      message: 'Not Found',
      type: 'NotFoundError',
    });
    const wrong = await fake.app.inject({ method: 'GET', url: CHAT });
    expect(wrong.statusCode).toBe(405);
    expect(wrong.headers.allow).toBe('POST');
    expect(JSON.parse(wrong.body).error).toMatchObject({ code: 405 });
    expect((await fake.app.inject({ method: 'DELETE', url: '/health' })).statusCode).toBe(405);
    expect((await fake.app.inject({ method: 'GET', url: '/v1/models/%zz' })).statusCode).toBe(400);
  });

  it('unknown models are 404', async () => {
    for (const model of ['other', '../x', 'm\n', 'x'.repeat(1_000_000)]) {
      const error = await refused(CHAT, { ...chat, model });
      expect(error).toMatchObject({ status: 404, param: 'model', type: 'NotFoundError' });
    }
    expect((await refused(CHAT, { ...chat, model: 'other' })).message).toBe('The model `other` does not exist.');
  });
});

describe('fields', () => {
  it.each<[string, Record<string, unknown>, string, string]>([
    [CHAT, { temperature: -1 }, 'temperature', 'temperature must be non-negative, got -1.'],
    [CHAT, { temperature: 2.1 }, 'temperature', 'temperature must be in [0, 2], got 2.1.'],
    [CHAT, { top_p: 0 }, 'top_p', 'top_p must be in (0, 1], got 0.'],
    [CHAT, { top_k: -2 }, 'top_k', 'top_k must be 0 (disable), or at least 1, got -2.'],
    [CHAT, { min_p: 2 }, 'min_p', 'min_p must be in [0, 1], got 2.'],
    [CHAT, { presence_penalty: 2.1 }, 'presence_penalty', 'presence_penalty must be in [-2, 2], got 2.1.'],
    [CHAT, { repetition_penalty: 0 }, 'repetition_penalty', 'repetition_penalty must be greater than zero, got 0.'],
    [CHAT, { n: 0 }, 'n', 'n must be at least 1, got 0.'],
    [CHAT, { n: 2, temperature: 0 }, 'n', 'n must be 1 when using greedy sampling, got 2.'],
    [CHAT, { max_tokens: 0 }, 'max_tokens', 'max_tokens must be at least 1, got 0.'],
    [CHAT, { stop: [''] }, 'stop', 'stop cannot contain an empty string.'],
    [CHAT, { top_logprobs: 2 }, 'top_logprobs', 'when using `top_logprobs`, `logprobs` must be set to true.'],
    [CHAT, { top_logprobs: -2, logprobs: true }, 'top_logprobs', '`top_logprobs` must be a positive value or -1.'],
    [
      CHAT,
      { top_logprobs: 21, logprobs: true },
      'top_logprobs',
      'Requested sample logprobs of 21, which is greater than max allowed: 20',
    ],
    [CHAT, { prompt_logprobs: -2 }, 'prompt_logprobs', '`prompt_logprobs` must be a positive value or -1.'],
    [
      CHAT,
      { prompt_logprobs: 1, stream: true },
      'prompt_logprobs',
      '`prompt_logprobs` are not available when `stream=True`.',
    ],
    [
      CHAT,
      { stream_options: { include_usage: true } },
      'stream_options',
      'Stream options can only be defined when `stream=True`.',
    ],
    [CHAT, { cache_salt: '' }, 'cache_salt', "Parameter 'cache_salt' must be a non-empty string if provided."],
    [CHAT, { priority: 3 }, 'priority', 'Got priority 3 but Priority scheduling is not enabled.'],
    [
      CHAT,
      { continue_final_message: true, add_generation_prompt: true },
      'continue_final_message',
      'Cannot set both `continue_final_message` and `add_generation_prompt` to True.',
    ],
    [CHAT, { messages: [] }, 'messages', 'messages must not be empty.'],
    [
      CHAT,
      { messages: [{ content: 'x' }] },
      'messages.0.role',
      'messages.0.role must be one of system, developer, user, assistant, tool, function; got undefined.',
    ],
    [CHAT, { messages: [{ role: 'user' }] }, 'messages.0.content', 'messages.0.content: Field required'],
    [COMPLETIONS, { prompt: '' }, 'prompt', 'Either prompt or prompt_embeds must be provided and non-empty.'],
    [COMPLETIONS, { prompt: [] }, 'prompt', 'Either prompt or prompt_embeds must be provided and non-empty.'],
    [COMPLETIONS, { prompt: [[]] }, 'prompt', 'Either prompt or prompt_embeds must be provided and non-empty.'],
    [COMPLETIONS, { prompt: [-1] }, 'prompt', 'prompt: token id -1 is out of vocabulary. Vocabulary size: 300'],
    [COMPLETIONS, { prompt: [300] }, 'prompt', 'prompt: token id 300 is out of vocabulary. Vocabulary size: 300'],
    [COMPLETIONS, { prompt: [1.5] }, 'prompt', 'prompt: token ids must be integers.'],
    [
      COMPLETIONS,
      { prompt: Array(65).fill('a') },
      'prompt',
      'prompt list length 65 exceeds the maximum allowed count of 64.',
    ],
    [
      COMPLETIONS,
      { prompt: Array(20).fill('a'), n: 16, temperature: 1 },
      'n',
      'n * number of prompts is 320, which is greater than the maximum of 128.',
    ],
    [COMPLETIONS, { suffix: 'x' }, 'suffix', 'suffix is not currently supported'],
    [
      COMPLETIONS,
      { truncate_prompt_tokens: -3 },
      'truncate_prompt_tokens',
      'truncate_prompt_tokens must be -1 or a positive integer, got -3.',
    ],
  ])('%s %j', async (url, fields, param, message) => {
    const body = url === CHAT ? chat : completion;
    expect(await refused(url, { ...body, ...fields })).toMatchObject({
      status: 400,
      param,
      message,
      type: 'BadRequestError',
    });
    // The same before any stream header.
    if (!('stream_options' in fields)) {
      expect(await refused(url, { ...body, ...fields, stream: true })).toMatchObject({ status: 400 });
    }
  });

  it('that are not there yet are named', async () => {
    const asked: Record<string, unknown> = {
      tools: [{ type: 'function', function: { name: 'f' } }],
      tool_choice: 'required',
      functions: [{ name: 'f' }],
      response_format: { type: 'json_object' },
      structured_outputs: { regex: 'a' },
      guided_json: {},
      use_beam_search: true,
      best_of: 2,
      documents: [{ text: 'x' }],
      chat_template: '{{ x }}',
      thinking_token_budget: 5,
      logprob_token_ids: [1],
    };
    for (const [field, value] of Object.entries(asked)) {
      expect(await refused(CHAT, { ...chat, [field]: value })).toMatchObject({ status: 400, param: field });
    }
    const image = [{ type: 'image_url', image_url: { url: 'http://127.0.0.1/' } }];
    const error = await refused(CHAT, { ...chat, messages: [{ role: 'user', content: image }] });
    expect(error).toMatchObject({ status: 400, param: 'messages.0.content.0' });
    expect(error.message).toContain('image_url');
  });

  it('that ask for nothing change nothing', async () => {
    const neutral: Record<string, unknown> = {
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
      structured_outputs: null,
      use_beam_search: false,
      length_penalty: 1,
      best_of: 1,
      documents: null,
      modalities: ['text'],
      stream: null,
      an_unknown_field: { deep: [1] },
    };
    for (const fields of [neutral, ...Object.entries(neutral).map(([key, value]) => ({ [key]: value }))]) {
      const { status, text } = await send(CHAT, { ...chat, ...fields });
      expect([status, JSON.parse(text).choices?.[0]?.message.content, fields]).toEqual([200, 'Hello!', fields]);
    }
  });

  it('of every kind replaced by odd values are refused by name or mean something documented', async () => {
    const odd = [null, true, -1, 0, 1.5, '', 'x'.repeat(1000), [], {}, 2 ** 53 + 1];
    const fields = [
      'model',
      'n',
      'temperature',
      'top_p',
      'top_k',
      'min_p',
      'presence_penalty',
      'frequency_penalty',
      'seed',
      'stop',
      'repetition_penalty',
      'stop_token_ids',
      'include_stop_str_in_output',
      'ignore_eos',
      'min_tokens',
      'max_tokens',
      'logit_bias',
      'allowed_token_ids',
      'bad_words',
      'prompt_logprobs',
      'skip_special_tokens',
      'truncate_prompt_tokens',
      'spaces_between_special_tokens',
      'stream',
      'stream_options',
      'priority',
      'request_id',
      'cache_salt',
      'echo',
      'logprobs',
      'return_token_ids',
      'return_tokens_as_token_ids',
      'add_special_tokens',
      'prompt',
      'messages',
      'max_completion_tokens',
      'top_logprobs',
      'chat_template_kwargs',
      'add_generation_prompt',
      'continue_final_message',
      'reasoning_effort',
    ];
    for (const url of [CHAT, COMPLETIONS]) {
      for (const field of fields) {
        for (const value of odd) {
          fake.engine.submitted.length = 0;
          const { status, text } = await send(url, { ...(url === CHAT ? chat : completion), [field]: value });
          if (status === 200) continue;
          expect([400, 404]).toContain(status);
          expect(text).toContain(field);
          expect(fake.engine.submitted).toEqual([]);
        }
      }
    }
  });

  it('with infinite numbers are refused', async () => {
    for (const field of ['temperature', 'top_p', 'max_tokens', 'seed', 'n', 'logprobs']) {
      expect((await refused(COMPLETIONS, `{"model":"m","prompt":"hi","${field}":1e400}`)).param).toBe(field);
    }
    expect((await refused(COMPLETIONS, '{"model":"m","prompt":"hi","logit_bias":{"5":1e400}}')).param).toBe(
      'logit_bias',
    );
  });

  it('that leave no room in the context are refused with the numbers', async () => {
    const error = await refused(COMPLETIONS, { ...completion, prompt: 'a'.repeat(1023), max_tokens: 5 });
    expect(error).toMatchObject({ status: 400, param: 'input_tokens' });
    expect(error.message).toBe(
      "This model's maximum context length is 1024 tokens. However, you requested 5 output tokens and your prompt contains " +
        '1024 input tokens, for a total of 1029 tokens. Please reduce the length of the input prompt or the number of requested output tokens.',
    );
    const huge = await refused(COMPLETIONS, { ...completion, prompt: 'a'.repeat(1_000_000) });
    expect(huge.message).toContain('your prompt contains 1000000 characters');
    // The last token that fits, and the default of 16 output tokens cut to the room that is left.
    expect((await send(COMPLETIONS, { ...completion, prompt: 'a'.repeat(1022) })).status).toBe(200);
    expect(fake.engine.submitted[0]?.sampling.maxTokens).toBe(1);
  });
});

describe('random mutations', () => {
  it('never give a 5xx', async () => {
    const junk = fc.oneof(fc.jsonValue(), fc.constantFrom(-1, 0, 1e308, '', null, true, [[]], {}));
    const mutation = fc.record({
      base: fc.constantFrom(chat, completion),
      key: fc.constantFrom(
        'prompt',
        'messages',
        'n',
        'stop',
        'logit_bias',
        'stream_options',
        'logprobs',
        'seed',
        'max_tokens',
        'bad_words',
        'chat_template_kwargs',
        'allowed_token_ids',
        'echo',
        'tools',
      ),
      value: junk,
      url: fc.constantFrom(CHAT, COMPLETIONS, '/tokenize', '/detokenize'),
      cut: fc.option(fc.nat(60)),
    });
    await fc.assert(
      fc.asyncProperty(mutation, async ({ base, key, value, url, cut }) => {
        const text = JSON.stringify({ ...base, max_tokens: 3, [key]: value });
        const { status } = await send(url, cut === null ? text : text.slice(0, cut));
        expect(status).toBeLessThan(500);
      }),
      { numRuns: 400 },
    );
  });
});
