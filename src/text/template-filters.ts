// The filters of chat templates, as Jinja defines them (with transformers' tojson, which does not escape HTML).

import { allowItems, allowText, checkedWidth, joinTexts, TemplateFailure } from './template-limits.ts';
import { capitalize, center, formatPercent, methodOf, replace, strip } from './template-methods.ts';
import { predicate } from './template-tests.ts';
import {
  asKey,
  compare,
  type Dict,
  equals,
  Float,
  isTrue,
  itemsOf,
  lengthOf,
  Namespace,
  numberOf,
  Tuple,
  toJson,
  toText,
  typeName,
  type Value,
} from './template-values.ts';

/** Arguments by position or name; the value that is filtered is not among them. */
class Arguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;

  constructor(positional: readonly Value[], named: ReadonlyMap<string, Value>) {
    this.positional = positional;
    this.named = named;
  }

  get(index: number, name: string): Value {
    return this.positional[index] ?? this.named.get(name);
  }

  number(index: number, name: string, fallback: number): number {
    const value = this.get(index, name);
    if (value === undefined || value === null) return fallback;
    const number = numberOf(value);
    if (number === null) throw new TemplateFailure(`"${name}" must be a number`);
    return number;
  }

  flag(index: number, name: string): boolean {
    return isTrue(this.get(index, name));
  }
}

type Filter = (value: Value, args: Arguments) => Value;

/** `a.b.0` looked up step by step; Undefined where there is nothing. */
export function attributeOf(value: Value, path: Value): Value {
  if (typeof path === 'number') return getItem(value, path);
  let current = value;
  for (const part of toText(path).split('.')) current = getItem(current, /^\d+$/.test(part) ? Number(part) : part);
  return current;
}

/** `value[key]`; Undefined where there is nothing. */
export function getItem(value: Value, key: Value): Value {
  if (value instanceof Map) return value.get(asKey(key));
  if (value instanceof Namespace) return typeof key === 'string' ? value.values.get(key) : undefined;
  if (value instanceof Tuple && typeof key === 'string') return value.items[value.fields.indexOf(key)];
  if (typeof key !== 'number') return undefined;
  const items = typeof value === 'string' || Array.isArray(value) || value instanceof Tuple ? itemsOf(value) : [];
  return items[key < 0 ? key + items.length : key];
}

function text(value: Value): string {
  return toText(value);
}

/** Unlike the method of strings, the filter begins a word only after whitespace, a hyphen or an opening bracket. */
function titleWords(words: string): string {
  return words
    .split(/([-\s({[<]+)/)
    .map((word) => capitalize(word))
    .join('');
}

function trim(value: Value, args: Arguments): string {
  return strip(text(value), args.get(0, 'chars'));
}

function toInt(value: Value, args: Arguments): Value {
  const fallback = args.get(0, 'default') ?? 0;
  const number = numberOf(value);
  if (number !== null) return Number.isFinite(number) ? Math.trunc(number) : fallback;
  if (typeof value !== 'string') return fallback;
  const base = args.number(1, 'base', 10);
  const digits = strip(value, undefined).replace(/_/g, '');
  if (base === 10 && /^[-+]?\d+$/.test(digits)) return Number(digits);
  if (base === 10 && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(digits)) return Math.trunc(Number(digits));
  const parsed = base === 10 ? Number.NaN : Number.parseInt(digits.replace(/^0[xob]/i, ''), base);
  return Number.isNaN(parsed) ? fallback : parsed;
}

function toFloat(value: Value, args: Arguments): Value {
  const number = numberOf(value);
  if (number !== null) return new Float(number);
  const isNumeric = typeof value === 'string' && /^\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*$/i.test(value);
  return isNumeric ? new Float(Number(value)) : (args.get(0, 'default') ?? new Float(0));
}

/** Halves go to the even neighbour. */
function round(value: Value, args: Arguments): Value {
  const number = numberOf(value);
  if (number === null) throw new TemplateFailure(`round needs a number, not ${typeName(value)}`);
  const scale = 10 ** args.number(0, 'precision', 0);
  const method = args.get(1, 'method') ?? 'common';
  const scaled = number * scale;
  if (method === 'ceil') return new Float(Math.ceil(scaled) / scale);
  if (method === 'floor') return new Float(Math.floor(scaled) / scale);
  const isHalf = Math.abs(scaled % 1) === 0.5;
  const rounded = isHalf ? 2 * Math.round(scaled / 2) : Math.round(scaled);
  return new Float(rounded / scale);
}

function indent(value: Value, args: Arguments): string {
  const width = args.get(0, 'width') ?? 4;
  const pad = typeof width === 'string' ? width : ' '.repeat(checkedWidth(Math.max(0, numberOf(width) ?? 4)));
  const isFirst = args.flag(1, 'first');
  const isBlank = args.flag(2, 'blank');
  const lines = text(value).split('\n');
  const isBare = (line: string, i: number): boolean => (i === 0 && !isFirst) || (line === '' && !isBlank && i > 0);
  allowText(text(value).length + lines.length * pad.length);
  return lines.map((line, i) => (isBare(line, i) ? line : pad + line)).join('\n');
}

function truncate(value: Value, args: Arguments): string {
  const length = args.number(0, 'length', 255);
  const isHard = args.flag(1, 'killwords');
  const end = text(args.get(2, 'end') ?? '...');
  const leeway = args.number(3, 'leeway', 5);
  const characters = Array.from(text(value));
  if (characters.length <= length + leeway) return text(value);
  const cut = characters.slice(0, Math.max(0, length - Array.from(end).length)).join('');
  if (isHard) return cut + end;
  const space = cut.lastIndexOf(' ');
  return (space < 0 ? cut : cut.slice(0, space)) + end;
}

function join(value: Value, args: Arguments): string {
  const attribute = args.get(1, 'attribute');
  const items = itemsOf(value).map((item) => (attribute === undefined ? item : attributeOf(item, attribute)));
  return joinTexts(items.map(toText), text(args.get(0, 'd') ?? ''));
}

/** Sorting and uniqueness ignore case unless asked. */
function foldCase(value: Value, isCaseSensitive: boolean): Value {
  return typeof value === 'string' && !isCaseSensitive ? value.toLowerCase() : value;
}

function sort(value: Value, args: Arguments): Value[] {
  const isReversed = args.flag(0, 'reverse');
  const isCaseSensitive = args.flag(1, 'case_sensitive');
  const attribute = args.get(2, 'attribute');
  const keyOf = (item: Value): Value =>
    foldCase(attribute === undefined || attribute === null ? item : attributeOf(item, attribute), isCaseSensitive);
  const keyed = itemsOf(value).map((item) => ({ item, key: keyOf(item) }));
  keyed.sort((a, b) => (isReversed ? compare(b.key, a.key) : compare(a.key, b.key)));
  return keyed.map(({ item }) => item);
}

function unique(value: Value, args: Arguments): Value[] {
  const attribute = args.get(1, 'attribute');
  const seen: Value[] = [];
  return itemsOf(value).filter((item) => {
    const key = foldCase(attribute === undefined ? item : attributeOf(item, attribute), args.flag(0, 'case_sensitive'));
    if (seen.some((each) => equals(each, key))) return false;
    seen.push(key);
    return true;
  });
}

function extreme(value: Value, args: Arguments, sign: 1 | -1): Value {
  const attribute = args.get(1, 'attribute');
  const keyOf = (item: Value): Value =>
    foldCase(attribute === undefined ? item : attributeOf(item, attribute), args.flag(0, 'case_sensitive'));
  const items = itemsOf(value);
  if (items.length === 0) return undefined;
  return items.reduce((best, item) => (compare(keyOf(item), keyOf(best)) * sign > 0 ? item : best));
}

function sum(value: Value, args: Arguments): Value {
  const attribute = args.get(0, 'attribute');
  let total = 0;
  let isFloat = false;
  for (const item of [args.get(1, 'start') ?? 0, ...itemsOf(value)]) {
    const each = attribute === undefined || attribute === null || item === 0 ? item : attributeOf(item, attribute);
    const number = numberOf(each);
    if (number === null) throw new TemplateFailure(`sum needs numbers, not ${typeName(each)}`);
    isFloat ||= each instanceof Float;
    total += number;
  }
  return isFloat ? new Float(total) : total;
}

function dictsort(value: Value, args: Arguments): Value[] {
  const by = args.get(1, 'by') === 'value' ? 1 : 0;
  const isCaseSensitive = args.flag(0, 'case_sensitive');
  const sign = args.flag(2, 'reverse') ? -1 : 1;
  const pairs = Array.from(dict(value), ([key, item]) => new Tuple([key, item]));
  return pairs.sort(
    (a, b) => sign * compare(foldCase(a.items[by], isCaseSensitive), foldCase(b.items[by], isCaseSensitive)),
  );
}

function dict(value: Value): Dict {
  if (value === undefined) return new Map();
  if (!(value instanceof Map)) throw new TemplateFailure(`a dict is needed here, not ${typeName(value)}`);
  return value;
}

function batch(value: Value, args: Arguments): Value[] {
  const size = Math.max(1, args.number(0, 'linecount', 1));
  const fill = args.get(1, 'fill_with');
  const items = itemsOf(value);
  const rows: Value[] = [];
  for (let i = 0; i < items.length; i += size) {
    const row = items.slice(i, i + size);
    if (fill !== undefined && fill !== null) {
      allowItems(size);
      while (row.length < size) row.push(fill);
    }
    rows.push(row);
  }
  return rows;
}

function slice(value: Value, args: Arguments): Value[] {
  const numSlices = Math.max(1, args.number(0, 'slices', 1));
  const items = itemsOf(value);
  const shortest = Math.floor(items.length / numSlices);
  const numLonger = items.length % numSlices;
  const rows: Value[] = [];
  let start = 0;
  for (let i = 0; i < numSlices && i < 1000; i++) {
    const end = start + shortest + (i < numLonger ? 1 : 0);
    rows.push(items.slice(start, end));
    start = end;
  }
  return rows;
}

function groupby(value: Value, args: Arguments): Value[] {
  const attribute = args.get(0, 'attribute');
  const groups: { key: Value; items: Value[] }[] = [];
  for (const item of sort(value, new Arguments([], new Map([['attribute', attribute]])))) {
    const key = attributeOf(item, attribute) ?? args.get(1, 'default');
    const last = groups.at(-1);
    if (last && equals(last.key, key)) last.items.push(item);
    else groups.push({ key, items: [item] });
  }
  return groups.map(({ key, items }) => new Tuple([key, items], ['grouper', 'list']));
}

function map(value: Value, args: Arguments): Value[] {
  const attribute = args.named.get('attribute');
  if (attribute !== undefined) {
    return itemsOf(value).map((item) => attributeOf(item, attribute) ?? args.named.get('default'));
  }
  const [name, ...rest] = args.positional;
  return itemsOf(value).map((item) => applyFilter(text(name), item, rest, args.named));
}

function select(isWanted: boolean): Filter {
  return (value, args) => itemsOf(value).filter((item) => predicate(args.positional)(item) === isWanted);
}

function selectAttribute(isWanted: boolean): Filter {
  return (value, args) => {
    const test = predicate(args.positional.slice(1));
    return itemsOf(value).filter((item) => test(attributeOf(item, args.positional[0])) === isWanted);
  };
}

function json(value: Value, args: Arguments): string {
  const indentation = args.get(2, 'indent');
  const separators = args.get(1, 'separators');
  const [comma, colon] = separators === undefined || separators === null ? [] : itemsOf(separators).map(toText);
  return toJson(value, {
    indent: indentation === undefined || indentation === null ? null : args.number(2, 'indent', 0),
    separators: comma === undefined || colon === undefined ? null : [comma, colon],
    sortKeys: args.flag(3, 'sort_keys'),
    asciiOnly: args.flag(0, 'ensure_ascii'),
  });
}

const ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&#34;',
  "'": '&#39;',
};

function fallbackTo(value: Value, args: Arguments): Value {
  const isMissing = value === undefined || (args.flag(1, 'boolean') && !isTrue(value));
  return isMissing ? (args.get(0, 'default_value') ?? '') : value;
}

function reverse(value: Value): Value {
  return typeof value === 'string' ? Array.from(value).reverse().join('') : [...itemsOf(value)].reverse();
}

function absolute(value: Value): Value {
  const number = numberOf(value);
  if (number === null) throw new TemplateFailure(`abs needs a number, not ${typeName(value)}`);
  return value instanceof Float ? new Float(Math.abs(number)) : Math.abs(number);
}

const escapeHtml: Filter = (value) => text(value).replace(/[&<>"']/g, (char) => ESCAPES[char]!);

const FILTERS: Readonly<Record<string, Filter>> = {
  __tuple: (value) => new Tuple(itemsOf(value)),
  __group: (value) => value,
  __recursive: (value) => value,
  abs: absolute,
  batch,
  capitalize: (value) => capitalize(text(value)),
  center: (value, args) => center(text(value), args.number(0, 'width', 80)),
  count: (value) => lengthOf(value),
  d: fallbackTo,
  default: fallbackTo,
  dictsort,
  e: escapeHtml,
  escape: escapeHtml,
  first: (value) => itemsOf(value)[0],
  float: toFloat,
  format: (value, args) =>
    formatPercent(text(value), args.named.size > 0 ? new Map(args.named) : new Tuple(args.positional)),
  groupby,
  indent,
  int: toInt,
  items: (value) => Array.from(dict(value), ([key, item]) => new Tuple([key, item])),
  join,
  last: (value) => itemsOf(value).at(-1),
  length: (value) => lengthOf(value),
  list: (value) => [...itemsOf(value)],
  lower: (value) => text(value).toLowerCase(),
  map,
  max: (value, args) => extreme(value, args, 1),
  min: (value, args) => extreme(value, args, -1),
  reject: select(false),
  rejectattr: selectAttribute(false),
  replace: (value, args) => replace(text(value), args.get(0, 'old'), args.get(1, 'new'), args.get(2, 'count')),
  reverse,
  round,
  safe: (value) => value,
  select: select(true),
  selectattr: selectAttribute(true),
  slice,
  sort,
  string: (value) => text(value),
  sum,
  title: (value) => titleWords(text(value)),
  tojson: json,
  trim,
  truncate,
  unique,
  upper: (value) => text(value).toUpperCase(),
  urlencode: (value) => encodeURIComponent(text(value)),
  wordcount: (value) => text(value).match(/\w+/g)?.length ?? 0,
};

export function applyFilter(
  name: string,
  value: Value,
  args: readonly Value[] = [],
  kwargs: ReadonlyMap<string, Value> = new Map(),
): Value {
  if (Object.hasOwn(FILTERS, name)) return FILTERS[name]!(value, new Arguments(args, kwargs));
  // Templates written for lenient engines use methods as filters.
  const method = methodOf(value, name);
  if (method) return method.call(args, kwargs);
  throw new TemplateFailure(`the filter "${name}" is not supported`);
}
