// One weight file on disk, opened for positional reads and never read whole. Anything but a regular file is refused before it is
// opened, because opening a pipe would hang. Every failure is a PagodaError that names the file.

import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { PagodaError } from '../errors.ts';

/** Linux transfers at most about 2 GiB per read call. */
const MAX_READ_BYTES = 1 << 30;

export class ModelFile {
  readonly path: string;
  /** Size when it was opened. */
  readonly numBytes: number;
  #descriptor: number;

  constructor(path: string) {
    this.path = path;
    this.#descriptor = openRegularFile(path);
    this.numBytes = fstatSync(this.#descriptor).size;
  }

  /** Fills `target` from byte `position`; a file that ends earlier is an error. */
  read(target: Uint8Array, position: number): void {
    if (this.#descriptor < 0) throw new PagodaError('internal', `${this.path}: read after the checkpoint was closed`);
    let done = 0;
    while (done < target.length) {
      const length = Math.min(target.length - done, MAX_READ_BYTES);
      let numRead: number;
      try {
        numRead = readSync(this.#descriptor, target, done, length, position + done);
      } catch (cause) {
        throw new PagodaError(
          'bad_model_file',
          `${this.path}: cannot read ${length} bytes at byte ${position + done}: ${reason(cause)}`,
          { cause },
        );
      }
      if (numRead === 0) {
        throw new PagodaError(
          'bad_model_file',
          `${this.path}: the file ends at byte ${position + done}, where ${length} more bytes were expected (did it change after it was opened?)`,
        );
      }
      done += numRead;
    }
  }

  close(): void {
    if (this.#descriptor >= 0) closeSync(this.#descriptor);
    this.#descriptor = -1;
  }
}

function openRegularFile(path: string): number {
  try {
    if (!statSync(path).isFile()) throw new PagodaError('bad_model_file', `${path}: is not a regular file`);
    return openSync(path, 'r');
  } catch (cause) {
    if (cause instanceof PagodaError) throw cause;
    const missing = cause instanceof Error && 'code' in cause && cause.code === 'ENOENT';
    throw new PagodaError(
      missing ? 'not_found' : 'bad_model_file',
      `${path}: ${missing ? 'no such file' : `cannot be opened: ${reason(cause)}`}`,
      { cause },
    );
  }
}

export function reason(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
