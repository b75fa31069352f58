// The plan of a small Llama-shaped program and of a parallel one: what is fused, what is quantized, how many phases there are.

import { describe, expect, it } from 'vitest';
import { type NativeOp, OP_KINDS } from '../../../../src/device/cpu/addon.ts';
import { lower } from '../../../../src/device/cpu/lower.ts';
import { kvLayout } from '../../../../src/device/kv-layout.ts';
import { type Program, ProgramBuilder, type WeightRef } from '../../../../src/model/program.ts';

const HIDDEN = 64;
const LAYER = { numKvHeads: 2, headDim: 16, window: 0 };
const ROPE = { numHeads: 4, headDim: 16, rotaryDim: 16, style: 'half' } as const;
const TABLE = { inverseFrequencies: [1, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.001], magnitude: 1 };
const matrix = (name: string, rows: number, cols = HIDDEN): WeightRef => ({ name, rows, cols });
const norm = (name: string): WeightRef => ({ name, rows: 1, cols: HIDDEN });

function serialLayers(numLayers: number): Program {
  const b = new ProgramBuilder();
  let x = b.embed(matrix('embd', 100));
  for (let i = 0; i < numLayers; i++) {
    const h = b.rmsNorm(x, norm(`${i}.n1`), 1e-5);
    const q = b.rope(b.linear(h, matrix(`${i}.q`, 64)), ROPE, TABLE);
    const k = b.rope(b.linear(h, matrix(`${i}.k`, 32)), { ...ROPE, numHeads: 2 }, TABLE);
    const v = b.linear(h, matrix(`${i}.v`, 32));
    x = b.add(x, b.linear(b.attention(q, k, v, LAYER, { numHeads: 4, scale: 0.25 }), matrix(`${i}.o`, 64)));
    const g = b.rmsNorm(x, norm(`${i}.n2`), 1e-5);
    const inner = b.gatedActivation(b.linear(g, matrix(`${i}.gate`, 96)), b.linear(g, matrix(`${i}.up`, 96)), 'silu');
    x = b.add(x, b.linear(inner, matrix(`${i}.down`, 64, 96)));
  }
  b.sample(b.linear(b.rmsNorm(b.selectRows(x), norm('n'), 1e-5), matrix('embd', 100)));
  return b.build(HIDDEN, 100);
}

function parallelLayers(numLayers: number): Program {
  const b = new ProgramBuilder();
  let x = b.embed(matrix('embd', 100));
  for (let i = 0; i < numLayers; i++) {
    const h = b.rmsNorm(x, norm(`${i}.n1`), 1e-5);
    const attention = b.attention(
      b.linear(h, matrix(`${i}.q`, 64)),
      b.linear(h, matrix(`${i}.k`, 32)),
      b.linear(h, matrix(`${i}.v`, 32)),
      LAYER,
      { numHeads: 4, scale: 0.25 },
    );
    const mixed = b.linear(attention, matrix(`${i}.o`, 64));
    const inner = b.activation(b.linear(h, matrix(`${i}.up`, 96)), 'gelu');
    x = b.add(b.add(mixed, b.linear(inner, matrix(`${i}.down`, 64, 96))), x);
  }
  b.sample(b.linear(b.selectRows(x), matrix('embd', 100)));
  return b.build(HIDDEN, 100);
}

function plan(program: Program, int8: boolean) {
  const limits = { maxTokens: 8, maxSeqs: 2, maxModelLen: 32 };
  const names: string[] = [];
  const weightIndex = (name: string) => {
    if (!names.includes(name)) names.push(name);
    return names.indexOf(name);
  };
  return lower({
    program,
    kv: kvLayout(program, 'f16', 16),
    limits,
    weightIndex,
    rowForm: () => (int8 ? 'int8' : 'float'),
    int8,
  });
}

const kind = (op: NativeOp) => OP_KINDS[op.kind];
const numPhases = (ops: readonly NativeOp[]) => ops.at(-1)!.phase + 1;

describe('lower', () => {
  it('adds residuals inside the products', () => {
    const { ops } = plan(serialLayers(2), true);
    expect(ops.filter((op) => kind(op) === 'add')).toEqual([]);
    const fused = ops.filter((op) => op.accumulate);
    expect(fused.length).toBe(4);
    // The first layer's add into the buffer that the embedding wrote, the last one's into the rows selected from it.
    const selected = ops.find((op) => kind(op) === 'selectRows' && op.in === ops[0].out)!.out;
    expect(fused.map((op) => op.out)).toEqual([ops[0].out, ops[0].out, selected, selected]);
  });

  it('quantizes each input of products once', () => {
    const { ops } = plan(serialLayers(1), true);
    expect(ops.filter((op) => kind(op) === 'quantize').length).toBe(5);
    for (const op of ops.filter((each) => kind(each) === 'linear')) {
      expect(op.q).toBeDefined();
      expect(op.in).toBeUndefined();
    }
    expect(plan(serialLayers(1), false).ops.some((op) => kind(op) === 'quantize' || op.q !== undefined)).toBe(false);
  });

  it('computes the best logits again where the output layer is in int8, before anything else looks at them', () => {
    const { ops } = plan(serialLayers(1), true);
    const again = ops.filter((op) => kind(op) === 'rescore');
    const output = ops.filter((op) => kind(op) === 'linear').at(-1)!;
    const norm = ops.filter((op) => kind(op) === 'rmsNorm').at(-1)!;
    expect(again.map((op) => [op.in, op.out, op.weight])).toEqual([[norm.out, output.out, output.weight]]);
    expect(ops.indexOf(again[0]!)).toBe(ops.length - 2);
    expect(plan(serialLayers(1), false).ops.some((op) => kind(op) === 'rescore')).toBe(false);
  });

  it('needs ten phases per layer', () => {
    expect(numPhases(plan(serialLayers(3), true).ops) - numPhases(plan(serialLayers(2), true).ops)).toBe(10);
  });

  it('shares one rope table and reuses buffers from layer to layer', () => {
    const few = plan(serialLayers(2), true);
    const many = plan(serialLayers(6), true);
    expect(many.tables.length).toBe(1);
    expect(many.buffers.length).toBe(few.buffers.length);
  });

  it('goes on with nothing but rows that need logits once the last keys and values are written', () => {
    const { ops, buffers } = plan(serialLayers(2), true);
    const written = ops.findLastIndex((op) => kind(op) === 'kvWrite');
    expect(ops.slice(written + 1, written + 4).map(kind)).toEqual(['selectRows', 'selectRows', 'attention']);
    const onTokens = ops.flatMap((op) =>
      op.out !== undefined && !buffers[op.out]!.perLogitRow ? [ops.indexOf(op)] : [],
    );
    expect(Math.max(...onTokens)).toBeLessThan(written);
    expect(ops.filter((op) => kind(op) === 'selectRows').length).toBe(2);
  });

  it('runs both halves of a parallel layer from one norm', () => {
    const { ops } = plan(parallelLayers(2), true);
    // Of each layer one sum is in the product; the other has what the layer began with as its only other part.
    expect(ops.filter((op) => kind(op) === 'add').length).toBe(2);
    expect(ops.filter((op) => op.accumulate).length).toBe(2);
    const first = ops.filter((op) => kind(op) === 'linear')[0].phase;
    expect(ops.filter((op) => op.phase === first).length).toBe(4);
  });

  it('keeps an add whose operands live on', () => {
    const b = new ProgramBuilder();
    const x = b.embed(matrix('embd', 100));
    const y = b.linear(x, matrix('a', 64));
    const sum = b.add(x, y);
    b.sample(b.linear(b.selectRows(b.add(sum, b.rmsNorm(y, norm('n'), 1e-5))), matrix('embd', 100)));
    b.attention(x, b.linear(x, matrix('k', 32)), b.linear(x, matrix('v', 32)), LAYER, { numHeads: 4, scale: 1 });
    const program = b.build(HIDDEN, 100);
    const ops = [...program.ops];
    const sample = ops.findIndex((op) => op.kind === 'sample');
    ops.push(...ops.splice(sample, 1));
    const lowered = plan({ ...program, ops }, false);
    expect(lowered.ops.filter((op) => kind(op) === 'add').length).toBe(2);
  });
});
