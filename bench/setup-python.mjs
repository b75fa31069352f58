// Installs the Python peers into bench/.venv, one by one, so that a package without a wheel for this machine costs only itself. Says
// aloud what could not be installed, and then ends with 1.
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { python, venv } from './engines/python.mjs';
import { readFlags } from './flags.mjs';

readFlags(`Usage: node bench/setup-python.mjs: installs the Python peers into bench/.venv\n`, {});

const requirements = readFileSync(join(import.meta.dirname, 'requirements.txt'), 'utf8')
  .split('\n')
  .filter((line) => line.trim() !== '' && !line.startsWith('#'));
const run = (program, args) => spawnSync(program, args, { stdio: ['ignore', 'inherit', 'inherit'] }).status === 0;

if (!existsSync(python)) {
  const names = [process.env.PYTHON, 'python3', 'python'].filter(Boolean);
  if (!names.some((name) => run(name, ['-m', 'venv', venv]))) {
    process.stderr.write('No Python with venv and pip: the Python peers are not installed.\n');
    process.exit(1);
  }
}
const failed = requirements.filter(
  (line) => !run(python, ['-m', 'pip', 'install', '--quiet', '--only-binary', ':all:', line]),
);
for (const line of failed) process.stderr.write(`Could not install ${line}: its engine will be skipped.\n`);
process.exitCode = failed.length > 0 ? 1 : 0;
