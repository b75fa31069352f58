// The header of one safetensors file: 8 bytes of length, JSON, then the data without gaps. Checked as strictly as the format's
// own library does (github.com/huggingface/safetensors), and with exact integers.

import { isUtf8 } from 'node:buffer';
import { PagodaError } from '../errors.ts';
import type { ModelFile } from './model-file.ts';
import { type JsonObject, parseJsonObject } from './strict-json.ts';

export const SAFETENSORS_LIMITS = { headerBytes: 100_000_000, numTensors: 250_000, numDims: 8 } as const;

/** Bits per value. */
const DTYPE_BITS: Readonly<Record<string, number>> = {
  BOOL: 8,
  U8: 8,
  I8: 8,
  F8_E5M2: 8,
  F8_E4M3: 8,
  F8_E8M0: 8,
  F8_E5M2FNUZ: 8,
  F8_E4M3FNUZ: 8,
  F4: 4,
  F6_E2M3: 6,
  F6_E3M2: 6,
  I16: 16,
  U16: 16,
  F16: 16,
  BF16: 16,
  I32: 32,
  U32: 32,
  F32: 32,
  I64: 64,
  U64: 64,
  F64: 64,
  C64: 64,
};

export interface SafetensorsEntry {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
  /** Absolute byte offset in the file. */
  readonly offset: number;
  readonly numBytes: number;
}

export function parseSafetensors(file: ModelFile): SafetensorsEntry[] {
  const bad = (problem: string): never => {
    throw new PagodaError('bad_model_file', `${file.path}: ${problem}`);
  };
  if (file.numBytes < 10) bad(`not a safetensors file: only ${file.numBytes} bytes long`);
  const lengthBytes = Buffer.alloc(8);
  file.read(lengthBytes, 0);
  const headerBytes = lengthBytes.readBigUInt64LE();
  if (headerBytes > BigInt(SAFETENSORS_LIMITS.headerBytes)) {
    bad(
      `not a safetensors file: the header length at byte 0 is ${headerBytes}, more than ${SAFETENSORS_LIMITS.headerBytes}`,
    );
  }
  const dataStart = 8 + Number(headerBytes);
  if (headerBytes < 2n || dataStart > file.numBytes) {
    bad(`the header length at byte 0 is ${headerBytes}, but the file has ${file.numBytes} bytes`);
  }
  const header = Buffer.alloc(Number(headerBytes));
  file.read(header, 8);
  if (header[0] !== 0x7b) bad('the header at byte 8 does not begin with "{"');
  if (!isUtf8(header)) bad('the header at byte 8 is not valid UTF-8');
  const json = parseJsonObject(header.toString('utf8'), { path: file.path, startByte: 8, integersOnly: true });
  return checkEntries(json, { path: file.path, dataStart, dataBytes: file.numBytes - dataStart });
}

interface DataPlace {
  readonly path: string;
  readonly dataStart: number;
  readonly dataBytes: number;
}

function checkEntries(header: JsonObject, place: DataPlace): SafetensorsEntry[] {
  const names = Object.keys(header).filter((name) => name !== '__metadata__');
  const { numTensors } = SAFETENSORS_LIMITS;
  const bad = (problem: string): never => {
    throw new PagodaError('bad_model_file', `${place.path}: ${problem}`);
  };
  if (names.length > numTensors) bad(`${names.length} tensors, more than the limit of ${numTensors}`);
  const entries = names.map((name) => checkEntry(name, header[name], place));
  let end = place.dataStart;
  let before = 'the start of the data';
  for (const entry of entries.sort((a, b) => a.offset - b.offset || a.numBytes - b.numBytes)) {
    if (entry.offset !== end) {
      bad(
        `tensor ${entry.name} ${entry.offset > end ? 'leaves a gap after' : 'overlaps'} ${before} at byte ${entry.offset}`,
      );
    }
    end += entry.numBytes;
    before = entry.name;
  }
  const dataEnd = place.dataStart + place.dataBytes;
  if (end !== dataEnd) bad(`the tensors end at byte ${end}, the file at byte ${dataEnd}`);
  return entries;
}

function checkEntry(name: string, value: unknown, { path, dataStart, dataBytes }: DataPlace): SafetensorsEntry {
  const bad = (problem: string): never => {
    throw new PagodaError('bad_model_file', `${path}: tensor ${name.slice(0, 200)}: ${problem}`);
  };
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return bad('its entry is not an object');
  const { dtype, shape, data_offsets: offsets, ...rest } = value as JsonObject;
  const unknownKey = Object.keys(rest)[0];
  if (unknownKey !== undefined) bad(`unknown key ${unknownKey.slice(0, 200)}`);
  const bits = typeof dtype === 'string' && Object.hasOwn(DTYPE_BITS, dtype) ? DTYPE_BITS[dtype]! : 0;
  if (typeof dtype !== 'string' || bits === 0) return bad(`unknown dtype ${JSON.stringify(dtype)?.slice(0, 200)}`);
  const { numDims } = SAFETENSORS_LIMITS;
  if (!isListOfIntegers(shape) || shape.length > numDims || shape.some((dim) => dim < 1)) {
    return bad(`its shape must be at most ${numDims} integers from 1 on`);
  }
  if (!isListOfIntegers(offsets) || offsets.length !== 2) return bad('data_offsets must be two integers');
  const [begin, end] = offsets as [number, number];
  if (begin < 0 || end < begin || end > dataBytes)
    bad(`data_offsets [${begin}, ${end}] do not lie in the ${dataBytes} bytes of data`);
  let numBits = bits;
  for (const dim of shape) {
    numBits *= dim;
    if (numBits > Number.MAX_SAFE_INTEGER) bad(`shape [${shape.join(', ')}] has too many values`);
  }
  if (numBits !== (end - begin) * 8) {
    bad(
      `shape [${shape.join(', ')}] of ${dtype} takes ${numBits / 8} bytes, data_offsets [${begin}, ${end}] give ${end - begin}`,
    );
  }
  return { name, dtype, shape, offset: dataStart + begin, numBytes: end - begin };
}

function isListOfIntegers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((element) => Number.isSafeInteger(element));
}
