// Packed weights kept in a file of the cache folder, so that the next start reads them instead of packing. The file says which
// checkpoint (path, size, times, hash), which layout and which matrices it was made from; whatever differs or is damaged makes it
// count as absent, with one log line that says why. Never the reason that a start fails.

import { createHash } from 'node:crypto';
import {
  type BigIntStats,
  closeSync,
  existsSync,
  fstatSync,
  openSync,
  readSync,
  realpathSync,
  utimesSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import type { Checkpoint } from '../../checkpoint/checkpoint.ts';
import { makeFolder } from '../../make-folder.ts';
import { type Addon, type DeviceHandle, FORMATS } from './addon.ts';
import type { PlannedWeight } from './plan-weights.ts';

/** Smaller models are packed faster than a file would be worth. */
export const MIN_PACKED_CACHE_BYTES = 32 * 2 ** 20;
const GRACE_SECONDS = 2;
/** Files up to this size are hashed whole; of larger ones the beginning, the end and evenly spread samples. */
const WHOLE_HASH_BYTES = 16 * 2 ** 20;
const EDGE_BYTES = 256 * 1024;
const SAMPLE_BYTES = 64 * 1024;
const NUM_SAMPLES = 64;

export interface PackedCacheOptions {
  /** Where the files lie; made when it is not there. */
  readonly folder: string;
  /** All files together; the least recently used go first. */
  readonly maxBytes: number;
  readonly minBytes?: number;
  /** How long a device that is disposed waits for a file that is being written. */
  readonly graceSeconds?: number;
  readonly onLog: (level: 'info' | 'warn', message: string) => void;
}

interface FileIdentity {
  readonly path: string;
  readonly size: string;
  readonly modified: string;
  /** Set by the system at every change of content or attributes; no program can set it back. */
  readonly changed: string;
  readonly hash: string;
}

/** The header of a cache file, in this order of keys: files are compared as text. */
interface PackedHeader {
  readonly checkpoint: readonly FileIdentity[];
  /** Which kernels can read it. */
  readonly layout: string;
  /** Name, format, rows, columns, parts, byte offset, bytes. */
  readonly matrices: ReadonlyArray<readonly [string, number, number, number, number, number, number]>;
}

export class PackedCache {
  readonly #addon: Addon;
  readonly #handle: DeviceHandle;
  readonly #options: PackedCacheOptions;
  readonly #header: PackedHeader;
  readonly #path: string;
  readonly #numBytes: number;
  #isLoaded = false;
  #writing: Promise<void> | null = null;

  /** Null where there is nothing to keep: the matrices that come straight from files are small, or the checkpoint's files cannot be read. */
  static open(
    { addon, handle }: { addon: Addon; handle: DeviceHandle },
    checkpoint: Checkpoint,
    weights: readonly PlannedWeight[],
    options: PackedCacheOptions,
  ): PackedCache | null {
    const matrices = packedMatrices(addon, handle, weights);
    const numBytes = matrices.reduce((sum, matrix) => sum + matrix[6], 0);
    if (numBytes === 0 || numBytes < (options.minBytes ?? MIN_PACKED_CACHE_BYTES)) return null;
    if (numBytes > options.maxBytes) {
      options.onLog('info', `The packed weights (${numBytes} bytes) are larger than --packed-cache-size: not kept.`);
      return null;
    }
    try {
      const header = { checkpoint: checkpoint.files.map(identify), layout: addon.packedLayout(handle), matrices };
      return new PackedCache({ addon, handle, options, header, numBytes });
    } catch (error) {
      options.onLog('warn', `No cache of packed weights: ${text(error)}.`);
      return null;
    }
  }

  private constructor(parts: {
    addon: Addon;
    handle: DeviceHandle;
    options: PackedCacheOptions;
    header: PackedHeader;
    numBytes: number;
  }) {
    this.#addon = parts.addon;
    this.#handle = parts.handle;
    this.#options = parts.options;
    this.#header = parts.header;
    this.#numBytes = parts.numBytes;
    const files = parts.header.checkpoint.map((file) => file.path);
    const key = createHash('sha256')
      .update(JSON.stringify([parts.header.layout, ...files]))
      .digest('hex');
    const name = basename(files[0] ?? 'model').replaceAll(/[^\w.-]/g, '_');
    this.#path = join(parts.options.folder, `${name.slice(0, 80)}-${key.slice(0, 16)}.packed`);
  }

  get path(): string {
    return this.#path;
  }

  /** Before the first weight is loaded: true when the device has the packed matrices now. */
  async load(): Promise<boolean> {
    if (!existsSync(this.#path)) return false;
    const started = performance.now();
    try {
      const difference = this.#difference(this.#addon.readPackedHeader({ path: this.#path }));
      if (difference !== null) throw new Error(difference);
      await this.#addon.usePackedCache(this.#handle, { path: this.#path, header: JSON.stringify(this.#header) });
    } catch (error) {
      this.#log('info', `The packed weights in ${this.#path} are not used and will be made again: ${text(error)}.`);
      return false;
    }
    this.#isLoaded = true;
    const seconds = ((performance.now() - started) / 1000).toFixed(2);
    this.#log('info', `Packed weights read from ${this.#path} (${this.#numBytes} bytes) in ${seconds} seconds.`);
    this.#markUsed();
    return true;
  }

  /** Once everything is loaded: keeps what was packed, on a native thread beside the steps. */
  startWriting(): void {
    if (this.#isLoaded || this.#writing !== null) return;
    this.#writing = this.#write();
  }

  /** Before the device goes: lets a file that is nearly written be finished. */
  async settle(): Promise<void> {
    if (this.#writing === null) return;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, (this.#options.graceSeconds ?? GRACE_SECONDS) * 1000);
    });
    await Promise.race([this.#writing, late]);
    clearTimeout(timer);
  }

  async #write(): Promise<void> {
    try {
      makeFolder(this.#options.folder);
      const outcome = await this.#addon.writePackedCache(this.#handle, {
        path: this.#path,
        header: JSON.stringify(this.#header),
        maxBytes: this.#options.maxBytes,
      });
      if (outcome === 'written') this.#log('info', `Packed weights kept in ${this.#path} (${this.#numBytes} bytes).`);
      if (outcome === 'busy') this.#log('info', 'Packed weights were not kept: another process writes some just now.');
      if (outcome === 'too_large') this.#log('info', 'Packed weights were not kept: larger than --packed-cache-size.');
    } catch (error) {
      this.#log(
        'warn',
        `The packed weights cannot be kept in ${this.#path}: ${text(error)}. Every start packs them again; ` +
          '--cache-dir names another folder, --no-packed-cache does without.',
      );
    }
  }

  /** What makes a file's header another one than ours; null when nothing does. */
  #difference(header: string): string | null {
    if (header === JSON.stringify(this.#header)) return null;
    let found: Partial<PackedHeader>;
    try {
      found = JSON.parse(header) as Partial<PackedHeader>;
    } catch {
      return 'its header cannot be read';
    }
    const same = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b);
    if (!same(found.layout, this.#header.layout)) return 'it has another layout';
    for (const [i, file] of this.#header.checkpoint.entries()) {
      const before = found.checkpoint?.[i];
      for (const [field, name] of IDENTITY_FIELDS) {
        if (before?.[field] !== file[field]) return `${file.path} has changed (${name})`;
      }
    }
    return 'it holds other matrices';
  }

  /** The time of the last use is the file's time of modification. */
  #markUsed(): void {
    try {
      const time = new Date();
      utimesSync(this.#path, time, time);
    } catch {
      // Somebody else's file, or a read-only disk: it only looks older than it is.
    }
  }

  #log(level: 'info' | 'warn', message: string): void {
    this.#options.onLog(level, message);
  }
}

const IDENTITY_FIELDS: ReadonlyArray<readonly [keyof FileIdentity, string]> = [
  ['path', 'path'],
  ['size', 'size'],
  ['hash', 'content'],
  ['modified', 'time of modification'],
  ['changed', 'time of change'],
];

function packedMatrices(
  addon: Addon,
  handle: DeviceHandle,
  weights: readonly PlannedWeight[],
): Array<PackedHeader['matrices'][number]> {
  let offset = 0;
  return weights
    .filter((weight) => weight.pieces !== null)
    .map(({ shape: { name, rows, cols, numParts }, format: type }) => {
      const format = FORMATS[type];
      const bytes = addon.packedBytes(handle, { format, rows, cols, numParts });
      offset += bytes;
      return [name, format, rows, cols, numParts, offset - bytes, bytes] as const;
    });
}

function identify(path: string): FileIdentity {
  const real = realpathSync(path);
  const file = openSync(real, 'r');
  try {
    const { size, mtimeNs, ctimeNs }: BigIntStats = fstatSync(file, { bigint: true });
    const hash = contentHash(file, Number(size));
    return { path: real, size: String(size), modified: String(mtimeNs), changed: String(ctimeNs), hash };
  } finally {
    closeSync(file);
  }
}

function contentHash(file: number, size: number): string {
  const hash = createHash('sha256');
  for (const [start, length] of hashedRanges(size)) hash.update(readRange(file, start, length));
  return hash.digest('hex');
}

/** Start and length of the parts of a file that its hash covers. */
export function hashedRanges(size: number): Array<readonly [number, number]> {
  if (size <= WHOLE_HASH_BYTES) return [[0, size]];
  const middle = size - 2 * EDGE_BYTES - SAMPLE_BYTES;
  const samples = Array.from(
    { length: NUM_SAMPLES },
    (_, i) => [EDGE_BYTES + Math.floor((middle * i) / (NUM_SAMPLES - 1)), SAMPLE_BYTES] as const,
  );
  return [[0, EDGE_BYTES], ...samples, [size - EDGE_BYTES, EDGE_BYTES]];
}

function readRange(file: number, start: number, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    const count = readSync(file, bytes, done, length - done, start + done);
    if (count === 0) throw new Error('the checkpoint became shorter while it was read');
    done += count;
  }
  return bytes;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
