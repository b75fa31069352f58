import { join } from 'node:path';
import { python, pythonPackage } from './python.mjs';

export const label = 'llama.cpp server';
export const check = () => pythonPackage('xllamacpp', 'xllamacpp');
export const covers = (workload) => workload.kind === 'http';

/** Slots: llama.cpp reuses a prefix per slot only, so fewer slots can be faster where prompts begin alike. */
export function settings(workload) {
  const slots = workload.name === 'prefix' ? [4, 1, 32] : [32, 16];
  return slots.map((numSlots) => ({ numSlots, ubatch: 512 }));
}

export function server({ model, threads, port, settings: { numSlots, ubatch }, contextTokens }) {
  const numbers = [port, threads, numSlots, ubatch, contextTokens];
  return [python, join(import.meta.dirname, 'llama-server.py'), model, ...numbers.map(String)];
}
