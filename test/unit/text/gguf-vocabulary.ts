// Reads only the metadata of a GGUF file: enough for tokenizer tests, without the checkpoint reader.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import type { GgufValue } from '../../../src/checkpoint/checkpoint.ts';

const MAX_HEADER_BYTES = 16 << 20;

export function readGgufMetadata(path: string): Map<string, GgufValue> {
  const file = openSync(path, 'r');
  const buffer = Buffer.alloc(Math.min(MAX_HEADER_BYTES, fstatSync(file).size));
  readSync(file, buffer, 0, buffer.length, 0);
  closeSync(file);
  let at = 16;
  const uint32 = (): number => buffer.readUInt32LE((at += 4) - 4);
  const uint64 = (): number => Number(buffer.readBigUInt64LE((at += 8) - 8));
  const text = (): string => {
    const length = uint64();
    at += length;
    return buffer.toString('utf8', at - length, at);
  };
  const value = (type: number): GgufValue => {
    switch (type) {
      case 0:
        return buffer.readUInt8(at++);
      case 1:
        return buffer.readInt8(at++);
      case 4:
        return uint32();
      case 5:
        return buffer.readInt32LE((at += 4) - 4);
      case 6:
        return buffer.readFloatLE((at += 4) - 4);
      case 7:
        return buffer.readUInt8(at++) !== 0;
      case 8:
        return text();
      case 9: {
        const itemType = uint32();
        const length = uint64();
        return Array.from({ length }, () => value(itemType)) as unknown as GgufValue;
      }
      case 10:
        return uint64();
      default:
        throw new Error(`value type ${type} is not needed by these tests`);
    }
  };
  const numEntries = uint64();
  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < numEntries; i++) {
    const key = text();
    metadata.set(key, value(uint32()));
  }
  return metadata;
}
