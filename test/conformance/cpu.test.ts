// The conformance suite on the native device: every instruction set this processor has, one and two threads, float32 and int8.

import { describe, it } from 'vitest';
import { cpuIsas, createCpuDevice, isCpuDeviceAvailable } from '../../src/device/cpu/cpu-device.ts';
import { deviceCases } from './device-cases.ts';

const { available, reason } = isCpuDeviceAvailable();

if (!available) {
  describe('device cpu', () => {
    it.skip(`native kernels: ${reason}`, () => {});
  });
}

for (const isa of cpuIsas()) {
  for (const computeDtype of ['f32', 'int8'] as const) {
    const numThreads = computeDtype === 'f32' ? 1 : 2;
    deviceCases({
      name: `cpu ${isa}, ${computeDtype}, threads ${numThreads}`,
      make: (model, checkpoint, kv, limits) =>
        createCpuDevice(model, checkpoint, kv, limits, { isa, computeDtype, numThreads }),
      computeDtype,
      blockSizes: [16, 32],
      headMultiple: 8,
    });
  }
}
