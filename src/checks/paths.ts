// The execution paths that this machine can run: the reference device, and the cpu device on each instruction set of the CPU.
// `--path cpu-avx2` on a check's command line leaves only that one.

import { cpuIsas, isCpuDeviceAvailable } from '../device/cpu/cpu-device.ts';

export interface ExecutionPath {
  /** `reference`, `cpu-amx`, `cpu-avx512`, `cpu-avx2`, `cpu-portable` */
  readonly name: string;
  readonly device: 'cpu' | 'reference';
  readonly isa: string | null;
}

export const REFERENCE_PATH: ExecutionPath = { name: 'reference', device: 'reference', isa: null };

export function availableCpuPaths(): ExecutionPath[] {
  return availablePaths().filter((path) => path.device === 'cpu');
}

export function availablePaths(): ExecutionPath[] {
  const cpuPaths: ExecutionPath[] = isCpuDeviceAvailable().available
    ? cpuIsas().map((isa) => ({ name: `cpu-${isa}`, device: 'cpu', isa }))
    : [];
  const all = [REFERENCE_PATH, ...cpuPaths];
  const at = process.argv.indexOf('--path');
  if (at === -1) return all;
  const wanted = all.filter(({ name }) => name === process.argv[at + 1]);
  if (wanted.length > 0) return wanted;
  process.stderr.write(`--path must be one of ${all.map(({ name }) => name).join(', ')}.\n`);
  process.exit(2);
}
