// llama.cpp as node-llama-cpp brings it: prebuilt binaries with a backend for each kind of CPU, and the sources of the same release as a
// git bundle. What is built of them lies in build/peers.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { findCompiler } from '../../scripts/native-sources.mjs';

const bench = join(import.meta.dirname, '..');
/** Ignored by git. */
export const buildFolder = join(bench, '../build/peers');
const platform = `${{ darwin: 'mac', win32: 'win', linux: 'linux' }[process.platform]}-${process.arch}`;
const prebuilt = join(bench, 'node_modules/@node-llama-cpp', platform);

function versionOf(folder) {
  try {
    return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version;
  } catch (error) {
    throw new Error(`node-llama-cpp is not installed: run \`npm --prefix bench ci --ignore-scripts\` (${error.code})`);
  }
}

/** 'node-llama-cpp 3.21.1 (binaries 3.21.1)'; throws when one of the two is absent. */
export const packageVersion = () =>
  `node-llama-cpp ${versionOf(join(bench, 'node_modules/node-llama-cpp'))} (binaries ${versionOf(prebuilt)})`;

/** 'v0.4.0': the release of llama.cpp inside the package. */
export const llamaRelease = () =>
  JSON.parse(readFileSync(join(bench, 'node_modules/node-llama-cpp/llama/binariesGithubRelease.json'), 'utf8')).release;

/** Folder of the prebuilt libraries and CPU backends. */
export const backendFolder = () => join(prebuilt, 'bins', platform);

/** Folder of llama.cpp's sources, unpacked on first use. Throws without git. */
export function sourceFolder() {
  const folder = join(buildFolder, `llama.cpp-${llamaRelease()}`);
  if (existsSync(join(folder, 'CMakeLists.txt'))) return folder;
  const bundle = join(bench, 'node_modules/node-llama-cpp/llama/gitRelease.bundle');
  const run = spawnSync('git', ['clone', '--quiet', '-c', 'advice.detachedHead=false', bundle, folder], {
    encoding: 'utf8',
  });
  if (run.status !== 0) throw new Error(`the sources of llama.cpp could not be unpacked: ${run.error ?? run.stderr}`);
  return folder;
}

/** Where setup-llama-server.mjs builds. */
export const llamaServerBuild = () => join(buildFolder, `llama-server-${llamaRelease()}`);

/** Compiles a C++ source against the prebuilt libraries into `program`. Linux only: the names of the libraries are. */
export function linkWithPrebuilt(source, program) {
  if (process.platform !== 'linux') throw new Error('linking with the prebuilt llama.cpp is written for Linux only');
  const compiler = findCompiler();
  if (!compiler) throw new Error('no C++ compiler');
  const from = sourceFolder();
  const libraries = backendFolder();
  const names = readdirSync(libraries);
  const link = (start) => `-l:${names.find((name) => name.startsWith(start))}`;
  const includes = [`-I${join(from, 'include')}`, `-I${join(from, 'ggml/include')}`];
  const links = [
    `-L${libraries}`,
    link('libllama.'),
    link('libggml.'),
    link('libggml-base.'),
    `-Wl,-rpath,${libraries}`,
  ];
  const run = spawnSync(compiler.name, ['-std=c++17', '-O2', ...includes, source, '-o', program, ...links], {
    encoding: 'utf8',
  });
  if (run.status !== 0) throw new Error(`${compiler.name} failed on ${source}: ${run.stderr.slice(0, 500)}`);
}
