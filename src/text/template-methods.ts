// Methods of strings and dicts that chat templates call, and Python's two ways of formatting text.

import { allowText, checkedWidth, joinTexts, TemplateFailure } from './template-limits.ts';
import {
  Callable,
  contains,
  type Dict,
  Float,
  floatText,
  itemsOf,
  numberOf,
  repr,
  Tuple,
  toText,
  typeName,
  type Value,
} from './template-values.ts';

type Method<T> = (self: T, args: readonly Value[], kwargs: ReadonlyMap<string, Value>) => Value;

const WHITESPACE = '[\\s\\x1c-\\x1f\\x85]';

/** Removes from the ends whatever `chars` lists; whitespace by default. */
export function strip(text: string, chars: Value, ends: 'left' | 'right' | 'both' = 'both'): string {
  const isStripped =
    chars === undefined || chars === null
      ? (char: string) => new RegExp(WHITESPACE).test(char)
      : (char: string) => stringArgument(chars).includes(char);
  let start = 0;
  let end = text.length;
  if (ends !== 'right') while (start < end && isStripped(text[start]!)) start++;
  if (ends !== 'left') while (end > start && isStripped(text[end - 1]!)) end--;
  return text.slice(start, end);
}

function stringArgument(value: Value): string {
  if (typeof value !== 'string') throw new TemplateFailure(`a str is needed here, not ${typeName(value)}`);
  return value;
}

const isCased = (char: string): boolean => char.toLowerCase() !== char.toUpperCase();

export function title(text: string): string {
  let isInWord = false;
  return Array.from(text, (char) => {
    const result = isInWord ? char.toLowerCase() : char.toUpperCase();
    isInWord = isCased(char);
    return result;
  }).join('');
}

export function capitalize(text: string): string {
  const [first = '', ...rest] = Array.from(text);
  return first.toUpperCase() + rest.join('').toLowerCase();
}

function affix(test: (text: string, part: string) => boolean): Method<string> {
  return (self, [parts]) =>
    (parts instanceof Tuple ? parts.items : [parts]).some((part) => test(self, stringArgument(part)));
}

function everyCharacter(pattern: RegExp): Method<string> {
  return (self) => self !== '' && Array.from(self).every((char) => pattern.test(char));
}

function split(text: string, separator: Value, limit: number): string[] {
  if (separator === undefined || separator === null) {
    const words: string[] = [];
    let rest = strip(text, undefined, 'left');
    while (rest !== '') {
      const space = rest.search(new RegExp(WHITESPACE));
      if (space < 0 || (limit >= 0 && words.length >= limit)) {
        words.push(rest);
        break;
      }
      words.push(rest.slice(0, space));
      rest = strip(rest.slice(space), undefined, 'left');
    }
    return words;
  }
  const mark = stringArgument(separator);
  if (mark === '') throw new TemplateFailure('empty separator');
  const parts = text.split(mark);
  if (limit < 0 || parts.length <= limit + 1) return parts;
  return [...parts.slice(0, limit), parts.slice(limit).join(mark)];
}

function rsplit(text: string, separator: Value, limit: number): string[] {
  const parts = split(text, separator, -1);
  if (limit < 0 || parts.length <= limit + 1 || typeof separator !== 'string') return parts;
  const numJoined = parts.length - limit;
  return [parts.slice(0, numJoined).join(separator), ...parts.slice(numJoined)];
}

const limitOf = (args: readonly Value[], kwargs: ReadonlyMap<string, Value>): number =>
  numberOf(args[1] ?? kwargs.get('maxsplit') ?? -1) ?? -1;

/** Indexes count characters; only texts outside the basic plane need the detour. */
function characterIndex(text: string, unitIndex: number): number {
  return unitIndex <= 0 ? unitIndex : Array.from(text.slice(0, unitIndex)).length;
}

export function replace(text: string, from: Value, to: Value, count: Value): string {
  const old = stringArgument(from);
  const fresh = stringArgument(to);
  const limit = numberOf(count ?? -1) ?? -1;
  // Nothing stands before every character and at the end.
  const parts = old === '' ? ['', ...Array.from(text), ''] : text.split(old);
  const numReplaced = limit < 0 ? parts.length - 1 : Math.min(limit, parts.length - 1);
  allowText(text.length + numReplaced * fresh.length);
  let out = parts[0]!;
  for (let i = 1; i < parts.length; i++) out += (i <= numReplaced ? fresh : old) + parts[i]!;
  return out;
}

const STRING_METHODS: Readonly<Record<string, Method<string>>> = {
  upper: (self) => self.toUpperCase(),
  lower: (self) => self.toLowerCase(),
  casefold: (self) => self.toLowerCase(),
  title: (self) => title(self),
  capitalize: (self) => capitalize(self),
  strip: (self, [chars]) => strip(self, chars),
  lstrip: (self, [chars]) => strip(self, chars, 'left'),
  rstrip: (self, [chars]) => strip(self, chars, 'right'),
  startswith: affix((text, part) => text.startsWith(part)),
  endswith: affix((text, part) => text.endsWith(part)),
  removeprefix: (self, [part]) =>
    self.startsWith(stringArgument(part)) ? self.slice(stringArgument(part).length) : self,
  removesuffix: (self, [part]) =>
    part !== '' && self.endsWith(stringArgument(part)) ? self.slice(0, -stringArgument(part).length) : self,
  split: (self, args, kwargs) => split(self, args[0] ?? kwargs.get('sep'), limitOf(args, kwargs)),
  rsplit: (self, args, kwargs) => rsplit(self, args[0] ?? kwargs.get('sep'), limitOf(args, kwargs)),
  splitlines: (self) =>
    self
      .replace(/\r\n?/g, '\n')
      .replace(/\n$/, '')
      .split('\n')
      .filter((_, __, all) => self !== '' || all.length > 1),
  partition: (self, [mark]) => {
    const at = self.indexOf(stringArgument(mark));
    if (at < 0) return new Tuple([self, '', '']);
    return new Tuple([self.slice(0, at), stringArgument(mark), self.slice(at + stringArgument(mark).length)]);
  },
  replace: (self, args, kwargs) => replace(self, args[0], args[1], args[2] ?? kwargs.get('count')),
  find: (self, [part]) => characterIndex(self, self.indexOf(stringArgument(part))),
  rfind: (self, [part]) => characterIndex(self, self.lastIndexOf(stringArgument(part))),
  count: (self, [part]) => self.split(stringArgument(part)).length - 1,
  join: (self, [items]) => joinTexts(itemsOf(items).map(stringArgument), self),
  isdigit: everyCharacter(/\p{Nd}|\p{No}/u),
  isnumeric: everyCharacter(/\p{N}/u),
  isalpha: everyCharacter(/\p{L}/u),
  isalnum: everyCharacter(/[\p{L}\p{N}]/u),
  isspace: everyCharacter(new RegExp(WHITESPACE)),
  isupper: (self) => self !== self.toLowerCase() && self === self.toUpperCase(),
  islower: (self) => self !== self.toUpperCase() && self === self.toLowerCase(),
  zfill: (self, [width]) => zeroPad(self, checkedWidth(numberOf(width) ?? 0)),
  ljust: (self, [width, fill]) => self.padEnd(checkedWidth(numberOf(width) ?? 0), toText(fill ?? ' ')),
  rjust: (self, [width, fill]) => self.padStart(checkedWidth(numberOf(width) ?? 0), toText(fill ?? ' ')),
  center: (self, [width, fill]) => center(self, numberOf(width) ?? 0, toText(fill ?? ' ')),
  format: (self, args, kwargs) => formatBraces(self, args, kwargs),
};

const DICT_METHODS: Readonly<Record<string, Method<Dict>>> = {
  items: (self) => Array.from(self, ([key, value]) => new Tuple([key, value])),
  keys: (self) => [...self.keys()],
  values: (self) => [...self.values()],
  get: (self, [key, fallback]) => {
    if (typeof key !== 'string' && numberOf(key) === null && key !== null) return fallback ?? null;
    return self.has(key as string) ? self.get(key as string) : (fallback ?? null);
  },
  copy: (self) => new Map(self),
};

const LIST_METHODS: Readonly<Record<string, Method<readonly Value[]>>> = {
  index: (self, [item]) => {
    const at = self.findIndex((each) => contains([each], item));
    if (at < 0) throw new TemplateFailure('the item is not in the list');
    return at;
  },
  count: (self, [item]) => self.filter((each) => contains([each], item)).length,
  copy: (self) => [...self],
};

/** The bound method of a value, or undefined. Methods that would change the value do not exist. */
export function methodOf(value: Value, name: string): Callable | undefined {
  const bind = <T>(table: Readonly<Record<string, Method<T>>>, self: T): Callable | undefined => {
    if (!Object.hasOwn(table, name)) return undefined;
    return new Callable((args, kwargs) => table[name]!(self, args, kwargs));
  };
  if (typeof value === 'string') return bind(STRING_METHODS, value);
  if (value instanceof Map) return bind(DICT_METHODS, value);
  if (Array.isArray(value)) return bind(LIST_METHODS, value);
  return undefined;
}

/** Python's rule: with an odd number of fill characters the extra one goes left when the width is odd. */
export function center(text: string, width: number, fill = ' '): string {
  const numFill = Math.max(0, checkedWidth(width) - Array.from(text).length);
  const left = Math.floor(numFill / 2) + (numFill & width & 1);
  return fill.repeat(left) + text + fill.repeat(numFill - left);
}

function pad(text: string, width: number, align: string, fill: string): string {
  checkedWidth(width);
  if (align === '^') {
    const numFill = Math.max(0, width - text.length);
    return fill.repeat(Math.floor(numFill / 2)) + text + fill.repeat(Math.ceil(numFill / 2));
  }
  return align === '<' ? text.padEnd(width, fill) : text.padStart(width, fill);
}

/** `'%s %5.2f' % (...)`. */
export function formatPercent(template: string, operand: Value): string {
  const args = operand instanceof Tuple ? operand.items : [operand];
  let next = 0;
  const named = operand instanceof Map ? operand : null;
  const out = template.replace(
    /%(?:\((\w+)\))?([-+ 0#]*)(\d*)(?:\.(\d+))?([a-zA-Z%])/g,
    (_all, name: string | undefined, flags: string, width: string, precision: string | undefined, type: string) => {
      if (type === '%') return '%';
      if (name === undefined && next >= args.length)
        throw new TemplateFailure('not enough arguments for a format string');
      const value = name === undefined ? args[next++] : named?.get(name);
      let text = formatOne(value, type, precision);
      if (flags.includes('+') && !text.startsWith('-') && type !== 's' && type !== 'r') text = `+${text}`;
      const isNumber = type !== 's' && type !== 'r';
      checkedWidth(Number(width));
      if (flags.includes('-')) return text.padEnd(Number(width));
      if (flags.includes('0') && isNumber) return zeroPad(text, Number(width));
      return text.padStart(Number(width));
    },
  );
  if (named === null && next < args.length) throw new TemplateFailure('not all arguments were used by a format string');
  return out;
}

const zeroPad = (text: string, width: number): string =>
  /^[-+]/.test(text) ? text[0]! + text.slice(1).padStart(width - 1, '0') : text.padStart(width, '0');

function formatOne(value: Value, type: string, precision: string | undefined): string {
  const digits = precision === undefined ? 6 : Number(precision);
  if (type === 's' || type === 'r') {
    const text = type === 's' ? toText(value) : repr(value);
    return precision === undefined ? text : text.slice(0, digits);
  }
  const number = numberOf(value);
  if (number === null) throw new TemplateFailure(`%${type} needs a number, not ${typeName(value)}`);
  switch (type) {
    case 'd':
    case 'i':
      return String(Math.trunc(number));
    case 'x':
      return Math.trunc(number).toString(16);
    case 'X':
      return Math.trunc(number).toString(16).toUpperCase();
    case 'o':
      return Math.trunc(number).toString(8);
    case 'b':
      return Math.trunc(number).toString(2);
    case 'f':
    case 'F':
      return number.toFixed(Math.min(digits, 100));
    case 'e':
      return number.toExponential(Math.min(digits, 100)).replace(/e([-+])(\d)$/, 'e$10$2');
    case 'g':
      return floatText(Number(number.toPrecision(Math.max(1, Math.min(digits, 100))))).replace(/\.0$/, '');
    default:
      throw new TemplateFailure(`the format type "${type}" is not supported`);
  }
}

/** `'{} {name:>5}'.format(...)`, with the usual part of the format language. */
function formatBraces(template: string, args: readonly Value[], kwargs: ReadonlyMap<string, Value>): string {
  let next = 0;
  return template.replace(
    /\{\{|\}\}|\{(\w*)(?:![rs])?(?::([^{}]*))?\}/g,
    (all, field: string | undefined, spec: string | undefined) => {
      if (all === '{{') return '{';
      if (all === '}}') return '}';
      const isPosition = field === undefined || field === '' || /^\d+$/.test(field);
      const position = isPosition ? (field ? Number(field) : next++) : -1;
      if (isPosition ? position >= args.length : !kwargs.has(field!))
        throw new TemplateFailure('a format argument is missing');
      return formatSpec(isPosition ? args[position] : kwargs.get(field!), spec ?? '');
    },
  );
}

function formatSpec(value: Value, spec: string): string {
  const match = /^(?:(.)?([<>^]))?([+ ])?(0)?(\d+)?(,)?(?:\.(\d+))?([a-zA-Z%])?$/.exec(spec);
  if (!match) throw new TemplateFailure('this format specification is not supported');
  const [, fill, align, sign, zero, width, comma, precision, type] = match;
  const isNumber = typeof value === 'number' || value instanceof Float;
  let text: string;
  if (type === '%') text = `${((numberOf(value) ?? 0) * 100).toFixed(Number(precision ?? 6))}%`;
  else if (type !== undefined && type !== 's') text = formatOne(value, type, precision);
  else if (isNumber && precision !== undefined) text = formatOne(value, 'g', precision);
  else text = precision === undefined ? toText(value) : toText(value).slice(0, Number(precision));
  if (comma) text = text.replace(/\B(?=(\d{3})+(?!\d))/g, ',');
  if (sign === '+' && isNumber && !text.startsWith('-')) text = `+${text}`;
  if (zero && !align) return zeroPad(text, checkedWidth(Number(width ?? 0)));

  return pad(text, Number(width ?? 0), align ?? (isNumber ? '>' : '<'), fill ?? ' ');
}
