// What the engine process tells the front, on a pipe of its own: node's channel between processes puts each message together in JavaScript, which
// costs both sides more than all else that an ordinary step asks of them. Everything that the engine says goes this way, so that it stays in
// order; what the front says goes through the channel. A message is
//
//     [bytes of the payload, uint32 | kind, uint32 | payload]      little-endian
//
// kind 0: a StepFrame, its numbers as they lie in memory; kind 1: an EngineMessage as v8 serializes it.

import { writeSync } from 'node:fs';
import { deserialize, serialize } from 'node:v8';
import type { EngineMessage, FromEngine } from './engine-messages.ts';

/** The pipe's number in the engine process: after the standard streams and node's channel. */
export const MESSAGE_PIPE = 4;

const HEADER_BYTES = 8;
const FRAME = 0;
const OBJECT = 1;

/** The engine's end. */
export class MessageWriter {
  readonly #fd: number;
  #buffer = Buffer.alloc(4096);

  constructor(fd = MESSAGE_PIPE) {
    this.#fd = fd;
  }

  /** Waits while the pipe is full. Says nothing where nobody listens any more: node's channel tells of that. */
  send(message: FromEngine): void {
    const isFrame = message instanceof Float64Array;
    const payload = isFrame
      ? new Uint8Array(message.buffer, message.byteOffset, message.byteLength)
      : serialize(message);
    const numBytes = HEADER_BYTES + payload.byteLength;
    if (numBytes > this.#buffer.length) this.#buffer = Buffer.alloc(2 * numBytes);
    this.#buffer.writeUInt32LE(payload.byteLength, 0);
    this.#buffer.writeUInt32LE(isFrame ? FRAME : OBJECT, 4);
    this.#buffer.set(payload, HEADER_BYTES);
    try {
      for (let done = 0; done < numBytes; ) done += writeSync(this.#fd, this.#buffer, done, numBytes - done);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error;
    }
  }
}

/** The front's end: takes the bytes as they come. A frame is valid until `onMessage` returns. */
export class MessageReader {
  readonly #onMessage: (message: FromEngine) => void;
  #rest: Buffer | null = null;
  #numbers = new Float64Array(512);
  #numberBytes = new Uint8Array(this.#numbers.buffer);

  constructor(onMessage: (message: FromEngine) => void) {
    this.#onMessage = onMessage;
  }

  take(chunk: Buffer): void {
    const bytes = this.#rest === null ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= HEADER_BYTES) {
      const start = at + HEADER_BYTES;
      const end = start + bytes.readUInt32LE(at);
      if (end > bytes.length) break;
      const isFrame = bytes.readUInt32LE(at + 4) === FRAME;
      at = end;
      this.#onMessage(
        isFrame ? this.#frame(bytes, start, end) : (deserialize(bytes.subarray(start, end)) as EngineMessage),
      );
    }
    this.#rest = at < bytes.length ? bytes.subarray(at) : null;
  }

  #frame(bytes: Buffer, start: number, end: number): Float64Array {
    const length = (end - start) / Float64Array.BYTES_PER_ELEMENT;
    if (length > this.#numbers.length) {
      this.#numbers = new Float64Array(2 * length);
      this.#numberBytes = new Uint8Array(this.#numbers.buffer);
    }
    // Numbers may lie anywhere in the chunk, a Float64Array may not.
    bytes.copy(this.#numberBytes, 0, start, end);
    return this.#numbers.subarray(0, length);
  }
}
