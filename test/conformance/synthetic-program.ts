// A small transformer whose every part can be chosen: the programs of the conformance suite.

import {
  type Activation,
  type MoeOp,
  type Program,
  ProgramBuilder,
  type RopeStyle,
  type Value,
  type WeightRef,
} from '../../src/model/program.ts';
import { ropeTable } from '../../src/model/rope.ts';

export interface SyntheticShape {
  readonly hidden: number;
  readonly inner: number;
  readonly vocab: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  /** One layer each; 0 = global. */
  readonly windows: readonly number[];
  readonly norm: 'rms' | 'layer' | 'layerWithoutBias';
  readonly qkNorm: boolean;
  readonly bias: boolean;
  readonly rope: { readonly style: RopeStyle; readonly rotaryDim: number; readonly magnitude: number } | null;
  readonly positions: { readonly offset: number } | null;
  readonly mlp: 'gated' | 'plain' | 'moe';
  readonly activation: Activation;
  readonly attentionSoftcap: number;
  readonly finalSoftcap: number;
  readonly embeddingScale: number;
  readonly tied: boolean;
  readonly parallel: boolean;
  readonly postNorm: boolean;
  readonly moe: {
    readonly numExperts: number;
    readonly topK: number;
    readonly renormalise: boolean;
    readonly shared: 'none' | 'plain' | 'gated';
  };
  /** Longest sequence, for learned positions. */
  readonly maxPositions: number;
}

export const BASE_SHAPE: SyntheticShape = {
  hidden: 48,
  inner: 80,
  vocab: 101,
  numHeads: 4,
  numKvHeads: 2,
  headDim: 16,
  windows: [0, 0],
  norm: 'rms',
  qkNorm: false,
  bias: false,
  rope: { style: 'half', rotaryDim: 16, magnitude: 1 },
  positions: null,
  mlp: 'gated',
  activation: 'silu',
  attentionSoftcap: 0,
  finalSoftcap: 0,
  embeddingScale: 1,
  tied: false,
  parallel: false,
  postNorm: false,
  moe: { numExperts: 5, topK: 2, renormalise: true, shared: 'none' },
  maxPositions: 1200,
};

export function syntheticProgram(overrides: Partial<SyntheticShape> = {}): Program {
  const s: SyntheticShape = { ...BASE_SHAPE, ...overrides };
  const b = new ProgramBuilder();
  const matrix = (name: string, rows: number, cols: number): WeightRef => ({ name: `${name}.weight`, rows, cols });
  const bias = (name: string, cols: number): WeightRef | null =>
    s.bias ? { name: `${name}.bias`, rows: 1, cols } : null;
  const norm = (x: Value, name: string): Value => {
    const weight = matrix(`${name}_norm`, 1, s.hidden);
    if (s.norm === 'rms') return b.rmsNorm(x, weight, 1e-5);
    return b.layerNorm(
      x,
      weight,
      s.norm === 'layer' ? { name: `${name}_norm.bias`, rows: 1, cols: s.hidden } : null,
      1e-5,
    );
  };
  const linear = (x: Value, name: string, rows: number) => b.linear(x, matrix(name, rows, x.cols), bias(name, rows));
  const embedding = matrix('token_embd', s.vocab, s.hidden);

  let hidden = b.embed(embedding, s.embeddingScale);
  if (s.positions)
    b.addPosition(hidden, matrix('position_embd', s.maxPositions + s.positions.offset, s.hidden), s.positions.offset);
  s.windows.forEach((window, layer) => {
    const name = (part: string) => `blk.${layer}.${part}`;
    const x = norm(hidden, name('attn'));
    let q = linear(x, name('attn_q'), s.numHeads * s.headDim);
    let k = linear(x, name('attn_k'), s.numKvHeads * s.headDim);
    const v = linear(x, name('attn_v'), s.numKvHeads * s.headDim);
    if (s.qkNorm) {
      q = b.rmsNorm(q, matrix(name('attn_q_norm'), 1, s.headDim), 1e-6, s.headDim);
      k = b.rmsNorm(k, matrix(name('attn_k_norm'), 1, s.headDim), 1e-6, s.headDim);
    }
    if (s.rope) {
      const { style, rotaryDim, magnitude } = s.rope;
      const table = {
        ...ropeTable({ theta: 10000, rotaryDim, scaling: null, maxModelLen: s.maxPositions }),
        magnitude,
      };
      b.rope(q, { numHeads: s.numHeads, headDim: s.headDim, rotaryDim, style }, table);
      b.rope(k, { numHeads: s.numKvHeads, headDim: s.headDim, rotaryDim, style }, table);
    }
    const kvLayer = { numKvHeads: s.numKvHeads, headDim: s.headDim, window };
    const heads = b.attention(q, k, v, kvLayer, {
      numHeads: s.numHeads,
      scale: 1.3 / Math.sqrt(s.headDim),
      softcap: s.attentionSoftcap,
    });
    let mixed = linear(heads, name('attn_output'), s.hidden);
    if (s.postNorm) mixed = norm(mixed, name('post_attention'));
    const between = b.add(hidden, mixed);
    const y = norm(s.parallel ? hidden : between, name('ffn'));
    let out = mlp(y, layer);
    if (s.postNorm) out = norm(out, name('post_ffw'));
    hidden = b.add(between, out);
  });
  const last = norm(b.selectRows(hidden), 'output');
  const logits = b.linear(last, s.tied ? embedding : matrix('output', s.vocab, s.hidden), bias('output', s.vocab));
  if (s.finalSoftcap > 0) b.softcap(logits, s.finalSoftcap);
  b.sample(logits);
  return b.build(s.hidden, s.vocab);

  function mlp(y: Value, layer: number): Value {
    const name = (part: string) => `blk.${layer}.${part}`;
    if (s.mlp === 'moe') return b.moe(y, moeOp(layer));
    const up = linear(y, name('ffn_up'), s.inner);
    const inner =
      s.mlp === 'plain'
        ? b.activation(up, s.activation)
        : b.gatedActivation(linear(y, name('ffn_gate'), s.inner), up, s.activation);
    return linear(inner, name('ffn_down'), s.hidden);
  }

  function moeOp(layer: number): Omit<MoeOp, 'kind' | 'in' | 'out'> {
    const { numExperts, topK, renormalise, shared } = s.moe;
    const name = (part: string) => `blk.${layer}.${part}`;
    const sharedCols = s.inner / 2;
    return {
      router: matrix(name('ffn_gate_inp'), numExperts, s.hidden),
      gate: matrix(name('ffn_gate_exps'), numExperts * s.inner, s.hidden),
      up: matrix(name('ffn_up_exps'), numExperts * s.inner, s.hidden),
      down: matrix(name('ffn_down_exps'), numExperts * s.hidden, s.inner),
      numExperts,
      topK,
      expertCols: s.inner,
      renormalise,
      activation: s.activation,
      shared:
        shared === 'none'
          ? null
          : {
              gate: matrix(name('ffn_gate_shexp'), sharedCols, s.hidden),
              up: matrix(name('ffn_up_shexp'), sharedCols, s.hidden),
              down: matrix(name('ffn_down_shexp'), s.hidden, sharedCols),
              cols: sharedCols,
              gateWeight: shared === 'gated' ? matrix(name('ffn_gate_inp_shexp'), 1, s.hidden) : null,
            },
    };
  }
}
