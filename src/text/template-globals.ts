// The functions every chat template can call, as transformers provides them: raise_exception, strftime_now, range, namespace, dict.

import { Scope } from './template-interpreter.ts';
import { TemplateFailure } from './template-limits.ts';
import { asKey, Callable, itemsOf, type Key, Namespace, numberOf, toText, type Value } from './template-values.ts';

/** raise_exception: the template's own sentence, meant for the caller. */
export class RaisedByTemplate extends Error {}

/** The sandbox of Jinja has the same limit. */
const MAX_RANGE = 100_000;

/** Names that request parameters cannot take. */
export const GLOBAL_NAMES: readonly string[] = [
  'raise_exception',
  'strftime_now',
  'range',
  'namespace',
  'dict',
  'true',
  'false',
  'none',
  'True',
  'False',
  'None',
  'loop',
  'caller',
  'varargs',
  'kwargs',
];

/** `now` is local time, as Python's datetime.now(). */
export function templateGlobals(now: () => Date): Scope {
  const scope = new Scope(null);
  for (const [name, value] of [
    ['true', true],
    ['false', false],
    ['none', null],
  ] as const) {
    scope.set(name, value);
    scope.set(name[0]!.toUpperCase() + name.slice(1), value);
  }
  scope.set(
    'raise_exception',
    new Callable(([message]) => {
      throw new RaisedByTemplate(toText(message));
    }),
  );
  scope.set('strftime_now', new Callable(([format]) => strftime(now(), toText(format))));
  scope.set('range', new Callable((args) => range(args)));
  scope.set('namespace', new Callable((args, kwargs) => new Namespace(new Map([...namedEntries(args), ...kwargs]))));
  scope.set('dict', new Callable((args, kwargs) => new Map<Key, Value>([...entries(args), ...kwargs])));
  return scope;
}

function entries(args: readonly Value[]): [Key, Value][] {
  const [source] = args;
  if (source instanceof Map) return [...source];
  return itemsOf(source).map((pair) => {
    const [key, value] = itemsOf(pair);
    return [asKey(key), value];
  });
}

function namedEntries(args: readonly Value[]): [string, Value][] {
  return entries(args).map(([key, value]) => [toText(key), value]);
}

function range(args: readonly Value[]): Value[] {
  const numbers = args.map((arg) => numberOf(arg));
  if (numbers.length === 0 || numbers.includes(null)) throw new TemplateFailure('range needs ints');
  const [first, second, third] = numbers as number[];
  const start = second === undefined ? 0 : first!;
  const stop = second ?? first!;
  const step = third ?? 1;
  if (step === 0) throw new TemplateFailure('the step of range must not be zero');
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > MAX_RANGE) throw new TemplateFailure(`a range may have at most ${MAX_RANGE} numbers`);
  return Array.from({ length }, (_, i) => start + i * step);
}

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const two = (n: number): string => String(n).padStart(2, '0');

/** Python's strftime in the C locale. */
export function strftime(date: Date, format: string): string {
  const hour12 = date.getHours() % 12 || 12;
  const startOfYear = Date.UTC(date.getFullYear(), 0, 1);
  const dayOfYear = 1 + (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - startOfYear) / 86_400_000;
  const values: Readonly<Record<string, () => string>> = {
    Y: () => String(date.getFullYear()),
    y: () => two(date.getFullYear() % 100),
    m: () => two(date.getMonth() + 1),
    d: () => two(date.getDate()),
    e: () => String(date.getDate()).padStart(2),
    j: () => String(dayOfYear).padStart(3, '0'),
    H: () => two(date.getHours()),
    I: () => two(hour12),
    M: () => two(date.getMinutes()),
    S: () => two(date.getSeconds()),
    f: () => String(date.getMilliseconds() * 1000).padStart(6, '0'),
    p: () => (date.getHours() < 12 ? 'AM' : 'PM'),
    A: () => DAYS[date.getDay()]!,
    a: () => DAYS[date.getDay()]!.slice(0, 3),
    B: () => MONTHS[date.getMonth()]!,
    b: () => MONTHS[date.getMonth()]!.slice(0, 3),
    w: () => String(date.getDay()),
    u: () => String(date.getDay() || 7),
    F: () => strftime(date, '%Y-%m-%d'),
    T: () => strftime(date, '%H:%M:%S'),
    D: () => strftime(date, '%m/%d/%y'),
    Z: () => '',
    z: () => '',
    n: () => '\n',
    t: () => '\t',
    '%': () => '%',
  };
  return format.replace(/%-?([a-zA-Z%])/g, (all, code: string) => {
    const text = Object.hasOwn(values, code) ? values[code]!() : all;
    return all[1] === '-' ? text.replace(/^0+(?=\d)/, '') : text;
  });
}
