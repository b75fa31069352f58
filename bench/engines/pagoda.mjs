import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '../..');
export const label = 'pagoda';

export function check() {
  if (!existsSync(join(root, 'build/pagoda.node'))) throw new Error('no native kernels: run `npm run build`');
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  try {
    const commit = execFileSync('git', ['rev-parse', '--short', 'HEAD'], { cwd: root, encoding: 'utf8' }).trim();
    return `pagoda ${version} (${commit})`;
  } catch {
    return `pagoda ${version}`;
  }
}

export const covers = () => true;
/** One setting: what we ship is what is compared. */
export const settings = () => [{}];
export const command = () => [process.execPath, join(import.meta.dirname, 'pagoda-library.mjs')];

export function server({ model, threads, port, numSeqs, contextTokens }) {
  const flags = ['--port', port, '--threads', threads, '--max-num-seqs', numSeqs, '--max-model-len', contextTokens];
  return [
    process.execPath,
    join(root, 'bin/pagoda.js'),
    'serve',
    model,
    ...flags.map(String),
    '--served-model-name',
    'm',
  ];
}
