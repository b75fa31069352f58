// Fields that clients know and this server does not do yet. A value that asks for nothing (null, [], {}, the default) is a
// no-op, because typed clients send every field; a value that asks for something is refused by name, never ignored.

import { PagodaError } from '../errors.ts';
import type { JsonObject } from './json-body.ts';

type IsNeutral = (value: unknown) => boolean;

const isEmpty: IsNeutral = (value) =>
  Array.isArray(value)
    ? value.length === 0
    : typeof value === 'object' && value !== null
      ? Object.values(value).every((entry) => entry === null)
      : false;
const only =
  (...values: unknown[]): IsNeutral =>
  (value) =>
    values.includes(value);
const never: IsNeutral = () => false;

interface UnsupportedField {
  readonly isNeutral: IsNeutral;
  /** What to do instead, or why. */
  readonly hint?: string;
}

const ONLY_BEAM = { isNeutral: only(1), hint: 'It belongs to beam search.' };

/** null is neutral for all. */
const COMMON: Readonly<Record<string, UnsupportedField>> = {
  response_format: {
    isNeutral: (value) => typeof value === 'object' && value !== null && 'type' in value && value.type === 'text',
    hint: 'Only {"type": "text"} is.',
  },
  structured_outputs: { isNeutral: isEmpty },
  guided_json: { isNeutral: never },
  guided_regex: { isNeutral: never },
  guided_choice: { isNeutral: isEmpty },
  guided_grammar: { isNeutral: never },
  use_beam_search: { isNeutral: only(false) },
  length_penalty: ONLY_BEAM,
  best_of: { isNeutral: only(1), hint: 'Ask for n choices and choose among them.' },
  prompt_embeds: { isNeutral: isEmpty },
  logprob_token_ids: { isNeutral: isEmpty },
  thinking_token_budget: { isNeutral: only(-1) },
  repetition_detection: {
    isNeutral: (value) => typeof value === 'object' && value !== null && Object.values(value).every((entry) => !entry),
  },
  watermarking: { isNeutral: isEmpty },
  kv_transfer_params: { isNeutral: isEmpty },
  ec_transfer_params: { isNeutral: isEmpty },
  vllm_xargs: { isNeutral: isEmpty },
  return_token_offsets: { isNeutral: only(false) },
  return_prompt_text: { isNeutral: only(false) },
  return_mm_kwargs: { isNeutral: only(false) },
  routed_experts_prompt_start: { isNeutral: never },
};

const CHAT: Readonly<Record<string, UnsupportedField>> = {
  ...COMMON,
  tools: { isNeutral: isEmpty },
  tool_choice: { isNeutral: only('none', 'auto') },
  functions: { isNeutral: isEmpty },
  function_call: { isNeutral: only('none', 'auto') },
  documents: { isNeutral: isEmpty },
  chat_template: { isNeutral: never, hint: 'The server was not started to trust templates of requests.' },
  media_io_kwargs: { isNeutral: isEmpty },
  mm_processor_kwargs: { isNeutral: isEmpty },
  modalities: { isNeutral: (value) => isEmpty(value) || (Array.isArray(value) && value.every(only('text'))) },
  audio: { isNeutral: isEmpty },
  web_search_options: { isNeutral: never },
};

const COMPLETION: Readonly<Record<string, UnsupportedField>> = {
  ...COMMON,
  suffix: { isNeutral: only('') },
};

const TOKENIZE: Readonly<Record<string, UnsupportedField>> = {
  tools: { isNeutral: isEmpty },
  chat_template: CHAT.chat_template!,
  documents: { isNeutral: isEmpty },
  media_io_kwargs: { isNeutral: isEmpty },
  mm_processor_kwargs: { isNeutral: isEmpty },
};

const TABLES = { chat: CHAT, completion: COMPLETION, tokenize: TOKENIZE } as const;

export function refuseUnsupported(kind: keyof typeof TABLES, body: JsonObject): void {
  for (const [field, { isNeutral, hint }] of Object.entries(TABLES[kind])) {
    if (!Object.hasOwn(body, field)) continue;
    const value = body[field];
    if (value === null || value === undefined || isNeutral(value)) continue;
    // vLLM's words for the two it has words for.
    const message =
      field === 'suffix' ? 'suffix is not currently supported' : `\`${field}\` is not supported by this server yet.`;
    throw new PagodaError('unsupported', hint === undefined ? message : `${message} ${hint}`, { param: field });
  }
}
