// The conformance suite on the reference device. Number cases compare it with itself; the others test it like any device.

import { createReferenceDevice } from '../../src/device/reference/reference-device.ts';
import { deviceCases } from './device-cases.ts';

deviceCases({
  name: 'reference',
  make: async (model, checkpoint, kv, limits) => createReferenceDevice(model, checkpoint, kv, limits),
  computeDtype: 'f32',
  rowForm: () => 'float',
  blockSizes: [16, 8, 32],
  headMultiple: 1,
});
