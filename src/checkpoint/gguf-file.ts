// The header of one GGUF file, version 2 or 3, little endian: metadata and tensor list, checked completely before anything of
// that size is allocated. Format: ggml's docs/gguf.md.

import { PagodaError } from '../errors.ts';
import type { GgufArray, GgufValue, TensorInfo } from './checkpoint.ts';
import { GGUF_TYPES, GgufMetadata, type GgufType } from './gguf-metadata.ts';
import { HeaderReader } from './header-reader.ts';
import { ModelFile } from './model-file.ts';
import { formatOfGgmlType, ggmlTypeName, rowBytes, SUPPORTED_TYPES } from './quantization.ts';

/** No real file comes near these; with "count x smallest size <= bytes left" they bound memory. */
export const GGUF_LIMITS = {
  numKeys: 100_000,
  numTensors: 100_000,
  keyBytes: 65_535,
  stringBytes: 64 * 2 ** 20,
  /** Elements of all arrays together. */
  numElements: 10_000_000,
  arrayDepth: 4,
  numDims: 4,
  tensorNameBytes: 64,
  minAlignment: 8,
  maxAlignment: 65_536,
  /** Metadata and tensor list together. */
  headerBytes: 128 * 2 ** 20,
} as const;

const DEFAULT_ALIGNMENT = 32;

export interface GgufFile {
  readonly metadata: GgufMetadata;
  readonly tensors: readonly TensorInfo[];
  /** First byte after the padded tensor data. */
  readonly endOfData: number;
}

/** Bytes that one element of an array takes at least. */
const MIN_BYTES: Readonly<Record<GgufType, number>> = {
  u8: 1,
  i8: 1,
  u16: 2,
  i16: 2,
  u32: 4,
  i32: 4,
  f32: 4,
  bool: 1,
  string: 8,
  array: 12,
  u64: 8,
  i64: 8,
  f64: 8,
};

export function parseGguf(file: ModelFile): GgufFile {
  const reader = new HeaderReader(file);
  checkMagic(reader);
  // Smallest tensor entry: name of 1 byte, 1 dimension. Smallest key: 1 byte, and a value of 1 byte.
  const numTensors = reader.count('the number of tensors', 33, GGUF_LIMITS.numTensors);
  const numKeys = reader.count('the number of metadata keys', 14, GGUF_LIMITS.numKeys);
  const metadata = new MetadataParser(reader, file.path).parse(numKeys);
  const alignment = alignmentOf(metadata, reader);
  const entries = readTensorList(reader, numTensors);
  return placeTensors(file, reader, { metadata, entries, alignment });
}

function checkMagic(reader: HeaderReader): void {
  if (reader.bytesLeft < 24) reader.fail(`not a GGUF file: ${reader.bytesLeft} bytes long, a header alone has 24,`);
  const magic = reader.bytes(4, 'the magic');
  if (magic.toString('latin1') !== 'GGUF')
    reader.fail(`not a GGUF file: starts with ${magic.toString('hex')}, not "GGUF",`, 0);
  const version = reader.u32('the version');
  if (version === 0x02000000 || version === 0x03000000)
    reader.fail('a big-endian GGUF, which is not supported; convert it', 4);
  if (version !== 2 && version !== 3) reader.fail(`GGUF version ${version} is not supported (2 and 3 are)`, 4);
}

class MetadataParser {
  readonly #reader: HeaderReader;
  readonly #metadata: GgufMetadata;
  #elementsLeft: number = GGUF_LIMITS.numElements;

  constructor(reader: HeaderReader, path: string) {
    this.#reader = reader;
    this.#metadata = new GgufMetadata(path);
  }

  /** Stops before the first key for which `isEnd` holds. */
  parse(numKeys: number, isEnd: (key: string) => boolean = () => false): GgufMetadata {
    const reader = this.#reader;
    for (let i = 0; i < numKeys; i++) {
      const at = reader.position;
      const key = reader.string(`the name of metadata key ${i}`, GGUF_LIMITS.keyBytes, true);
      if (key === '') reader.fail(`metadata key ${i} has an empty name`, at);
      if (isEnd(key)) break;
      if (this.#metadata.has(key)) reader.fail(`metadata key ${key} appears twice, again`, at);
      const type = this.#type(key);
      if (type === 'array') {
        const [value, element] = this.#array(key, 1);
        this.#metadata.add(key, value, `array of ${element}`);
      } else {
        this.#metadata.add(key, this.#scalar(type, key), type);
      }
      checkHeaderSize(reader);
    }
    return this.#metadata;
  }

  #type(key: string): GgufType {
    const at = this.#reader.position;
    const id = this.#reader.u32(`the type of ${key}`);
    return GGUF_TYPES[id] ?? this.#reader.fail(`metadata key ${key} has the unknown type ${id}`, at);
  }

  #scalar(type: Exclude<GgufType, 'array'>, key: string): Exclude<GgufValue, GgufArray> {
    const reader = this.#reader;
    if (type === 'string') return reader.string(key, GGUF_LIMITS.stringBytes, false);
    if (type !== 'bool') return reader[type](key);
    const at = reader.position;
    const byte = reader.u8(key);
    if (byte > 1) reader.fail(`metadata key ${key} is a bool of value ${byte}`, at);
    return byte === 1;
  }

  /** Returns the values and the declared type of the elements. */
  #array(key: string, depth: number): [GgufArray, GgufType] {
    const reader = this.#reader;
    const at = reader.position;
    if (depth > GGUF_LIMITS.arrayDepth)
      reader.fail(`metadata key ${key} nests arrays deeper than ${GGUF_LIMITS.arrayDepth}`);
    const type = this.#type(key);
    const count = reader.count(`the length of array ${key}`, MIN_BYTES[type], GGUF_LIMITS.numElements);
    this.#elementsLeft -= count;
    if (this.#elementsLeft < 0)
      reader.fail(`the metadata arrays hold more than ${GGUF_LIMITS.numElements} elements, exceeded by ${key}`, at);
    if (type === 'array') {
      const arrays: GgufArray[] = [];
      for (let i = 0; i < count; i++) arrays.push(this.#array(key, depth + 1)[0]);
      return [arrays, type];
    }
    const values: Exclude<GgufValue, GgufArray>[] = [];
    for (let i = 0; i < count; i++) {
      values.push(this.#scalar(type, key));
      if ((i & 1023) === 0) checkHeaderSize(reader);
    }
    return [values as GgufArray, type];
  }
}

function checkHeaderSize(reader: HeaderReader): void {
  if (reader.position > GGUF_LIMITS.headerBytes)
    reader.fail(`the header is longer than ${GGUF_LIMITS.headerBytes} bytes`);
}

function alignmentOf(metadata: GgufMetadata, reader: HeaderReader): number {
  const key = 'general.alignment';
  const value = metadata.get(key);
  if (value === undefined) return DEFAULT_ALIGNMENT;
  const { minAlignment, maxAlignment } = GGUF_LIMITS;
  const type = metadata.typeOf(key);
  if (type !== 'u32' || typeof value !== 'number')
    reader.fail(`${key} must be of type u32, not ${type}, in the metadata that ends`);
  const isPowerOfTwo = (value & (value - 1)) === 0;
  if (value < minAlignment || value > maxAlignment || !isPowerOfTwo) {
    reader.fail(
      `${key} is ${value}, not a power of two from ${minAlignment} to ${maxAlignment}, in the metadata that ends`,
    );
  }
  return value;
}

interface TensorEntry {
  /** As TensorInfo, but the offset counts from the start of the data. */
  readonly info: TensorInfo;
  /** Where the entry stands in the file. */
  readonly at: number;
}

function readTensorList(reader: HeaderReader, numTensors: number): TensorEntry[] {
  const names = new Set<string>();
  const entries: TensorEntry[] = [];
  for (let i = 0; i < numTensors; i++) {
    const at = reader.position;
    const name = reader.string(`the name of tensor ${i}`, GGUF_LIMITS.tensorNameBytes, true);
    if (name === '') reader.fail(`tensor ${i} has an empty name`, at);
    if (names.has(name)) reader.fail(`tensor ${name} appears twice, again`, at);
    names.add(name);
    entries.push({ info: readTensorEntry(reader, name), at });
    checkHeaderSize(reader);
  }
  return entries;
}

function readTensorEntry(reader: HeaderReader, name: string): TensorInfo {
  const at = reader.position;
  const numDims = reader.u32(`the number of dimensions of ${name}`);
  if (numDims < 1 || numDims > GGUF_LIMITS.numDims) {
    reader.fail(`tensor ${name} has ${numDims} dimensions (1 to ${GGUF_LIMITS.numDims} are allowed)`, at);
  }
  const dims: number[] = [];
  let numValues = 1;
  for (let d = 0; d < numDims; d++) {
    const dimAt = reader.position;
    const dim = reader.u64(`a dimension of ${name}`);
    if (typeof dim === 'bigint' || dim < 1) reader.fail(`tensor ${name} has a dimension of ${dim}`, dimAt);
    numValues *= dim;
    // Below this line every product of dimensions is an exact integer.
    if (numValues > Number.MAX_SAFE_INTEGER)
      reader.fail(`tensor ${name} has too many values: dimensions ${[dim, ...dims].join(' x ')}`, dimAt);
    dims.unshift(dim);
  }
  const typeAt = reader.position;
  const ggmlType = reader.u32(`the type of ${name}`);
  const format = formatOfGgmlType(ggmlType);
  if (format === null) {
    reader.fail(
      `tensor ${name} has type ${ggmlTypeName(ggmlType)}, which is not supported (supported: ${SUPPORTED_TYPES.join(', ')})`,
      typeAt,
    );
  }
  const cols = dims.at(-1)!;
  if (cols % format.blockSize !== 0) {
    reader.fail(
      `tensor ${name} has rows of ${cols} values, not a whole number of ${format.type} blocks of ${format.blockSize},`,
      at,
    );
  }
  const numBytes = (numValues / cols) * rowBytes(format.type, cols);
  if (!Number.isSafeInteger(numBytes))
    reader.fail(`tensor ${name} has too many bytes: dimensions ${dims.join(' x ')}`, at);
  const offsetAt = reader.position;
  const offset = reader.u64(`the offset of ${name}`);
  if (typeof offset === 'bigint') reader.fail(`tensor ${name} has an offset of ${offset}, beyond the file,`, offsetAt);
  return { name, type: format.type, shape: dims, file: '', offset, numBytes };
}

function alignUp(value: number, alignment: number): number {
  return Math.ceil(value / alignment) * alignment;
}

function placeTensors(
  file: ModelFile,
  reader: HeaderReader,
  { metadata, entries, alignment }: { metadata: GgufMetadata; entries: readonly TensorEntry[]; alignment: number },
): GgufFile {
  const dataStart = alignUp(reader.position, alignment);
  let end = entries.length === 0 ? reader.position : dataStart;
  let before = '';
  for (const { info, at } of [...entries].sort((a, b) => a.info.offset - b.info.offset)) {
    if (info.offset % alignment !== 0)
      reader.fail(`tensor ${info.name} has offset ${info.offset}, not a multiple of ${alignment}, in its entry`, at);
    const start = dataStart + info.offset;
    if (start < end) reader.fail(`tensor ${info.name} overlaps ${before}: its entry`, at);
    if (start + info.numBytes > file.numBytes) {
      reader.fail(
        `tensor ${info.name} needs ${info.numBytes} bytes from byte ${start}, but the file has ${file.numBytes} bytes (cut short?): its entry`,
        at,
      );
    }
    // Writers pad the last tensor too, so a file that ends within the padding was cut.
    end = alignUp(start + info.numBytes, alignment);
    before = info.name;
  }
  if (end > file.numBytes)
    reader.fail(
      `the file is cut short: the padding of tensor ${before} ends at byte ${end} but the file`,
      file.numBytes,
    );
  const tensors = entries.map(({ info }) => ({ ...info, file: file.path, offset: dataStart + info.offset }));
  return { metadata, tensors, endOfData: end };
}

/** What a GGUF says about itself in its first keys. */
export interface GgufSummary {
  readonly architecture: string | null;
  /** `general.type`: model, mmproj, imatrix, adapter, ... */
  readonly type: string | null;
  readonly name: string | null;
}

export function summarizeGguf(metadata: ReadonlyMap<string, GgufValue>): GgufSummary {
  const text = (key: string): string | null => {
    const value = metadata.get(key);
    return typeof value === 'string' ? value : null;
  };
  return { architecture: text('general.architecture'), type: text('general.type'), name: text('general.name') };
}

/** False for vision projectors, importance matrices, adapters and whatever else says that it is not a model. */
export function isLanguageModel({ architecture, type }: GgufSummary): boolean {
  return (type === null || type === 'model' || type === 'vocab') && architecture !== 'clip';
}

/** Reads only the leading `general.*` keys, which writers put first; null when the file is not a GGUF we can read. */
export function peekGguf(path: string): GgufSummary | null {
  let file: ModelFile | null = null;
  try {
    file = new ModelFile(path);
    const reader = new HeaderReader(file);
    checkMagic(reader);
    reader.count('the number of tensors', 33, GGUF_LIMITS.numTensors);
    const numKeys = reader.count('the number of metadata keys', 14, GGUF_LIMITS.numKeys);
    return summarizeGguf(new MetadataParser(reader, path).parse(numKeys, (key) => !key.startsWith('general.')));
  } catch (error) {
    if (error instanceof PagodaError) return null;
    throw error;
  } finally {
    file?.close();
  }
}
