// Server-sent events out of raw bytes, cut wherever the network cut them (WHATWG HTML, section 9.2.6). Each event carries the
// time of the socket read that completed it, so that several events of one read share one time: nothing is made up.

import { PagodaError } from '../errors.ts';

/** An event larger than this is not a token stream. */
const MAX_EVENT_CHARACTERS = 16 * 2 ** 20;

export type SseListener = (data: string, stampSeconds: number) => void;

export class SseParser {
  readonly #onEvent: SseListener;
  readonly #decoder = new TextDecoder('utf-8');
  readonly #maxCharacters: number;
  #line = '';
  #data: string | null = null;
  /** A CR ended the last line: an LF that follows belongs to it. */
  #skipsLf = false;

  constructor(onEvent: SseListener, maxCharacters: number = MAX_EVENT_CHARACTERS) {
    this.#onEvent = onEvent;
    this.#maxCharacters = maxCharacters;
  }

  /** Bytes of one read and its time. Throws bad_request when an event outgrows the limit. */
  push(bytes: Uint8Array, stampSeconds: number): void {
    const text = this.#decoder.decode(bytes, { stream: true });
    let start = 0;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (code !== 10 && code !== 13) {
        this.#skipsLf = false;
        continue;
      }
      if (code === 10 && this.#skipsLf) {
        this.#skipsLf = false;
        start = i + 1;
        continue;
      }
      this.#endLine(this.#line + text.slice(start, i), stampSeconds);
      this.#line = '';
      this.#skipsLf = code === 13;
      start = i + 1;
    }
    this.#line += text.slice(start);
    if (this.#line.length + (this.#data?.length ?? 0) > this.#maxCharacters) {
      throw new PagodaError('bad_request', `The server sent an event of more than ${this.#maxCharacters} characters.`);
    }
  }

  /** Whether the stream stands inside an event: a stream that ends so was cut. */
  get isInsideEvent(): boolean {
    return this.#line !== '' || this.#data !== null;
  }

  #endLine(line: string, stampSeconds: number): void {
    if (line === '') {
      const data = this.#data;
      this.#data = null;
      if (data !== null) this.#onEvent(data, stampSeconds);
      return;
    }
    if (!line.startsWith('data')) return;
    if (line.length === 4) this.#add('');
    else if (line[4] === ':') this.#add(line.slice(line[5] === ' ' ? 6 : 5));
  }

  #add(value: string): void {
    this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
  }
}
