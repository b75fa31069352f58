// Builds everything a clone needs: TypeScript to dist/, C++ kernels to build/pagoda.node. Needs Node and, for the kernels, a
// C++17 compiler; without one it says so once and the reference device is used. Only what changed is built again.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  addonFlags,
  addonIncludes,
  addonObjectDir,
  compileAll,
  findCompiler,
  isMac,
  nativeFiles,
  root,
  runCompiler,
} from './native-sources.mjs';

const buildDir = join(root, 'build');
const addon = join(buildDir, 'pagoda.node');

async function buildNative() {
  if (process.env.PAGODA_SKIP_NATIVE === '1') return;
  const compiler = findCompiler();
  if (!compiler) {
    // `npm start` says so again when the device is chosen: once is enough.
    if (!process.argv.includes('--for-start'))
      process.stderr.write(
        'warning: no C++17 compiler found (g++, clang++ or $CXX): the slow reference device will be used. Install one (Debian/Ubuntu: apt-get install g++) and run `npm run build`.\n',
      );
    rmSync(addon, { force: true });
    return;
  }
  const sources = nativeFiles(['.cc']);
  if (sources.length === 0) return;
  const sanitize = process.env.PAGODA_SANITIZE
    ? [`-fsanitize=${process.env.PAGODA_SANITIZE}`, '-fno-omit-frame-pointer', '-g']
    : [];
  const started = Date.now();
  let numCompiled = 0;
  const objects = await compileAll(compiler, sources, {
    objectDir: addonObjectDir,
    flags: [...addonFlags, ...sanitize],
    includes: addonIncludes(),
    onStart: (numFiles) => {
      numCompiled = numFiles;
      process.stderr.write(
        `Building the native kernels with ${compiler.version} (${numFiles} of ${sources.length} files)…\n`,
      );
    },
    onDone: (numDone, numFiles) => progress(numDone < numFiles ? `${numDone} of ${numFiles} files compiled` : ''),
  });
  const linkKey = createHash('sha256')
    .update([...objects.values()].join('\n'))
    .digest('hex');
  const stamp = join(buildDir, 'pagoda.node.key');
  if (existsSync(addon) && existsSync(stamp) && readFileSync(stamp, 'utf8') === linkKey) return;
  const temporary = `${addon}.${process.pid}.tmp`;
  await runCompiler(compiler, [
    ...sanitize,
    '-shared',
    ...(isMac ? ['-undefined', 'dynamic_lookup'] : ['-pthread', '-Wl,-z,relro,-z,now,-z,noexecstack']),
    '-o',
    temporary,
    ...objects.values(),
  ]);
  renameSync(temporary, addon);
  writeFileSync(stamp, linkKey);
  if (numCompiled > 0)
    process.stderr.write(`Native kernels built in ${((Date.now() - started) / 1000).toFixed(1)} s.\n`);
}

/** One line of a terminal, written over by the next; nothing elsewhere. */
function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[K${text}`);
}

function buildTypeScript() {
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  if (!existsSync(tsc)) throw new Error('TypeScript is not installed: run `npm ci` first.');
  progress('Compiling TypeScript…');
  const result = spawnSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json')], { stdio: 'inherit' });
  progress('');
  if (result.status !== 0) throw new Error('TypeScript did not compile.');
}

try {
  buildTypeScript();
  await buildNative();
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
