// Chat messages from the wire to what chat templates expect: known roles, text content, tool calls with parsed arguments.
// Stops at the first fault, so a hostile list costs no more than its first wrong entry.

import { PagodaError } from '../errors.ts';
import { type JsonObject, parseJsonBody } from './json-body.ts';

/** `openai`: a list of text parts; `string`: their texts, joined by line breaks. */
export type ContentFormat = 'string' | 'openai';

export interface ChatMessage {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly type: 'text'; readonly text: string }>;
  /** Whatever else the client sent: templates look at names, tool calls and reasoning. */
  readonly [extra: string]: unknown;
}

const MAX_ARGUMENTS_DEPTH = 64;
const ROLES = new Set(['system', 'developer', 'user', 'assistant', 'tool', 'function']);

export function parseMessages(value: unknown, format: ContentFormat): ChatMessage[] {
  if (value === undefined || value === null) refuse('messages', 'messages: Field required');
  if (!Array.isArray(value)) refuse('messages', 'messages must be a list of messages.');
  if (value.length === 0) refuse('messages', 'messages must not be empty.');
  return value.map((message, index) => parseMessage(message, index, format));
}

function parseMessage(value: unknown, index: number, format: ContentFormat): ChatMessage {
  const at = `messages.${index}`;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    refuse(at, `${at} must be an object with a role and a content.`);
  }
  const message = value as JsonObject;
  const role = message.role;
  if (typeof role !== 'string' || !ROLES.has(role)) {
    refuse(`${at}.role`, `${at}.role must be one of ${[...ROLES].join(', ')}; got ${show(role)}.`);
  }
  const calls = parseToolCalls(message.tool_calls, at);
  const hasCalls = calls !== null || (message.function_call !== undefined && message.function_call !== null);
  if (message.content === undefined && !hasCalls) refuse(`${at}.content`, `${at}.content: Field required`);
  const texts = parseContent(message.content, `${at}.content`);
  const reasoning = message.reasoning ?? message.reasoning_content;
  return {
    ...message,
    ...(calls === null ? {} : { tool_calls: calls }),
    ...(reasoning === undefined || reasoning === null ? {} : { reasoning, reasoning_content: reasoning }),
    role: role === 'developer' ? 'system' : role,
    content: format === 'string' ? texts.join('\n') : texts.map((text) => ({ type: 'text', text })),
  };
}

/** The texts of the content's parts. */
function parseContent(value: unknown, at: string): string[] {
  if (value === undefined || value === null) return [''];
  if (typeof value === 'string') return [value];
  if (!Array.isArray(value)) refuse(at, `${at} must be a string, null or a list of parts.`);
  return value.map((part, index) => parsePart(part, `${at}.${index}`));
}

function parsePart(part: unknown, at: string): string {
  if (typeof part === 'string') return part;
  if (typeof part !== 'object' || part === null || Array.isArray(part))
    refuse(at, `${at} must be an object with a type.`);
  const { type, text, refusal } = part as JsonObject;
  if (type === 'text' || type === 'input_text' || type === 'output_text') {
    if (typeof text !== 'string') refuse(`${at}.text`, `${at}.text must be a string.`);
    return text;
  }
  if (type === 'refusal') {
    if (typeof refusal !== 'string') refuse(`${at}.refusal`, `${at}.refusal must be a string.`);
    return refusal;
  }
  if (typeof type !== 'string') refuse(`${at}.type`, `${at}.type must be a string; got ${show(type)}.`);
  throw new PagodaError('unsupported', `${at}: parts of type ${show(type)} are not supported; only text is.`, {
    param: at,
  });
}

/** Templates want arguments as an object; the wire has them as JSON text. */
function parseToolCalls(value: unknown, at: string): unknown[] | null {
  if (value === undefined || value === null) return null;
  if (!Array.isArray(value)) refuse(`${at}.tool_calls`, `${at}.tool_calls must be a list.`);
  if (value.length === 0) return null;
  return value.map((call, index) => {
    const path = `${at}.tool_calls.${index}.function`;
    const fn = typeof call === 'object' && call !== null ? (call as JsonObject).function : undefined;
    if (typeof fn !== 'object' || fn === null) refuse(path, `${path} must be an object with a name and arguments.`);
    const { name, arguments: given } = fn as JsonObject;
    if (typeof name !== 'string') refuse(`${path}.name`, `${path}.name must be a string.`);
    return {
      ...(call as JsonObject),
      function: { ...fn, name, arguments: parseArguments(given, `${path}.arguments`) },
    };
  });
}

function parseArguments(given: unknown, at: string): unknown {
  if (given === undefined || given === null || given === '') return {};
  if (typeof given === 'object') return given;
  if (typeof given !== 'string') refuse(at, `${at} must be a JSON object as text.`);
  try {
    return parseJsonBody(Buffer.from(given), MAX_ARGUMENTS_DEPTH);
  } catch (error) {
    throw new PagodaError('bad_request', `${at} must be a JSON object as text.`, { param: at, cause: error });
  }
}

function refuse(param: string, message: string): never {
  throw new PagodaError('bad_request', message, { param });
}

function show(value: unknown): string {
  const text = typeof value === 'string' ? JSON.stringify(value) : typeof value;
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}
