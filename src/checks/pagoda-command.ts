// `pagoda` commands in processes of their own, as a user runs them. Their standard error is shown.

import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from './shared-data.ts';

export function startPagoda(args: readonly string[]): ChildProcess {
  return spawn(process.execPath, [join(ROOT, 'bin/pagoda.js'), ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
}

/** What the command printed; any exit code but 0 is an error. */
export async function runPagoda(...args: readonly string[]): Promise<string> {
  const child = startPagoda(args);
  let text = '';
  child.stdout!.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const code = await exitOf(child);
  if (code !== 0) throw new Error(`pagoda ${args.join(' ')}: exit code ${code}`);
  return text;
}

export function exitOf(child: ChildProcess): Promise<number | null> {
  return new Promise((done, reject) => {
    child.once('error', reject);
    child.once('close', done);
  });
}
