import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export const label = 'llama.cpp';
const here = import.meta.dirname;

export function check() {
  const read = (name) => JSON.parse(readFileSync(join(here, '../node_modules', name, 'package.json'), 'utf8')).version;
  try {
    return `node-llama-cpp ${read('node-llama-cpp')} (binaries ${read(`@node-llama-cpp/${platformPackage()}`)})`;
  } catch (error) {
    throw new Error(`node-llama-cpp is not installed: run \`npm --prefix bench ci --ignore-scripts\` (${error.code})`);
  }
}

function platformPackage() {
  return `${{ darwin: 'mac', win32: 'win', linux: 'linux' }[process.platform]}-${process.arch}`;
}

export const covers = (workload) => workload.kind !== 'http';

export function settings(workload) {
  if (workload.kind === 'decode')
    return [
      { flashAttention: true, batchSize: 512 },
      { flashAttention: false, batchSize: 512 },
    ];
  return [
    { flashAttention: true, batchSize: 512 },
    { flashAttention: false, batchSize: 512 },
    { flashAttention: true, batchSize: 2048 },
    { flashAttention: true, batchSize: 128 },
  ];
}

export const command = () => [process.execPath, join(here, 'llama-library.mjs')];
