// Holds the directions of imports (ARCHITECTURE.md): who may know whom. A new arrow is a decision, so it fails here first.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const src = resolve(import.meta.dirname, '../src');

/** Folder (or top-level file) -> what it may import from besides itself. `errors`, `rng`, `clock`, `make-folder` are single files. */
const allowed: Record<string, readonly string[]> = {
  errors: [],
  rng: [],
  clock: [],
  'make-folder': [],
  core: ['errors'],
  text: ['errors', 'checkpoint'],
  checkpoint: ['errors', 'model'],
  model: ['errors', 'checkpoint'],
  device: ['errors', 'rng', 'make-folder', 'core', 'model', 'checkpoint'],
  trace: ['errors'],
  engine: ['errors', 'rng', 'clock', 'core', 'text', 'checkpoint', 'model', 'device', 'trace'],
  server: ['errors', 'rng', 'clock', 'core', 'text', 'engine', 'trace'],
  config: ['errors', 'engine', 'server', 'device'],
  workload: ['errors', 'rng'],
  // One truth: the simulator runs the scheduler that serves, on models as programs.
  sim: ['errors', 'rng', 'core', 'model', 'checkpoint', 'device', 'workload'],
  plan: ['errors', 'rng', 'core', 'model', 'checkpoint', 'device', 'workload', 'sim'],
  bench: ['errors', 'rng', 'clock', 'workload', 'sim'],
  doctor: ['errors', 'sim', 'workload', 'plan'],
  cli: [
    'errors',
    'rng',
    'clock',
    'make-folder',
    'core',
    'text',
    'checkpoint',
    'model',
    'device',
    'trace',
    'engine',
    'server',
    'config',
    'workload',
    'sim',
    'plan',
    'bench',
    'doctor',
  ],
  checks: [
    'errors',
    'rng',
    'clock',
    'core',
    'text',
    'checkpoint',
    'model',
    'device',
    'trace',
    'engine',
    'server',
    'config',
    'workload',
    'sim',
    'plan',
    'bench',
    'doctor',
    'index',
  ],
  index: ['errors', 'core', 'engine'],
};

/** Between these folders only types may cross: nothing of the other side runs. */
const typesOnly: ReadonlyArray<readonly [string, string]> = [
  ['checkpoint', 'model'],
  ['config', 'server'],
  ['config', 'device'],
  ['device', 'core'],
];

interface Import {
  readonly file: string;
  readonly from: string;
  readonly target: string;
  readonly isType: boolean;
}

function sourceFiles(dir: string): string[] {
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    return entry.isDirectory() ? sourceFiles(path) : entry.name.endsWith('.ts') ? [path] : [];
  });
}

const part = (file: string) => relative(src, file).split(/[\\/]/)[0]!.replace(/\.ts$/, '');

const files = sourceFiles(src);
const imports: Import[] = [];
const bareImports: Array<{ file: string; name: string }> = [];
for (const file of files) {
  const text = readFileSync(file, 'utf8');
  for (const match of text.matchAll(
    /(?:^|\n)\s*(import|export)\s+(type\s+)?[^;'"]*?from\s+'([^']+)'|import\(\s*'([^']+)'\s*\)/g,
  )) {
    const name = (match[3] ?? match[4])!;
    if (name.startsWith('.')) {
      const target = resolve(dirname(file), name);
      imports.push({
        file: relative(src, file),
        from: part(file),
        target: part(target),
        isType: match[2] !== undefined,
      });
    } else bareImports.push({ file: relative(src, file), name });
  }
}

describe('architecture', () => {
  it('imports go in the allowed directions', () => {
    const wrong = imports.filter(({ from, target }) => from !== target && !(allowed[from] ?? []).includes(target));
    expect(wrong.map((i) => `${i.file} -> ${i.target}`)).toEqual([]);
  });

  it('only types cross where a seam is data', () => {
    const wrong = imports.filter(
      (i) => !i.isType && typesOnly.some(([from, target]) => from === i.from && target === i.target),
    );
    expect(wrong.map((i) => `${i.file} -> ${i.target}`)).toEqual([]);
  });

  it('core is pure: no I/O, no clock, no randomness', () => {
    const wrong = bareImports.filter(({ file, name }) => file.startsWith('core') && name !== 'node:crypto');
    expect(wrong).toEqual([]);
    for (const file of files.filter((f) => part(f) === 'core')) {
      expect(readFileSync(file, 'utf8'), relative(src, file)).not.toMatch(
        /Date\.now|performance\.|Math\.random|process\.\w|console\.\w/,
      );
    }
  });

  it('only device/cpu loads the addon and only server listens', () => {
    for (const file of files) {
      const text = readFileSync(file, 'utf8');
      const name = relative(src, file);
      if (!name.startsWith(join('device', 'cpu'))) expect(text, name).not.toMatch(/['"`/]pagoda\.node|dlopen/);
      if (!name.startsWith('server')) expect(text, name).not.toMatch(/\.listen\(/);
    }
  });

  it('only the command line and the configuration read argv and the environment', () => {
    for (const file of files) {
      const name = relative(src, file);
      if (/^(cli|checks)[\\/]|^config/.test(name)) continue;
      expect(readFileSync(file, 'utf8'), name).not.toMatch(/process\.argv/);
    }
  });

  it('has no junk drawers and no default exports', () => {
    for (const file of files) {
      const name = relative(src, file);
      expect(name).not.toMatch(/(^|[\\/])(utils|helpers|common|types)\.ts$/);
      if (name !== 'index.ts') expect(name).not.toMatch(/(^|[\\/])index\.ts$/);
      expect(readFileSync(file, 'utf8'), name).not.toMatch(/^export default/m);
    }
  });
});
