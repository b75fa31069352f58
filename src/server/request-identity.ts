// The id of a reply (`chatcmpl-…`, `cmpl-…`) and of what the engine runs for it. A caller may choose the random part, by the
// body's request_id or the X-Request-Id header; engine ids stay unique even when two live requests choose the same one.

import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { PagodaError } from '../errors.ts';

const ALLOWED = /^[\x21-\x7e]{1,256}$/;

export interface RequestIdentity {
  /** `chatcmpl-` + the caller's id or a random one. */
  readonly id: string;
  /** For the X-Request-Id header of the reply. */
  readonly requestId: string;
}

export function identify(request: IncomingMessage, bodyId: string | null | undefined, prefix: string): RequestIdentity {
  const given = bodyId ?? headerId(request);
  if (given !== null && !ALLOWED.test(given)) {
    const message = 'request_id must be 1 to 256 printable ASCII characters without spaces.';
    throw new PagodaError('bad_request', message, { param: 'request_id' });
  }
  const requestId = given ?? randomUUID().replaceAll('-', '');
  return { id: prefix + requestId, requestId };
}

function headerId(request: IncomingMessage): string | null {
  const value = request.headers['x-request-id'];
  return typeof value === 'string' && value !== '' ? value : null;
}

/** `ID-0`, `ID-1`, … for the choices of a request; remembered until released. */
export function reserveEngineIds(id: string, count: number, live: Set<string>): string[] {
  const ids: string[] = [];
  for (let index = 0; index < count; index++) {
    let engineId = `${id}-${index}`;
    while (live.has(engineId)) engineId = `${id}-${index}-${randomUUID().slice(0, 8)}`;
    live.add(engineId);
    ids.push(engineId);
  }
  return ids;
}
