// Checkpoints that live in memory, for tests of what a family makes of metadata, names and shapes.

import type {
  Checkpoint,
  GgufCheckpoint,
  GgufValue,
  SafetensorsCheckpoint,
  TensorInfo,
} from '../../../src/checkpoint/checkpoint.ts';
import { GgufMetadata } from '../../../src/checkpoint/gguf-metadata.ts';

export interface MemoryTensor {
  readonly shape: readonly number[];
  /** float32; zeros when absent. */
  readonly values?: Float32Array;
}

export type MemoryTensors = Readonly<Record<string, MemoryTensor>>;

export function memoryHf(config: Record<string, unknown>, tensors: MemoryTensors): SafetensorsCheckpoint {
  return { ...base(tensors), format: 'safetensors', folder: '/memory', config, generationConfig: null };
}

/** Whole numbers are declared as u32, others as f32, unless `types` says otherwise. */
export function memoryGguf(
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: MemoryTensors,
  types: Readonly<Record<string, string>> = {},
): GgufCheckpoint {
  const map = new GgufMetadata('memory.gguf');
  for (const [key, value] of Object.entries(metadata)) map.add(key, value, types[key] ?? declaredType(value));
  return { ...base(tensors), format: 'gguf', metadata: map };
}

function declaredType(value: GgufValue): string {
  if (typeof value === 'number') return Number.isInteger(value) ? 'u32' : 'f32';
  if (typeof value === 'bigint') return 'u64';
  if (typeof value === 'string') return 'string';
  return typeof value === 'boolean' ? 'bool' : 'array of u32';
}

function base(
  tensors: MemoryTensors,
): Omit<Checkpoint, 'format' | 'metadata' | 'folder' | 'config' | 'generationConfig'> {
  const infos = new Map<string, TensorInfo>();
  const bytesOf = new Map<string, Uint8Array>();
  for (const [name, { shape, values }] of Object.entries(tensors)) {
    const numValues = shape.reduce((product, size) => product * size, 1);
    infos.set(name, { name, type: 'F32', shape, file: 'memory', offset: 0, numBytes: 4 * numValues });
    const stored = values ?? new Float32Array(numValues);
    bytesOf.set(name, new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength));
  }
  const bytes = (tensor: TensorInfo) => bytesOf.get(tensor.name) as Uint8Array;
  return {
    source: 'memory',
    files: [],
    tensors: infos,
    weightBytes: [...infos.values()].reduce((sum, { numBytes }) => sum + numBytes, 0),
    warnings: [],
    readTensor: (tensor) => bytes(tensor).slice(),
    readBytes: (tensor, start, target) => target.set(bytes(tensor).subarray(start, start + target.length)),
    close() {},
  };
}
