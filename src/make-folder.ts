// Folders with those above them. Node's own `mkdir` with `recursive` never returns where the system answers ENOENT although the
// folder above is there, as in /proc: it makes that one again and again (Node 20).

import { existsSync, mkdirSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** Throws the system's error where the folder cannot be made. */
export function makeFolder(folder: string): void {
  const path = resolve(folder);
  if (existsSync(path)) return;
  makeFolder(dirname(path));
  try {
    mkdirSync(path);
  } catch (error) {
    // Another process was faster.
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}
