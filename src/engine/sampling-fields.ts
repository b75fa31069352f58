// Type checks of single request fields, for callers whose input no schema has seen yet (the LLM class, plain JavaScript).
// null and undefined are "not given" and come back as null; NaN and infinity are refused like any other wrong value.

import { PagodaError } from '../errors.ts';

export function refuse(param: string, message: string): never {
  throw new PagodaError('bad_request', message, { param });
}

export function optionalNumber(param: string, value: unknown): number | null {
  if (value === null || value === undefined) return null;
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    refuse(param, `${param} must be a finite number, got ${show(value)}.`);
  }
  return value;
}

export function optionalInteger(param: string, value: unknown): number | null {
  if (value === null || value === undefined) return null;
  if (typeof value !== 'number' || !Number.isInteger(value)) {
    refuse(param, `\`${param}\` must be an integer, got ${show(value)}.`);
  }
  return value;
}

export function optionalBoolean(param: string, value: unknown): boolean | null {
  if (value === null || value === undefined) return null;
  if (typeof value !== 'boolean') refuse(param, `${param} must be true or false, got ${show(value)}.`);
  return value;
}

export function optionalTokenIds(param: string, value: unknown): readonly number[] | null {
  if (value === null || value === undefined) return null;
  if (!Array.isArray(value) || !value.every((id) => Number.isInteger(id))) {
    refuse(param, `${param} must contain only integers, got ${show(value)}.`);
  }
  return value;
}

/** Not given is the empty list. */
export function stringList(param: string, value: unknown): readonly string[] {
  if (value === null || value === undefined) return [];
  if (!Array.isArray(value) || !value.every((text) => typeof text === 'string')) {
    refuse(param, `${param} must be a list of strings, got ${show(value)}.`);
  }
  return value;
}

/** The value as text for an error: short, whatever it is. */
function show(value: unknown): string {
  const text =
    typeof value === 'string' ? JSON.stringify(value) : Array.isArray(value) ? `[${value.join(', ')}]` : String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
