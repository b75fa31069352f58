// Gemma 2: norms before and after each part, logits of attention and of the vocabulary capped by tanh, every other layer with a
// sliding window, embeddings scaled by the root of their width (arXiv 2408.00118).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import type { ConfigReader } from './config-reader.ts';
import { ggufDecoder, hfDecoder, listedWindows, slidingWindow } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { weightsOf } from './layer-weights.ts';
import { LLAMA_NAMES } from './llama.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { ropeTable } from './rope.ts';
import {
  ggufSpecs,
  type HfNames,
  hfName,
  hfSpecs,
  type WeightName,
  type WeightRefShape,
  type WeightSource,
} from './weight-specs.ts';

export const GEMMA_NAMES: HfNames = {
  ...LLAMA_NAMES,
  parts: {
    ...LLAMA_NAMES.parts,
    post_attention_norm: 'post_attention_layernorm',
    ffn_norm: 'pre_feedforward_layernorm',
    post_ffw_norm: 'post_feedforward_layernorm',
  },
};

export const gemma2: ModelFamily = {
  name: 'gemma2',
  hfArchitectures: ['Gemma2ForCausalLM'],
  hfModelTypes: ['gemma2'],
  ggufArchitectures: ['gemma2'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = gemma2Program(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf'
      ? ggufSpecs(program, checkpoint)
      : hfSpecs(program, checkpoint, GEMMA_NAMES, (name, ref) => gemmaNorm(GEMMA_NAMES, name, ref));
  },
  program: gemma2Program,
};

/** safetensors hold the norms as w where the model multiplies by 1 + w. GGUF holds 1 + w. */
export function gemmaNorm(names: HfNames, name: WeightName, ref: WeightRefShape): WeightSource | null {
  if (!name.part.endsWith('norm')) return null;
  return { pieces: [{ tensor: hfName(names, name), rowStart: 0, numRows: ref.cols }], addOne: true };
}

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'gemma2',
    tieEmbeddings: true,
    keys: { defaultHeadDim: 256, defaultMaxPositions: 8192 },
    activationKeys: ['hidden_activation'],
    activation: 'geluTanh',
  });
  const window = slidingWindow(reader, 4096);
  const attentionBias = reader.boolean('attention_bias', false);
  return modelConfig({
    ...fields,
    windows: listedWindows(reader, fields.numLayers, window) ?? everyOther(fields.numLayers, window),
    attentionScale: 1 / Math.sqrt(reader.number('query_pre_attn_scalar', { min: 1e-6, fallback: 256 })),
    attentionSoftcap: cap(reader, 'attn_logit_softcapping', 50),
    finalSoftcap: cap(reader, 'final_logit_softcapping', 30),
    embeddingScale: Math.fround(Math.sqrt(fields.hiddenSize)),
    attentionBias,
    outputBias: attentionBias,
  });
}

/** Null means no cap; an absent key means the family's. */
export function cap(reader: ConfigReader, key: string, whenAbsent: number): number {
  return reader.raw(key) === null ? 0 : reader.number(key, { min: 0, fallback: whenAbsent });
}

/** Layers of the 27B model, the only one whose queries are scaled by hidden / heads instead of the head size. */
const LAYERS_OF_27B = 46;

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = ggufDecoder(checkpoint, { architecture: 'gemma2', activation: 'geluTanh' });
  const queryScalar = fields.numLayers === LAYERS_OF_27B ? fields.hiddenSize / fields.numHeads : fields.headDim;
  return modelConfig({
    ...fields,
    windows: everyOther(
      fields.numLayers,
      reader.int('attention.sliding_window', { min: 0, max: 2 ** 31 - 1, fallback: 4096 }),
    ),
    attentionScale: 1 / Math.sqrt(queryScalar),
    attentionSoftcap: reader.number('attn_logit_softcapping', { min: 0, fallback: 50 }),
    finalSoftcap: reader.number('final_logit_softcapping', { min: 0, fallback: 30 }),
    embeddingScale: Math.fround(Math.sqrt(fields.hiddenSize)),
  });
}

/** Layers 0, 2, 4, ... slide. */
function everyOther(numLayers: number, window: number): number[] {
  return Array.from({ length: numLayers }, (_, layer) => (layer % 2 === 0 ? window : 0));
}

function gemma2Program(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, rotaryDim, intermediateSize, vocabSize, normEps } = config;
  const qCols = numHeads * headDim;
  const kvCols = numKvHeads * headDim;
  const table = ropeTable({ theta: config.ropeTheta, rotaryDim, scaling: config.ropeScaling, maxModelLen });
  const rope = { headDim, rotaryDim, style: config.ropeStyle };
  const b = new ProgramBuilder();
  const top = weightsOf(null);
  const embedding = top.matrix('token_embd', vocabSize, hiddenSize);

  let hidden = b.embed(embedding, config.embeddingScale); // [T, hidden]
  for (let layer = 0; layer < config.numLayers; layer++) {
    const w = weightsOf(layer);
    const x = b.rmsNorm(hidden, w.vector('attn_norm', hiddenSize), normEps); // [T, hidden]
    const q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_q', qCols)); // [T, heads * headDim]
    const k = b.linear(x, w.matrix('attn_k', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_k', kvCols)); // [T, kvHeads * headDim]
    const v = b.linear(x, w.matrix('attn_v', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_v', kvCols)); // [T, kvHeads * headDim]
    b.rope(q, { numHeads, ...rope }, table); // [T, heads * headDim]
    b.rope(k, { numHeads: numKvHeads, ...rope }, table); // [T, kvHeads * headDim]
    const kvLayer = { numKvHeads, headDim, window: config.windows[layer] };
    const heads = b.attention(q, k, v, kvLayer, {
      numHeads,
      scale: config.attentionScale,
      softcap: config.attentionSoftcap,
    }); // [T, heads * headDim]
    const mixed = b.linear(
      heads,
      w.matrix('attn_output', hiddenSize, qCols),
      w.biasIf(config.outputBias, 'attn_output', hiddenSize),
    ); // [T, hidden]
    hidden = b.add(hidden, b.rmsNorm(mixed, w.vector('post_attention_norm', hiddenSize), normEps)); // [T, hidden]
    const y = b.rmsNorm(hidden, w.vector('ffn_norm', hiddenSize), normEps); // [T, hidden]
    const gate = b.linear(y, w.matrix('ffn_gate', intermediateSize, hiddenSize)); // [T, intermediate]
    const up = b.linear(y, w.matrix('ffn_up', intermediateSize, hiddenSize)); // [T, intermediate]
    const inner = b.gatedActivation(gate, up, config.activation); // [T, intermediate]
    const down = b.linear(inner, w.matrix('ffn_down', hiddenSize, intermediateSize)); // [T, hidden]
    hidden = b.add(hidden, b.rmsNorm(down, w.vector('post_ffw_norm', hiddenSize), normEps)); // [T, hidden]
  }
  const rows = b.selectRows(hidden); // [R, hidden]
  const last = b.rmsNorm(rows, top.vector('output_norm', hiddenSize), normEps); // [R, hidden]
  const logits = b.linear(last, config.tieEmbeddings ? embedding : top.matrix('output', vocabSize, hiddenSize)); // [R, vocabulary]
  if (config.finalSoftcap > 0) b.softcap(logits, config.finalSoftcap); // [R, vocabulary]
  b.sample(logits);
  return b.build(hiddenSize, vocabSize);
}
