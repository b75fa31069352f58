// Names of weights as the programs use them, so that a model file says `w.matrix('attn_q', rows, cols)` and nothing more.

import type { WeightRef } from './program.ts';

export interface WeightNamer {
  matrix(part: string, rows: number, cols: number): WeightRef;
  /** A norm's weight. */
  vector(part: string, cols: number): WeightRef;
  bias(part: string, cols: number): WeightRef;
  /** The bias if the model has one, else null. */
  biasIf(present: boolean, part: string, cols: number): WeightRef | null;
}

/** Weights of one layer (`blk.3.attn_q.weight`), or outside of layers (`token_embd.weight`) when `layer` is null. */
export function weightsOf(layer: number | null): WeightNamer {
  const prefix = layer === null ? '' : `blk.${layer}.`;
  const bias = (part: string, cols: number): WeightRef => ({ name: `${prefix}${part}.bias`, rows: 1, cols });
  return {
    matrix: (part, rows, cols) => ({ name: `${prefix}${part}.weight`, rows, cols }),
    vector: (part, cols) => ({ name: `${prefix}${part}.weight`, rows: 1, cols }),
    bias,
    biasIf: (present, part, cols) => (present ? bias(part, cols) : null),
  };
}
