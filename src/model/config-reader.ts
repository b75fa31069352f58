// Checked access to the fields of config.json or of GGUF metadata: every value is tested for type and range where it is
// read, and every error names the key as it stands in the file. Absent and null mean the same: take the default.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { GgufMetadata } from '../checkpoint/gguf-metadata.ts';
import { PagodaError } from '../errors.ts';
import type { Activation } from './program.ts';

type Keys = string | readonly string[];

export interface NumberRange {
  readonly min: number;
  readonly max?: number;
  /** Value when no key is present; without it the key is required. */
  readonly fallback?: number;
}

const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'geluTanh',
  gelu_pytorch_tanh: 'geluTanh',
  relu: 'relu',
};

export class ConfigReader {
  readonly #lookup: (key: string) => unknown;
  readonly #typeOf: (key: string) => string | null;
  /** Where the fields come from, for errors. */
  readonly source: string;
  /** Prefix of keys in errors and look-ups, e.g. `llama.`. */
  readonly prefix: string;

  /** `typeOf` gives a value's declared type where the format has one. */
  constructor(
    source: string,
    lookup: (key: string) => unknown,
    format: { prefix?: string; typeOf?: (key: string) => string | null } = {},
  ) {
    this.source = source;
    this.#lookup = lookup;
    this.prefix = format.prefix ?? '';
    this.#typeOf = format.typeOf ?? (() => null);
  }

  /** The value as stored; undefined when the key is absent, null when it is null. */
  raw(key: string): unknown {
    return this.#lookup(this.prefix + key);
  }

  /** Whether any of the keys holds something. */
  has(keys: Keys): boolean {
    return this.#find(keys) !== null;
  }

  int(keys: Keys, range: NumberRange): number {
    const found = this.#number(keys, range);
    if (found.key === null) return found.value;
    const type = this.#typeOf(this.prefix + found.key);
    if (type === 'f32' || type === 'f64') this.fail(found.key, `must be stored as a whole number, not as ${type}`);
    if (!Number.isSafeInteger(found.value)) this.fail(found.key, `must be a whole number, not ${String(found.value)}`);
    return found.value;
  }

  number(keys: Keys, range: NumberRange): number {
    return this.#number(keys, range).value;
  }

  /** Like `number`, but null when no key is present. */
  optionalNumber(keys: Keys, min: number): number | null {
    return this.has(keys) ? this.number(keys, { min }) : null;
  }

  boolean(keys: Keys, fallback: boolean): boolean {
    const found = this.#find(keys);
    if (!found) return fallback;
    if (typeof found.value !== 'boolean') this.fail(found.key, `must be true or false, not ${show(found.value)}`);
    return found.value;
  }

  string(keys: Keys): string | null {
    const found = this.#find(keys);
    if (!found) return null;
    if (typeof found.value !== 'string') this.fail(found.key, `must be a string, not ${show(found.value)}`);
    return found.value;
  }

  numbers(keys: Keys): number[] | null {
    const found = this.#find(keys);
    if (!found) return null;
    const { key, value } = found;
    if (!Array.isArray(value)) this.fail(key, `must be a list of numbers, not ${show(value)}`);
    return value.map((item) => {
      const number = toNumber(item);
      if (number === null) this.fail(key, `must hold finite numbers, not ${show(item)}`);
      return number;
    });
  }

  strings(keys: Keys): string[] | null {
    const found = this.#find(keys);
    if (!found) return null;
    const { key, value } = found;
    if (!Array.isArray(value) || value.some((item) => typeof item !== 'string'))
      this.fail(key, `must be a list of strings, not ${show(value)}`);
    return value as string[];
  }

  /** A nested object as a reader of its own. */
  object(keys: Keys): ConfigReader | null {
    const found = this.#find(keys);
    if (!found) return null;
    const { key, value } = found;
    if (!isRecord(value)) this.fail(key, `must be an object, not ${show(value)}`);
    return new ConfigReader(`${this.source}, ${key}`, (name) => (Object.hasOwn(value, name) ? value[name] : undefined));
  }

  activation(keys: Keys, fallback: Activation): Activation {
    const name = this.string(keys);
    if (name === null) return fallback;
    const activation = Object.hasOwn(ACTIVATIONS, name) ? ACTIVATIONS[name] : undefined;
    if (activation) return activation;
    throw new PagodaError(
      'unsupported',
      `${this.source}: activation '${name}' is not supported (known: ${Object.keys(ACTIVATIONS).join(', ')}).`,
    );
  }

  fail(key: string, problem: string): never {
    throw new PagodaError('bad_model_file', `${this.source}: ${this.prefix}${key} ${problem}.`);
  }

  #find(keys: Keys): { key: string; value: unknown } | null {
    for (const key of typeof keys === 'string' ? [keys] : keys) {
      const value = this.raw(key);
      if (value !== undefined && value !== null) return { key, value };
    }
    return null;
  }

  #number(keys: Keys, range: NumberRange): { key: string | null; value: number } {
    const found = this.#find(keys);
    const name = typeof keys === 'string' ? keys : keys[0];
    if (!found) {
      if (range.fallback === undefined) this.fail(name, 'is missing');
      return { key: null, value: range.fallback };
    }
    const value = toNumber(found.value);
    if (value === null) this.fail(found.key, `must be a finite number, not ${show(found.value)}`);
    const max = range.max ?? Number.MAX_VALUE;
    if (value < range.min || value > max) {
      this.fail(
        found.key,
        `is ${value}; it must be ${range.max === undefined ? `at least ${range.min}` : `in [${range.min}, ${max}]`}`,
      );
    }
    return { key: found.key, value };
  }
}

/** config.json of a Hugging Face folder. Multi-modal configs keep the language model's fields in `text_config`. */
export function hfReader(checkpoint: Checkpoint): ConfigReader {
  if (checkpoint.format !== 'safetensors')
    throw new PagodaError('internal', 'config.json was asked of a GGUF checkpoint.');
  const { config } = checkpoint;
  const fields = isRecord(config.text_config) ? config.text_config : config;
  return new ConfigReader('config.json', (key) => (Object.hasOwn(fields, key) ? fields[key] : undefined));
}

/** GGUF metadata under the architecture's prefix: `block_count` reads `llama.block_count`. */
export function ggufReader(checkpoint: Checkpoint): ConfigReader {
  if (checkpoint.format !== 'gguf')
    throw new PagodaError('internal', 'GGUF metadata was asked of a safetensors checkpoint.');
  const { metadata } = checkpoint;
  return new ConfigReader(checkpoint.source, (key) => metadata.get(key), {
    prefix: `${String(metadata.get('general.architecture'))}.`,
    typeOf: (key) => (metadata instanceof GgufMetadata ? metadata.typeOf(key) : null),
  });
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function toNumber(value: unknown): number | null {
  if (typeof value === 'bigint') return Number(value);
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function show(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return `'${value.slice(0, 40)}'`;
  return Array.isArray(value) ? 'a list' : typeof value;
}
