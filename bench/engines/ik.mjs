import { join } from 'node:path';
import { python, pythonPackage } from './python.mjs';

export const label = 'ik_llama.cpp';
export const check = () => pythonPackage('ik-llama-cpp-python', 'ik_llama_cpp');
export const covers = (workload) => workload.kind !== 'http';

export function settings(workload) {
  const first = { flashAttention: true, repack: true, ubatch: 512 };
  const others = workload.kind === 'decode' ? [{ flashAttention: false }] : [{ ubatch: 2048 }, { ubatch: 128 }];
  return [first, ...[{ repack: false }, ...others].map((change) => ({ ...first, ...change }))];
}

export const command = () => [python, join(import.meta.dirname, 'ik-library.py')];
