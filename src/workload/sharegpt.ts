// ShareGPT's conversations, [{"conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}]: the first message
// is the prompt and the first answer the output, filtered as vLLM's benchmark does. The array is read element by element.
// There are no times in it, and no tokens: the caller counts them, or they are estimated at four bytes each.

import { badTrace, readChunks } from './read-lines.ts';
import type { TraceRow } from './trace-formats.ts';

export type CountTokens = (text: string) => number;

/** English prose in common vocabularies: about four bytes per token. */
export const estimateTokens: CountTokens = (text) => Math.ceil(Buffer.byteLength(text, 'utf8') / 4);

/** vLLM's limits: prompt and output of at least 4 tokens, prompt of at most 1,024, together at most 2,048. */
const LEAST_TOKENS = 4;
const MOST_PROMPT_TOKENS = 1024;
const MOST_TOTAL_TOKENS = 2048;
const MOST_ELEMENT_CHARACTERS = 64_000_000;

/** Rows that pass the filter. Throws PagodaError `bad_config`. */
export function* readShareGpt(path: string, option: string, countTokens: CountTokens): Generator<TraceRow | null> {
  let number = 0;
  for (const text of arrayElements(path, option)) {
    number++;
    let element: unknown;
    try {
      element = JSON.parse(text);
    } catch {
      throw badTrace(path, option, `conversation ${number} is not JSON`);
    }
    const messages = messagesOf(element);
    if (messages === null) throw badTrace(path, option, `conversation ${number} has no list "conversations"`);
    const [prompt, answer] = messages;
    if (prompt === undefined || answer === undefined) {
      yield null;
      continue;
    }
    const numPromptTokens = countTokens(prompt);
    const numOutputTokens = countTokens(answer);
    const fits =
      Math.min(numPromptTokens, numOutputTokens) >= LEAST_TOKENS &&
      numPromptTokens <= MOST_PROMPT_TOKENS &&
      numPromptTokens + numOutputTokens <= MOST_TOTAL_TOKENS;
    yield fits ? { seconds: 0, numPromptTokens, numOutputTokens, hashIds: null, sessionId: null } : null;
  }
}

function messagesOf(element: unknown): string[] | null {
  if (typeof element !== 'object' || element === null) return null;
  const { conversations } = element as { conversations?: unknown };
  if (!Array.isArray(conversations)) return null;
  return conversations.map((message: unknown) => {
    const value = typeof message === 'object' && message !== null ? (message as { value?: unknown }).value : null;
    return typeof value === 'string' ? value : '';
  });
}

/** The texts of a JSON array's objects, found by counting braces outside strings. */
function* arrayElements(path: string, option: string): Generator<string> {
  let depth = 0;
  let inString = false;
  let isEscaped = false;
  let element = '';
  let isOpen = false;
  let isClosed = false;
  for (const chunk of readChunks(path, option)) {
    let start = depth >= 2 ? 0 : -1;
    for (let i = 0; i < chunk.length; i++) {
      const code = chunk.charCodeAt(i);
      if (inString) {
        if (isEscaped) isEscaped = false;
        else if (code === BACKSLASH) isEscaped = true;
        else if (code === QUOTE) inString = false;
      } else if (code === QUOTE) {
        inString = true;
      } else if (code === OPEN_BRACKET || code === OPEN_BRACE) {
        if (depth === 0 && (isOpen || code !== OPEN_BRACKET)) throw badTrace(path, option, 'is not one JSON array');
        isOpen = true;
        if (++depth === 2) start = i;
      } else if (code === CLOSE_BRACKET || code === CLOSE_BRACE) {
        if (--depth === 1) {
          yield element + chunk.slice(start, i + 1);
          element = '';
          start = -1;
        }
        if (depth === 0) isClosed = true;
      }
    }
    if (start >= 0) element += chunk.slice(start);
    if (element.length > MOST_ELEMENT_CHARACTERS) throw badTrace(path, option, 'has a conversation that does not end');
  }
  if (!isClosed || depth !== 0) throw badTrace(path, option, 'is cut off: the JSON array does not end');
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
