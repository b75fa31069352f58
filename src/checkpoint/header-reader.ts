// Reads the little-endian fields of a GGUF header through a sliding window, so that memory follows what is read and never what a
// field claims. Every read is checked against the bytes left in the file first.

import { isUtf8 } from 'node:buffer';
import { PagodaError } from '../errors.ts';
import type { ModelFile } from './model-file.ts';

const WINDOW_BYTES = 256 * 1024;

export class HeaderReader {
  readonly #file: ModelFile;
  #window: Buffer = Buffer.alloc(0);
  #windowStart = 0;
  /** Byte position in the file of the next field. */
  position = 0;

  constructor(file: ModelFile) {
    this.#file = file;
  }

  get bytesLeft(): number {
    return this.#file.numBytes - this.position;
  }

  fail(message: string, at: number = this.position): never {
    throw new PagodaError('bad_model_file', `${this.#file.path}: ${message} at byte ${at}`);
  }

  u8(what: string): number {
    return this.#window.readUInt8(this.#take(1, what));
  }
  i8(what: string): number {
    return this.#window.readInt8(this.#take(1, what));
  }
  u16(what: string): number {
    return this.#window.readUInt16LE(this.#take(2, what));
  }
  i16(what: string): number {
    return this.#window.readInt16LE(this.#take(2, what));
  }
  u32(what: string): number {
    return this.#window.readUInt32LE(this.#take(4, what));
  }
  i32(what: string): number {
    return this.#window.readInt32LE(this.#take(4, what));
  }
  f32(what: string): number {
    return this.#window.readFloatLE(this.#take(4, what));
  }
  f64(what: string): number {
    return this.#window.readDoubleLE(this.#take(8, what));
  }

  /** A 64-bit integer: a number when it is exact as one, else a bigint. */
  u64(what: string): number | bigint {
    const value = this.#window.readBigUInt64LE(this.#take(8, what));
    return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
  }
  i64(what: string): number | bigint {
    const value = this.#window.readBigInt64LE(this.#take(8, what));
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }

  /** A number of things of at least `minBytes` each: refused when they cannot fit in what is left of the file, or exceed `max`. */
  count(what: string, minBytes: number, max: number): number {
    const at = this.position;
    const value = this.u64(what);
    if (value > max) this.fail(`${what} is ${value}, more than the limit of ${max},`, at);
    const count = Number(value);
    if (count * minBytes > this.bytesLeft) {
      this.fail(
        `${what} is ${count} (at least ${count * minBytes} bytes) but only ${this.bytesLeft} bytes are left`,
        at,
      );
    }
    return count;
  }

  /** Length-prefixed UTF-8. `strict` refuses malformed UTF-8; otherwise it becomes U+FFFD. */
  string(what: string, maxBytes: number, strict: boolean): string {
    const at = this.position;
    const numBytes = this.count(`the length of ${what}`, 1, maxBytes);
    const start = this.#take(numBytes, what);
    const bytes = this.#window.subarray(start, start + numBytes);
    if (strict && !isUtf8(bytes)) this.fail(`${what} is not valid UTF-8`, at);
    return bytes.toString('utf8');
  }

  bytes(numBytes: number, what: string): Buffer {
    const start = this.#take(numBytes, what);
    return Buffer.from(this.#window.subarray(start, start + numBytes));
  }

  /** Makes the next `numBytes` available and steps over them; returns where they start in the window. */
  #take(numBytes: number, what: string): number {
    if (numBytes > this.bytesLeft) this.fail(`the file ends inside ${what}`);
    let start = this.position - this.#windowStart;
    if (start + numBytes > this.#window.length) {
      const window = Buffer.alloc(Math.min(Math.max(WINDOW_BYTES, numBytes), this.bytesLeft));
      this.#file.read(window, this.position);
      this.#window = window;
      this.#windowStart = this.position;
      start = 0;
    }
    this.position += numBytes;
    return start;
  }
}
