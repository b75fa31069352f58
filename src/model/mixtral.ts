// Mixtral: Mistral with a mixture of experts in place of the MLP; the best two of eight, weights renormalised (arXiv 2401.04088).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufDecoder, hfDecoder, slidingWindow } from './decoder-fields.ts';
import { modelConfig, uniformWindows } from './dimensions.ts';
import { expertCounts, ggufExperts, hfExperts, moeLayer } from './experts.ts';
import { weightsOf } from './layer-weights.ts';
import { LLAMA_NAMES } from './llama.ts';
import type { ModelConfig, MoeConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { ropeTable } from './rope.ts';
import { ggufSpecs, type HfNames, hfSpecs } from './weight-specs.ts';

const NAMES: HfNames = { ...LLAMA_NAMES, parts: { ...LLAMA_NAMES.parts, ffn_gate_inp: 'block_sparse_moe.gate' } };
const EXPERT_NAMES = { block: 'block_sparse_moe', gate: 'w1', up: 'w3', down: 'w2' };

export const mixtral: ModelFamily = {
  name: 'mixtral',
  hfArchitectures: ['MixtralForCausalLM'],
  hfModelTypes: ['mixtral'],
  ggufArchitectures: ['llama'],
  accepts: (checkpoint) => checkpoint.format !== 'gguf' || checkpoint.metadata.has('llama.expert_count'),
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = mixtralProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf'
      ? ggufSpecs(program, checkpoint, (name, ref) => ggufExperts(checkpoint, config, name, ref))
      : hfSpecs(program, checkpoint, NAMES, (name) => hfExperts(checkpoint, config, name, EXPERT_NAMES));
  },
  program: mixtralProgram,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const keys = { defaultMaxPositions: 131072 };
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'mixtral',
    tieEmbeddings: false,
    keys,
    theta: 1e6,
    normEps: 1e-5,
  });
  const counts = expertCounts(reader, {
    experts: ['num_local_experts', 'num_experts'],
    topK: 'num_experts_per_tok',
    defaults: { numExperts: 8, topK: 2 },
  });
  return modelConfig({
    ...fields,
    windows: uniformWindows(fields.numLayers, slidingWindow(reader, 0)),
    moe: everyLayer(fields.numLayers, fields.intermediateSize, counts),
  });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = ggufDecoder(checkpoint, {
    architecture: 'mixtral',
    activation: 'silu',
    ropeStyle: 'interleaved',
  });
  const counts = expertCounts(reader, { experts: ['expert_count'], topK: 'expert_used_count' });
  return modelConfig({ ...fields, moe: everyLayer(fields.numLayers, fields.intermediateSize, counts) });
}

function everyLayer(
  numLayers: number,
  expertIntermediateSize: number,
  counts: { numExperts: number; topK: number },
): MoeConfig {
  const isMoeLayer = new Array<boolean>(numLayers).fill(true);
  return { ...counts, expertIntermediateSize, sharedIntermediateSize: 0, renormalise: true, isMoeLayer };
}

function mixtralProgram(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, rotaryDim, vocabSize, normEps } = config;
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
    const q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize)); // [T, heads * headDim]
    const k = b.linear(x, w.matrix('attn_k', kvCols, hiddenSize)); // [T, kvHeads * headDim]
    const v = b.linear(x, w.matrix('attn_v', kvCols, hiddenSize)); // [T, kvHeads * headDim]
    b.rope(q, { numHeads, ...rope }, table); // [T, heads * headDim]
    b.rope(k, { numHeads: numKvHeads, ...rope }, table); // [T, kvHeads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, { numHeads, scale: config.attentionScale }); // [T, heads * headDim]
    hidden = b.add(hidden, b.linear(heads, w.matrix('attn_output', hiddenSize, qCols))); // [T, hidden]
    const y = b.rmsNorm(hidden, w.vector('ffn_norm', hiddenSize), normEps); // [T, hidden]
    hidden = b.add(hidden, b.moe(y, moeLayer(w, config, config.moe as MoeConfig))); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.rmsNorm(rows, top.vector('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
