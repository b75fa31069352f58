// What builds the C++ sources: the compiler, the flags of each file, the list of files, and compilation itself, of what changed
// only. Shared by build.mjs and test-native.mjs.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const isX64 = process.arch === 'x64';
export const isMac = process.platform === 'darwin';

/** For every file. -ffp-contract=off keeps every rounding where the source has it. */
export const languageFlags = [
  '-std=c++17',
  '-fno-math-errno',
  '-ffp-contract=off',
  '-Wall',
  '-Wextra',
  ...(isMac ? [] : ['-pthread']),
];
/** On top of those: what the addon needs. */
export const addonFlags = [
  ...languageFlags,
  '-O3',
  '-fPIC',
  '-fvisibility=hidden',
  '-fstack-protector-strong',
  '-DNAPI_VERSION=8',
  '-DNODE_GYP_MODULE_NAME=pagoda',
];
export const addonObjectDir = join(root, 'build', 'obj');
/** Where the addon's sources find their headers. */
export function addonIncludes() {
  return [createRequire(import.meta.url)('node-api-headers').include_dir, join(root, 'native')];
}
const avx512Flags = [
  '-mavx512f',
  '-mavx512bw',
  '-mavx512dq',
  '-mavx512vl',
  '-mavx512vnni',
  '-mavx512bf16',
  '-mfma',
  '-mf16c',
  '-mavx2',
  '-mprfchw',
  '-mprefer-vector-width=512',
  // gcc 12's own AVX-512 header trips its uninitialized-variable warnings by the hundred (gcc bug 105593).
  '-Wno-uninitialized',
  '-Wno-maybe-uninitialized',
];
const perFile = {
  // It shares headers with the AVX-512 table and needs a part of them.
  'kernels-amx.cc': isX64 ? [...avx512Flags, '-mamx-tile', '-mamx-int8', '-Wno-unused-function'] : [],
  'kernels-avx512.cc': isX64 ? avx512Flags : [],
  'kernels-avx2.cc': isX64 ? ['-mavx2', '-mfma', '-mf16c', '-mbmi2', '-mprfchw'] : [],
};

/** The instruction set of a translation unit: one each, chosen at load. None where the compiler is too old to know it. */
function instructionSetFlags(compiler, source) {
  const flags = perFile[source.split(/[\\/]/).pop()] ?? [];
  if (flags.length === 0) return flags;
  const probe = spawnSync(compiler.name, [...flags, '-x', 'c++', '-fsyntax-only', '-'], { input: '' });
  return probe.status === 0 ? flags : [];
}

/** The first C++ compiler that answers, or null. */
export function findCompiler() {
  for (const name of [process.env.CXX, 'g++', 'clang++', 'c++']) {
    if (!name) continue;
    const version = spawnSync(name, ['--version'], { encoding: 'utf8' });
    if (version.status === 0) return { name, version: version.stdout.split('\n')[0] };
  }
  return null;
}

/** Files below native/ with one of the extensions, sorted; native/test is left out. */
export function nativeFiles(extensions) {
  const found = [];
  const walk = (dir) => {
    for (const entry of readdirSync(dir, { withFileTypes: true })) {
      if (entry.isDirectory()) {
        if (entry.name !== 'test') walk(join(dir, entry.name));
      } else if (extensions.some((extension) => entry.name.endsWith(extension))) found.push(join(dir, entry.name));
    }
  };
  walk(join(root, 'native'));
  return found.sort();
}

/** Runs the compiler; rejects when it fails. */
export function runCompiler(compiler, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(compiler.name, args, { stdio: ['ignore', 'inherit', 'inherit'] });
    child.on('error', reject);
    child.on('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`${compiler.name} failed on ${args.at(-1)}`)),
    );
  });
}

/** The source and every header of ours that it includes, directly or not. */
function withHeaders(source, seen = new Set()) {
  if (seen.has(source) || !existsSync(source)) return seen;
  seen.add(source);
  for (const [, name] of readFileSync(source, 'utf8').matchAll(/^\s*#\s*include\s+"([^"]+)"/gm)) {
    withHeaders(join(dirname(source), name), seen);
    withHeaders(join(root, 'native', name), seen);
  }
  return seen;
}

/**
 * Compiles what has no up-to-date object in `objectDir` and returns the object of each source. An object's name holds a hash of
 * the compiler, the flags, the source and its headers. `sources` are all that have objects there, unless `isPart`: then objects
 * of other sources and versions stay. `onStart` hears how many files there are to do, when there are any.
 */
export async function compileAll(
  compiler,
  sources,
  { objectDir, flags, includes, isPart = false, onStart = () => {}, onDone = () => {} },
) {
  mkdirSync(objectDir, { recursive: true });
  const jobs = sources.map((source) => {
    const ownFlags = [...flags, ...instructionSetFlags(compiler, source)];
    const hash = createHash('sha256').update(compiler.version).update(ownFlags.join(' '));
    for (const file of [...withHeaders(source)].sort()) hash.update(readFileSync(file));
    const name = relative(join(root, 'native'), source).replaceAll(/[\\/]/g, '-');
    return { source, ownFlags, object: join(objectDir, `${name}.${hash.digest('hex').slice(0, 24)}.o`) };
  });
  const queue = jobs.filter((job) => !existsSync(job.object));
  const numFiles = queue.length;
  let numDone = 0;
  if (numFiles > 0) onStart(numFiles);
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      const temporary = `${job.object}.${process.pid}.tmp`;
      const includeFlags = includes.flatMap((folder) => ['-I', folder]);
      await runCompiler(compiler, [...job.ownFlags, ...includeFlags, '-c', '-o', temporary, job.source]);
      renameSync(temporary, job.object);
      onDone(++numDone, numFiles);
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), 8) }, worker));
  const current = new Set(jobs.map((job) => job.object));
  for (const file of isPart ? [] : readdirSync(objectDir)) {
    if (file.endsWith('.o') && !current.has(join(objectDir, file))) rmSync(join(objectDir, file), { force: true });
  }
  return new Map(jobs.map((job) => [job.source, job.object]));
}
