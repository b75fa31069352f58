// GPT-NeoX and Pythia: LayerNorm, a part of each head rotates, attention and MLP usually read the same input; q, k and v of a
// head lie side by side in one matrix (arXiv 2204.06745).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufDecoder, hfDecoder } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { ropeTable } from './rope.ts';
import { fusedQkv, ggufSpecs, type HfNames, hfSpecs, type WeightName, type WeightSource } from './weight-specs.ts';

const NAMES: HfNames = {
  layers: 'gpt_neox.layers.',
  parts: {
    token_embd: 'gpt_neox.embed_in',
    output_norm: 'gpt_neox.final_layer_norm',
    output: 'embed_out',
    attn_norm: 'input_layernorm',
    attn_output: 'attention.dense',
    ffn_norm: 'post_attention_layernorm',
    ffn_up: 'mlp.dense_h_to_4h',
    ffn_down: 'mlp.dense_4h_to_h',
  },
};

export const gptNeox: ModelFamily = {
  name: 'gpt_neox',
  hfArchitectures: ['GPTNeoXForCausalLM'],
  hfModelTypes: ['gpt_neox'],
  ggufArchitectures: ['gptneox'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = gptNeoxProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf'
      ? ggufSpecs(program, checkpoint, (name) => fusedQkv(checkpoint, config, name))
      : hfSpecs(program, checkpoint, NAMES, (name) => interleavedQkv(config, name));
  },
  program: gptNeoxProgram,
};

/** Rows of query_key_value: head 0 q, head 0 k, head 0 v, head 1 q, ... */
function interleavedQkv({ numHeads, headDim }: ModelConfig, { layer, part, kind }: WeightName): WeightSource | null {
  const third = ['attn_q', 'attn_k', 'attn_v'].indexOf(part);
  if (third < 0) return null;
  const tensor = `gpt_neox.layers.${layer}.attention.query_key_value.${kind}`;
  return {
    pieces: Array.from({ length: numHeads }, (_, head) => ({
      tensor,
      rowStart: (3 * head + third) * headDim,
      numRows: headDim,
    })),
  };
}

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'gpt_neox',
    tieEmbeddings: false,
    partialFactor: 0.25,
    normEpsKeys: ['layer_norm_eps'],
    normEps: 1e-5,
    activation: 'gelu',
  });
  const attentionBias = reader.boolean('attention_bias', true);
  return modelConfig({
    ...fields,
    attentionBias,
    outputBias: attentionBias,
    mlpBias: true,
    parallelResidual: reader.boolean('use_parallel_residual', true),
  });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = ggufDecoder(checkpoint, {
    architecture: 'gpt_neox',
    activation: 'gelu',
    normEpsKey: 'attention.layer_norm_epsilon',
  });
  const attentionBias = checkpoint.tensors.has('blk.0.attn_output.bias');
  return modelConfig({
    ...fields,
    attentionBias,
    outputBias: attentionBias,
    mlpBias: true,
    parallelResidual: reader.boolean('use_parallel_residual', true),
  });
}

function gptNeoxProgram(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, rotaryDim, intermediateSize, vocabSize, normEps } = config;
  const qCols = numHeads * headDim;
  const table = ropeTable({ theta: config.ropeTheta, rotaryDim, scaling: config.ropeScaling, maxModelLen });
  const rope = { numHeads, headDim, rotaryDim, style: config.ropeStyle };
  const b = new ProgramBuilder();
  const top = weightsOf(null);
  const embedding = top.matrix('token_embd', vocabSize, hiddenSize);

  let hidden = b.embed(embedding); // [T, hidden]
  for (let layer = 0; layer < config.numLayers; layer++) {
    const w = weightsOf(layer);
    const x = b.layerNorm(hidden, w.vector('attn_norm', hiddenSize), w.bias('attn_norm', hiddenSize), normEps); // [T, hidden]
    const q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_q', qCols)); // [T, heads * headDim]
    const k = b.linear(x, w.matrix('attn_k', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_k', qCols)); // [T, heads * headDim]
    const v = b.linear(x, w.matrix('attn_v', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_v', qCols)); // [T, heads * headDim]
    b.rope(q, rope, table); // [T, heads * headDim]
    b.rope(k, rope, table); // [T, heads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, { numHeads, scale: config.attentionScale }); // [T, heads * headDim]
    const mixed = b.linear(
      heads,
      w.matrix('attn_output', hiddenSize, qCols),
      w.biasIf(config.outputBias, 'attn_output', hiddenSize),
    ); // [T, hidden]
    const between = b.add(hidden, mixed); // [T, hidden]
    const y = b.layerNorm(
      config.parallelResidual ? hidden : between,
      w.vector('ffn_norm', hiddenSize),
      w.bias('ffn_norm', hiddenSize),
      normEps,
    ); // [T, hidden]
    const up = b.linear(y, w.matrix('ffn_up', intermediateSize, hiddenSize), w.bias('ffn_up', intermediateSize)); // [T, intermediate]
    const inner = b.activation(up, config.activation); // [T, intermediate]
    hidden = b.add(
      between,
      b.linear(inner, w.matrix('ffn_down', hiddenSize, intermediateSize), w.bias('ffn_down', hiddenSize)),
    ); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.layerNorm(rows, top.vector('output_norm', hiddenSize), top.bias('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
