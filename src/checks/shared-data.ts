// Where the checks find the reference data, and the model they take when none is named.

import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';

/** The folder of the product: the same depth in src/ and dist/. */
export const ROOT = resolve(import.meta.dirname, '../..');
export const SHARED = process.env.PAGODA_SHARED ?? join(ROOT, '../shared');
export const SMOLLM2 = join(SHARED, 'models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf');

/** SmolLM2 where the reference data is there, else the embedded model. */
export function defaultModel(): string {
  return existsSync(SMOLLM2) ? SMOLLM2 : 'pagoda-mini';
}
