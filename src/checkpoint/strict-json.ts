// JSON for files that come from strangers: a key given twice and `__proto__` are refused (JSON.parse lets the last one win, so two
// programs can read two different models), depth is bounded, and objects have no prototype.

import { PagodaError } from '../errors.ts';

const MAX_DEPTH = 64;

export interface StrictJsonOptions {
  /** The file, for messages. */
  readonly path: string;
  /** Added to positions in messages: where the text begins in the file. */
  readonly startByte?: number;
  /** Numbers must be written without fraction and exponent, and be exact. */
  readonly integersOnly?: boolean;
  /** NaN, Infinity and -Infinity count as numbers, as Python writes them. */
  readonly allowNonFinite?: boolean;
}

export type JsonObject = { [key: string]: unknown };

/** The text must be one object. */
export function parseJsonObject(text: string, options: StrictJsonOptions): JsonObject {
  const parser = new JsonParser(text, options);
  const value = parser.parse();
  if (typeof value !== 'object' || value === null || Array.isArray(value)) parser.fail('a JSON object is needed', 0);
  return value as JsonObject;
}

const NUMBER = /-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;
const WORDS: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ['true', true],
  ['false', false],
  ['null', null],
]);
const NON_FINITE: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
]);

class JsonParser {
  readonly #text: string;
  readonly #options: StrictJsonOptions;
  #at = 0;

  constructor(text: string, options: StrictJsonOptions) {
    this.#text = text;
    this.#options = options;
  }

  parse(): unknown {
    const value = this.#value(0);
    this.#skipSpace();
    if (this.#at < this.#text.length) this.fail('text after the JSON value');
    return value;
  }

  fail(problem: string, at: number = this.#at): never {
    const { path, startByte = 0 } = this.#options;
    throw new PagodaError('bad_model_file', `${path}: not acceptable JSON: ${problem} near byte ${startByte + at}`);
  }

  #value(depth: number): unknown {
    if (depth > MAX_DEPTH) this.fail(`nested deeper than ${MAX_DEPTH}`);
    this.#skipSpace();
    const char = this.#text[this.#at];
    if (char === '{') return this.#object(depth);
    if (char === '[') return this.#array(depth);
    if (char === '"') return this.#string();
    const word = this.#word(WORDS) ?? (this.#options.allowNonFinite ? this.#word(NON_FINITE) : undefined);
    if (word !== undefined) return word.value;
    return this.#number();
  }

  #object(depth: number): JsonObject {
    const object = Object.create(null) as JsonObject;
    this.#at++;
    if (this.#skip('}')) return object;
    do {
      this.#skipSpace();
      const keyAt = this.#at;
      if (this.#text[this.#at] !== '"') this.fail('a key in quotes is needed');
      const key = this.#string();
      if (key === '__proto__') this.fail('the key __proto__ is not allowed', keyAt);
      if (key in object) this.fail(`the key ${JSON.stringify(key.slice(0, 200))} is given twice, again`, keyAt);
      if (!this.#skip(':')) this.fail('":" is needed');
      object[key] = this.#value(depth + 1);
    } while (this.#skip(','));
    if (!this.#skip('}')) this.fail('"," or "}" is needed');
    return object;
  }

  #array(depth: number): unknown[] {
    const array: unknown[] = [];
    this.#at++;
    if (this.#skip(']')) return array;
    do {
      array.push(this.#value(depth + 1));
    } while (this.#skip(','));
    if (!this.#skip(']')) this.fail('"," or "]" is needed');
    return array;
  }

  #string(): string {
    const raw = this.#match(STRING) ?? this.fail('a malformed string');
    return raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1);
  }

  #number(): number {
    const at = this.#at;
    const raw =
      this.#match(NUMBER) ?? this.fail(at < this.#text.length ? 'a value is needed' : 'the text ends too early');
    const value = Number(raw);
    if (this.#options.integersOnly && (!/^-?[0-9]+$/.test(raw) || !Number.isSafeInteger(value))) {
      this.fail(`${raw.slice(0, 40)} is not an integer below 2^53`, at);
    }
    return value;
  }

  #word(words: ReadonlyMap<string, unknown>): { value: unknown } | undefined {
    for (const [word, value] of words) {
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return { value };
      }
    }
    return undefined;
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const raw = pattern.exec(this.#text)?.[0] ?? null;
    if (raw !== null) this.#at += raw.length;
    return raw;
  }

  /** Steps over spaces and then `char`, if it is there. */
  #skip(char: string): boolean {
    this.#skipSpace();
    if (this.#text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #skipSpace(): void {
    this.#match(SPACE);
  }
}
