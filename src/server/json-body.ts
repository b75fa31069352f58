// Request bodies: bytes to a JSON object, refusing what JSON.parse would take too long over or take too literally.
// Depth is counted before parsing (JSON.parse accepts millions of levels); a `__proto__` key never reaches an assignment.

import { PagodaError } from '../errors.ts';
import { HttpError } from './errors.ts';

export type JsonObject = Record<string, unknown>;

const decoder = new TextDecoder('utf-8', { fatal: true });

export function parseJsonBody(bytes: Uint8Array, maxDepth: number): JsonObject {
  checkDepth(bytes, maxDepth);
  let text: string;
  try {
    text = decoder.decode(bytes);
  } catch {
    throw new PagodaError('bad_request', 'The request body is not valid UTF-8.');
  }
  let value: unknown;
  try {
    value = mayNamePrototype(text) ? JSON.parse(text, dropPrototype) : JSON.parse(text);
  } catch (error) {
    throw new PagodaError('bad_request', `The request body is not valid JSON: ${jsonProblem(error)}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new PagodaError('bad_request', 'The request body must be a JSON object.');
  }
  return value as JsonObject;
}

/** Throws when brackets nest deeper than `maxDepth`. Only looks at bytes, so it is safe on anything. */
function checkDepth(bytes: Uint8Array, maxDepth: number): void {
  let depth = 0;
  let inString = false;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (inString) {
      if (byte === 0x5c) i++;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > maxDepth) {
        throw new PagodaError('bad_request', `The request body nests deeper than ${maxDepth} levels.`);
      }
    } else if (byte === 0x7d || byte === 0x5d) depth--;
  }
}

/** The key can also be spelled with an escape, which always has `\u`. */
function mayNamePrototype(text: string): boolean {
  return text.includes('__proto__') || text.includes('\\u005');
}

function dropPrototype(key: string, value: unknown): unknown {
  return key === '__proto__' ? undefined : value;
}

/** The engine's sentence without the piece of the body that it quotes. */
function jsonProblem(error: unknown): string {
  const message = error instanceof Error ? error.message : 'unreadable';
  return message.replace(/, (?:\.\.\.)?".*" is not valid JSON$/s, '').slice(0, 120);
}

/** Content types that carry JSON; throws 415 for the others and for compressed bodies. */
export function checkContentHeaders(headers: {
  'content-type'?: string | undefined;
  'content-encoding'?: string | undefined;
}): void {
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw new HttpError(415, `Content-Encoding ${encoding.slice(0, 40)} is not supported: send the body as it is.`);
  }
  const type = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (type !== 'application/json' && !/^application\/[\w.-]+\+json$/.test(type)) {
    throw new HttpError(415, 'Unsupported Media Type: Only application/json is allowed');
  }
}
