// One server-sent event stream. Headers go out at once, so that a client's header time-out never meets a long queue; a comment
// line keeps a silent stream alive. What is written within one turn of the event loop leaves in one write. A reader that lets
// more than the limit pile up has a fixed time to catch up, then its request is given up.
//
// Frames go to the socket as one string with the chunk's length and line ends around it: node's response.write makes four buffers and a
// gathering write of them, which at thousands of tokens a second is the front's largest cost.

import type { ServerResponse } from 'node:http';
import type { ErrorBody } from './errors.ts';
import type { ServerLimits } from './server-options.ts';

export const SSE_DONE = 'data: [DONE]\n\n';
const PING = ': ping\n\n';
const NOT_ASCII = /[^\x00-\x7f]/;
/** A reader this far behind is cut off at once, whatever its grace time. */
const HARD_LIMIT_FACTOR = 4;

/** Streams with something to write at the end of this turn of the event loop. */
let unflushed: SseStream[] = [];

function flushAll(): void {
  const streams = unflushed;
  unflushed = [];
  for (const stream of streams) stream.flush();
}

export class SseStream {
  readonly #response: ServerResponse;
  readonly #limits: ServerLimits;
  readonly #onStall: () => void;
  #pending = '';
  #ended = false;
  #pingTimer: NodeJS.Timeout | null = null;
  /** Milliseconds on the clock of performance.now(). */
  #lastWriteTime = 0;
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
    this.#lastWriteTime = performance.now();
    this.#pingAfter(this.#limits.pingSeconds * 1000);
    this.#response.on('close', () => this.#stopTimers());
  }

  /** `frames` are complete: each ends in an empty line. */
  write(frames: string): void {
    if (this.#ended) return;
    if (this.#pending === '' && frames !== '' && unflushed.push(this) === 1) void Promise.resolve().then(flushAll);
    this.#pending += frames;
  }

  end(lastFrames: string): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#response.end(this.#pending + lastFrames);
    this.#pending = '';
    if (this.#pingTimer !== null) clearTimeout(this.#pingTimer);
    // A reader that never takes the rest must not hold the connection.
    this.#stallTimer ??= setTimeout(() => this.#response.destroy(), this.#limits.streamStallSeconds * 1000);
  }

  /** What `write` does at the end of the turn. */
  flush(): void {
    if (this.#ended || this.#pending === '') return;
    const frames = this.#pending;
    this.#pending = '';
    this.#lastWriteTime = performance.now();
    if (!this.#send(frames)) this.#watchBuffer();
  }

  /** Returns false when the reader is behind. */
  #send(frames: string): boolean {
    const { socket, chunkedEncoding } = this.#response;
    // HTTP/1.0 has no chunks, and a pipelined response waits for its socket.
    if (socket === null || !socket.writable || !chunkedEncoding) return this.#response.write(frames);
    const isAscii = !NOT_ASCII.test(frames);
    const numBytes = isAscii ? frames.length : Buffer.byteLength(frames);
    return socket.write(`${numBytes.toString(16)}\r\n${frames}\r\n`, isAscii ? 'latin1' : 'utf8');
  }

  /** A timer that looks back costs a write less than one that every write sets anew. */
  #pingAfter(milliseconds: number): void {
    this.#pingTimer = setTimeout(() => {
      const interval = this.#limits.pingSeconds * 1000;
      const silence = performance.now() - this.#lastWriteTime;
      if (silence >= interval) this.write(PING);
      this.#pingAfter(silence >= interval ? interval : interval - silence);
    }, milliseconds);
    this.#pingTimer.unref();
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
    if (this.#pingTimer !== null) clearTimeout(this.#pingTimer);
    if (this.#stallTimer !== null) clearTimeout(this.#stallTimer);
  }
}

/** How a stream that has begun tells its failure: the error as an event, then the end mark. */
export function errorFrames(body: ErrorBody): string {
  return `data: ${JSON.stringify(body)}\n\n${SSE_DONE}`;
}
