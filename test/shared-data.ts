// Where the reference data lie. Tests that need them skip with a reason when they are absent (a user's clone has none).
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';

const root = process.env.PAGODA_SHARED ?? resolve(import.meta.dirname, '../../shared');

/** Absolute path of the reference data, or null when this checkout has none. */
export const sharedRoot: string | null = existsSync(join(root, 'golden')) ? root : null;

/** Pass to `describe.skipIf`: true when the reference data are missing. */
export const noShared = sharedRoot === null;

/** Path of a file below the reference data; only call it inside a test that is skipped without them. */
export function sharedPath(...parts: string[]): string {
  return join(root, ...parts);
}
