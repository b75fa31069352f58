// Writes GGUF files for tests, honest ones and broken ones: any field can be given a value that no honest writer would give.
import { Buffer } from 'node:buffer';
import { GGUF_TYPES, type GgufType } from '../../../src/checkpoint/gguf-metadata.ts';

export type WriterValue = number | bigint | boolean | string | readonly WriterValue[];

export interface WriterKey {
  readonly key: string;
  readonly type: GgufType;
  readonly value: WriterValue;
  /** For arrays. */
  readonly elementType?: GgufType;
}

export interface WriterTensor {
  readonly name: string;
  /** In file order: innermost first. */
  readonly dims: readonly (number | bigint)[];
  readonly ggmlType: number;
  readonly data: Uint8Array;
  /** Relative to the data; packed one after the other by default. */
  readonly offset?: number | bigint;
  /** Number of dimensions that is claimed. */
  readonly numDims?: number;
}

export interface WriterOptions {
  readonly version?: number;
  readonly magic?: string;
  readonly alignment?: number;
  readonly numKeys?: number | bigint;
  readonly numTensors?: number | bigint;
}

export function u32(value: number): Buffer {
  const buffer = Buffer.alloc(4);
  buffer.writeUInt32LE(value >>> 0);
  return buffer;
}

export function u64(value: number | bigint): Buffer {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)));
  return buffer;
}

export function ggufString(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8');
  return Buffer.concat([u64(bytes.length), bytes]);
}

export function ggufValue(type: GgufType, value: WriterValue, elementType: GgufType = 'u32'): Buffer {
  const buffer = Buffer.alloc(8);
  switch (type) {
    case 'u8':
      buffer.writeUInt8(Number(value));
      return buffer.subarray(0, 1);
    case 'i8':
      buffer.writeInt8(Number(value));
      return buffer.subarray(0, 1);
    case 'bool':
      buffer.writeUInt8(value === true ? 1 : Number(value));
      return buffer.subarray(0, 1);
    case 'u16':
      buffer.writeUInt16LE(Number(value));
      return buffer.subarray(0, 2);
    case 'i16':
      buffer.writeInt16LE(Number(value));
      return buffer.subarray(0, 2);
    case 'u32':
      return u32(Number(value));
    case 'i32':
      buffer.writeInt32LE(Number(value));
      return buffer.subarray(0, 4);
    case 'f32':
      buffer.writeFloatLE(Number(value));
      return buffer.subarray(0, 4);
    case 'u64':
    case 'i64':
      return u64(BigInt(value as number | bigint));
    case 'f64':
      buffer.writeDoubleLE(Number(value));
      return buffer;
    case 'string':
      return ggufString(String(value));
    case 'array': {
      const elements = (value as readonly WriterValue[]).map((element) => ggufValue(elementType, element));
      return Buffer.concat([u32(GGUF_TYPES.indexOf(elementType)), u64(elements.length), ...elements]);
    }
  }
}

export function ggufKey({ key, type, value, elementType }: WriterKey): Buffer {
  return Buffer.concat([ggufString(key), u32(GGUF_TYPES.indexOf(type)), ggufValue(type, value, elementType)]);
}

function padded(length: number, alignment: number): number {
  return Math.ceil(length / alignment) * alignment;
}

export function writeGguf(
  keys: readonly WriterKey[],
  tensors: readonly WriterTensor[],
  options: WriterOptions = {},
): Buffer {
  const { version = 3, magic = 'GGUF', alignment = 32, numKeys = keys.length, numTensors = tensors.length } = options;
  const parts: Buffer[] = [
    Buffer.from(magic, 'latin1'),
    u32(version),
    u64(numTensors),
    u64(numKeys),
    ...keys.map(ggufKey),
  ];
  let offset = 0;
  for (const { name, dims, ggmlType, data, numDims = dims.length, ...tensor } of tensors) {
    parts.push(ggufString(name), u32(numDims), ...dims.map(u64), u32(ggmlType), u64(tensor.offset ?? offset));
    offset = padded(offset + data.length, alignment);
  }
  const header = Buffer.concat(parts);
  const body: Buffer[] = [
    header,
    Buffer.alloc(tensors.length === 0 ? 0 : padded(header.length, alignment) - header.length),
  ];
  for (const { data } of tensors)
    body.push(Buffer.from(data), Buffer.alloc(padded(data.length, alignment) - data.length));
  return Buffer.concat(body);
}

/** The files of a split set by name; the metadata goes to the first. */
export function writeSplitGguf(
  stem: string,
  keys: readonly WriterKey[],
  parts: readonly (readonly WriterTensor[])[],
): Map<string, Buffer> {
  const total = parts.reduce((sum, tensors) => sum + tensors.length, 0);
  const files = new Map<string, Buffer>();
  for (const [i, tensors] of parts.entries()) {
    const split: WriterKey[] = [
      { key: 'split.no', type: 'u16', value: i },
      { key: 'split.count', type: 'u16', value: parts.length },
      { key: 'split.tensors.count', type: 'i32', value: total },
    ];
    const number = (n: number) => String(n).padStart(5, '0');
    files.set(
      `${stem}-${number(i + 1)}-of-${number(parts.length)}.gguf`,
      writeGguf(i === 0 ? [...keys, ...split] : split, tensors),
    );
  }
  return files;
}

/** `values` as an F32 tensor. */
export function f32Tensor(
  name: string,
  dims: readonly number[],
  values: (i: number) => number = (i) => i,
): WriterTensor {
  const data = new Uint8Array(
    Float32Array.from({ length: dims.reduce((a, b) => a * b, 1) }, (_, i) => values(i)).buffer,
  );
  return { name, dims, ggmlType: 0, data };
}

/** Keys of a file that says it is a small Llama. */
export const SMALL_KEYS: readonly WriterKey[] = [
  { key: 'general.architecture', type: 'string', value: 'llama' },
  { key: 'general.type', type: 'string', value: 'model' },
  { key: 'general.name', type: 'string', value: 'small' },
  { key: 'llama.block_count', type: 'u32', value: 2 },
  { key: 'llama.rope.freq_base', type: 'f32', value: 10000 },
  { key: 'tokenizer.ggml.tokens', type: 'array', elementType: 'string', value: ['<s>', 'a', '中'] },
  { key: 'tokenizer.ggml.scores', type: 'array', elementType: 'f32', value: [0, -1, -2] },
];
