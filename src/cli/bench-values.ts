// Reads the texts of flags of the bench and doctor commands. Every refusal is one line with the option, the rule and what was given.

import { HUMAN_NUMBER_RULE, parseHumanNumber } from '../config/human-number.ts';
import { PagodaError } from '../errors.ts';

export function refuse(option: string, rule: string, given: string): PagodaError {
  return new PagodaError('bad_config', `--${option} must be ${rule}, got '${given}'.`, { param: `--${option}` });
}

/** A count in human notation of at least `least`. */
export function countValue(option: string, text: string, least: number): number {
  const value = parseHumanNumber(text);
  if (value === null || value < least) throw refuse(option, `${HUMAN_NUMBER_RULE}, at least ${least}`, text);
  return value;
}

export interface Range {
  /** In words. */
  readonly rule: string;
  accepts(value: number): boolean;
}

export const POSITIVE: Range = { rule: 'a number above 0', accepts: (value) => value > 0 };
export const AT_LEAST_0: Range = { rule: 'a number of at least 0', accepts: (value) => value >= 0 };

/** A plain number; `inf` where infinity is a value of the option. */
export function numberValue(option: string, text: string, range: Range, allowsInfinity = false): number {
  if (allowsInfinity && /^(inf|infinity)$/i.test(text)) return Number.POSITIVE_INFINITY;
  const rule = allowsInfinity ? `${range.rule}, or inf` : range.rule;
  const value = Number(text);
  if (!/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) || !Number.isFinite(value) || !range.accepts(value)) {
    throw refuse(option, rule, text);
  }
  return value;
}

const UNIT_SECONDS: ReadonlyMap<string, number> = new Map([
  ['ms', 0.001],
  ['s', 1],
  ['m', 60],
  ['h', 3600],
]);

/** Seconds from `1.5s`, `50ms`, `2m`, `1h` or a bare number of `bareUnit` seconds. */
export function secondsValue(option: string, text: string, bareUnit = 1): number {
  const match = /^(\d+\.?\d*|\.\d+)(ms|s|m|h)?$/.exec(text);
  const unit = UNIT_SECONDS.get(match?.[2] ?? '') ?? bareUnit;
  const value = Number(match?.[1]) * unit;
  if (match === null || !(value > 0)) throw refuse(option, 'a time above 0 like 1.5s or 50ms', text);
  return value;
}

export function choiceValue<T extends string>(option: string, text: string, choices: readonly T[]): T {
  const found = choices.find((choice) => choice === text);
  if (found === undefined) throw refuse(option, `one of ${choices.join(', ')}`, text);
  return found;
}

export function jsonValue(option: string, text: string): Readonly<Record<string, unknown>> {
  let value: unknown = null;
  try {
    value = JSON.parse(text);
  } catch {
    // Refused below, with the rule.
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw refuse(option, 'a JSON object like {"top_k": 5}', text.slice(0, 80));
  }
  return value as Readonly<Record<string, unknown>>;
}

/** `KEY=VALUE` texts. */
export function pairsValue(option: string, texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.map((text) => {
      const at = text.indexOf('=');
      if (at < 1) throw refuse(option, 'KEY=VALUE', text);
      return [text.slice(0, at), text.slice(at + 1)];
    }),
  );
}

/** An http(s) address, without a slash at its end. */
export function urlValue(option: string, text: string): string {
  let url: URL | null = null;
  try {
    url = new URL(text);
  } catch {
    // Refused below.
  }
  if (url === null || !/^https?:$/.test(url.protocol)) {
    throw refuse(option, 'an address like http://127.0.0.1:8000', text);
  }
  return text.replace(/\/+$/, '');
}
