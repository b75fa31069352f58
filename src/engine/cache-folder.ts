// Where Pagoda keeps what it can make again: as given, else PAGODA_CACHE_DIR, else $XDG_CACHE_HOME/pagoda, else ~/.cache/pagoda.

import { homedir } from 'node:os';
import { isAbsolute, join, resolve } from 'node:path';

export function cacheFolder(given: string | null, env: NodeJS.ProcessEnv = process.env): string {
  const named = given ?? (env.PAGODA_CACHE_DIR || null);
  if (named !== null) return resolve(named);
  // The XDG specification: a relative path counts as not set.
  const xdg = env.XDG_CACHE_HOME ?? '';
  return join(isAbsolute(xdg) ? xdg : join(homedir(), '.cache'), 'pagoda');
}
