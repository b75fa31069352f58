// GPT-2: learned positions, LayerNorm before each part, plain MLP, biases everywhere; its linear weights are stored transposed
// (Radford et al. 2019).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { hfReader } from './config-reader.ts';
import { ggufDecoder, hfDecoder } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import {
  fusedQkv,
  ggufSpecs,
  type HfNames,
  hfName,
  hfSpecs,
  type WeightName,
  type WeightRefShape,
  type WeightSource,
} from './weight-specs.ts';

export const gpt2: ModelFamily = {
  name: 'gpt2',
  hfArchitectures: ['GPT2LMHeadModel'],
  hfModelTypes: ['gpt2'],
  ggufArchitectures: ['gpt2'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = gpt2Program(config);
    if (checkpoint.format === 'gguf')
      return ggufSpecs(program, checkpoint, (name) => fusedQkv(checkpoint, config, name));
    const names = hfNames(checkpoint);
    return hfSpecs(program, checkpoint, names, (name, ref) => transposed(config, names, name, ref));
  },
  program: gpt2Program,
};

/** The first checkpoints have no `transformer.` before the names. */
function hfNames(checkpoint: Checkpoint): HfNames {
  const prefix = checkpoint.tensors.has('wte.weight') ? '' : 'transformer.';
  return {
    layers: `${prefix}h.`,
    parts: {
      token_embd: `${prefix}wte`,
      position_embd: `${prefix}wpe`,
      output_norm: `${prefix}ln_f`,
      output: 'lm_head',
      attn_norm: 'ln_1',
      attn_qkv: 'attn.c_attn',
      attn_output: 'attn.c_proj',
      ffn_norm: 'ln_2',
      ffn_up: 'mlp.c_fc',
      ffn_down: 'mlp.c_proj',
    },
  };
}

/** Conv1D keeps [inputs, outputs], q, k and v side by side; biases are plain. */
function transposed(
  { hiddenSize }: ModelConfig,
  names: HfNames,
  name: WeightName,
  ref: WeightRefShape,
): WeightSource | null {
  const third = ['attn_q', 'attn_k', 'attn_v'].indexOf(name.part);
  const [part, rowStart] = third < 0 ? [name.part, 0] : ['attn_qkv', third * hiddenSize];
  if (third < 0 && !['attn_output', 'ffn_up', 'ffn_down'].includes(part)) return null;
  const tensor = hfName(names, { ...name, part });
  if (name.kind === 'bias') return { pieces: [{ tensor, rowStart, numRows: ref.cols }] };
  return { pieces: [{ tensor, rowStart, numRows: ref.rows }], transpose: true };
}

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const keys = {
    hiddenSize: 'n_embd',
    numLayers: 'n_layer',
    numHeads: 'n_head',
    intermediateSize: 'n_inner',
    maxPositions: 'n_positions',
  };
  const hiddenSize = hfReader(checkpoint).int('n_embd', { min: 1, max: 1 << 20 });
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'gpt2',
    tieEmbeddings: true,
    keys: { ...keys, defaultIntermediateSize: 4 * hiddenSize, defaultMaxPositions: 1024 },
    normEpsKeys: ['layer_norm_epsilon'],
    normEps: 1e-5,
    activationKeys: ['activation_function'],
    activation: 'geluTanh',
  });
  if (reader.boolean('scale_attn_by_inverse_layer_idx', false)) {
    throw new PagodaError('unsupported', 'GPT-2 with scale_attn_by_inverse_layer_idx is not supported.');
  }
  return modelConfig({
    ...fields,
    ...BIASES,
    attentionScale: reader.boolean('scale_attn_weights', true) ? 1 / Math.sqrt(fields.headDim) : 1,
  });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { fields } = ggufDecoder(checkpoint, {
    architecture: 'gpt2',
    activation: 'geluTanh',
    normEpsKey: 'attention.layer_norm_epsilon',
  });
  return modelConfig({ ...fields, ...BIASES });
}

const BIASES = { attentionBias: true, outputBias: true, mlpBias: true };

function gpt2Program(config: ModelConfig): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, intermediateSize, vocabSize, normEps } = config;
  const b = new ProgramBuilder();
  const top = weightsOf(null);
  const embedding = top.matrix('token_embd', vocabSize, hiddenSize);

  let hidden = b.embed(embedding); // [T, hidden]
  b.addPosition(hidden, top.matrix('position_embd', config.contextLength, hiddenSize)); // [T, hidden]
  for (let layer = 0; layer < config.numLayers; layer++) {
    const w = weightsOf(layer);
    const x = b.layerNorm(hidden, w.vector('attn_norm', hiddenSize), w.bias('attn_norm', hiddenSize), normEps); // [T, hidden]
    const q = b.linear(x, w.matrix('attn_q', hiddenSize, hiddenSize), w.bias('attn_q', hiddenSize)); // [T, heads * headDim]
    const k = b.linear(x, w.matrix('attn_k', hiddenSize, hiddenSize), w.bias('attn_k', hiddenSize)); // [T, heads * headDim]
    const v = b.linear(x, w.matrix('attn_v', hiddenSize, hiddenSize), w.bias('attn_v', hiddenSize)); // [T, heads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, { numHeads, scale: config.attentionScale }); // [T, heads * headDim]
    hidden = b.add(
      hidden,
      b.linear(heads, w.matrix('attn_output', hiddenSize, hiddenSize), w.bias('attn_output', hiddenSize)),
    ); // [T, hidden]
    const y = b.layerNorm(hidden, w.vector('ffn_norm', hiddenSize), w.bias('ffn_norm', hiddenSize), normEps); // [T, hidden]
    const up = b.linear(y, w.matrix('ffn_up', intermediateSize, hiddenSize), w.bias('ffn_up', intermediateSize)); // [T, intermediate]
    const inner = b.activation(up, config.activation); // [T, intermediate]
    hidden = b.add(
      hidden,
      b.linear(inner, w.matrix('ffn_down', hiddenSize, intermediateSize), w.bias('ffn_down', hiddenSize)),
    ); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.layerNorm(rows, top.vector('output_norm', hiddenSize), top.bias('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
