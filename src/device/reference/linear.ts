// out = x @ weight^T + bias. Each output is one sum over the columns from left to right in double precision, rounded once:
// the value depends on its row and its weight row only, never on how many rows a step has.

import type { Matrix } from './elementwise.ts';

/** A weight [rows = outputs, cols = inputs] as float32. */
export interface DenseWeight {
  readonly data: Float32Array;
  readonly rows: number;
  readonly cols: number;
}

export function linear(x: Matrix, weight: DenseWeight, bias: Float32Array | null, out: Matrix): void {
  linearRows(x, weight, { bias, out, firstRow: 0, numRows: weight.rows });
}

/** The same for some of the weight's rows: out[t, j] = x[t] . weight[firstRow + j]. */
export function linearRows(
  x: Matrix,
  weight: DenseWeight,
  { bias, out, firstRow, numRows }: { bias: Float32Array | null; out: Matrix; firstRow: number; numRows: number },
): void {
  const { cols } = weight;
  const w = weight.data;
  for (let t = 0; t < x.numRows; t++) {
    const row = x.data.subarray(t * cols, (t + 1) * cols);
    const outStart = t * out.cols;
    let j = 0;
    // Four outputs at a time only to keep the processor busy: each still has its own sum in the same order.
    for (; j + 4 <= numRows; j += 4) {
      const base = (firstRow + j) * cols;
      let s0 = 0;
      let s1 = 0;
      let s2 = 0;
      let s3 = 0;
      for (let k = 0; k < cols; k++) {
        const value = row[k];
        s0 += value * w[base + k];
        s1 += value * w[base + cols + k];
        s2 += value * w[base + 2 * cols + k];
        s3 += value * w[base + 3 * cols + k];
      }
      out.data[outStart + j] = bias ? s0 + bias[j] : s0;
      out.data[outStart + j + 1] = bias ? s1 + bias[j + 1] : s1;
      out.data[outStart + j + 2] = bias ? s2 + bias[j + 2] : s2;
      out.data[outStart + j + 3] = bias ? s3 + bias[j + 3] : s3;
    }
    for (; j < numRows; j++) {
      const base = (firstRow + j) * cols;
      let sum = 0;
      for (let k = 0; k < cols; k++) sum += row[k] * w[base + k];
      out.data[outStart + j] = bias ? sum + bias[j] : sum;
    }
  }
}
