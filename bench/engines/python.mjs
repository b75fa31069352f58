// The Python of bench/.venv, and what is installed in it.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

export const venv = join(import.meta.dirname, '../.venv');
export const python = process.platform === 'win32' ? join(venv, 'Scripts/python.exe') : join(venv, 'bin/python');

/** The installed version of a package and that `module` loads; throws with the reason otherwise. */
export function pythonPackage(name, module) {
  if (!existsSync(python))
    throw new Error('no bench/.venv: run `node bench/setup-python.mjs` (needs python3 with pip)');
  const code = `import importlib.metadata as m, ${module}; print(m.version("${name}"))`;
  const run = spawnSync(python, ['-c', code], { encoding: 'utf8', timeout: 300_000 });
  if (run.status !== 0) throw new Error(run.stderr?.trim().split('\n').at(-1) || `${name} does not load`);
  return `${name} ${run.stdout.trim().split('\n').at(-1)}`;
}
