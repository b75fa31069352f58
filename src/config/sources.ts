// Where option texts come from: flags, environment variables, a YAML file. All of them become the same thing, a list of texts
// with the words that an error needs to say where it stood. No check of values happens here.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { PagodaError } from '../errors.ts';
import type { Option } from './option.ts';
import { OPTIONS, type OptionKey } from './options.ts';

export interface GivenOption {
  readonly key: OptionKey;
  readonly texts: readonly string[];
  /** How the user wrote it: `--max-model-len`, `PAGODA_MAX_MODEL_LEN`, `max-model-len in server.yaml`. */
  readonly origin: string;
}

/** Variables with our prefix that are no options. */
const OTHER_VARIABLES = [
  'PAGODA_CONFIG',
  'PAGODA_DEBUG',
  'PAGODA_CPU_ISA',
  'PAGODA_SKIP_NATIVE',
  'PAGODA_SANITIZE',
  'PAGODA_SHARED',
];

const entries = Object.entries(OPTIONS) as Array<[OptionKey, Option<unknown>]>;

/** Flag values as the command line parser gives them, by option name without dashes. */
export type Flags = Readonly<Record<string, string | boolean | readonly string[] | undefined>>;

export function fromFlags(flags: Flags): GivenOption[] {
  const given: GivenOption[] = [];
  for (const [name, value] of Object.entries(flags)) {
    if (value === undefined) continue;
    const key = findOption(name);
    if (key === null) throw unknownOption(`--${name}`, name);
    const texts = Array.isArray(value) ? value.map(String) : [String(value)];
    given.push({ key, texts, origin: `--${name}` });
  }
  return given;
}

export function fromEnvironment(env: NodeJS.ProcessEnv): GivenOption[] {
  const given: GivenOption[] = [];
  const known = new Set(OTHER_VARIABLES);
  for (const [key, option] of entries) {
    for (const name of option.env) {
      known.add(name);
      const text = env[name];
      // An empty variable counts as not set, as is usual.
      if (text === undefined || text === '') continue;
      if (given.some((other) => other.key === key)) continue;
      given.push({ key, texts: option.shape === 'list' ? splitList(text) : [text], origin: name });
    }
  }
  for (const name of Object.keys(env)) {
    if (name.startsWith('PAGODA_') && !known.has(name)) {
      throw unknownOption(name, name.slice('PAGODA_'.length).toLowerCase().replaceAll('_', '-'));
    }
  }
  return given;
}

export function fromFile(path: string): GivenOption[] {
  let document: unknown;
  try {
    // Loaded only when there is a file: most starts have none.
    const yaml = createRequire(import.meta.url)('yaml') as typeof import('yaml');
    document = yaml.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    const reason = error instanceof Error ? error.message.split('\n')[0] : String(error);
    throw new PagodaError('bad_config', `--config ${path}: ${reason}`, { param: '--config', cause: error });
  }
  if (document === null || document === undefined) return [];
  if (typeof document !== 'object' || Array.isArray(document)) {
    throw new PagodaError('bad_config', `--config ${path}: must be a mapping of option names to values.`, {
      param: '--config',
    });
  }
  return Object.entries(document)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => fileEntry(name, value, path));
}

function fileEntry(name: string, value: unknown, path: string): GivenOption {
  const plain = name.replaceAll('_', '-');
  const origin = `${name} in ${path}`;
  const key = findOption(plain);
  if (key !== null) return { key, texts: fileTexts(OPTIONS[key], value), origin };
  const negated = plain.startsWith('no-') ? findOption(plain.slice(3)) : null;
  if (negated !== null && OPTIONS[negated].shape === 'switch' && typeof value === 'boolean') {
    return { key: negated, texts: [String(!value)], origin };
  }
  throw unknownOption(origin, plain);
}

function fileTexts(option: { shape: string }, value: unknown): string[] {
  if (Array.isArray(value)) return value.map(String);
  if (typeof value === 'object' && value !== null) return [JSON.stringify(value)];
  return option.shape === 'list' ? splitList(String(value)) : [String(value)];
}

const splitList = (text: string): string[] => text.split(',').map((part) => part.trim());

function findOption(name: string): OptionKey | null {
  return entries.find(([, option]) => option.names.includes(name))?.[0] ?? null;
}

function unknownOption(origin: string, name: string): PagodaError {
  const nearest = nearestName(name);
  const hint = nearest === null ? '' : ` Did you mean ${nearest}?`;
  return new PagodaError('bad_config', `${origin} is not an option of Pagoda.${hint}`, { param: origin });
}

/** The option name with the fewest differing letters, when it is near enough to be a slip. */
export function nearestName(name: string): string | null {
  const names = entries.flatMap(([, option]) => option.names);
  const scored = names.map((other) => ({ other, distance: editDistance(name, other) }));
  scored.sort((a, b) => a.distance - b.distance);
  const best = scored[0];
  return best && best.distance <= Math.max(2, name.length / 3) ? best.other : null;
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(substitution, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
