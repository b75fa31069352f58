// Reads tokenizer facts from GGUF metadata; a key of the wrong type or range is a bad_model_file error that names it.

import type { GgufValue } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';

export type GgufMetadata = ReadonlyMap<string, GgufValue>;

function wrongType(key: string, expected: string): PagodaError {
  return new PagodaError('bad_model_file', `The model file is malformed: ${key} must be ${expected}.`);
}

export function readString(metadata: GgufMetadata, key: string): string | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  if (typeof value !== 'string') throw wrongType(key, 'a string');
  return value;
}

export function readBoolean(metadata: GgufMetadata, key: string): boolean | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  if (typeof value !== 'boolean') throw wrongType(key, 'a boolean');
  return value;
}

/** A token id below `vocabSize`, or null when the key is absent. */
export function readTokenId(metadata: GgufMetadata, key: string, vocabSize: number): number | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  const id = typeof value === 'bigint' ? Number(value) : value;
  if (typeof id !== 'number' || !Number.isInteger(id)) throw wrongType(key, 'a token id');
  // Converters write -1 (as an unsigned number) for "none".
  if (id === -1 || id === 0xffffffff) return null;
  if (id < 0 || id >= vocabSize) throw wrongType(key, `a token id below ${vocabSize}, not ${id}`);
  return id;
}

export function readStrings(metadata: GgufMetadata, key: string): readonly string[] | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  if (!Array.isArray(value) || (value.length > 0 && typeof value[0] !== 'string')) {
    throw wrongType(key, 'a list of strings');
  }
  return value as readonly string[];
}

/** Exactly `length` numbers, or null when the key is absent. */
export function readNumbers(metadata: GgufMetadata, key: string, length: number): readonly number[] | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  if (!isListOfNumbers(value) || value.length !== length) throw wrongType(key, `a list of ${length} numbers`);
  return value;
}

function isListOfNumbers(value: GgufValue): value is readonly number[] {
  if (ArrayBuffer.isView(value)) return true;
  return Array.isArray(value) && (value.length === 0 || typeof value[0] === 'number');
}
