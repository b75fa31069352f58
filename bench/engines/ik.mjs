import { join } from 'node:path';
import { python, pythonPackage } from './python.mjs';

export const label = 'ik_llama.cpp';
export const check = () => pythonPackage('ik-llama-cpp-python', 'ik_llama_cpp');
export const covers = (workload) => workload.kind !== 'http';

export function settings(workload) {
  const fa = { flashAttention: true, ubatch: 512 };
  if (workload.kind === 'decode') return [fa, { ...fa, flashAttention: false }];
  return [fa, { ...fa, ubatch: 2048 }, { ...fa, ubatch: 128 }];
}

export const command = () => [python, join(import.meta.dirname, 'ik-library.py')];
