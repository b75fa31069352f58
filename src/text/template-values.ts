// The values of chat templates with Python's meaning: truth, equality, order, how they print, how they become JSON.
// Templates see only these plain values and the methods listed in template-methods.ts: no JavaScript object or prototype is in reach.

import { checkedWidth, joinTexts, TemplateFailure } from './template-limits.ts';

/** A number that prints with a point, as Python's float; plain numbers are ints. */
export class Float {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
}

export class Tuple {
  readonly items: readonly Value[];
  /** Names of the items, for the pairs that groupby gives. */
  readonly fields: readonly string[];
  constructor(items: readonly Value[], fields: readonly string[] = []) {
    this.items = items;
    this.fields = fields;
  }
}

/** `namespace(...)`: the one thing whose attributes a template can set. */
export class Namespace {
  readonly values: Map<string, Value>;
  constructor(values: Map<string, Value>) {
    this.values = values;
  }
}

export class Callable {
  readonly call: (args: readonly Value[], kwargs: ReadonlyMap<string, Value>) => Value;
  constructor(call: Callable['call']) {
    this.call = call;
  }
}

export type Key = string | number | boolean | null;
export type Dict = Map<Key, Value>;
/** undefined is Jinja's Undefined, null is None. */
export type Value =
  | string
  | number
  | boolean
  | null
  | undefined
  | Float
  | Value[]
  | Tuple
  | Dict
  | Namespace
  | Callable;

export function typeName(value: Value): string {
  if (value === undefined) return 'Undefined';
  if (value === null) return 'NoneType';
  if (typeof value === 'string') return 'str';
  if (typeof value === 'boolean') return 'bool';
  if (typeof value === 'number') return 'int';
  if (value instanceof Float) return 'float';
  if (Array.isArray(value)) return 'list';
  if (value instanceof Tuple) return 'tuple';
  if (value instanceof Map) return 'dict';
  return value instanceof Namespace ? 'Namespace' : 'function';
}

/** JSON-like data from outside; objects become dicts, so that their keys are only ever keys. */
export function toValue(data: unknown): Value {
  switch (typeof data) {
    case 'string':
    case 'boolean':
      return data;
    case 'number':
      return Number.isInteger(data) ? data : new Float(data);
    case 'object':
      if (data === null) return null;
      if (Array.isArray(data)) return data.map(toValue);
      return new Map(Object.entries(data).map(([key, value]) => [key, toValue(value)]));
    default:
      return undefined;
  }
}

export function isTrue(value: Value): boolean {
  if (value === undefined || value === null) return false;
  if (value instanceof Float) return value.value !== 0;
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Tuple) return value.items.length > 0;
  if (value instanceof Map) return value.size > 0;
  return typeof value === 'object' || Boolean(value);
}

/** The number behind an int, float or bool; null for anything else. */
export function numberOf(value: Value): number | null {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  return value instanceof Float ? value.value : null;
}

export function equals(a: Value, b: Value): boolean {
  if (a === b) return true;
  const left = numberOf(a);
  if (left !== null) return left === numberOf(b);
  if (Array.isArray(a)) return Array.isArray(b) && sameItems(a, b);
  if (a instanceof Tuple) return b instanceof Tuple && sameItems(a.items, b.items);
  if (!(a instanceof Map && b instanceof Map) || a.size !== b.size) return false;
  for (const [key, value] of a) if (!b.has(key) || !equals(value, b.get(key))) return false;
  return true;
}

function sameItems(a: readonly Value[], b: readonly Value[]): boolean {
  return a.length === b.length && a.every((item, i) => equals(item, b[i]));
}

/** Negative, zero or positive; Python refuses to order values of different types, and so does this. */
export function compare(a: Value, b: Value): number {
  const left = numberOf(a);
  const right = numberOf(b);
  if (left !== null && right !== null) return left - right;
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b);
  const itemsA = Array.isArray(a) ? a : a instanceof Tuple ? a.items : null;
  const itemsB = Array.isArray(b) ? b : b instanceof Tuple ? b.items : null;
  if (itemsA && itemsB && typeName(a) === typeName(b)) {
    for (let i = 0; i < Math.min(itemsA.length, itemsB.length); i++) {
      if (!equals(itemsA[i], itemsB[i])) return compare(itemsA[i], itemsB[i]);
    }
    return itemsA.length - itemsB.length;
  }
  throw new TemplateFailure(`${typeName(a)} and ${typeName(b)} cannot be ordered`);
}

/** By code point. */
function compareText(a: string, b: string): number {
  if (a === b) return 0;
  const left = Array.from(a);
  const right = Array.from(b);
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    if (left[i] !== right[i]) return left[i]!.codePointAt(0)! - right[i]!.codePointAt(0)!;
  }
  return left.length - right.length;
}

/** What a loop goes through: items, characters or keys; Undefined is empty. */
export function itemsOf(value: Value): readonly Value[] {
  if (value === undefined) return [];
  if (typeof value === 'string') return Array.from(value);
  if (Array.isArray(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (value instanceof Map) return [...value.keys()];
  throw new TemplateFailure(`a value of type ${typeName(value)} cannot be looped over`);
}

/** In characters, not UTF-16 units. */
export function lengthOf(value: Value): number {
  if (value instanceof Map) return value.size;
  if (typeof value === 'string') {
    let length = 0;
    for (let i = 0; i < value.length; i++) if ((value.charCodeAt(i) & 0xfc00) !== 0xdc00) length++;
    return length;
  }
  return itemsOf(value).length;
}

export function contains(container: Value, item: Value): boolean {
  if (typeof container === 'string') {
    if (typeof item !== 'string') throw new TemplateFailure(`"in" needs a str on its left, not ${typeName(item)}`);
    return container.includes(item);
  }
  if (container instanceof Map) return container.has(asKey(item));
  return itemsOf(container).some((each) => equals(each, item));
}

export function asKey(value: Value): Key {
  if (value instanceof Float) return value.value;
  if (value === null || typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
    return value;
  throw new TemplateFailure(`a ${typeName(value)} cannot be a key`);
}

/** Python's str(). */
export function toText(value: Value): string {
  if (typeof value === 'string') return value;
  if (value === undefined) return '';
  return repr(value);
}

/** Python's repr(). */
export function repr(value: Value): string {
  if (value === undefined) return 'Undefined';
  if (value === null) return 'None';
  if (typeof value === 'string') return reprText(value);
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'number') return intText(value);
  if (value instanceof Float) return floatText(value.value);
  if (Array.isArray(value)) return `[${joinTexts(value.map(repr), ', ')}]`;
  if (value instanceof Tuple)
    return `(${joinTexts(value.items.map(repr), ', ')}${value.items.length === 1 ? ',' : ''})`;
  if (value instanceof Map) {
    return `{${joinTexts(
      Array.from(value, ([key, item]) => `${repr(key)}: ${repr(item)}`),
      ', ',
    )}}`;
  }
  return value instanceof Namespace ? '<Namespace>' : '<function>';
}

function reprText(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\\\p{Cc}\u2028\u2029]|['"]/gu, (char) => {
    if (char === '\\' || char === quote) return `\\${char}`;
    if (char === "'" || char === '"') return char;
    if (char === '\n') return '\\n';
    if (char === '\r') return '\\r';
    if (char === '\t') return '\\t';
    const code = char.charCodeAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16).padStart(4, '0')}`;
  });
  return quote + escaped + quote;
}

function intText(value: number): string {
  return Number.isSafeInteger(value) ? String(value) : BigInt(value).toString();
}

/** Python's shortest form: exponents below 1e-4 and from 1e16 on. */
export function floatText(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  if (Object.is(value, -0)) return '-0.0';
  const [digits, exponentText] = value.toExponential().split('e') as [string, string];
  const exponent = Number(exponentText);
  if (value !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  const text =
    exponent < 0 ? value.toFixed(Math.max(1, digits.replace(/[-.]/g, '').length - 1 - exponent)) : String(value);
  return text.includes('.') ? text : `${text}.0`;
}

export interface JsonOptions {
  readonly indent: number | null;
  readonly separators: readonly [string, string] | null;
  readonly sortKeys: boolean;
  readonly asciiOnly: boolean;
}

/** Python's json.dumps. */
export function toJson(value: Value, options: JsonOptions, depth = 0): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'number') return intText(value);
  if (value instanceof Float) return floatText(value.value);
  if (typeof value === 'string') return jsonText(value, options.asciiOnly);
  const isSpread = options.indent !== null;
  const [comma, colon] = options.separators ?? [isSpread ? ',' : ', ', ': '];
  const enclose = (items: string[], open: string, close: string): string => {
    if (items.length === 0) return open + close;
    if (!isSpread) return open + joinTexts(items, comma) + close;
    const pad = (levels: number): string => ' '.repeat(checkedWidth(Math.max(0, options.indent!) * levels));
    const inner = `\n${pad(depth + 1)}`;
    return `${open}${inner}${joinTexts(items, comma + inner)}\n${pad(depth)}${close}`;
  };
  if (Array.isArray(value) || value instanceof Tuple) {
    return enclose(
      itemsOf(value).map((item) => toJson(item, options, depth + 1)),
      '[',
      ']',
    );
  }
  if (value instanceof Map) {
    const entries = [...value];
    if (options.sortKeys) entries.sort(([a], [b]) => compare(a, b));
    const fields = entries.map(([key, item]) => {
      const name = typeof key === 'string' ? key : key === null ? 'null' : toJson(key, options);
      return jsonText(name, options.asciiOnly) + colon + toJson(item, options, depth + 1);
    });
    return enclose(fields, '{', '}');
  }
  throw new TemplateFailure(`a value of type ${typeName(value)} cannot be written as JSON`);
}

function jsonText(text: string, asciiOnly: boolean): string {
  const json = JSON.stringify(text);
  if (!asciiOnly) return json;
  return json.replace(/[\x7f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
