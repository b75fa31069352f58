// Facts about a loaded model for people: parameters, bytes by storage format, KV bytes per token. Read from the same specs and
// layouts that devices use.

import type { Checkpoint, TensorType } from '../checkpoint/checkpoint.ts';
import type { LoadedModel } from '../model/load-model.ts';
import { type KvDtype, kvLayout } from './kv-layout.ts';

export interface ModelFacts {
  readonly architecture: string;
  readonly numParameters: number;
  /** Parameters that one token uses: all of them but the experts it is not sent to. */
  readonly numActiveParameters: number;
  /** Bytes of the stored tensors that the model uses, by format, largest first. */
  readonly weightBytesByFormat: ReadonlyArray<{ readonly format: TensorType; readonly bytes: number }>;
  readonly weightBytes: number;
  /** While no window frees anything. */
  readonly kvBytesPerToken: Readonly<Record<KvDtype, number>>;
  readonly contextLength: number;
  readonly vocabSize: number;
}

const KV_DTYPES: readonly KvDtype[] = ['f32', 'f16', 'bf16', 'int8'];
/** Any block size gives the same bytes per token. */
const BLOCK_SIZE = 16;

export function modelFacts(model: LoadedModel, checkpoint: Checkpoint): ModelFacts {
  const numParameters = [...model.weights.values()].reduce((sum, { rows, cols }) => sum + rows * cols, 0);
  const byFormat = new Map<TensorType, number>();
  for (const name of new Set([...model.weights.values()].flatMap((spec) => spec.pieces.map((piece) => piece.tensor)))) {
    const tensor = checkpoint.tensors.get(name);
    if (tensor) byFormat.set(tensor.type, (byFormat.get(tensor.type) ?? 0) + tensor.numBytes);
  }
  const kvBytes = (dtype: KvDtype) => kvLayout(model.program, dtype, BLOCK_SIZE).bytesPerToken;
  return {
    architecture: model.config.architecture,
    numParameters,
    numActiveParameters: numParameters - idleExpertParameters(model),
    weightBytesByFormat: [...byFormat].map(([format, bytes]) => ({ format, bytes })).sort((a, b) => b.bytes - a.bytes),
    weightBytes: [...byFormat.values()].reduce((sum, bytes) => sum + bytes, 0),
    kvBytesPerToken: Object.fromEntries(KV_DTYPES.map((dtype) => [dtype, kvBytes(dtype)])) as Record<KvDtype, number>,
    contextLength: model.config.contextLength,
    vocabSize: model.config.vocabSize,
  };
}

function idleExpertParameters({ program }: LoadedModel): number {
  let idle = 0;
  for (const op of program.ops) {
    if (op.kind !== 'moe') continue;
    idle +=
      ((op.numExperts - op.topK) / op.numExperts) *
      [op.gate, op.up, op.down].reduce((sum, ref) => sum + ref.rows * ref.cols, 0);
  }
  return idle;
}
