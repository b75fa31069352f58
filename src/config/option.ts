// The description of one option, and builders for the kinds there are. An option is text until `parse` has checked it, whether
// it came from a flag, a variable or a file; a parser throws a plain Error that says which values are allowed.

import { HUMAN_NUMBER_RULE, parseHumanNumber } from './human-number.ts';

export type OptionGroup = 'model' | 'engine' | 'scheduler' | 'server';

export interface Option<T> {
  /** Without dashes, the first is the name, the others mean the same: `memory-utilization`. */
  readonly names: readonly string[];
  /** Environment variables, the first that is set counts. */
  readonly env: readonly string[];
  /** value: one text. list: one or more. switch: on or off (`--x`, `--no-x`). */
  readonly shape: 'value' | 'list' | 'switch';
  readonly group: OptionGroup;
  readonly help: string;
  /** What stands in the help for the value: `<n>`. */
  readonly placeholder: string;
  readonly default: T;
  /** The default in words, when the value alone does not say it. */
  readonly defaultText: string;
  /** Gets every text of a list, one text otherwise (`true` or `false` for a switch). */
  parse(texts: readonly string[]): T;
}

interface Describe<T> {
  readonly name: string | readonly string[];
  readonly group: OptionGroup;
  readonly help: string;
  readonly default: T;
  readonly defaultText?: string;
  readonly env?: readonly string[];
  readonly placeholder?: string;
}

export function option<T>(
  describe: Describe<T>,
  shape: Option<T>['shape'],
  placeholder: string,
  parse: (texts: readonly string[]) => T,
): Option<T> {
  const names = typeof describe.name === 'string' ? [describe.name] : describe.name;
  return {
    names,
    env: [...names.map((name) => `PAGODA_${name.toUpperCase().replaceAll('-', '_')}`), ...(describe.env ?? [])],
    shape,
    group: describe.group,
    help: describe.help,
    placeholder: describe.placeholder ?? placeholder,
    default: describe.default,
    defaultText: describe.defaultText ?? String(describe.default),
    parse,
  };
}

const only = (texts: readonly string[]): string => texts[0] ?? '';

export function switchOption(describe: Describe<boolean>): Option<boolean> {
  return option(describe, 'switch', '', (texts) => {
    const text = only(texts).toLowerCase();
    if (['true', '1', 'yes', 'on'].includes(text)) return true;
    if (['false', '0', 'no', 'off'].includes(text)) return false;
    throw new Error(`must be true or false, got '${only(texts)}'`);
  });
}

/** With a rule, only texts that it accepts. */
export function textOption<T extends string | null>(
  describe: Describe<T>,
  check: { rule: string; accepts(value: string): boolean } | null = null,
): Option<T | string> {
  return option<T | string>(describe, 'value', '<text>', (texts) => {
    if (only(texts) === '') throw new Error('must not be empty');
    if (check !== null && !check.accepts(only(texts))) throw new Error(`must be ${check.rule}, got '${only(texts)}'`);
    return only(texts);
  });
}

export function listOption(describe: Describe<readonly string[]>): Option<readonly string[]> {
  return option(describe, 'list', '<text...>', (texts) => {
    if (texts.length === 0 || texts.includes('')) throw new Error('must not contain an empty value');
    return texts;
  });
}

/** A count in human notation, within [min, max]; `words` are further spellings with their values. */
export function countOption<T extends number | string | null>(
  describe: Describe<T>,
  range: { min?: number; max?: number; words?: Readonly<Record<string, T>> } = {},
): Option<T | number> {
  const { min = 1, max = Number.MAX_SAFE_INTEGER, words = {} } = range;
  return option<T | number>(describe, 'value', '<n>', (texts) => {
    const text = only(texts);
    if (Object.hasOwn(words, text)) return words[text] as T;
    const value = parseHumanNumber(text);
    const others = Object.keys(words)
      .map((word) => `, or ${word}`)
      .join('');
    if (value === null || value < min || value > max) {
      const limit = max === Number.MAX_SAFE_INTEGER ? `at least ${min}` : `from ${min} to ${max}`;
      throw new Error(`must be ${HUMAN_NUMBER_RULE}, ${limit}${others}, got '${text}'`);
    }
    return value;
  });
}

/** A plain number with its range in words. */
export function numberOption<T extends number | null>(
  describe: Describe<T>,
  range: { rule: string; accepts(value: number): boolean },
): Option<T | number> {
  return option<T | number>(describe, 'value', '<x>', (texts) => {
    const text = only(texts);
    const value = Number(text);
    if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || !range.accepts(value)) {
      throw new Error(`must be ${range.rule}, got '${text}'`);
    }
    return value;
  });
}

/** One of a closed set. `refused` maps known but unsupported spellings to the reason. */
export function choiceOption<T extends string | number>(
  describe: Describe<T>,
  choices: Readonly<Record<string, T>>,
  refused: Readonly<Record<string, string>> = {},
): Option<T> {
  const list = Object.keys(choices).join(', ');
  return option(describe, 'value', `<${Object.keys(choices).join('|')}>`, (texts) => {
    const text = only(texts);
    if (Object.hasOwn(choices, text)) return choices[text] as T;
    const reason = Object.hasOwn(refused, text) ? `: ${refused[text]}` : '';
    throw new Error(`must be one of ${list}, got '${text}'${reason}`);
  });
}

type JsonObject = Readonly<Record<string, unknown>>;

export function jsonOption(describe: Describe<JsonObject>): Option<JsonObject> {
  return option(describe, 'value', '<json>', (texts) => parseObject(only(texts), '{"temperature": 0.7}'));
}

/** An object that `check` takes or refuses with an Error; null only by default. */
export function maybeJsonOption<T>(describe: Describe<T | null>, check: (value: JsonObject) => T): Option<T | null> {
  return option<T | null>(describe, 'value', '<json>', (texts) =>
    check(parseObject(only(texts), '{"method": "ngram", "num_speculative_tokens": 4}')),
  );
}

function parseObject(text: string, example: string): JsonObject {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    value = null;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Error(`must be a JSON object like ${example}, got '${text.slice(0, 80)}'`);
  }
  return value as JsonObject;
}
