// OPT: learned positions that start at 2, LayerNorm before each part, ReLU, biases everywhere (arXiv 2205.01068). The 350M
// variant, which normalises after each part and projects its embeddings, is refused.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { hfDecoder } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { type HfNames, hfSpecs } from './weight-specs.ts';

/** Rows of the position table before that of position 0. */
const POSITION_OFFSET = 2;

export const opt: ModelFamily = {
  name: 'opt',
  hfArchitectures: ['OPTForCausalLM'],
  hfModelTypes: ['opt'],
  ggufArchitectures: [],
  config: hfConfig,
  weights: (config, checkpoint) => hfSpecs(optProgram(config), checkpoint, hfNames(checkpoint)),
  program: optProgram,
};

/** Some checkpoints lack `model.` before the names. */
function hfNames(checkpoint: Checkpoint): HfNames {
  const prefix = checkpoint.tensors.has('decoder.embed_tokens.weight') ? 'decoder.' : 'model.decoder.';
  return {
    layers: `${prefix}layers.`,
    parts: {
      token_embd: `${prefix}embed_tokens`,
      position_embd: `${prefix}embed_positions`,
      output_norm: `${prefix}final_layer_norm`,
      output: 'lm_head',
      attn_norm: 'self_attn_layer_norm',
      attn_q: 'self_attn.q_proj',
      attn_k: 'self_attn.k_proj',
      attn_v: 'self_attn.v_proj',
      attn_output: 'self_attn.out_proj',
      ffn_norm: 'final_layer_norm',
      ffn_up: 'fc1',
      ffn_down: 'fc2',
    },
  };
}

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'opt',
    tieEmbeddings: true,
    keys: { intermediateSize: 'ffn_dim' },
    normEps: 1e-5,
    activationKeys: ['activation_function'],
    activation: 'relu',
  });
  const refuse = (what: string): never => {
    throw new PagodaError('unsupported', `OPT with ${what} is not supported.`);
  };
  if (!reader.boolean('do_layer_norm_before', true)) refuse('do_layer_norm_before = false');
  if (reader.int('word_embed_proj_dim', { min: 1, fallback: fields.hiddenSize }) !== fields.hiddenSize)
    refuse('word_embed_proj_dim other than hidden_size');
  if (reader.boolean('_remove_final_layer_norm', false)) refuse('_remove_final_layer_norm');
  if (!reader.boolean('layer_norm_elementwise_affine', true)) refuse('layer_norm_elementwise_affine = false');
  const bias = reader.boolean('enable_bias', true);
  return modelConfig({ ...fields, attentionBias: bias, outputBias: bias, mlpBias: bias });
}

function optProgram(config: ModelConfig): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, intermediateSize, vocabSize, normEps } = config;
  const b = new ProgramBuilder();
  const top = weightsOf(null);
  const embedding = top.matrix('token_embd', vocabSize, hiddenSize);

  let hidden = b.embed(embedding); // [T, hidden]
  b.addPosition(
    hidden,
    top.matrix('position_embd', config.contextLength + POSITION_OFFSET, hiddenSize),
    POSITION_OFFSET,
  ); // [T, hidden]
  for (let layer = 0; layer < config.numLayers; layer++) {
    const w = weightsOf(layer);
    const x = b.layerNorm(hidden, w.vector('attn_norm', hiddenSize), w.bias('attn_norm', hiddenSize), normEps); // [T, hidden]
    const q = b.linear(
      x,
      w.matrix('attn_q', hiddenSize, hiddenSize),
      w.biasIf(config.attentionBias, 'attn_q', hiddenSize),
    ); // [T, heads * headDim]
    const k = b.linear(
      x,
      w.matrix('attn_k', hiddenSize, hiddenSize),
      w.biasIf(config.attentionBias, 'attn_k', hiddenSize),
    ); // [T, heads * headDim]
    const v = b.linear(
      x,
      w.matrix('attn_v', hiddenSize, hiddenSize),
      w.biasIf(config.attentionBias, 'attn_v', hiddenSize),
    ); // [T, heads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, { numHeads, scale: config.attentionScale }); // [T, heads * headDim]
    const mixed = b.linear(
      heads,
      w.matrix('attn_output', hiddenSize, hiddenSize),
      w.biasIf(config.outputBias, 'attn_output', hiddenSize),
    ); // [T, hidden]
    hidden = b.add(hidden, mixed); // [T, hidden]
    const y = b.layerNorm(hidden, w.vector('ffn_norm', hiddenSize), w.bias('ffn_norm', hiddenSize), normEps); // [T, hidden]
    const up = b.linear(
      y,
      w.matrix('ffn_up', intermediateSize, hiddenSize),
      w.biasIf(config.mlpBias, 'ffn_up', intermediateSize),
    ); // [T, intermediate]
    const inner = b.activation(up, config.activation); // [T, intermediate]
    const down = b.linear(
      inner,
      w.matrix('ffn_down', hiddenSize, intermediateSize),
      w.biasIf(config.mlpBias, 'ffn_down', hiddenSize),
    ); // [T, hidden]
    hidden = b.add(hidden, down); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.layerNorm(rows, top.vector('output_norm', hiddenSize), top.bias('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
