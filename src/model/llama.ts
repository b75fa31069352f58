// Llama 1, 2 and 3, SmolLM2, and everything else that stores itself as `llama`: RMSNorm, rotary positions, grouped-query
// attention, gated MLP. Mistral is the same with a sliding window (arXiv 2302.13971, 2307.09288, 2310.06825, 2407.21783).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufDecoder, hfDecoder, slidingWindow } from './decoder-fields.ts';
import { modelConfig, uniformWindows } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { ropeTable } from './rope.ts';
import { ggufSpecs, type HfNames, hfSpecs } from './weight-specs.ts';

/** Names that Llama gave its weights and that most later models kept. */
export const LLAMA_NAMES: HfNames = {
  layers: 'model.layers.',
  parts: {
    token_embd: 'model.embed_tokens',
    output_norm: 'model.norm',
    output: 'lm_head',
    attn_norm: 'input_layernorm',
    attn_q: 'self_attn.q_proj',
    attn_k: 'self_attn.k_proj',
    attn_v: 'self_attn.v_proj',
    attn_q_norm: 'self_attn.q_norm',
    attn_k_norm: 'self_attn.k_norm',
    attn_output: 'self_attn.o_proj',
    ffn_norm: 'post_attention_layernorm',
    ffn_gate: 'mlp.gate_proj',
    ffn_up: 'mlp.up_proj',
    ffn_down: 'mlp.down_proj',
  },
};

export const llama: ModelFamily = {
  name: 'llama',
  hfArchitectures: ['LlamaForCausalLM', 'LLaMAForCausalLM', 'MistralForCausalLM'],
  hfModelTypes: ['llama', 'mistral'],
  ggufArchitectures: ['llama'],
  accepts: (checkpoint) => checkpoint.format !== 'gguf' || !checkpoint.metadata.has('llama.expert_count'),
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = llamaProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf' ? ggufSpecs(program, checkpoint) : hfSpecs(program, checkpoint, LLAMA_NAMES);
  },
  program: llamaProgram,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, { architecture: 'llama', tieEmbeddings: false });
  const isMistral = reader.raw('model_type') === 'mistral';
  const attentionBias = reader.boolean('attention_bias', false);
  return modelConfig({
    ...fields,
    architecture: isMistral ? 'mistral' : 'llama',
    windows: uniformWindows(fields.numLayers, isMistral ? slidingWindow(reader, 4096) : 0),
    attentionBias,
    outputBias: attentionBias,
    mlpBias: reader.boolean('mlp_bias', false),
  });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  // GGUF stores the rows of q and k so that neighbours rotate together.
  const { reader, fields } = ggufDecoder(checkpoint, {
    architecture: 'llama',
    activation: 'silu',
    ropeStyle: 'interleaved',
  });
  return modelConfig({
    ...fields,
    windows: uniformWindows(
      fields.numLayers,
      reader.int('attention.sliding_window', { min: 0, max: 2 ** 31 - 1, fallback: 0 }),
    ),
    attentionBias: checkpoint.tensors.has('blk.0.attn_q.bias'),
    outputBias: checkpoint.tensors.has('blk.0.attn_output.bias'),
    mlpBias: checkpoint.tensors.has('blk.0.ffn_gate.bias'),
  });
}

export function llamaProgram(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
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
    const x = b.rmsNorm(hidden, w.vector('attn_norm', hiddenSize), normEps); // [T, hidden]
    const q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_q', qCols)); // [T, heads * headDim]
    const k = b.linear(x, w.matrix('attn_k', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_k', kvCols)); // [T, kvHeads * headDim]
    const v = b.linear(x, w.matrix('attn_v', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_v', kvCols)); // [T, kvHeads * headDim]
    b.rope(q, { numHeads, ...rope }, table); // [T, heads * headDim]
    b.rope(k, { numHeads: numKvHeads, ...rope }, table); // [T, kvHeads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, { numHeads, scale: config.attentionScale }); // [T, heads * headDim]
    const mixed = b.linear(
      heads,
      w.matrix('attn_output', hiddenSize, qCols),
      w.biasIf(config.outputBias, 'attn_output', hiddenSize),
    ); // [T, hidden]
    hidden = b.add(hidden, mixed); // [T, hidden]
    const y = b.rmsNorm(hidden, w.vector('ffn_norm', hiddenSize), normEps); // [T, hidden]
    const gate = b.linear(
      y,
      w.matrix('ffn_gate', intermediateSize, hiddenSize),
      w.biasIf(config.mlpBias, 'ffn_gate', intermediateSize),
    ); // [T, intermediate]
    const up = b.linear(
      y,
      w.matrix('ffn_up', intermediateSize, hiddenSize),
      w.biasIf(config.mlpBias, 'ffn_up', intermediateSize),
    ); // [T, intermediate]
    const inner = b.gatedActivation(gate, up, config.activation); // [T, intermediate]
    const down = b.linear(
      inner,
      w.matrix('ffn_down', hiddenSize, intermediateSize),
      w.biasIf(config.mlpBias, 'ffn_down', hiddenSize),
    ); // [T, hidden]
    hidden = b.add(hidden, down); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.rmsNorm(rows, top.vector('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
