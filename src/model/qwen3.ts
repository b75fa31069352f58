// Qwen 3: Llama with an RMSNorm on every head of q and k before the rotation, and no biases (arXiv 2505.09388).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufDecoder, hfDecoder } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import { LLAMA_NAMES } from './llama.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { qwenWindows } from './qwen2.ts';
import { ropeTable } from './rope.ts';
import { ggufSpecs, hfSpecs } from './weight-specs.ts';

export const qwen3: ModelFamily = {
  name: 'qwen3',
  hfArchitectures: ['Qwen3ForCausalLM'],
  hfModelTypes: ['qwen3'],
  ggufArchitectures: ['qwen3'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = qwen3Program(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf' ? ggufSpecs(program, checkpoint) : hfSpecs(program, checkpoint, LLAMA_NAMES);
  },
  program: qwen3Program,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const keys = { defaultMaxPositions: 32768, defaultHeadDim: qkNormLength(checkpoint) };
  const { reader, fields } = hfDecoder(checkpoint, { architecture: 'qwen3', tieEmbeddings: false, keys });
  const attentionBias = reader.boolean('attention_bias', false);
  return modelConfig({
    ...fields,
    windows: qwenWindows(reader, fields.numLayers),
    attentionBias,
    outputBias: attentionBias,
  });
}

/** The norm of q is as long as a head: the surest source when head_dim is absent. */
export function qkNormLength(checkpoint: Checkpoint): number | null {
  return checkpoint.tensors.get('model.layers.0.self_attn.q_norm.weight')?.shape[0] ?? null;
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { fields } = ggufDecoder(checkpoint, { architecture: 'qwen3', activation: 'silu' });
  return modelConfig(fields);
}

function qwen3Program(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
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
    let q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_q', qCols)); // [T, heads * headDim]
    let k = b.linear(x, w.matrix('attn_k', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_k', kvCols)); // [T, kvHeads * headDim]
    const v = b.linear(x, w.matrix('attn_v', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_v', kvCols)); // [T, kvHeads * headDim]
    q = b.rmsNorm(q, w.vector('attn_q_norm', headDim), normEps, headDim); // [T, heads * headDim], each head on its own
    k = b.rmsNorm(k, w.vector('attn_k_norm', headDim), normEps, headDim); // [T, kvHeads * headDim], each head on its own
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
    const gate = b.linear(y, w.matrix('ffn_gate', intermediateSize, hiddenSize)); // [T, intermediate]
    const up = b.linear(y, w.matrix('ffn_up', intermediateSize, hiddenSize)); // [T, intermediate]
    const inner = b.gatedActivation(gate, up, config.activation); // [T, intermediate]
    hidden = b.add(hidden, b.linear(inner, w.matrix('ffn_down', hiddenSize, intermediateSize))); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.rmsNorm(rows, top.vector('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
