// The row-wise ops of a program, one function each: float32 in, float32 out, arithmetic in double precision and rounded once
// when stored. Every row is computed on its own, so results never depend on the batch.

import type { Activation, RopeStyle, RopeTable } from '../../model/program.ts';

/** A float32 matrix [numRows, cols]; `data` may be longer. */
export interface Matrix {
  readonly data: Float32Array;
  readonly numRows: number;
  readonly cols: number;
}

export function rmsNorm(
  x: Matrix,
  out: Matrix,
  weight: Float32Array,
  { eps, groupCols }: { eps: number; groupCols: number },
): void {
  const size = x.numRows * x.cols;
  for (let start = 0; start < size; start += groupCols) {
    let squares = 0;
    for (let i = 0; i < groupCols; i++) squares += x.data[start + i] * x.data[start + i];
    const scale = 1 / Math.sqrt(squares / groupCols + eps);
    for (let i = 0; i < groupCols; i++) out.data[start + i] = x.data[start + i] * scale * weight[i];
  }
}

export function layerNorm(
  x: Matrix,
  out: Matrix,
  weight: Float32Array,
  { bias, eps }: { bias: Float32Array | null; eps: number },
): void {
  const { cols } = x;
  for (let start = 0; start < x.numRows * cols; start += cols) {
    let sum = 0;
    for (let i = 0; i < cols; i++) sum += x.data[start + i];
    const mean = sum / cols;
    let squares = 0;
    for (let i = 0; i < cols; i++) squares += (x.data[start + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / cols + eps);
    for (let i = 0; i < cols; i++)
      out.data[start + i] = (x.data[start + i] - mean) * scale * weight[i] + (bias ? bias[i] : 0);
  }
}

/** Rotates pairs of the first rotaryDim columns of each head by position * frequency, a float32 product as in training (transformers, vLLM). */
export function rope(
  x: Matrix,
  positions: Int32Array,
  shape: { numHeads: number; headDim: number; rotaryDim: number; style: RopeStyle },
  { inverseFrequencies, magnitude }: RopeTable,
): void {
  const numPairs = shape.rotaryDim / 2;
  const [stride, distance] = shape.style === 'half' ? [1, numPairs] : [2, 1];
  for (let row = 0; row < x.numRows; row++) {
    for (let pair = 0; pair < numPairs; pair++) {
      const angle = Math.fround(positions[row] * Math.fround(inverseFrequencies[pair]));
      const cos = Math.fround(Math.cos(angle) * magnitude);
      const sin = Math.fround(Math.sin(angle) * magnitude);
      for (let head = 0; head < shape.numHeads; head++) {
        const i = row * x.cols + head * shape.headDim + pair * stride;
        const a = x.data[i];
        const b = x.data[i + distance];
        x.data[i] = a * cos - b * sin;
        x.data[i + distance] = b * cos + a * sin;
      }
    }
  }
}

export function applyActivation(kind: Activation, x: number): number {
  switch (kind) {
    case 'silu':
      return x / (1 + Math.exp(-x));
    case 'gelu':
      return 0.5 * x * (1 + erf(x * Math.SQRT1_2));
    case 'geluTanh':
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)));
    case 'relu':
      return Math.max(0, x);
  }
}

export function activation(x: Matrix, out: Matrix, kind: Activation): void {
  const size = x.numRows * x.cols;
  for (let i = 0; i < size; i++) out.data[i] = applyActivation(kind, x.data[i]);
}

export function gatedActivation(gate: Matrix, up: Matrix, out: Matrix, kind: Activation): void {
  const size = gate.numRows * gate.cols;
  for (let i = 0; i < size; i++) out.data[i] = applyActivation(kind, gate.data[i]) * up.data[i];
}

export function add(a: Matrix, b: Matrix, out: Matrix): void {
  const size = a.numRows * a.cols;
  for (let i = 0; i < size; i++) out.data[i] = a.data[i] + b.data[i];
}

export function softcap(x: Matrix, cap: number): void {
  const size = x.numRows * x.cols;
  for (let i = 0; i < size; i++) x.data[i] = cap * Math.tanh(x.data[i] / cap);
}

/**
 * Error function: the Taylor series up to 3 and the continued fraction of erfc beyond, both to about 1e-15
 * (Abramowitz and Stegun 7.1.5 and 7.1.14).
 */
function erf(x: number): number {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 3) {
    let term = x;
    let sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let k = 60; k >= 1; k--) fraction = k / 2 / (size + fraction);
  const tail = Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + fraction));
  return Math.sign(x) * (1 - tail);
}
