// Builds native/test/*_test.cc with the kernels and the runtime under the address and undefined-behaviour sanitizers, and runs
// them. Objects are kept in build/test-native, so that only what changed is compiled again. `npm run test:native [-- name …]`.
// The tests are plain programs: what speaks to Node is left out.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { compileAll, findCompiler, languageFlags, nativeFiles, root, runCompiler } from './native-sources.mjs';

const objectDir = join(root, 'build', 'test-native');
const sanitize = [
  '-fsanitize=address,undefined',
  '-fno-sanitize-recover=undefined',
  '-fno-omit-frame-pointer',
  '-g1',
  '-O1',
];

const compiler = findCompiler();
if (!compiler) {
  process.stderr.write('No C++17 compiler found: the native tests were not run.\n');
  process.exit(1);
}
const testDir = join(root, 'native', 'test');
const tests = readdirSync(testDir)
  .filter((file) => file.endsWith('_test.cc'))
  .map((file) => join(testDir, file));
// Files in native/ itself speak to Node.
const library = nativeFiles(['.cc']).filter((file) => dirname(file) !== join(root, 'native'));
const wanted = process.argv.slice(2);
const shared = process.env.PAGODA_SHARED ?? join(root, '..', 'shared');
try {
  const objects = await compileAll(compiler, [...library, ...tests], {
    objectDir,
    flags: [...languageFlags, ...sanitize],
    includes: [join(root, 'native')],
  });
  let numPassed = 0;
  let numFailed = 0;
  for (const test of tests) {
    const name = relative(testDir, test).replace(/\.cc$/, '');
    if (wanted.length > 0 && !wanted.some((word) => name.includes(word))) continue;
    const program = join(objectDir, name);
    await runCompiler(compiler, [
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
    if (result.status === 0) numPassed += 1;
    else numFailed += 1;
    process.stdout.write(`${name}: ${result.status === 0 ? 'ok' : `failed (${result.signal ?? result.status})`}\n`);
  }
  process.stdout.write(`${numPassed} passed, ${numFailed} failed\n`);
  process.exit(numFailed === 0 ? 0 : 1);
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
}
