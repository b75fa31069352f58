// The operators of chat templates on Python's values.

import { allowItems, allowText, TemplateFailure } from './template-limits.ts';
import { formatPercent } from './template-methods.ts';
import { compare, contains, equals, Float, numberOf, Tuple, toText, typeName, type Value } from './template-values.ts';

/** All binary operators but `and` and `or`, which look at their right side only when they must. */
export function binary(operator: string, left: Value, right: Value): Value {
  switch (operator) {
    case '==':
      return equals(left, right);
    case '!=':
      return !equals(left, right);
    case 'in':
      return contains(right, left);
    case 'not in':
      return !contains(right, left);
    case '~':
      return concatenate(toText(left), toText(right));
    case '<':
      return compare(left, right) < 0;
    case '<=':
      return compare(left, right) <= 0;
    case '>':
      return compare(left, right) > 0;
    case '>=':
      return compare(left, right) >= 0;
    case '+':
      return add(left, right);
    case '%':
      if (typeof left === 'string') return formatPercent(left, right);
      return arithmetic(operator, left, right);
    case '*':
      return repeat(left, right) ?? repeat(right, left) ?? arithmetic(operator, left, right);
    default:
      return arithmetic(operator, left, right);
  }
}

function concatenate(left: string, right: string): string {
  allowText(left.length + right.length);
  return left + right;
}

function add(left: Value, right: Value): Value {
  if (typeof left === 'string' && typeof right === 'string') return concatenate(left, right);
  if (Array.isArray(left) && Array.isArray(right)) {
    allowItems(left.length + right.length);
    return [...left, ...right];
  }
  if (left instanceof Tuple && right instanceof Tuple) return new Tuple([...left.items, ...right.items]);
  return arithmetic('+', left, right);
}

function repeat(value: Value, times: Value): Value | null {
  if (typeof times !== 'number' && typeof times !== 'boolean') return null;
  const count = Math.max(0, Number(times));
  if (typeof value === 'string') {
    allowText(value.length * count);
    return value.repeat(count);
  }
  if (!Array.isArray(value)) return null;
  allowItems(value.length * count);
  const items: Value[] = [];
  for (let i = 0; i < count && value.length > 0; i++) for (const item of value) items.push(item);
  return items;
}

function arithmetic(operator: string, left: Value, right: Value): Value {
  const a = numberOf(left);
  const b = numberOf(right);
  if (a === null || b === null) {
    throw new TemplateFailure(`the operator ${operator} does not work on ${typeName(left)} and ${typeName(right)}`);
  }
  const isFloat = left instanceof Float || right instanceof Float;
  const result = (value: number): Value => (isFloat ? new Float(value) : value);
  switch (operator) {
    case '+':
      return result(a + b);
    case '-':
      return result(a - b);
    case '*':
      return result(a * b);
    case '**':
      return b < 0 ? new Float(a ** b) : result(a ** b);
  }
  if (b === 0) throw new TemplateFailure('division by zero');
  switch (operator) {
    case '/':
      return new Float(a / b);
    case '//':
      return result(Math.floor(a / b));
    case '%':
      return result(a - b * Math.floor(a / b));
    default:
      throw new TemplateFailure(`the operator ${operator} is not supported`);
  }
}

/** Python's value[start:stop:step]. */
export function slice<T>(items: readonly T[], start: Value, stop: Value, step: Value): T[] {
  const stride = bound(step) ?? 1;
  if (stride === 0) throw new TemplateFailure('the step of a slice must not be zero');
  const clamp = (value: number, low: number, high: number): number => Math.min(Math.max(value, low), high);
  const at = (value: number | null, fallback: number): number => {
    if (value === null) return fallback;
    const index = value < 0 ? value + items.length : value;
    return stride > 0 ? clamp(index, 0, items.length) : clamp(index, -1, items.length - 1);
  };
  const from = at(bound(start), stride > 0 ? 0 : items.length - 1);
  const to = at(bound(stop), stride > 0 ? items.length : -1);
  const out: T[] = [];
  for (let i = from; stride > 0 ? i < to : i > to; i += stride) out.push(items[i]!);
  return out;
}

function bound(value: Value): number | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'number') throw new TemplateFailure(`a slice needs ints, not ${typeName(value)}`);
  return value;
}
