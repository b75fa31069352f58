// Interprets a program: one op after the other, values as float32 matrices, exactly as model/program.ts defines the ops.

import { PagodaError } from '../../errors.ts';
import type { MoeOp, Op, Program, Value, WeightRef } from '../../model/program.ts';
import type { KvLayout } from '../kv-layout.ts';
import { attention, kvWrite, type TokenPlaces } from './attention.ts';
import { activation, add, gatedActivation, layerNorm, type Matrix, rmsNorm, rope, softcap } from './elementwise.ts';
import type { ReferenceKvCache } from './kv-cache.ts';
import { type DenseWeight, linear } from './linear.ts';
import { type MoeWeights, moe } from './moe.ts';

export interface ProgramInputs {
  /** [T] */
  readonly tokenIds: Int32Array;
  readonly places: TokenPlaces;
  /** [R] tokens of the step that need logits, ascending. */
  readonly logitTokens: Int32Array;
  readonly cache: ReferenceKvCache;
}

export interface ProgramResult {
  /** [R, vocabulary]; valid until the next run. */
  readonly logits: Matrix;
  readonly linearSeconds: number;
  readonly attentionSeconds: number;
}

export class ProgramRunner {
  readonly #program: Program;
  readonly #weights: ReadonlyMap<string, Float32Array>;
  readonly #layout: KvLayout;
  /** Index of the last op that reads each value; its buffer is free afterwards. */
  readonly #lastUse: Int32Array;

  constructor(program: Program, weights: ReadonlyMap<string, Float32Array>, layout: KvLayout) {
    this.#program = program;
    this.#weights = weights;
    this.#layout = layout;
    this.#lastUse = lastUses(program);
  }

  run(inputs: ProgramInputs): ProgramResult {
    const live = new Map<number, Matrix>();
    const seconds = { linear: 0, attention: 0 };
    const pool = new BufferPool();
    const make = (value: Value): Matrix => {
      const numRows = value.rows === 'T' ? inputs.tokenIds.length : inputs.logitTokens.length;
      const matrix = { data: pool.take(numRows * value.cols), numRows, cols: value.cols };
      live.set(value.id, matrix);
      return matrix;
    };
    const read = (value: Value): Matrix => {
      const matrix = live.get(value.id);
      if (!matrix) throw new PagodaError('internal', `The program reads ${value.label} before it is written.`);
      return matrix;
    };
    for (let index = 0; index < this.#program.ops.length; index++) {
      const op = this.#program.ops[index];
      if (op.kind === 'sample')
        return { logits: read(op.logits), linearSeconds: seconds.linear, attentionSeconds: seconds.attention };
      const start = performance.now();
      this.#execute(op, inputs, { read, make });
      const spent = (performance.now() - start) / 1000;
      if (op.kind === 'linear' || op.kind === 'moe') seconds.linear += spent;
      else if (op.kind === 'attention') seconds.attention += spent;
      for (const [id, matrix] of live) {
        if (this.#lastUse[id] > index) continue;
        pool.give(matrix.data);
        live.delete(id);
      }
    }
    throw new PagodaError('internal', 'The program does not end in a sample op.');
  }

  #execute(
    op: Exclude<Op, { kind: 'sample' }>,
    inputs: ProgramInputs,
    values: { read: (value: Value) => Matrix; make: (value: Value) => Matrix },
  ): void {
    const { read, make } = values;
    const { places } = inputs;
    switch (op.kind) {
      case 'embed':
        embed(inputs.tokenIds, this.#dense(op.weight), op.scale, make(op.out));
        break;
      case 'addPosition':
        addPosition(read(op.x), this.#dense(op.weight), places.positions, op.offset);
        break;
      case 'rmsNorm':
        rmsNorm(read(op.in), make(op.out), this.#vector(op.weight), op);
        break;
      case 'layerNorm':
        layerNorm(read(op.in), make(op.out), this.#vector(op.weight), {
          bias: this.#optional(op.bias),
          eps: op.eps,
        });
        break;
      case 'linear':
        linear(read(op.in), this.#dense(op.weight), this.#optional(op.bias), make(op.out));
        break;
      case 'rope':
        rope(read(op.x), places.positions, op, op.table);
        break;
      case 'kvWrite':
        kvWrite(
          read(op.k),
          read(op.v),
          { layer: op.layer, group: this.#layout.layerPlace[op.layer].group },
          places,
          inputs.cache,
        );
        break;
      case 'attention': {
        const { numKvHeads, headDim, window } = this.#program.kvLayers[op.layer];
        const { group } = this.#layout.layerPlace[op.layer];
        attention(read(op.q), make(op.out), { ...op, numKvHeads, headDim, window, group }, places, inputs.cache);
        break;
      }
      case 'gatedActivation':
        gatedActivation(read(op.gate), read(op.up), make(op.out), op.activation);
        break;
      case 'activation':
        activation(read(op.in), make(op.out), op.activation);
        break;
      case 'add':
        add(read(op.a), read(op.b), make(op.out));
        break;
      case 'selectRows':
        selectRows(read(op.in), inputs.logitTokens, make(op.out));
        break;
      case 'moe':
        moe(read(op.in), make(op.out), op, this.#moeWeights(op));
        break;
      case 'softcap':
        softcap(read(op.x), op.cap);
        break;
      default:
        op satisfies never;
    }
  }

  #vector(ref: WeightRef): Float32Array {
    const data = this.#weights.get(ref.name);
    if (!data || data.length !== ref.rows * ref.cols)
      throw new PagodaError('internal', `Weight ${ref.name} is missing or has the wrong size.`);
    return data;
  }

  #optional(ref: WeightRef | null): Float32Array | null {
    return ref ? this.#vector(ref) : null;
  }

  #dense(ref: WeightRef): DenseWeight {
    return { data: this.#vector(ref), rows: ref.rows, cols: ref.cols };
  }

  #moeWeights(op: MoeOp): MoeWeights {
    const { shared } = op;
    return {
      router: this.#dense(op.router),
      gate: this.#dense(op.gate),
      up: this.#dense(op.up),
      down: this.#dense(op.down),
      shared: shared && {
        gate: this.#dense(shared.gate),
        up: this.#dense(shared.up),
        down: this.#dense(shared.down),
        gateWeight: shared.gateWeight ? this.#dense(shared.gateWeight) : null,
      },
    };
  }
}

function embed(tokenIds: Int32Array, weight: DenseWeight, scale: number, out: Matrix): void {
  for (let t = 0; t < tokenIds.length; t++) {
    const start = tokenIds[t] * weight.cols;
    for (let i = 0; i < weight.cols; i++) out.data[t * weight.cols + i] = weight.data[start + i] * scale;
  }
}

function addPosition(x: Matrix, weight: DenseWeight, positions: Int32Array, offset: number): void {
  for (let t = 0; t < x.numRows; t++) {
    const row = positions[t] + offset;
    if (row >= weight.rows)
      throw new PagodaError(
        'context_length_exceeded',
        `Position ${positions[t]} is beyond the ${weight.rows - offset} learned positions.`,
      );
    for (let i = 0; i < x.cols; i++) x.data[t * x.cols + i] += weight.data[row * x.cols + i];
  }
}

function selectRows(x: Matrix, rows: Int32Array, out: Matrix): void {
  for (let r = 0; r < rows.length; r++)
    out.data.set(x.data.subarray(rows[r] * x.cols, (rows[r] + 1) * x.cols), r * x.cols);
}

function lastUses(program: Program): Int32Array {
  const lastUse = new Int32Array(program.numValues);
  program.ops.forEach((op, index) => {
    for (const field of Object.values(op)) {
      if (isValue(field)) lastUse[field.id] = index;
    }
  });
  return lastUse;
}

function isValue(field: unknown): field is Value {
  return typeof field === 'object' && field !== null && 'id' in field && 'rows' in field;
}

/** Buffers of values that nobody reads any more, by length. */
class BufferPool {
  readonly #free = new Map<number, Float32Array[]>();

  take(length: number): Float32Array {
    return this.#free.get(length)?.pop() ?? new Float32Array(length);
  }

  give(buffer: Float32Array): void {
    const same = this.#free.get(buffer.length);
    if (same) same.push(buffer);
    else this.#free.set(buffer.length, [buffer]);
  }
}
