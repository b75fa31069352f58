// What builds the C++ sources: the compiler, the flags of each file, the list of files. Shared by build.mjs and test-native.mjs.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
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
const perFile = {
  'kernels-avx512.cc': isX64
    ? [
        '-mavx512f',
        '-mavx512bw',
        '-mavx512dq',
        '-mavx512vl',
        '-mavx512vnni',
        '-mavx512bf16',
        '-mfma',
        '-mf16c',
        '-mavx2',
        '-mprefer-vector-width=512',
        // gcc 12's own AVX-512 header trips its uninitialized-variable warnings by the hundred (gcc bug 105593).
        '-Wno-uninitialized',
        '-Wno-maybe-uninitialized',
      ]
    : [],
  'kernels-avx2.cc': isX64 ? ['-mavx2', '-mfma', '-mf16c', '-mbmi2'] : [],
};

/** The instruction set of a translation unit: one each, chosen at load. */
export function instructionSetFlags(source) {
  return perFile[source.split(/[\\/]/).pop()] ?? [];
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
