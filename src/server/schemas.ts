// The request bodies: types of every field we know, for validation and for /openapi.json. Unknown fields pass, as OpenAI clients
// expect; null means "not given" everywhere. Ranges and vLLM's rules for sampling fields are checked by resolveSampling, so
// that the LLM class has the same ones; lists are only typed here as far as that costs nothing for hostile sizes.

import { z } from 'zod';
import { PagodaError } from '../errors.ts';
import type { JsonObject } from './json-body.ts';

const flag = (description: string) => z.boolean().nullish().describe(description);
const number = (description: string) => z.number().nullish().describe(description);
const text = (description: string) => z.string().nullish().describe(description);

/** A list whose entries something else checks: zod would report each of a million wrong entries. */
const list = <T>(items: JsonObject, description: string) =>
  z
    .custom<T[]>((value) => Array.isArray(value), { error: 'Input should be a valid list' })
    .meta({ type: 'array', items })
    .nullish()
    .describe(description);

const samplingFields = {
  model: text('One of the names in GET /v1/models; the first when left out.'),
  n: number('Choices per prompt (1).'),
  temperature: number('0 = greedy; up to 2 (1, or what generation_config.json says).'),
  top_p: number('(0, 1] (1).'),
  top_k: number('0 or -1 = off (0).'),
  min_p: number('[0, 1] (0).'),
  presence_penalty: number('[-2, 2] (0).'),
  frequency_penalty: number('[-2, 2] (0).'),
  repetition_penalty: number('> 0 (1); counts prompt and output.'),
  seed: number(
    'Any 64-bit integer; -1 = none. Choice i of n uses seed + i. JSON numbers beyond 2^53 arrive rounded to a double.',
  ),
  stop: z
    .custom<string | string[]>((value) => typeof value === 'string' || Array.isArray(value), {
      error: 'Input should be a string or a list of strings',
    })
    .meta({ anyOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }] })
    .nullish()
    .describe('Up to 64 strings of up to 1024 characters; the text ends before them.'),
  stop_token_ids: list<number>({ type: 'integer' }, 'Tokens that end the text like an end token.'),
  include_stop_str_in_output: flag('Show the stop string or stop token (false).'),
  ignore_eos: flag('Go on after end tokens (false).'),
  min_tokens: number('No end before this many tokens (0).'),
  max_tokens: number('Length limit of a choice.'),
  logit_bias: z
    .custom<Record<string, number>>((value) => typeof value === 'object' && value !== null && !Array.isArray(value), {
      error: 'Input should be a valid dictionary',
    })
    .meta({ type: 'object', additionalProperties: { type: 'number' } })
    .nullish()
    .describe('Token id to a bias, clamped to ±100.'),
  allowed_token_ids: list<number>({ type: 'integer' }, 'Only these tokens may be chosen.'),
  bad_words: list<string>({ type: 'string' }, 'Words that may not appear.'),
  prompt_logprobs: number('Logprobs of prompt tokens with this many alternatives; -1 = all. Not with stream.'),
  skip_special_tokens: flag('Leave control tokens out of the text (true).'),
  spaces_between_special_tokens: flag(
    'Accepted for compatibility: no tokenizer here puts spaces between special tokens, so both values give the same text.',
  ),
  truncate_prompt_tokens: number('Keep only this many prompt tokens; -1 = as many as fit the context.'),
  truncation_side: z.enum(['left', 'right']).nullish().describe('Which end of the prompt truncation removes (left).'),
  stream: flag('Answer with server-sent events (false).'),
  stream_options: z
    .looseObject({
      include_usage: flag('A last chunk with empty choices and the usage (false).'),
      continuous_usage_stats: flag('Usage in every chunk; only with include_usage (false).'),
    })
    .nullish()
    .describe('Only with stream.'),
  stream_interval: number('Tokens per chunk of a stream after its first (--stream-interval).'),
  priority: number('Lower is earlier; needs --scheduling-policy priority (0).'),
  request_id: text('Becomes part of the id of the reply (random).'),
  cache_salt: text('Prefixes are only shared between requests with the same salt; 1 to 128 characters.'),
  return_tokens_as_token_ids: flag('Tokens in logprobs are written as token_id:123.'),
  return_token_ids: flag('Add prompt_token_ids and token_ids to the reply.'),
  user: text('Ignored.'),
};

export const completionSchema = z.looseObject({
  ...samplingFields,
  prompt: z
    .unknown()
    .meta({
      anyOf: [
        { type: 'string' },
        { type: 'array', items: { type: 'string' } },
        { type: 'array', items: { type: 'integer' } },
        { type: 'array', items: { type: 'array', items: { type: 'integer' } } },
      ],
    })
    .optional()
    .describe('A text, a list of texts, token ids, or a list of lists of token ids.'),
  echo: flag('Put the prompt in front of the text; with max_tokens 0, only the prompt (false).'),
  logprobs: number('Logprobs with this many alternatives per token.'),
  suffix: text('Not supported.'),
  add_special_tokens: flag('Add what the tokenizer adds by itself, e.g. BOS (true).'),
});
export type CompletionBody = z.infer<typeof completionSchema>;

export const chatTemplateFields = {
  add_generation_prompt: flag('End the prompt with the opening of a reply (true).'),
  continue_final_message: flag('Leave the last message open and go on in it (false).'),
  add_special_tokens: flag('Add what the tokenizer adds on top of the template (false).'),
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish().describe('Further variables of the chat template.'),
};

const messagesField = z
  .unknown()
  .meta({
    type: 'array',
    items: {
      type: 'object',
      required: ['role'],
      properties: {
        role: { type: 'string', enum: ['system', 'developer', 'user', 'assistant', 'tool', 'function'] },
        content: {
          anyOf: [
            { type: 'string' },
            { type: 'null' },
            {
              type: 'array',
              items: { type: 'object', properties: { type: { const: 'text' }, text: { type: 'string' } } },
            },
          ],
        },
      },
    },
  })
  .optional()
  .describe('The conversation.');

export const chatSchema = z.looseObject({
  ...samplingFields,
  ...chatTemplateFields,
  messages: messagesField,
  max_completion_tokens: number('Length limit of a choice; goes before max_tokens (what is left of the context).'),
  logprobs: flag('Logprobs of the generated tokens (false).'),
  top_logprobs: number('Alternatives per token; needs logprobs (0).'),
  echo: flag('Put the last message in front when its role is that of the reply (false).'),
  reasoning_effort: z
    .enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'])
    .nullish()
    .describe('Given to the chat template; also sets enable_thinking unless chat_template_kwargs does.'),
});
export type ChatBody = z.infer<typeof chatSchema>;

export const tokenizeSchema = z.looseObject({
  ...chatTemplateFields,
  model: text('As in /v1/completions.'),
  prompt: text('The text; or give messages.'),
  messages: messagesField,
  add_special_tokens: flag('Default true for prompt, false for messages.'),
  return_token_strs: flag("Add the vocabulary's spelling of each token (false)."),
});
export type TokenizeBody = z.infer<typeof tokenizeSchema>;

export const detokenizeSchema = z.looseObject({
  model: text('As in /v1/completions.'),
  tokens: z
    .unknown()
    .meta({ type: 'array', items: { type: 'integer' } })
    .optional()
    .describe('Token ids.'),
});
export type DetokenizeBody = z.infer<typeof detokenizeSchema>;

const MAX_REPORTED = 10;
const MAX_INPUT_LENGTH = 200;

/** Throws bad_request in the form of vLLM's body validation; `param` is the first wrong field's path. */
export function validate<T>(schema: z.ZodType<T>, body: JsonObject): T {
  const result = schema.safeParse(body);
  if (result.success) return result.data;
  const { issues } = result.error;
  const lines = issues.slice(0, MAX_REPORTED).map((issue) => {
    const input = JSON.stringify(at(body, issue.path)) ?? 'undefined';
    const shown = input.length > MAX_INPUT_LENGTH ? `${input.slice(0, MAX_INPUT_LENGTH)}…` : input;
    return `  {"loc": ${JSON.stringify(['body', ...issue.path.map(String)])}, "msg": ${JSON.stringify(issue.message)}, "input": ${shown}}`;
  });
  const count = `${issues.length} validation error${issues.length === 1 ? '' : 's'}:`;
  throw new PagodaError('bad_request', [count, ...lines].join('\n'), {
    param: issues[0]?.path.map(String).join('.') ?? '',
  });
}

function at(value: unknown, path: readonly PropertyKey[]): unknown {
  let current = value;
  for (const key of path) {
    if (typeof current !== 'object' || current === null || !Object.hasOwn(current, key)) return undefined;
    current = (current as Record<PropertyKey, unknown>)[key];
  }
  return current;
}
