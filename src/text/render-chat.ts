// A chat to token ids. The template's own markers become control tokens; text that came with the request never does, whatever it
// spells. To tell them apart after rendering, a mark (a noncharacter that occurs nowhere in the request) is put inside every
// spelling of a control token in the request's strings, and taken out of the ordinary text between the template's tokens.

import { PagodaError } from '../errors.ts';
import { AddedTokenSplitter } from './added-token-splitter.ts';
import type { ChatTemplate } from './chat-template.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface ChatInput {
  readonly messages: readonly unknown[];
  readonly tools?: readonly unknown[] | null;
  readonly addGenerationPrompt: boolean;
  /** The last message is left open, to be continued by the model. */
  readonly continueFinalMessage?: boolean;
  readonly kwargs?: Readonly<Record<string, unknown>>;
  /** Put BOS in front when the tokenizer does so and the rendering does not begin with it. Off by default, as in vLLM. */
  readonly addSpecialTokens?: boolean;
}

export interface RenderedChat {
  readonly text: string;
  readonly tokenIds: number[];
}

/** U+FDD0..U+FDEF are noncharacters: reserved for use inside a program. */
const NUM_MARKS = 32;
const FIRST_MARK = 0xfdd0;
/** Depth of the JSON that a request may hold. */
const MAX_DEPTH = 100;

const splitters = new WeakMap<Tokenizer, AddedTokenSplitter>();

export async function renderChat(
  template: ChatTemplate,
  tokenizer: Tokenizer,
  input: ChatInput,
): Promise<RenderedChat> {
  if (input.continueFinalMessage && input.addGenerationPrompt) {
    const message = 'Cannot set both `continue_final_message` and `add_generation_prompt` to True.';
    throw new PagodaError('bad_request', message, { param: 'continue_final_message' });
  }
  const splitter = controlSplitter(tokenizer);
  const { messages, tools = null, kwargs = {} } = input;
  const request = { messages, tools, kwargs };
  const mark = spellsControl(request, splitter) ? freeMark([request, template.source]) : undefined;
  const given = mark === undefined ? request : (protect(request, splitter, mark) as typeof request);
  let rendered = await template.render({ ...given, addGenerationPrompt: input.addGenerationPrompt });
  // A template may write JSON in pure ASCII, and the mark with it.
  if (mark !== undefined) rendered = rendered.replaceAll(escaped(mark), mark);
  if (input.continueFinalMessage) rendered = cutAfterFinalMessage(rendered, given.messages);
  const tokenIds = tokenizer.encode(rendered, { addSpecialTokens: false, parseSpecial: true, mark });
  const startsWithBos = tokenIds[0] === tokenizer.bosTokenId;
  if (input.addSpecialTokens && tokenizer.addsBos && !startsWithBos) tokenIds.unshift(tokenizer.bosTokenId!);
  return { text: mark === undefined ? rendered : rendered.replaceAll(mark, ''), tokenIds };
}

function controlSplitter(tokenizer: Tokenizer): AddedTokenSplitter {
  let splitter = splitters.get(tokenizer);
  if (!splitter) {
    const control: { id: number; spelling: string }[] = [];
    for (let id = 0; id < tokenizer.vocabSize; id++) {
      if (tokenizer.isControl(id)) control.push({ id, spelling: tokenizer.tokenText(id) });
    }
    splitter = new AddedTokenSplitter(control);
    splitters.set(tokenizer, splitter);
  }
  return splitter;
}

function* stringsOf(value: unknown, depth = 0): Generator<string> {
  if (typeof value === 'string') yield value;
  if (typeof value !== 'object' || value === null) return;
  if (depth > MAX_DEPTH) throw new PagodaError('bad_request', `The messages nest deeper than ${MAX_DEPTH} levels.`);
  for (const [key, item] of Object.entries(value)) {
    if (!Array.isArray(value)) yield key;
    yield* stringsOf(item, depth + 1);
  }
}

function spellsControl(request: unknown, splitter: AddedTokenSplitter): boolean {
  for (const text of stringsOf(request)) {
    for (let i = 0; i < text.length; i++) if (splitter.beginsAt(text, i)) return true;
  }
  return false;
}

const escaped = (mark: string): string => `\\u${mark.charCodeAt(0).toString(16)}`;

/** A mark that occurs neither as itself nor escaped. */
function freeMark(everything: unknown): string {
  const free = new Set(Array.from({ length: NUM_MARKS }, (_, i) => String.fromCharCode(FIRST_MARK + i)));
  for (const text of stringsOf(everything)) {
    for (const mark of free) if (text.includes(mark) || text.includes(escaped(mark))) free.delete(mark);
  }
  for (const mark of free) return mark;
  throw new PagodaError(
    'bad_request',
    'The messages use every Unicode noncharacter from U+FDD0 to U+FDEF; leave one out.',
  );
}

/** The same data with the mark inside every spelling of a control token, in values and keys. */
function protect(value: unknown, splitter: AddedTokenSplitter, mark: string): unknown {
  if (typeof value === 'string') return protectText(value, splitter, mark);
  if (Array.isArray(value)) return value.map((item) => protect(item, splitter, mark));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [protectText(key, splitter, mark), protect(item, splitter, mark)]),
  );
}

/**
 * A mark behind the first character of every spelling, of overlapping ones too, and of one that the text ends in the middle of:
 * a template may join two strings of a request.
 */
function protectText(text: string, splitter: AddedTokenSplitter, mark: string): string {
  let out = '';
  let start = 0;
  for (let i = 0; i < text.length; i++) {
    if (!splitter.beginsAt(text, i)) continue;
    const width = text.codePointAt(i)! > 0xffff ? 2 : 1;
    out += text.slice(start, i + width) + mark;
    start = i + width;
  }
  return start === 0 ? text : out + text.slice(start);
}

/** Ends the rendering where the last message's content ends, as transformers does. */
function cutAfterFinalMessage(rendered: string, messages: readonly unknown[]): string {
  const content = (messages.at(-1) as { content?: unknown } | undefined)?.content;
  const parts = Array.isArray(content) ? content : [content];
  const last = parts
    .map((part) => (typeof part === 'string' ? part : (part as { text?: unknown } | null)?.text))
    .at(-1);
  const final = typeof last === 'string' ? last : '';
  const at = rendered.lastIndexOf(final.trim());
  if (final.trim() === '' || at < 0) {
    throw new PagodaError(
      'bad_request',
      'continue_final_message is set but the final message does not appear in the chat after applying the chat template.',
      { param: 'continue_final_message' },
    );
  }
  const kept = final.trimStart();
  return rendered.slice(0, at + (rendered.startsWith(kept, at) ? kept.length : final.trim().length));
}
