// From a request's prompt field or conversation to token ids: shapes, ranges, truncation, and a refusal of texts that cannot
// possibly fit before any time is spent on tokenizing them.

import { PagodaError } from '../errors.ts';
import { parseMessages } from './messages.ts';
import type { ChatBody, CompletionBody, TokenizeBody } from './schemas.ts';
import type { ChatRenderRequest, ServerContext } from './server-context.ts';

export interface Prompt {
  readonly tokenIds: readonly number[];
  /** The text as the caller gave it; null for token ids. */
  readonly text: string | null;
}

const EMPTY_PROMPT = 'Either prompt or prompt_embeds must be provided and non-empty.';

export function completionPrompts(context: ServerContext, body: CompletionBody): Prompt[] {
  const addSpecialTokens = body.add_special_tokens ?? true;
  return splitPrompts(body.prompt, context.options.limits.maxNumPrompts).map((prompt) => {
    if (typeof prompt !== 'string') {
      checkTokenIds(prompt, 'prompt', context.engine.info.vocabSize);
      return { tokenIds: truncate(context, prompt, body, body.max_tokens), text: null };
    }
    checkLength(context, prompt, body, 'prompt');
    const tokenIds = truncate(context, context.text.encodePrompt(prompt, { addSpecialTokens }), body, body.max_tokens);
    if (tokenIds.length === 0) refuse('prompt', EMPTY_PROMPT);
    return { tokenIds, text: prompt };
  });
}

export async function chatPrompt(context: ServerContext, body: ChatBody): Promise<Prompt> {
  const request = chatRenderRequest(context, body, false);
  for (const { content } of request.messages) {
    const texts = typeof content === 'string' ? [content] : content.map((part) => part.text);
    for (const text of texts) checkLength(context, text, body, 'messages');
  }
  const encoded = await context.text.encodeChat(request);
  const tokenIds = truncate(context, encoded, body, body.max_completion_tokens ?? body.max_tokens);
  if (tokenIds.length === 0) refuse('messages', 'The chat template made an empty prompt of these messages.');
  return { tokenIds, text: null };
}

/** Everything the template needs, from a chat or tokenize body. */
export function chatRenderRequest(
  context: ServerContext,
  body: ChatBody | TokenizeBody,
  addSpecialTokensDefault: boolean,
): ChatRenderRequest {
  const continueFinalMessage = body.continue_final_message ?? false;
  // Only an explicit request for both is a contradiction: add_generation_prompt is true by default.
  if (continueFinalMessage && body.add_generation_prompt === true) {
    refuse('continue_final_message', 'Cannot set both `continue_final_message` and `add_generation_prompt` to True.');
  }
  const effort = 'reasoning_effort' in body ? body.reasoning_effort : null;
  const reasoning = typeof effort === 'string' ? { reasoning_effort: effort, enable_thinking: effort !== 'none' } : {};
  return {
    messages: parseMessages(body.messages, context.text.contentFormat),
    addGenerationPrompt: continueFinalMessage ? false : (body.add_generation_prompt ?? true),
    continueFinalMessage,
    addSpecialTokens: body.add_special_tokens ?? addSpecialTokensDefault,
    kwargs: { ...context.options.defaultChatTemplateKwargs, ...reasoning, ...body.chat_template_kwargs },
  };
}

/** The four shapes of `prompt` as a list of texts or id lists. */
export function splitPrompts(value: unknown, maxNumPrompts: number): Array<string | number[]> {
  if (value === undefined || value === null || value === '') refuse('prompt', EMPTY_PROMPT);
  if (typeof value === 'string') return [value];
  if (!Array.isArray(value))
    refuse('prompt', 'prompt must be a string, a list of strings, token ids or a list of them.');
  if (value.length === 0) refuse('prompt', EMPTY_PROMPT);
  if (typeof value[0] === 'number') return [value as number[]];
  if (value.length > maxNumPrompts) {
    refuse('prompt', `prompt list length ${value.length} exceeds the maximum allowed count of ${maxNumPrompts}.`);
  }
  const isText = typeof value[0] === 'string';
  for (const entry of value) {
    if (isText ? typeof entry !== 'string' : !Array.isArray(entry)) {
      refuse('prompt', 'prompt must hold only strings, only integers or only lists of integers.');
    }
    if (!isText && (entry as unknown[]).length === 0) refuse('prompt', EMPTY_PROMPT);
  }
  return value as Array<string | number[]>;
}

export function checkTokenIds(ids: readonly unknown[], param: string, vocabSize: number): asserts ids is number[] {
  for (const id of ids) {
    if (typeof id !== 'number' || !Number.isInteger(id)) refuse(param, `${param}: token ids must be integers.`);
    if (id < 0 || id >= vocabSize) {
      refuse(param, `${param}: token id ${id} is out of vocabulary. Vocabulary size: ${vocabSize}`);
    }
  }
}

interface TruncationFields {
  readonly truncate_prompt_tokens?: number | null | undefined;
  readonly truncation_side?: 'left' | 'right' | null | undefined;
}

function truncate(
  context: ServerContext,
  ids: readonly number[],
  body: TruncationFields,
  maxTokens: number | null | undefined,
): readonly number[] {
  const asked = body.truncate_prompt_tokens;
  if (asked === null || asked === undefined) return ids;
  const param = 'truncate_prompt_tokens';
  const { maxModelLen } = context.engine.info;
  if (!Number.isInteger(asked) || asked < -1 || asked === 0) {
    refuse(param, `${param} must be -1 or a positive integer, got ${asked}.`);
  }
  if (asked > maxModelLen) {
    refuse(param, `${param} value (${asked}) is greater than max_model_len (${maxModelLen}).`);
  }
  const keep = asked === -1 ? Math.max(1, maxModelLen - Math.max(1, maxTokens ?? 1)) : asked;
  if (ids.length <= keep) return ids;
  return body.truncation_side === 'right' ? ids.slice(0, keep) : ids.slice(-keep);
}

/** No token has more bytes than the longest one, so a text beyond that times the context cannot fit, whatever it says. */
function checkLength(context: ServerContext, text: string, body: TruncationFields, param: string): void {
  if (body.truncate_prompt_tokens !== null && body.truncate_prompt_tokens !== undefined) return;
  const { maxModelLen } = context.engine.info;
  const bound = maxModelLen * context.maxTokenBytes;
  if (text.length <= bound) return;
  throw new PagodaError(
    'context_length_exceeded',
    `This model's maximum context length is ${maxModelLen} tokens. However, your prompt contains ${text.length} characters ` +
      `(more than ${bound} characters, which is the upper bound for ${maxModelLen} input tokens). ` +
      'Please reduce the length of the input prompt.',
    { param },
  );
}

function refuse(param: string, message: string): never {
  throw new PagodaError('bad_request', message, { param });
}
