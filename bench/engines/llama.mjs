import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { backendFolder, buildFolder, linkWithPrebuilt, llamaRelease, packageVersion } from './llama-source.mjs';

export const label = 'llama.cpp';
const program = join(buildFolder, 'llama-library');

/** Links the driver with the binaries of node-llama-cpp: its JavaScript is not in the way. */
export function check() {
  const version = `llama.cpp ${llamaRelease()} through its C interface, of ${packageVersion()}`;
  mkdirSync(buildFolder, { recursive: true });
  linkWithPrebuilt(join(import.meta.dirname, 'llama-library.cc'), program);
  return version;
}

export const covers = (workload) => workload.kind !== 'http';

export function settings(workload) {
  if (workload.kind === 'decode')
    return [
      { flashAttention: true, ubatch: 512 },
      { flashAttention: false, ubatch: 512 },
    ];
  return [
    { flashAttention: true, ubatch: 512 },
    { flashAttention: false, ubatch: 512 },
    { flashAttention: true, ubatch: 2048 },
    { flashAttention: true, ubatch: 128 },
  ];
}

export const command = ({ model, threads, settings: { ubatch, flashAttention } }) =>
  [program, model, backendFolder(), threads, ubatch, Number(flashAttention)].map(String);

/** The job as numbers: llama-library.cc needs no parser. */
export function encode({ job }) {
  const [numWindows, windowSteps] = job.kind === 'decode' ? [job.numWindows, job.windowSteps] : [0, 0];
  const prompts = job.prompts.flatMap((prompt) => [prompt.length, ...prompt]);
  return [numWindows, windowSteps, job.prompts.length, ...prompts].join(' ');
}
