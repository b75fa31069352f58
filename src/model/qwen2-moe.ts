// Qwen 1.5 and 2 MoE: Qwen 2 with mixtures of small experts and one shared expert behind a sigmoid gate (arXiv 2407.10671).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufDecoder, hfDecoder } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import {
  expertCounts,
  ggufExpertSize,
  ggufExperts,
  ggufMoeLayers,
  hfExperts,
  moeLayer,
  qwenMoeLayers,
} from './experts.ts';
import { weightsOf } from './layer-weights.ts';
import { LLAMA_NAMES } from './llama.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { qwenWindows } from './qwen2.ts';
import { ropeTable } from './rope.ts';
import { ggufSpecs, type HfNames, hfSpecs } from './weight-specs.ts';

const NAMES: HfNames = {
  ...LLAMA_NAMES,
  parts: {
    ...LLAMA_NAMES.parts,
    ffn_gate_inp: 'mlp.gate',
    ffn_gate_shexp: 'mlp.shared_expert.gate_proj',
    ffn_up_shexp: 'mlp.shared_expert.up_proj',
    ffn_down_shexp: 'mlp.shared_expert.down_proj',
    ffn_gate_inp_shexp: 'mlp.shared_expert_gate',
  },
};
export const QWEN_EXPERT_NAMES = { block: 'mlp', gate: 'gate_proj', up: 'up_proj', down: 'down_proj' };

export const qwen2Moe: ModelFamily = {
  name: 'qwen2_moe',
  hfArchitectures: ['Qwen2MoeForCausalLM'],
  hfModelTypes: ['qwen2_moe'],
  ggufArchitectures: ['qwen2moe'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = qwen2MoeProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf'
      ? ggufSpecs(program, checkpoint, (name, ref) => ggufExperts(checkpoint, config, name, ref))
      : hfSpecs(program, checkpoint, NAMES, (name) => hfExperts(checkpoint, config, name, QWEN_EXPERT_NAMES));
  },
  program: qwen2MoeProgram,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const keys = { defaultMaxPositions: 32768, defaultIntermediateSize: 5632 };
  const { reader, fields } = hfDecoder(checkpoint, { architecture: 'qwen2_moe', tieEmbeddings: false, keys });
  const counts = expertCounts(reader, {
    experts: ['num_experts', 'num_local_experts'],
    topK: 'num_experts_per_tok',
    defaults: { numExperts: 60, topK: 4 },
  });
  return modelConfig({
    ...fields,
    windows: qwenWindows(reader, fields.numLayers),
    attentionBias: reader.boolean('qkv_bias', true),
    moe: {
      ...counts,
      expertIntermediateSize: reader.int('moe_intermediate_size', { min: 1, fallback: 1408 }),
      sharedIntermediateSize: reader.int('shared_expert_intermediate_size', { min: 1, fallback: 5632 }),
      renormalise: reader.boolean('norm_topk_prob', false),
      isMoeLayer: qwenMoeLayers(reader, fields.numLayers),
    },
  });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = ggufDecoder(checkpoint, { architecture: 'qwen2_moe', activation: 'silu' });
  return modelConfig({
    ...fields,
    attentionBias: checkpoint.tensors.has('blk.0.attn_q.bias'),
    moe: {
      ...expertCounts(reader, { experts: ['expert_count'], topK: 'expert_used_count' }),
      expertIntermediateSize: ggufExpertSize(reader, checkpoint, 'exps'),
      sharedIntermediateSize: ggufExpertSize(reader, checkpoint, 'shexp'),
      renormalise: reader.boolean('expert_weights_norm', false),
      isMoeLayer: ggufMoeLayers(checkpoint, fields.numLayers),
    },
  });
}

function qwen2MoeProgram(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
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
    hidden = b.add(hidden, b.linear(heads, w.matrix('attn_output', hiddenSize, qCols))); // [T, hidden]
    const y = b.rmsNorm(hidden, w.vector('ffn_norm', hiddenSize), normEps); // [T, hidden]
    if (config.moe?.isMoeLayer[layer]) {
      hidden = b.add(hidden, b.moe(y, moeLayer(w, config, config.moe))); // [T, hidden]
    } else {
      const gate = b.linear(y, w.matrix('ffn_gate', intermediateSize, hiddenSize)); // [T, intermediate]
      const up = b.linear(y, w.matrix('ffn_up', intermediateSize, hiddenSize)); // [T, intermediate]
      const inner = b.gatedActivation(gate, up, config.activation); // [T, intermediate]
      hidden = b.add(hidden, b.linear(inner, w.matrix('ffn_down', hiddenSize, intermediateSize))); // [T, hidden]
    }
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.rmsNorm(rows, top.vector('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
