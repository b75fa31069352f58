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
  #start = 0;
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
    return this.#need(1, what).readUInt8(this.#start);
  }
  i8(what: string): number {
    return this.#need(1, what).readInt8(this.#start);
  }
  u16(what: string): number {
    return this.#need(2, what).readUInt16LE(this.#start);
  }
  i16(what: string): number {
    return this.#need(2, what).readInt16LE(this.#start);
  }
  u32(what: string): number {
    return this.#need(4, what).readUInt32LE(this.#start);
  }
  i32(what: string): number {
    return this.#need(4, what).readInt32LE(this.#start);
  }
  f32(what: string): number {
    return this.#need(4, what).readFloatLE(this.#start);
  }
  f64(what: string): number {
    return this.#need(8, what).readDoubleLE(this.#start);
  }

  /** A 64-bit integer: a number when it is exact as one, else a bigint. */
  u64(what: string): number | bigint {
    const value = this.#need(8, what).readBigUInt64LE(this.#start);
    return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
  }
  i64(what: string): number | bigint {
    const value = this.#need(8, what).readBigInt64LE(this.#start);
    const number = Number(value);
    return Number.isSafeInteger(number) ? number : value;
  }

  /** A number of things of at least `minBytes` each: refused when they cannot fit in what is left of the file, or exceed `max`. */
  count(what: string, minBytes: number, max: number, prefix: string = ''): number {
    const at = this.position;
    const value = this.u64(what);
    if (value > max) this.fail(`${prefix}${what} is ${value}, more than the limit of ${max},`, at);
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
    const numBytes = this.count(what, 1, maxBytes, 'the length of ');
    const bytes = this.#need(numBytes, what).subarray(this.#start, this.#start + numBytes);
    if (strict && !isUtf8(bytes)) this.fail(`${what} is not valid UTF-8`, at);
    return bytes.toString('utf8');
  }

  bytes(numBytes: number, what: string): Buffer {
    return Buffer.from(this.#need(numBytes, what).subarray(this.#start, this.#start + numBytes));
  }

  /** Steps over `numBytes` and returns the window, in which they begin at `#start`. */
  #need(numBytes: number, what: string): Buffer {
    if (numBytes > this.bytesLeft) this.fail(`the file ends inside ${what}`);
    this.#start = this.position - this.#windowStart;
    if (this.#start + numBytes > this.#window.length) {
      const window = Buffer.alloc(Math.min(Math.max(WINDOW_BYTES, numBytes), this.bytesLeft));
      this.#file.read(window, this.position);
      this.#window = window;
      this.#windowStart = this.position;
      this.#start = 0;
    }
    this.position += numBytes;
    return this.#window;
  }
}
