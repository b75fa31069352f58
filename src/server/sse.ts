// One server-sent event stream. Headers go out at once, so that a client's header time-out never meets a long queue; a comment
// line keeps a silent stream alive. What is written within one turn of the event loop leaves in one write. A reader that lets
// more than the limit pile up has a fixed time to catch up, then its request is given up.

import type { ServerResponse } from 'node:http';
import type { ErrorBody } from './errors.ts';
import type { ServerLimits } from './server-options.ts';

export const SSE_DONE = 'data: [DONE]\n\n';
const PING = ': ping\n\n';
/** A reader this far behind is cut off at once, whatever its grace time. */
const HARD_LIMIT_FACTOR = 4;

export class SseStream {
  readonly #response: ServerResponse;
  readonly #limits: ServerLimits;
  readonly #onStall: () => void;
  #pending = '';
  #ended = false;
  #pingTimer: NodeJS.Timeout | null = null;
  #stallTimer: NodeJS.Timeout | null = null;

  /** `onStall` is called once when the reader is given up; the connection is closed after it. */
  constructor(response: ServerResponse, limits: ServerLimits, onStall: () => void) {
    this.#response = response;
    this.#limits = limits;
    this.#onStall = onStall;
  }

  open(headers: Readonly<Record<string, string>>): void {
    this.#response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      // Tells buffering proxies (nginx) to pass events on as they come.
      'x-accel-buffering': 'no',
      ...headers,
    });
    this.#response.flushHeaders();
    this.#pingTimer = setInterval(() => this.write(PING), this.#limits.pingSeconds * 1000);
    this.#pingTimer.unref();
    this.#response.on('close', () => this.#stopTimers());
  }

  /** `frames` are complete: each ends in an empty line. */
  write(frames: string): void {
    if (this.#ended) return;
    if (this.#pending === '') queueMicrotask(() => this.#flush());
    this.#pending += frames;
  }

  end(lastFrames: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#response.end(this.#pending + lastFrames);
    this.#pending = '';
    if (this.#pingTimer !== null) clearInterval(this.#pingTimer);
    // A reader that never takes the rest must not hold the connection.
    this.#stallTimer ??= setTimeout(() => this.#response.destroy(), this.#limits.streamStallSeconds * 1000);
  }

  #flush(): void {
    if (this.#ended || this.#pending === '') return;
    const frames = this.#pending;
    this.#pending = '';
    this.#pingTimer?.refresh();
    if (!this.#response.write(frames)) this.#watchBuffer();
  }

  #watchBuffer(): void {
    const waiting = this.#response.writableLength;
    if (waiting <= this.#limits.streamBufferBytes) return;
    if (waiting > HARD_LIMIT_FACTOR * this.#limits.streamBufferBytes) {
      this.#giveUp();
      return;
    }
    this.#stallTimer ??= setTimeout(() => {
      this.#stallTimer = null;
      if (this.#response.writableLength > this.#limits.streamBufferBytes) this.#giveUp();
    }, this.#limits.streamStallSeconds * 1000);
  }

  #giveUp(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#onStall();
    this.#stopTimers();
    this.#response.destroy();
  }

  #stopTimers(): void {
    this.#ended = true;
    if (this.#pingTimer !== null) clearInterval(this.#pingTimer);
    if (this.#stallTimer !== null) clearTimeout(this.#stallTimer);
  }
}

/** How a stream that has begun tells its failure: the error as an event, then the end mark. */
export function errorFrames(body: ErrorBody): string {
  return `data: ${JSON.stringify(body)}\n\n${SSE_DONE}`;
}
