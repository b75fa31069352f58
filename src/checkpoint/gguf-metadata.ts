// GGUF key-value metadata: a map that also knows each value's declared type, and accessors that check a value where it is used.
// Their errors name the file and the key.

import { PagodaError } from '../errors.ts';
import type { GgufValue } from './checkpoint.ts';

export type GgufType =
  | 'u8'
  | 'i8'
  | 'u16'
  | 'i16'
  | 'u32'
  | 'i32'
  | 'f32'
  | 'bool'
  | 'string'
  | 'array'
  | 'u64'
  | 'i64'
  | 'f64';

/** Index = id in the file. */
export const GGUF_TYPES: readonly GgufType[] = [
  'u8',
  'i8',
  'u16',
  'i16',
  'u32',
  'i32',
  'f32',
  'bool',
  'string',
  'array',
  'u64',
  'i64',
  'f64',
];

/** 64-bit integers are numbers when exact as such, else bigints. */
export class GgufMetadata extends Map<string, GgufValue> {
  /** The file, for messages. */
  readonly path: string;
  readonly #types = new Map<string, string>();

  constructor(path: string) {
    super();
    this.path = path;
  }

  /** `type` as declared in the file: `u32`, or `array of f32`. */
  add(key: string, value: GgufValue, type: string): void {
    this.set(key, value);
    this.#types.set(key, type);
  }

  /** Null for a key that is absent. */
  typeOf(key: string): string | null {
    return this.#types.get(key) ?? null;
  }
}

export type Metadata = ReadonlyMap<string, GgufValue>;

export interface NumberCheck {
  readonly min?: number;
  readonly max?: number;
  /** Also refuses a value that the file declares as a float, even when it is whole. */
  readonly integer?: boolean;
}

/** Refuses `key` in one line that says which file and what was found. */
export function badMetadata(metadata: Metadata, key: string, problem: string): never {
  const path = metadata instanceof GgufMetadata ? `${metadata.path}: ` : '';
  throw new PagodaError('bad_model_file', `${path}metadata key ${key} ${problem}`);
}

function typeOf(metadata: Metadata, key: string): string {
  const declared = metadata instanceof GgufMetadata ? metadata.typeOf(key) : null;
  return declared ?? typeof metadata.get(key);
}

/** A finite number; null when the key is absent. */
export function optionalNumber(metadata: Metadata, key: string, check: NumberCheck = {}): number | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  const type = typeOf(metadata, key);
  if (typeof value === 'bigint') badMetadata(metadata, key, `is ${value}, which is too large`);
  if (typeof value !== 'number') badMetadata(metadata, key, `must be a number, not ${type}`);
  if (!Number.isFinite(value)) badMetadata(metadata, key, `is ${value}; it must be finite`);
  if (check.integer && (!Number.isInteger(value) || type === 'f32' || type === 'f64')) {
    badMetadata(metadata, key, `must be an integer, not ${type} ${value}`);
  }
  const { min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY } = check;
  if (value < min || value > max) badMetadata(metadata, key, `is ${value}; allowed is ${rangeText(min, max)}`);
  return value;
}

function rangeText(min: number, max: number): string {
  if (max === Number.POSITIVE_INFINITY) return `${min} or more`;
  return min === Number.NEGATIVE_INFINITY ? `${max} or less` : `${min} to ${max}`;
}

export function metadataNumber(metadata: Metadata, key: string, check: NumberCheck = {}): number {
  return optionalNumber(metadata, key, check) ?? badMetadata(metadata, key, 'is missing');
}

export function optionalString(metadata: Metadata, key: string): string | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  if (typeof value !== 'string') badMetadata(metadata, key, `must be a string, not ${typeOf(metadata, key)}`);
  return value;
}

export function metadataString(metadata: Metadata, key: string): string {
  return optionalString(metadata, key) ?? badMetadata(metadata, key, 'is missing');
}

export function optionalBoolean(metadata: Metadata, key: string): boolean | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  if (typeof value !== 'boolean') badMetadata(metadata, key, `must be a bool, not ${typeOf(metadata, key)}`);
  return value;
}

interface ElementTypes {
  number: number;
  string: string;
  boolean: boolean;
}

export interface ArrayCheck {
  /** Exact length. */
  readonly length?: number;
  /** Declared element types that are allowed, e.g. ['f32']; the files' own types are only known for GgufMetadata. */
  readonly elementTypes?: readonly GgufType[];
}

/** A flat array whose elements are all of the asked kind; null when the key is absent. */
export function optionalArray<K extends keyof ElementTypes>(
  metadata: Metadata,
  key: string,
  kind: K,
  check: ArrayCheck = {},
): readonly ElementTypes[K][] | null {
  const value = metadata.get(key);
  if (value === undefined) return null;
  const type = typeOf(metadata, key);
  if (!Array.isArray(value)) badMetadata(metadata, key, `must be an array, not ${type}`);
  const declared = type.startsWith('array of ') ? type.slice('array of '.length) : null;
  if (check.elementTypes && declared !== null && !check.elementTypes.some((allowed) => allowed === declared)) {
    badMetadata(metadata, key, `must be an array of ${check.elementTypes.join(' or ')}, not of ${declared}`);
  }
  for (const element of value as readonly unknown[]) {
    if (typeof element !== kind) badMetadata(metadata, key, `must be an array of ${kind}s, not ${type}`);
  }
  if (check.length !== undefined && value.length !== check.length) {
    badMetadata(metadata, key, `has ${value.length} elements; ${check.length} are needed`);
  }
  return value as unknown as readonly ElementTypes[K][];
}

export function metadataArray<K extends keyof ElementTypes>(
  metadata: Metadata,
  key: string,
  kind: K,
  check: ArrayCheck = {},
): readonly ElementTypes[K][] {
  return optionalArray(metadata, key, kind, check) ?? badMetadata(metadata, key, 'is missing');
}
