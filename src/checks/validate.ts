// npm run validate: recomputes every published figure that planner and simulator are held against, and writes
// docs/validation.md. Exit code 1 when a gate fails. `--only NAME[,NAME]` runs some parts and renews
// their chapters. Needs the reference data.

import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Gates } from './gates.ts';
import { validateLatency } from './validate-latency.ts';
import { validatePaging } from './validate-paging.ts';
import { validatePlanner } from './validate-planner.ts';
import { validateSarathi } from './validate-sarathi.ts';
import { validateSampling, validateServing } from './validate-serving.ts';
import { validateStories } from './validate-stories.ts';
import { validateWatermark } from './validate-watermark.ts';
import { validateWorkload } from './validate-workload.ts';
import type { ReportTable, ValidationPart } from './validation-part.ts';

const PARTS: readonly ValidationPart[] = [
  validatePlanner,
  validateServing,
  validateSampling,
  validateLatency,
  validatePaging,
  validateSarathi,
  validateStories,
  validateWatermark,
  validateWorkload,
];

const root = resolve(import.meta.dirname, '../..');
const sharedRoot = process.env.PAGODA_SHARED ?? join(root, '../shared');
if (!existsSync(join(sharedRoot, 'planning'))) {
  process.stderr.write('The reference data are not here: set PAGODA_SHARED to their folder.\n');
  process.exit(2);
}

const at = process.argv.indexOf('--only');
const only = at === -1 ? null : (process.argv[at + 1] ?? '').split(',');
const unknown = only?.find((name) => !PARTS.some((part) => part.name === name));
if (unknown !== undefined) {
  process.stderr.write(`--only ${unknown}: there are ${PARTS.map(({ name }) => name).join(', ')}\n`);
  process.exit(2);
}

const INTRODUCTION = [
  '# Validation',
  '',
  'Written by `npm run validate`, which recomputes every figure and fails when a gate fails. The measured values are public;',
  'each table names its source. docs/planning.md describes the method and its limits.',
].join('\n');

const gates = new Gates();
const tables: ReportTable[] = [];
for (const part of PARTS) {
  if (only !== null && !only.includes(part.name)) continue;
  await part.run({ gates, sharedRoot, add: (table) => tables.push(table) });
}
gates.finish();
writeReport(join(root, 'docs/validation.md'), tables);

/** Chapters of parts that did not run now stay as they are. */
function writeReport(path: string, all: readonly ReportTable[]): void {
  const keepsOthers = only !== null && existsSync(path);
  const before = keepsOthers
    ? readFileSync(path, 'utf8')
        .split(/\n(?=## )/)
        .slice(1)
    : [];
  const chapters = new Map(before.map((chapter) => [chapter.slice(0, chapter.indexOf('\n')), chapter.trimEnd()]));
  for (const table of all) chapters.set(`## ${table.title}`, chapterText(table));
  writeFileSync(path, `${[INTRODUCTION, ...chapters.values()].join('\n\n')}\n`);
}

function chapterText({ title, text, header, rows }: ReportTable): string {
  const cell = (words: string) => words.replaceAll('|', '\\|');
  const line = (cells: readonly string[]) => `| ${cells.map(cell).join(' | ')} |`;
  return [`## ${title}`, '', text, '', line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}
