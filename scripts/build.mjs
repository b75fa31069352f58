// Builds everything a clone needs: TypeScript to dist/, C++ kernels to build/pagoda.node. Needs Node and, for the kernels, a
// C++17 compiler; without one it says so once and the reference device is used. Only what changed is built again.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { findCompiler, instructionSetFlags, isMac, languageFlags, nativeFiles, root } from './native-sources.mjs';

const buildDir = join(root, 'build');
const addon = join(buildDir, 'pagoda.node');

/** On top of the language flags: what the addon needs. */
const common = [
  ...languageFlags,
  '-O3',
  '-fPIC',
  '-fvisibility=hidden',
  '-fstack-protector-strong',
  '-DNAPI_VERSION=8',
  '-DNODE_GYP_MODULE_NAME=pagoda',
];

async function buildNative() {
  if (process.env.PAGODA_SKIP_NATIVE === '1') return;
  const compiler = findCompiler();
  if (!compiler) {
    process.stderr.write(
      'warning: no C++17 compiler found (g++, clang++ or $CXX): the slow reference device will be used. Install one (Debian/Ubuntu: apt-get install g++) and run `npm run build`.\n',
    );
    rmSync(addon, { force: true });
    return;
  }
  const require = createRequire(import.meta.url);
  const headers = require('node-api-headers').include_dir;
  const sources = nativeFiles(['.cc']);
  if (sources.length === 0) return;
  const sanitize = process.env.PAGODA_SANITIZE
    ? [`-fsanitize=${process.env.PAGODA_SANITIZE}`, '-fno-omit-frame-pointer', '-g']
    : [];
  const headerHash = createHash('sha256');
  for (const file of nativeFiles(['.h'])) headerHash.update(readFileSync(file));
  const headerDigest = headerHash.digest('hex');
  const objectDir = join(buildDir, 'obj');
  mkdirSync(objectDir, { recursive: true });
  const jobs = [];
  const objects = [];
  for (const source of sources) {
    const name = relative(join(root, 'native'), source).replaceAll(/[\\/]/g, '-');
    const flags = [...common, ...sanitize, ...instructionSetFlags(source), '-I', headers, '-I', join(root, 'native')];
    const key = createHash('sha256')
      .update(compiler.version)
      .update(flags.slice(0, -3).join(' '))
      .update(headerDigest)
      .update(readFileSync(source))
      .digest('hex')
      .slice(0, 24);
    const object = join(objectDir, `${name}.${key}.o`);
    objects.push(object);
    if (!existsSync(object)) jobs.push({ source, object, flags });
  }
  const linkKey = createHash('sha256').update(objects.join('\n')).digest('hex');
  const stamp = join(buildDir, 'pagoda.node.key');
  if (existsSync(addon) && existsSync(stamp) && readFileSync(stamp, 'utf8') === linkKey) return;
  const started = Date.now();
  process.stderr.write(
    `Building the native kernels with ${compiler.version} (${jobs.length} of ${sources.length} files)…\n`,
  );
  const run = (args) =>
    new Promise((resolve, reject) => {
      const child = spawn(compiler.name, args, { stdio: ['ignore', 'inherit', 'inherit'] });
      child.on('error', reject);
      child.on('exit', (code) =>
        code === 0 ? resolve() : reject(new Error(`${compiler.name} failed on ${args.at(-1)}`)),
      );
    });
  const queue = [...jobs];
  const worker = async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      const temporary = `${job.object}.${process.pid}.tmp`;
      await run([...job.flags, '-c', '-o', temporary, job.source]);
      renameSync(temporary, job.object);
    }
  };
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), 8) }, worker));
  const temporary = `${addon}.${process.pid}.tmp`;
  await run([
    ...sanitize,
    '-shared',
    ...(isMac ? ['-undefined', 'dynamic_lookup'] : ['-pthread', '-Wl,-z,relro,-z,now,-z,noexecstack']),
    '-o',
    temporary,
    ...objects,
  ]);
  renameSync(temporary, addon);
  writeFileSync(stamp, linkKey);
  const current = new Set(objects);
  for (const file of readdirSync(objectDir))
    if (file.endsWith('.o') && !current.has(join(objectDir, file))) rmSync(join(objectDir, file), { force: true });
  process.stderr.write(`Native kernels built in ${((Date.now() - started) / 1000).toFixed(1)} s.\n`);
}

function buildTypeScript() {
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  if (!existsSync(tsc)) throw new Error('TypeScript is not installed: run `npm ci` first.');
  const result = spawnSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json')], { stdio: 'inherit' });
  if (result.status !== 0) throw new Error('TypeScript did not compile.');
}

try {
  buildTypeScript();
  await buildNative();
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
