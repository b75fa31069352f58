// Hands every weight of a program to the native side: as places in the checkpoint's files where it can be packed from there, as
// float32 values where it must be computed or is a small vector. One weight at a time, so that memory holds no second copy.

import type { Checkpoint, TensorType } from '../../checkpoint/checkpoint.ts';
import { rowBytes } from '../../checkpoint/quantization.ts';
import { readWeight, weightRows } from '../../checkpoint/weights.ts';
import type { LoadedModel } from '../../model/load-model.ts';
import type { WeightSpec } from '../../model/model-family.ts';
import type { Program, WeightRef } from '../../model/program.ts';
import { type Addon, type DeviceHandle, FORMATS, type NativeWeight } from './addon.ts';

/** Bytes packed so far and in all. */
export type LoadProgress = (doneBytes: number, totalBytes: number) => void;

export interface LoadedWeights {
  readonly indexOf: (name: string) => number;
  /** Format a matrix was packed in; F32 for vectors and computed values. */
  readonly formatOf: (name: string) => TensorType;
}

export async function loadWeights(
  { addon, handle }: { addon: Addon; handle: DeviceHandle },
  model: LoadedModel,
  checkpoint: Checkpoint,
  onProgress?: LoadProgress,
): Promise<LoadedWeights> {
  const uses = weightUses(model.program);
  const indexes = new Map<string, number>();
  const formats = new Map<string, TensorType>();
  const total = [...uses.keys()].reduce((sum, name) => sum + storedBytes(checkpoint, model.weights.get(name)!), 0);
  let done = 0;
  for (const [name, use] of uses) {
    const spec = model.weights.get(name)!;
    const { weight, format } = nativeWeight(checkpoint, spec, use);
    await addon.loadWeight(handle, weight);
    indexes.set(name, indexes.size);
    formats.set(name, format);
    done += storedBytes(checkpoint, spec);
    onProgress?.(done, total);
  }
  return { indexOf: (name) => indexes.get(name)!, formatOf: (name) => formats.get(name)! };
}

interface WeightUse {
  readonly isVector: boolean;
  readonly numParts: number;
}

/** Which weights there are and how each is used. */
function weightUses(program: Program): Map<string, WeightUse> {
  const uses = new Map<string, WeightUse>();
  const add = (ref: WeightRef | null, isVector: boolean, numParts = 1) => {
    if (ref) uses.set(ref.name, { isVector, numParts });
  };
  for (const op of program.ops) {
    switch (op.kind) {
      case 'embed':
      case 'addPosition':
        add(op.weight, false);
        break;
      case 'rmsNorm':
        add(op.weight, true);
        break;
      case 'layerNorm':
        add(op.weight, true);
        add(op.bias, true);
        break;
      case 'linear':
        add(op.weight, false);
        add(op.bias, true);
        break;
      case 'moe':
        add(op.router, false);
        for (const ref of [op.gate, op.up, op.down]) add(ref, false, op.numExperts);
        if (op.shared) {
          for (const ref of [op.shared.gate, op.shared.up, op.shared.down]) add(ref, false);
          add(op.shared.gateWeight, true);
        }
        break;
      default:
        break;
    }
  }
  return uses;
}

function nativeWeight(
  checkpoint: Checkpoint,
  spec: WeightSpec,
  use: WeightUse,
): { weight: NativeWeight; format: TensorType } {
  const { name, rows, cols } = spec;
  const shape = { name, rows, cols, ...use };
  const pieces = use.isVector ? null : weightRows(checkpoint, spec);
  const type = pieces?.[0]?.type;
  // Packed as it lies only when every piece is whole rows of one format.
  if (pieces && type && pieces.every((piece) => piece.type === type && piece.rowBytes === rowBytes(type, cols))) {
    const places = pieces.map(({ file, offset, numRows }) => ({
      file,
      offset,
      rowBytes: rowBytes(type, cols),
      numRows,
    }));
    return { weight: { ...shape, format: FORMATS[type], pieces: places }, format: type };
  }
  return { weight: { ...shape, format: FORMATS.F32, values: readWeight(checkpoint, spec) }, format: 'F32' };
}

function storedBytes(checkpoint: Checkpoint, spec: WeightSpec): number {
  let bytes = 0;
  for (const piece of spec.pieces) {
    const tensor = checkpoint.tensors.get(piece.tensor);
    if (!tensor) continue;
    const isVector = tensor.shape.length <= 1;
    const units = isVector ? (tensor.shape[0] ?? 1) : tensor.shape.reduce((a, b) => a * b, 1) / spec.cols;
    bytes += (tensor.numBytes * piece.numRows) / units;
  }
  return bytes;
}
