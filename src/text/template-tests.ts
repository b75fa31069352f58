// The tests of `is` in chat templates, as Jinja defines them.

import { TemplateFailure } from './template-limits.ts';
import {
  Callable,
  compare,
  contains,
  equals,
  Float,
  isTrue,
  numberOf,
  Tuple,
  typeName,
  type Value,
} from './template-values.ts';

type Test = (value: Value, argument: Value) => boolean;

function integer(value: Value): number {
  const number = numberOf(value);
  if (number === null) throw new TemplateFailure(`this test needs a number, not ${typeName(value)}`);
  return number;
}

const TESTS: Readonly<Record<string, Test>> = {
  defined: (value) => value !== undefined,
  undefined: (value) => value === undefined,
  none: (value) => value === null,
  true: (value) => value === true,
  false: (value) => value === false,
  boolean: (value) => typeof value === 'boolean',
  string: (value) => typeof value === 'string',
  number: (value) => numberOf(value) !== null,
  integer: (value) => typeof value === 'number',
  float: (value) => value instanceof Float,
  mapping: (value) => value instanceof Map,
  sequence: (value) =>
    typeof value === 'string' || Array.isArray(value) || value instanceof Tuple || value instanceof Map,
  iterable: (value) =>
    value === undefined ||
    typeof value === 'string' ||
    Array.isArray(value) ||
    value instanceof Tuple ||
    value instanceof Map,
  callable: (value) => value instanceof Callable,
  lower: (value) => typeof value === 'string' && value !== value.toUpperCase() && value === value.toLowerCase(),
  upper: (value) => typeof value === 'string' && value !== value.toLowerCase() && value === value.toUpperCase(),
  odd: (value) => Math.abs(integer(value)) % 2 === 1,
  even: (value) => integer(value) % 2 === 0,
  divisibleby: (value, by) => integer(value) % integer(by) === 0,
  eq: equals,
  equalto: equals,
  '==': equals,
  ne: (value, other) => !equals(value, other),
  '!=': (value, other) => !equals(value, other),
  sameas: (value, other) => value === other,
  lt: (value, other) => compare(value, other) < 0,
  lessthan: (value, other) => compare(value, other) < 0,
  le: (value, other) => compare(value, other) <= 0,
  gt: (value, other) => compare(value, other) > 0,
  greaterthan: (value, other) => compare(value, other) > 0,
  ge: (value, other) => compare(value, other) >= 0,
  in: (value, container) => contains(container, value),
};

export function runTest(name: string, value: Value, argument?: Value): boolean {
  if (!Object.hasOwn(TESTS, name)) throw new TemplateFailure(`the test "${name}" is not supported`);
  return TESTS[name]!(value, argument);
}

/** The predicate of `select('odd')` and `selectattr('x', 'eq', 1)`: a test by name, or truth when none is named. */
export function predicate(args: readonly Value[]): (value: Value) => boolean {
  const [name, argument] = args;
  if (name === undefined) return isTrue;
  if (typeof name !== 'string') throw new TemplateFailure('the name of a test must be a string');
  return (value) => runTest(name, value, argument);
}
