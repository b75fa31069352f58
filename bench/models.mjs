// The models by name: the shipped file, its other formats and random weights with the dimensions of larger models, made on demand by
// make-models.py and kept in bench/models.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { python } from './engines/python.mjs';

const here = import.meta.dirname;
export const BASES = ['smollm2-135m', 'qwen2.5-0.5b', 'llama-3.2-1b'];
export const FORMATS = ['q4_1', 'q4_0', 'q8_0', 'bf16'];

const shared = process.env.PAGODA_SHARED ?? join(here, '../../shared');
export const shippedModel = join(shared, 'models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf');

/** Path of a model, made if it is not there; throws with the reason when it cannot be. */
export function modelFile(base, format) {
  if (!existsSync(shippedModel))
    throw new Error(`No model at ${shippedModel}: set PAGODA_SHARED or name a GGUF file with --model.`);
  if (base === 'smollm2-135m' && format === 'q4_1') return shippedModel;
  const name = `${base}-${format}`;
  const path = join(here, 'models', `${name}.gguf`);
  if (existsSync(path)) return path;
  const program = existsSync(python) ? python : 'python3';
  const run = spawnSync(program, [join(here, 'make-models.py'), shippedModel, join(here, 'models'), name], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (run.status !== 0)
    throw new Error(`${name} could not be made (needs Python with numpy and gguf: bench/setup-python.mjs)`);
  return path;
}
