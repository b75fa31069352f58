// The conformance suite on the native device: every instruction set this processor has, one and two threads, float32 and int8.

import { describe, it } from 'vitest';
import type { TensorType } from '../../src/checkpoint/checkpoint.ts';
import { FORMATS, loadAddon, ROW_FORMS, type RowForm } from '../../src/device/cpu/addon.ts';
import { cpuIsas, createCpuDevice, isCpuDeviceAvailable } from '../../src/device/cpu/cpu-device.ts';
import { deviceCases } from './device-cases.ts';

/** As the kernels of the instruction set say. */
function rowFormOf(isa: string): (format: TensorType) => RowForm {
  const { addon } = loadAddon();
  const handle = addon!.create({ isa, numThreads: 1 });
  const { rowForms } = addon!.deviceInfo(handle);
  void addon!.dispose(handle);
  return (format) => ROW_FORMS[rowForms[FORMATS[format]]!]!;
}

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
      rowForm: computeDtype === 'f32' ? () => 'float' : rowFormOf(isa),
      blockSizes: [16, 32],
      headMultiple: 8,
    });
  }
}
