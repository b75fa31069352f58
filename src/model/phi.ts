// Phi 1, 1.5 and 2: one LayerNorm per layer whose result attention and MLP both read, biases everywhere, a part of each head
// rotates (arXiv 2309.05463).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { ggufDecoder, hfDecoder } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { ropeTable } from './rope.ts';
import { fusedQkv, ggufSpecs, type HfNames, hfSpecs } from './weight-specs.ts';

const NAMES: HfNames = {
  layers: 'model.layers.',
  parts: {
    token_embd: 'model.embed_tokens',
    output_norm: 'model.final_layernorm',
    output: 'lm_head',
    attn_norm: 'input_layernorm',
    attn_q: 'self_attn.q_proj',
    attn_k: 'self_attn.k_proj',
    attn_v: 'self_attn.v_proj',
    attn_output: 'self_attn.dense',
    ffn_up: 'mlp.fc1',
    ffn_down: 'mlp.fc2',
  },
};

export const phi: ModelFamily = {
  name: 'phi',
  hfArchitectures: ['PhiForCausalLM'],
  hfModelTypes: ['phi'],
  ggufArchitectures: ['phi2'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = phiProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf'
      ? ggufSpecs(program, checkpoint, (name) => fusedQkv(checkpoint, config, name))
      : hfSpecs(program, checkpoint, NAMES);
  },
  program: phiProgram,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'phi',
    tieEmbeddings: false,
    partialFactor: 0.5,
    normEpsKeys: ['layer_norm_eps'],
    normEps: 1e-5,
    activation: 'geluTanh',
  });
  if (reader.boolean('qk_layernorm', false))
    throw new PagodaError('unsupported', 'Phi with qk_layernorm is not supported.');
  return modelConfig({ ...fields, attentionBias: true, outputBias: true, mlpBias: true, parallelResidual: true });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { fields } = ggufDecoder(checkpoint, {
    architecture: 'phi',
    activation: 'geluTanh',
    normEpsKey: 'attention.layer_norm_epsilon',
  });
  return modelConfig({ ...fields, attentionBias: true, outputBias: true, mlpBias: true, parallelResidual: true });
}

function phiProgram(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, rotaryDim, intermediateSize, vocabSize, normEps } = config;
  const qCols = numHeads * headDim;
  const kvCols = numKvHeads * headDim;
  const table = ropeTable({ theta: config.ropeTheta, rotaryDim, scaling: config.ropeScaling, maxModelLen });
  const rope = { headDim, rotaryDim, style: config.ropeStyle };
  const b = new ProgramBuilder();
  const top = weightsOf(null);
  const embedding = top.matrix('token_embd', vocabSize, hiddenSize);

  let hidden = b.embed(embedding); // [T, hidden]
  for (let layer = 0; layer < config.numLayers; layer++) {
    const w = weightsOf(layer);
    const x = b.layerNorm(hidden, w.vector('attn_norm', hiddenSize), w.bias('attn_norm', hiddenSize), normEps); // [T, hidden]
    const q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize), w.bias('attn_q', qCols)); // [T, heads * headDim]
    const k = b.linear(x, w.matrix('attn_k', kvCols, hiddenSize), w.bias('attn_k', kvCols)); // [T, kvHeads * headDim]
    const v = b.linear(x, w.matrix('attn_v', kvCols, hiddenSize), w.bias('attn_v', kvCols)); // [T, kvHeads * headDim]
    b.rope(q, { numHeads, ...rope }, table); // [T, heads * headDim]
    b.rope(k, { numHeads: numKvHeads, ...rope }, table); // [T, kvHeads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, { numHeads, scale: config.attentionScale }); // [T, heads * headDim]
    const mixed = b.linear(heads, w.matrix('attn_output', hiddenSize, qCols), w.bias('attn_output', hiddenSize)); // [T, hidden]
    const up = b.linear(x, w.matrix('ffn_up', intermediateSize, hiddenSize), w.bias('ffn_up', intermediateSize)); // [T, intermediate]
    const inner = b.activation(up, config.activation); // [T, intermediate]
    const down = b.linear(inner, w.matrix('ffn_down', hiddenSize, intermediateSize), w.bias('ffn_down', hiddenSize)); // [T, hidden]
    hidden = b.add(hidden, b.add(mixed, down)); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.layerNorm(rows, top.vector('output_norm', hiddenSize), top.bias('output_norm', hiddenSize), normEps); // [R, hidden]
  const output = config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize);
  const logits = b.linear(last, output, top.bias('output', vocabSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
