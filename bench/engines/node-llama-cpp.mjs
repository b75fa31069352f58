import { join } from 'node:path';
import { packageVersion } from './llama-source.mjs';

/** The same binaries as `llama`, as a Node.js program meets them: sampling and scheduling of sequences are the binding's. */
export const label = 'node-llama-cpp';
export const check = packageVersion;
export const covers = (workload) => workload.kind !== 'http';

export function settings(workload) {
  const batchSizes = workload.kind === 'decode' ? [512] : [512, 2048];
  return batchSizes.map((batchSize) => ({ flashAttention: true, batchSize }));
}

export const command = () => [process.execPath, join(import.meta.dirname, 'node-llama-cpp-library.mjs')];
