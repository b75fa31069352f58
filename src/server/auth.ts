// API keys: `Authorization: Bearer KEY` or `x-api-key: KEY`. Keys are compared as SHA-256 digests in constant time.
// Everything needs a key except the probes and figures a platform reads (health, version, metrics, load, the API description):
// stricter than vLLM, which leaves /tokenize and /detokenize open.

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { PagodaError } from '../errors.ts';

const OPEN_PATHS = new Set(['/health', '/live', '/ready', '/ping', '/version', '/metrics', '/load', '/openapi.json']);

/** vLLM's body of a 401; unlike all others it is not wrapped. */
export const UNAUTHORIZED_BODY = { error: 'Unauthorized' } as const;

export class Authenticator {
  readonly #digests: readonly Buffer[];

  constructor(apiKeys: readonly string[]) {
    this.#digests = apiKeys.map(digest);
  }

  /** True when the request may go on. Throws bad_request for two Authorization lines: nobody can tell which one counts. */
  allows(request: IncomingMessage): boolean {
    if (this.#digests.length === 0) return true;
    const path = (request.url ?? '/').split('?', 1)[0] ?? '/';
    if (OPEN_PATHS.has(path)) return true;
    if (countHeader(request, 'authorization') > 1) {
      throw new PagodaError('bad_request', 'The request has more than one Authorization header.');
    }
    const bearer = /^bearer +(\S+) *$/i.exec(request.headers.authorization ?? '')?.[1];
    const apiKey = request.headers['x-api-key'];
    return this.#matches(bearer) || this.#matches(typeof apiKey === 'string' ? apiKey : undefined);
  }

  #matches(key: string | undefined): boolean {
    if (key === undefined) return false;
    const given = digest(key);
    let found = false;
    // No early exit: the time must not tell which key came close.
    for (const known of this.#digests) found = timingSafeEqual(known, given) || found;
    return found;
  }
}

/** How often a header stands in the request; Node keeps only the first of some. */
export function countHeader(request: IncomingMessage, name: string): number {
  let count = 0;
  for (let i = 0; i < request.rawHeaders.length; i += 2) if (request.rawHeaders[i]?.toLowerCase() === name) count++;
  return count;
}

function digest(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}
