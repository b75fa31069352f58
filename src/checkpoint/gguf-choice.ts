// Which GGUF of a folder is meant. A quantization tag is a whole word of the file's name (or of the sub-folder it lies in), compared
// without case; projectors, importance matrices and adapters are no choices.

import { type Dirent, readdirSync, statSync } from 'node:fs';
import { basename, dirname, extname, join, relative, sep } from 'node:path';
import { PagodaError } from '../errors.ts';
import { ggufParts } from './gguf.ts';
import { type GgufSummary, isLanguageModel, peekGguf } from './gguf-file.ts';
import { reason } from './model-file.ts';

export interface GgufChoice {
  /** As the file spells it, e.g. `q4_k_m`; null when the name has no known tag. */
  readonly tag: string | null;
  /** Absolute path of the file, or of the first part. */
  readonly path: string;
  /** Relative to the folder that was listed. */
  readonly name: string;
  /** All parts together; a part that is missing counts nothing. */
  readonly numBytes: number;
  /** Null when the file cannot be read: opening it will say why. */
  readonly summary: GgufSummary | null;
}

/** What a plain name gets: the usual compromise of size and quality first, then larger, then smaller, then unquantized. */
export const TAG_PREFERENCE: readonly string[] = [
  'Q4_K_M',
  'UD-Q4_K_XL',
  'Q4_K_L',
  'Q4_K_S',
  'Q4_K',
  'Q4_1',
  'Q4_0',
  'IQ4_NL',
  'IQ4_XS',
  'MXFP4',
  'MXFP4_MOE',
  'Q5_K_M',
  'Q5_K_S',
  'Q5_K',
  'Q5_1',
  'Q5_0',
  'Q6_K',
  'Q8_0',
  'Q3_K_L',
  'Q3_K_M',
  'Q3_K_S',
  'Q3_K',
  'Q2_K',
  'BF16',
  'F16',
  'F32',
];

const TAG =
  /(?<=^|[-._ ])(?:UD-)?(?:IQ\d_(?:XXS|XS|NL|S|M|XL)|Q\d_K(?:_(?:XXS|XS|S|M|L|XL|XXL))?|Q\d_\d(?:_\d_\d)?|Q\d|TQ\d_\d|MXFP4(?:_MOE)?|NVFP4|BF16|F16|F32|FP16|FP32)(?=$|[-. ])/gi;
const NOT_A_MODEL = /mmproj|imatrix/i;
const PART_SUFFIX = /-(\d{5})-of-\d{5}$/;
const MAX_DEPTH = 4;
const MAX_FILES = 20_000;

/** The GGUF models in a folder and its sub-folders, by name; a split set is one choice. */
export function listGgufChoices(folder: string, depth: number = MAX_DEPTH): GgufChoice[] {
  const choices: GgufChoice[] = [];
  for (const path of findFiles(folder, depth).sort()) {
    if (extname(path).toLowerCase() !== '.gguf') continue;
    const name = relative(folder, path);
    const part = PART_SUFFIX.exec(stemOf(name));
    if (NOT_A_MODEL.test(name) || (part && Number(part[1]) !== 1)) continue;
    const summary = peekGguf(path);
    if (summary && !isLanguageModel(summary)) continue;
    choices.push({ tag: tagOf(name), path, name, numBytes: sizeOf(path), summary });
  }
  return choices;
}

/** Regular files below a folder; links to files are followed (the Hugging Face cache is made of them), links to folders are not. */
export function findFiles(folder: string, depth: number = MAX_DEPTH): string[] {
  const files: string[] = [];
  for (const entry of listFolder(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && depth > 0 && !entry.name.startsWith('.')) files.push(...findFiles(path, depth - 1));
    else if (statSync(path, { throwIfNoEntry: false })?.isFile()) files.push(path);
    if (files.length > MAX_FILES)
      throw new PagodaError('bad_config', `${folder}: more than ${MAX_FILES} files; name the model's own folder`);
  }
  return files;
}

function listFolder(folder: string): Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch (cause) {
    throw new PagodaError('bad_config', `${folder}: cannot be listed: ${reason(cause)}`, { cause });
  }
}

function sizeOf(path: string): number {
  return ggufParts(path).reduce((sum, part) => sum + (statSync(part, { throwIfNoEntry: false })?.size ?? 0), 0);
}

function stemOf(name: string): string {
  return basename(name, extname(name));
}

/** The last tag in the file's name, else in the name of the nearest folder. */
export function tagOf(name: string): string | null {
  const words = [stemOf(name).replace(PART_SUFFIX, ''), ...dirname(name).split(sep).reverse()];
  for (const word of words) {
    const last = [...word.matchAll(TAG)].at(-1);
    if (last) return last[0];
  }
  return null;
}

function isCalled({ tag, name }: GgufChoice, wanted: string): boolean {
  const lower = wanted.toLowerCase();
  const stem = stemOf(name).replace(PART_SUFFIX, '').toLowerCase();
  if (tag?.toLowerCase() === lower || stem === lower || stemOf(name).toLowerCase() === lower) return true;
  return tag === null && (stem.endsWith(`-${lower}`) || stem.endsWith(`.${lower}`));
}

/** For messages: `Q4_K_M (tiny-q4_k_m.gguf), ...`. */
export function choicesText(choices: readonly GgufChoice[]): string {
  return choices.map(({ tag, name }) => (tag === null ? name : `${tag.toUpperCase()} (${name})`)).join(', ');
}

/** The one choice that `quant` names; without it the preferred one, and a note that says so when there were others. */
export function chooseGguf(
  choices: readonly GgufChoice[],
  { source, quant }: { source: string; quant: string | null },
): { choice: GgufChoice; note: string | null } {
  if (quant === null) {
    const choice = preferred(choices);
    const others = choices.filter((other) => other !== choice);
    if (others.length === 0) return { choice, note: null };
    const chosen = choicesText([choice]);
    return {
      choice,
      note: `${source}: no quantization was named; using ${chosen}. Also there: ${choicesText(others)}; choose with :TAG after the name`,
    };
  }
  const matches = choices.filter((choice) => isCalled(choice, quant));
  if (matches.length === 1) return { choice: matches[0]!, note: null };
  if (matches.length > 1) {
    const names = matches.map(({ name }) => name).join(', ');
    throw new PagodaError(
      'bad_config',
      `${source}: ${quant} is ambiguous: ${names}; give the file's name without .gguf instead of the tag`,
    );
  }
  const longer = choices.filter(({ tag }) =>
    tag?.toUpperCase().replace(/^UD-/, '').startsWith(`${quant.toUpperCase()}_`),
  );
  if (longer.length > 1) {
    throw new PagodaError('bad_config', `${source}: ${quant} is ambiguous; the choices are ${choicesText(longer)}`);
  }
  throw new PagodaError(
    'bad_config',
    `${source}: has no quantization ${quant}; the choices are ${choicesText(choices)}`,
  );
}

function preferred(choices: readonly GgufChoice[]): GgufChoice {
  for (const tag of TAG_PREFERENCE) {
    const found = choices.find((choice) => choice.tag?.toUpperCase() === tag);
    if (found) return found;
  }
  return choices[0]!;
}
