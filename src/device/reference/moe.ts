// Mixture of experts, as MoeOp in model/program.ts defines it. Every token is computed on its own.

import type { MoeOp } from '../../model/program.ts';
import { gatedActivation, type Matrix } from './elementwise.ts';
import { type DenseWeight, linear, linearRows } from './linear.ts';

export interface MoeWeights {
  readonly router: DenseWeight;
  readonly gate: DenseWeight;
  readonly up: DenseWeight;
  readonly down: DenseWeight;
  readonly shared: {
    readonly gate: DenseWeight;
    readonly up: DenseWeight;
    readonly down: DenseWeight;
    readonly gateWeight: DenseWeight | null;
  } | null;
}

export function moe(x: Matrix, out: Matrix, op: MoeOp, weights: MoeWeights): void {
  const scores = matrix(1, op.numExperts);
  const inner = { gate: matrix(1, op.expertCols), up: matrix(1, op.expertCols), down: matrix(1, x.cols) };
  for (let t = 0; t < x.numRows; t++) {
    const row: Matrix = { data: x.data.subarray(t * x.cols, (t + 1) * x.cols), numRows: 1, cols: x.cols };
    const sum = new Float64Array(x.cols);
    linear(row, weights.router, null, scores);
    for (const { expert, weight } of chooseExperts(scores.data, op)) {
      const part = { bias: null, firstRow: expert * op.expertCols, numRows: op.expertCols };
      linearRows(row, weights.gate, { ...part, out: inner.gate });
      linearRows(row, weights.up, { ...part, out: inner.up });
      gatedActivation(inner.gate, inner.up, inner.gate, op.activation);
      linearRows(inner.gate, weights.down, { bias: null, out: inner.down, firstRow: expert * x.cols, numRows: x.cols });
      for (let i = 0; i < x.cols; i++) sum[i] += weight * inner.down.data[i];
    }
    if (weights.shared) addSharedExpert(row, sum, op, weights.shared);
    out.data.set(sum, t * x.cols);
  }
}

/** The topK best of softmax(scores), best first, ties to the lower index. */
export function chooseExperts(
  scores: Float32Array,
  op: Pick<MoeOp, 'numExperts' | 'topK' | 'renormalise'>,
): Array<{ expert: number; weight: number }> {
  const order = Array.from({ length: op.numExperts }, (_, i) => i).sort((a, b) => scores[b] - scores[a] || a - b);
  const max = scores[order[0]];
  let total = 0;
  for (let i = 0; i < op.numExperts; i++) total += Math.exp(scores[i] - max);
  const chosen = order.slice(0, op.topK).map((expert) => ({ expert, weight: Math.exp(scores[expert] - max) / total }));
  if (!op.renormalise) return chosen;
  const kept = chosen.reduce((sum, { weight }) => sum + weight, 0);
  return chosen.map(({ expert, weight }) => ({ expert, weight: weight / kept }));
}

function addSharedExpert(row: Matrix, sum: Float64Array, op: MoeOp, shared: NonNullable<MoeWeights['shared']>): void {
  const gate = matrix(1, shared.gate.rows);
  const up = matrix(1, shared.up.rows);
  const down = matrix(1, row.cols);
  linear(row, shared.gate, null, gate);
  linear(row, shared.up, null, up);
  gatedActivation(gate, up, gate, op.activation);
  linear(gate, shared.down, null, down);
  const share = matrix(1, 1);
  if (shared.gateWeight) linear(row, shared.gateWeight, null, share);
  const weight = shared.gateWeight ? 1 / (1 + Math.exp(-share.data[0])) : 1;
  for (let i = 0; i < row.cols; i++) sum[i] += weight * down.data[i];
}

function matrix(numRows: number, cols: number): Matrix {
  return { data: new Float32Array(numRows * cols), numRows, cols };
}
