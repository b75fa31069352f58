// Builds native/test/*_test.cc with the kernels and the runtime under the address and undefined-behaviour sanitizers, and runs
// them. Objects are kept in build/test-native, so that only what changed is compiled again. `npm run test:native [-- name …]`.
// Files that need Node's headers are left out: the tests are plain programs.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { findCompiler, instructionSetFlags, languageFlags, nativeFiles, root } from './native-sources.mjs';

const objectDir = join(root, 'build', 'test-native');
const sanitize = [
  '-fsanitize=address,undefined',
  '-fno-sanitize-recover=undefined',
  '-fno-omit-frame-pointer',
  '-g1',
  '-O1',
];

function compile(compiler, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(compiler.name, args, { stdio: ['ignore', 'inherit', 'inherit'] });
    child.on('error', reject);
    child.on('exit', (code) =>
      code === 0 ? resolve() : reject(new Error(`${compiler.name} failed on ${args.at(-1)}`)),
    );
  });
}

async function compileAll(compiler, sources) {
  const headers = createHash('sha256');
  for (const file of nativeFiles(['.h'])) headers.update(readFileSync(file));
  const headerDigest = headers.digest('hex');
  const jobs = sources.map((source) => {
    const flags = [...languageFlags, ...sanitize, ...instructionSetFlags(source), '-I', join(root, 'native')];
    const key = createHash('sha256')
      .update(compiler.version)
      .update(flags.slice(0, -1).join(' '))
      .update(headerDigest)
      .update(readFileSync(source))
      .digest('hex')
      .slice(0, 24);
    return {
      source,
      flags,
      object: join(objectDir, `${relative(join(root, 'native'), source).replaceAll(/[\\/]/g, '-')}.${key}.o`),
    };
  });
  const queue = jobs.filter((job) => !existsSync(job.object));
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      const temporary = `${job.object}.${process.pid}.tmp`;
      await compile(compiler, [...job.flags, '-c', '-o', temporary, job.source]);
      renameSync(temporary, job.object);
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), 8) }, worker));
  const current = new Set(jobs.map((job) => job.object));
  for (const file of readdirSync(objectDir))
    if (file.endsWith('.o') && !current.has(join(objectDir, file))) rmSync(join(objectDir, file), { force: true });
  return new Map(jobs.map((job) => [job.source, job.object]));
}

const compiler = findCompiler();
if (!compiler) {
  process.stderr.write('No C++17 compiler found: the native tests were not run.\n');
  process.exit(1);
}
mkdirSync(objectDir, { recursive: true });
const testDir = join(root, 'native', 'test');
const tests = readdirSync(testDir)
  .filter((file) => file.endsWith('_test.cc'))
  .map((file) => join(testDir, file));
const library = nativeFiles(['.cc']).filter(
  (file) => !/node_api|napi-values|parse\.h/.test(readFileSync(file, 'utf8')),
);
const wanted = process.argv.slice(2);
const shared = process.env.PAGODA_SHARED ?? join(root, '..', 'shared');
try {
  const objects = await compileAll(compiler, [...library, ...tests]);
  let failures = 0;
  for (const test of tests) {
    const name = relative(testDir, test).replace(/\.cc$/, '');
    if (wanted.length > 0 && !wanted.some((word) => name.includes(word))) continue;
    const program = join(objectDir, name);
    await compile(compiler, [
      ...sanitize,
      '-pthread',
      '-o',
      program,
      objects.get(test),
      ...library.map((file) => objects.get(file)),
    ]);
    const result = spawnSync(program, {
      stdio: 'inherit',
      env: { ...process.env, ...(existsSync(shared) ? { PAGODA_SHARED: shared } : {}) },
    });
    if (result.status !== 0) failures += 1;
    process.stdout.write(`${name}: ${result.status === 0 ? 'ok' : `failed (${result.signal ?? result.status})`}\n`);
  }
  process.exit(failures === 0 ? 0 : 1);
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
