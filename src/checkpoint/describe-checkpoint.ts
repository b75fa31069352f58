// The facts of a checkpoint's files, for `inspect` and the start-up log.

import { statSync } from 'node:fs';
import type { Checkpoint, TensorType } from './checkpoint.ts';
import { summarizeGguf } from './gguf-file.ts';

export interface CheckpointFacts {
  readonly source: string;
  readonly format: 'gguf' | 'safetensors';
  /** `general.name`, or `_name_or_path` of config.json. */
  readonly name: string | null;
  /** As the file spells it: `llama`, or `LlamaForCausalLM`. */
  readonly architecture: string | null;
  readonly files: readonly { readonly path: string; readonly numBytes: number }[];
  readonly numTensors: number;
  /** Values in all tensors. */
  readonly numParameters: number;
  readonly weightBytes: number;
  /** By falling bytes. */
  readonly byType: readonly { readonly type: TensorType; readonly numTensors: number; readonly numBytes: number }[];
}

export function describeCheckpoint(checkpoint: Checkpoint): CheckpointFacts {
  const byType = new Map<TensorType, { type: TensorType; numTensors: number; numBytes: number }>();
  let numParameters = 0;
  for (const { type, shape, numBytes } of checkpoint.tensors.values()) {
    numParameters += shape.reduce((product, dim) => product * dim, 1);
    const entry = byType.get(type) ?? { type, numTensors: 0, numBytes: 0 };
    byType.set(type, { type, numTensors: entry.numTensors + 1, numBytes: entry.numBytes + numBytes });
  }
  return {
    source: checkpoint.source,
    format: checkpoint.format,
    ...namesOf(checkpoint),
    files: checkpoint.files.map((path) => ({ path, numBytes: statSync(path).size })),
    numTensors: checkpoint.tensors.size,
    numParameters,
    weightBytes: checkpoint.weightBytes,
    byType: [...byType.values()].sort((a, b) => b.numBytes - a.numBytes),
  };
}

function namesOf(checkpoint: Checkpoint): { name: string | null; architecture: string | null } {
  if (checkpoint.format === 'gguf') {
    const { name, architecture } = summarizeGguf(checkpoint.metadata);
    return { name, architecture };
  }
  const { config } = checkpoint;
  const architectures: unknown = config.architectures;
  const first: unknown = Array.isArray(architectures) ? architectures[0] : config.model_type;
  const name: unknown = config._name_or_path;
  return {
    name: typeof name === 'string' && name !== '' ? name : null,
    architecture: typeof first === 'string' ? first : null,
  };
}
