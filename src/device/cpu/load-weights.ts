// Hands every weight of a program to the native side, one at a time, so that memory holds no second copy.

import type { Checkpoint, TensorType } from '../../checkpoint/checkpoint.ts';
import { readWeight } from '../../checkpoint/weights.ts';
import { type Addon, type DeviceHandle, FORMATS, type NativeWeight } from './addon.ts';
import type { PlannedWeight } from './plan-weights.ts';

/** Bytes packed so far and in all. */
export type LoadProgress = (doneBytes: number, totalBytes: number) => void;

export interface LoadedWeights {
  readonly indexOf: (name: string) => number;
  /** Format a matrix was packed in; F32 for vectors and computed values. */
  readonly formatOf: (name: string) => TensorType;
}

export async function loadWeights(
  { addon, handle }: { addon: Addon; handle: DeviceHandle },
  weights: readonly PlannedWeight[],
  checkpoint: Checkpoint,
  onProgress?: LoadProgress,
): Promise<LoadedWeights> {
  const total = weights.reduce((sum, weight) => sum + weight.storedBytes, 0);
  let done = 0;
  for (const weight of weights) {
    await addon.loadWeight(handle, nativeWeight(checkpoint, weight));
    done += weight.storedBytes;
    onProgress?.(done, total);
  }
  const indexes = new Map(weights.map((weight, index) => [weight.shape.name, index]));
  const formats = new Map(weights.map((weight) => [weight.shape.name, weight.format]));
  return { indexOf: (name) => indexes.get(name)!, formatOf: (name) => formats.get(name)! };
}

function nativeWeight(checkpoint: Checkpoint, { spec, shape, format, pieces }: PlannedWeight): NativeWeight {
  const content = pieces === null ? { values: readWeight(checkpoint, spec) } : { pieces };
  return { ...shape, format: FORMATS[format], ...content };
}
