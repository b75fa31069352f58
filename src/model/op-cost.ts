// What the ops of a program cost: multiply-accumulates and bytes moved, from the same list that devices execute, so that a cost
// model can never drift from the engine.

import type { KvLayer, Op, Program, RowCount, WeightRef } from './program.ts';
import { opWeights } from './weight-specs.ts';

/** One step, as far as costs go. */
export interface StepShape {
  readonly numTokens: number;
  /** One per token of the step: keys it may see, itself included (its position + 1). */
  readonly contextLengths: ArrayLike<number>;
  readonly numLogitRows: number;
}

export interface OpCost {
  /** Multiply-accumulates: one multiplication and one addition each. Element-wise ops count none. */
  readonly macs: number;
  /** Weights read, once per step. Embedding rows that are looked up count, the rest of the table does not. */
  readonly weightBytes: number;
  /** Keys and values written, or read without any reuse between tokens. */
  readonly kvBytes: number;
  /** float32 activations read and written. */
  readonly activationBytes: number;
}

export interface ByteSizes {
  /** Bytes of a weight in memory. */
  weight(ref: WeightRef): number;
  /** Bytes of K or V of one head of one token. */
  readonly kvHead: number;
}

const FLOAT_BYTES = 4;

/** Shape of a step that gives each sequence `numTokens` tokens after `numComputed` earlier ones. */
export function stepShape(
  sequences: ReadonlyArray<{ readonly numComputed: number; readonly numTokens: number }>,
  numLogitRows: number,
): StepShape {
  const contextLengths = sequences.flatMap(({ numComputed, numTokens }) =>
    Array.from({ length: numTokens }, (_, i) => numComputed + i + 1),
  );
  return { numTokens: contextLengths.length, contextLengths, numLogitRows };
}

/** All multiply-accumulates of one step. */
export function programMacs(program: Program, shape: StepShape): number {
  return program.ops.reduce((sum, op) => sum + opMacs(op, program, shape), 0);
}

export function opCost(op: Op, program: Program, shape: StepShape, sizes: ByteSizes): OpCost {
  return {
    macs: opMacs(op, program, shape),
    weightBytes: opWeightBytes(op, shape, sizes),
    kvBytes: opKvBytes(op, program, shape, sizes),
    activationBytes: FLOAT_BYTES * opFloats(op, shape),
  };
}

function opMacs(op: Op, program: Program, shape: StepShape): number {
  switch (op.kind) {
    case 'linear':
      return rowsOf(op.in.rows, shape) * op.weight.rows * op.weight.cols;
    case 'moe': {
      const expert = 3 * op.expertCols * op.in.cols;
      const shared = op.shared ? 3 * op.shared.cols * op.in.cols + (op.shared.gateWeight ? op.in.cols : 0) : 0;
      return rowsOf(op.in.rows, shape) * (op.numExperts * op.in.cols + op.topK * expert + shared);
    }
    case 'attention': {
      const layer = program.kvLayers[op.layer];
      // A query times a key, and a probability times a value.
      return 2 * op.numHeads * layer.headDim * visibleKeys(layer, shape);
    }
    default:
      return 0;
  }
}

function opWeightBytes(op: Op, shape: StepShape, sizes: ByteSizes): number {
  if (op.kind === 'embed' || op.kind === 'addPosition') {
    return Math.min(shape.numTokens, op.weight.rows) * (sizes.weight(op.weight) / op.weight.rows);
  }
  if (op.kind === 'moe') {
    // Each token's experts, but no expert twice: an upper bound while the choice is not known.
    const used = Math.min(op.numExperts, op.topK * rowsOf(op.in.rows, shape)) / op.numExperts;
    const routed = [op.gate, op.up, op.down].reduce((sum, ref) => sum + sizes.weight(ref), 0);
    const always = opWeights(op).reduce((sum, ref) => sum + sizes.weight(ref), 0) - routed;
    return always + used * routed;
  }
  return opWeights(op).reduce((sum, ref) => sum + sizes.weight(ref), 0);
}

function opKvBytes(op: Op, program: Program, shape: StepShape, { kvHead }: ByteSizes): number {
  if (op.kind === 'kvWrite') return shape.numTokens * 2 * program.kvLayers[op.layer].numKvHeads * kvHead;
  if (op.kind !== 'attention') return 0;
  const layer = program.kvLayers[op.layer];
  return visibleKeys(layer, shape) * 2 * layer.numKvHeads * kvHead;
}

function opFloats(op: Op, shape: StepShape): number {
  switch (op.kind) {
    case 'embed':
      return 2 * rowsOf(op.out.rows, shape) * op.out.cols;
    case 'addPosition':
    case 'rope':
    case 'softcap':
      return 2 * rowsOf(op.x.rows, shape) * op.x.cols;
    case 'kvWrite':
      return rowsOf(op.k.rows, shape) * (op.k.cols + op.v.cols);
    case 'attention':
      return rowsOf(op.q.rows, shape) * (op.q.cols + op.out.cols);
    case 'gatedActivation':
      return 3 * rowsOf(op.out.rows, shape) * op.out.cols;
    case 'add':
      return 3 * rowsOf(op.out.rows, shape) * op.out.cols;
    case 'selectRows':
      return 2 * shape.numLogitRows * op.out.cols;
    case 'sample':
      return shape.numLogitRows * op.logits.cols;
    default:
      return rowsOf(op.in.rows, shape) * (op.in.cols + op.out.cols);
  }
}

function visibleKeys({ window }: KvLayer, { contextLengths }: StepShape): number {
  let sum = 0;
  for (let i = 0; i < contextLengths.length; i++)
    sum += window > 0 ? Math.min(contextLengths[i], window) : contextLengths[i];
  return sum;
}

function rowsOf(rows: RowCount, shape: StepShape): number {
  return rows === 'T' ? shape.numTokens : shape.numLogitRows;
}
