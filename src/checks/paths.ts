// The execution paths that this machine can run: the reference device, and the cpu device on each instruction set of the CPU.

import { cpuIsas, isCpuDeviceAvailable } from '../device/cpu/cpu-device.ts';

export interface ExecutionPath {
  /** `reference`, `cpu-avx512`, `cpu-avx2`, `cpu-portable` */
  readonly name: string;
  readonly device: 'cpu' | 'reference';
  readonly isa: string | null;
}

export const REFERENCE_PATH: ExecutionPath = { name: 'reference', device: 'reference', isa: null };

export function availableCpuPaths(): ExecutionPath[] {
  if (!isCpuDeviceAvailable().available) return [];
  return cpuIsas().map((isa) => ({ name: `cpu-${isa}`, device: 'cpu', isa }));
}

export function availablePaths(): ExecutionPath[] {
  return [REFERENCE_PATH, ...availableCpuPaths()];
}
