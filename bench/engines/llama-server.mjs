import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { llamaRelease, llamaServerBuild } from './llama-source.mjs';
import { python, pythonPackage } from './python.mjs';

export const label = 'llama.cpp server';
const builtServer = () => join(llamaServerBuild(), 'bin/llama-server');

/** The server built for this CPU if there is one, else the AVX2 build inside xllamacpp. */
export function check() {
  if (existsSync(builtServer())) return `llama-server of llama.cpp ${llamaRelease()}, built for this CPU`;
  return `llama-server inside ${pythonPackage('xllamacpp', 'xllamacpp')}, an AVX2 build (bench/setup-llama-server.mjs makes one for this CPU)`;
}

export const covers = (workload) => workload.kind === 'http';

/** Slots: llama.cpp reuses a prefix per slot only, so fewer slots can be faster where prompts begin alike. */
export function settings(workload) {
  const slots = workload.name === 'prefix' ? [4, 1, 32] : [32, 16];
  return slots.map((numSlots) => ({ numSlots, ubatch: 512 }));
}

export function server({ model, threads, port, settings: { numSlots, ubatch }, contextTokens }) {
  if (!existsSync(builtServer())) {
    const numbers = [port, threads, numSlots, ubatch, contextTokens];
    return [python, join(import.meta.dirname, 'llama-server.py'), model, ...numbers.map(String)];
  }
  // What llama-server.py sets, by the flags' names; slots, batch size and prompt cache are the server's defaults.
  const flags = ['--host', '127.0.0.1', '--port', port, '--threads', threads, '--threads-batch', threads];
  flags.push(
    '--parallel',
    numSlots,
    '--ctx-size',
    numSlots * contextTokens,
    '--ubatch-size',
    ubatch,
    '--no-kv-unified',
  );
  flags.push('--flash-attn', 'on', '--fit', 'off', '--samplers', 'top_k', '--top-k', 1);
  return [builtServer(), '--model', model, ...flags.map(String)];
}
