// Costs against counts made by hand for a small Llama.

import { describe, expect, it } from 'vitest';
import { modelConfig } from '../../../src/model/dimensions.ts';
import { llama } from '../../../src/model/llama.ts';
import { opCost, programMacs, stepShape } from '../../../src/model/op-cost.ts';

const [HIDDEN, INNER, VOCAB, LAYERS] = [32, 48, 40, 3];

function program(windows: number[]) {
  const config = modelConfig({
    architecture: 'llama',
    hiddenSize: HIDDEN,
    numLayers: LAYERS,
    numHeads: 4,
    numKvHeads: 2,
    headDim: 8,
    intermediateSize: INNER,
    vocabSize: VOCAB,
    maxPositions: 64,
    normEps: 1e-5,
    activation: 'silu',
    tieEmbeddings: true,
    windows,
  });
  return llama.program(config, { maxModelLen: 64 });
}

/** Matrices of one layer: q and output, k and v, three of the MLP. */
const LAYER_MACS = 2 * HIDDEN * 32 + 2 * HIDDEN * 16 + 3 * HIDDEN * INNER;

describe('costs', () => {
  it('of a decode step', () => {
    const macs = programMacs(program([0, 0, 0]), stepShape([{ numComputed: 9, numTokens: 1 }], 1));
    expect(macs).toBe(LAYERS * (LAYER_MACS + 2 * 32 * 10) + VOCAB * HIDDEN);
  });

  it('of a prefill step with one row of logits', () => {
    const macs = programMacs(program([0, 0, 0]), stepShape([{ numComputed: 0, numTokens: 6 }], 1));
    expect(macs).toBe(LAYERS * (6 * LAYER_MACS + 2 * 32 * (1 + 2 + 3 + 4 + 5 + 6)) + VOCAB * HIDDEN);
  });

  it('chunks add up to the whole', () => {
    const p = program([0, 4, 0]);
    const whole = programMacs(p, stepShape([{ numComputed: 0, numTokens: 20 }], 1));
    const parts =
      programMacs(p, stepShape([{ numComputed: 0, numTokens: 13 }], 0)) +
      programMacs(p, stepShape([{ numComputed: 13, numTokens: 7 }], 1));
    expect(parts).toBe(whole);
  });

  it('a window bounds attention', () => {
    const shape = stepShape([{ numComputed: 30, numTokens: 1 }], 1);
    expect(programMacs(program([0, 0, 0]), shape) - programMacs(program([0, 5, 0]), shape)).toBe(2 * 32 * (31 - 5));
  });

  it('bytes: every weight once, keys and values of the context', () => {
    const p = program([0, 0, 0]);
    const shape = stepShape([{ numComputed: 9, numTokens: 1 }], 1);
    const costs = p.ops.map((op) => opCost(op, p, shape, { weight: ({ rows, cols }) => 4 * rows * cols, kvHead: 16 }));
    const sum = (pick: (cost: (typeof costs)[number]) => number) =>
      costs.reduce((total, cost) => total + pick(cost), 0);
    const norms = (2 * LAYERS + 1) * HIDDEN;
    expect(sum((cost) => cost.weightBytes)).toBe(4 * (LAYERS * LAYER_MACS + VOCAB * HIDDEN + norms + HIDDEN));
    expect(sum((cost) => cost.kvBytes)).toBe(LAYERS * 2 * 2 * 16 * (1 + 10));
    expect(sum((cost) => cost.macs)).toBe(programMacs(p, shape));
    expect(sum((cost) => cost.activationBytes)).toBeGreaterThan(0);
  });
});
