// From the MODEL that a user names to an opened checkpoint.

import { existsSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { PagodaError } from '../errors.ts';
import type { Checkpoint } from './checkpoint.ts';
import { openGguf } from './gguf.ts';
import { openSafetensors } from './safetensors.ts';

/** The embedded model; this file is as deep below the package root in dist/ as in src/. */
export const EMBEDDED_MODEL = 'pagoda-mini';
export const EMBEDDED_PATH = resolve(import.meta.dirname, '../../assets/pagoda-mini.Q8_0.gguf');

export function openModel(name: string = EMBEDDED_MODEL): Checkpoint {
  if (name === EMBEDDED_MODEL) return openGguf(EMBEDDED_PATH, name);
  if (!existsSync(name)) throw new PagodaError('not_found', `${name}: no such file or folder`);
  if (!statSync(name).isDirectory()) return openGguf(name);
  if (existsSync(join(name, 'config.json'))) return openSafetensors(name);
  throw new PagodaError('bad_model_file', `${name}: has no config.json`);
}
