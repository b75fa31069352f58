// One HTTP request with a streamed reply. Times are taken as the first thing in the callback of the socket read. Nothing here
// throws for what a server does: every ending is a Reply.

import http from 'node:http';
import https from 'node:https';
import { type Backend, type Reply, ReplyReader } from './reply-reader.ts';
import { SseParser } from './sse-parser.ts';

/** What of a reply that is no stream is kept for the error text. */
const MAX_ERROR_BYTES = 4096;

/** Where requests go. Plain data. */
export interface RequestTarget {
  /** With path: `http://127.0.0.1:8000/v1/completions`. */
  readonly url: string;
  readonly backend: Backend;
  readonly headers: Readonly<Record<string, string>>;
  /** A request that brings no byte for so long is given up. */
  readonly idleSeconds: number;
  /** Accepts certificates that cannot be checked. */
  readonly insecure: boolean;
}

export interface Exchanged extends Reply {
  readonly sentSeconds: number;
  readonly endSeconds: number;
}

export type Clock = () => number;

export class HttpExchanger {
  readonly #target: RequestTarget;
  readonly #clock: Clock;
  readonly #url: URL;
  readonly #agent: http.Agent;
  readonly #open = new Set<http.ClientRequest>();

  constructor(target: RequestTarget, clock: Clock) {
    this.#target = target;
    this.#clock = clock;
    this.#url = new URL(target.url);
    const options = { keepAlive: true, maxSockets: Number.POSITIVE_INFINITY, maxFreeSockets: 65_536 };
    this.#agent =
      this.#url.protocol === 'https:'
        ? new https.Agent({ ...options, rejectUnauthorized: !target.insecure })
        : new http.Agent(options);
  }

  /** Ends every connection; requests under way end as failed or cut. */
  close(): void {
    for (const request of this.#open) request.destroy(new Error('The run was ended.'));
    this.#agent.destroy();
  }

  send(body: Uint8Array, headers: Readonly<Record<string, string>>): Promise<Exchanged> {
    return this.#send(body, headers, true);
  }

  #send(body: Uint8Array, headers: Readonly<Record<string, string>>, mayRetry: boolean): Promise<Exchanged> {
    const target = this.#target;
    const clock = this.#clock;
    return new Promise((resolve) => {
      const reader = new ReplyReader(target.backend);
      let hasReply = false;
      let isOver = false;
      const over = (problem: string): void => {
        if (isOver) return;
        isOver = true;
        this.#open.delete(request);
        resolve({ ...reader.end(problem), sentSeconds, endSeconds: clock() });
      };
      const options = {
        method: 'POST',
        agent: this.#agent,
        headers: {
          'content-type': 'application/json',
          accept: 'text/event-stream',
          'content-length': String(body.byteLength),
          ...target.headers,
          ...headers,
        },
      };
      const sentSeconds = clock();
      const start: typeof http.request = this.#url.protocol === 'https:' ? https.request : http.request;
      const request = start(this.#url, options, (response) => {
        hasReply = true;
        readReply(response, { reader, clock, over, abort: (problem) => request.destroy(new Error(problem)) });
      });
      this.#open.add(request);
      request.setTimeout(target.idleSeconds * 1000, () =>
        request.destroy(new Error(`No byte came for ${target.idleSeconds} s.`)),
      );
      request.on('error', (error: NodeJS.ErrnoException) => {
        // A kept connection that the server had just closed: the request never arrived. The schedule's time stays.
        if (mayRetry && !hasReply && request.reusedSocket && (error.code === 'ECONNRESET' || error.code === 'EPIPE')) {
          this.#open.delete(request);
          isOver = true;
          void this.#send(body, headers, false).then(resolve);
          return;
        }
        over(transportProblem(error));
      });
      // A connection that is reused must not wait for Nagle's algorithm.
      request.setNoDelay(true);
      request.end(body);
    });
  }
}

interface Reading {
  readonly reader: ReplyReader;
  readonly clock: Clock;
  over(problem: string): void;
  abort(problem: string): void;
}

function readReply(response: http.IncomingMessage, reading: Reading): void {
  const { reader, clock, over, abort } = reading;
  const status = response.statusCode ?? 0;
  const type = response.headers['content-type'] ?? '';
  response.on('error', (error) => over(transportProblem(error)));
  // After a proper end this says nothing any more.
  response.on('close', () => over('The connection broke before the reply ended.'));
  if (status === 200 && type.startsWith('text/event-stream')) {
    const parser = new SseParser((data, stamp) => reader.event(data, stamp));
    response.on('data', (bytes: Buffer) => {
      const stamp = clock();
      try {
        parser.push(bytes, stamp);
      } catch (error) {
        abort(error instanceof Error ? error.message : String(error));
      }
    });
    response.on('end', () => over(parser.isInsideEvent ? 'The stream ended inside an event.' : ''));
    return;
  }
  const parts: Buffer[] = [];
  let numBytes = 0;
  response.on('data', (bytes: Buffer) => {
    if (numBytes < MAX_ERROR_BYTES) parts.push(bytes.subarray(0, MAX_ERROR_BYTES - numBytes));
    numBytes += bytes.byteLength;
  });
  response.on('end', () => {
    const text = Buffer.concat(parts).toString('utf8');
    over(
      status === 200
        ? `The reply is ${type || 'untyped'}, not a stream of events.`
        : `HTTP ${status}: ${errorText(text) || (response.statusMessage ?? '')}`,
    );
  });
}

/** The message of an OpenAI error body, or the text on one line. */
export function errorText(body: string): string {
  try {
    const parsed = JSON.parse(body) as { error?: { message?: unknown } | string; message?: unknown; detail?: unknown };
    const inner = typeof parsed.error === 'string' ? parsed.error : parsed.error?.message;
    const message = inner ?? parsed.message ?? parsed.detail;
    if (typeof message === 'string') return message.slice(0, 300);
  } catch {
    // Not JSON: the text itself.
  }
  return body.replace(/\s+/g, ' ').trim().slice(0, 300);
}

/** Node's codes in words. */
export function transportProblem(error: NodeJS.ErrnoException): string {
  switch (error.code) {
    case 'ECONNREFUSED':
      return 'Nothing listens there (connection refused).';
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return 'The host name is unknown.';
    case 'ECONNRESET':
    case 'EPIPE':
      return 'The connection was reset.';
    case 'ETIMEDOUT':
      return 'The connection timed out.';
    case 'EADDRNOTAVAIL':
      return 'This machine has no free local port left.';
    default:
      // An AggregateError of several addresses has an empty message.
      return error.message || error.code || 'The connection failed.';
  }
}
