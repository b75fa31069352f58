// Which weights a program uses, in the order in which they are loaded, and how each gets to the native side: as rows of the
// checkpoint's files that are packed as they lie, or as float32 values that must be computed (or are small vectors).

import type { Checkpoint, TensorType } from '../../checkpoint/checkpoint.ts';
import { rowBytes } from '../../checkpoint/quantization.ts';
import { weightRows } from '../../checkpoint/weights.ts';
import type { LoadedModel } from '../../model/load-model.ts';
import type { WeightSpec } from '../../model/model-family.ts';
import type { Program, WeightRef } from '../../model/program.ts';
import type { NativeWeightPiece } from './addon.ts';

export interface PlannedWeight {
  readonly spec: WeightSpec;
  readonly shape: WeightShape;
  /** Of the packed matrix; F32 for vectors and computed values. */
  readonly format: TensorType;
  /** Null = its values must be computed. */
  readonly pieces: readonly NativeWeightPiece[] | null;
  /** Bytes it takes in the checkpoint. */
  readonly storedBytes: number;
}

interface WeightShape {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  readonly numParts: number;
  readonly isVector: boolean;
}

export function planWeights(model: LoadedModel, checkpoint: Checkpoint): PlannedWeight[] {
  return [...weightUses(model.program)].map(([name, use]) => planWeight(checkpoint, model.weights.get(name)!, use));
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

function planWeight(checkpoint: Checkpoint, spec: WeightSpec, use: WeightUse): PlannedWeight {
  const { name, rows, cols } = spec;
  const shape = { name, rows, cols, ...use };
  const storedBytes = bytesInCheckpoint(checkpoint, spec);
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
    return { spec, shape, format: type, pieces: places, storedBytes };
  }
  return { spec, shape, format: 'F32', pieces: null, storedBytes };
}

function bytesInCheckpoint(checkpoint: Checkpoint, spec: WeightSpec): number {
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
