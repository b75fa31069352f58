// Gemma 3 (text): Gemma 2 without the caps, with norms on q and k, and five layers of six that slide and rotate with a base of
// their own (arXiv 2503.19786). Of the multi-modal checkpoints the language model is run.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { type ConfigReader, hfReader } from './config-reader.ts';
import { ggufDecoder, hfDecoder, listedWindows, slidingWindow } from './decoder-fields.ts';
import { modelConfig } from './dimensions.ts';
import { cap, GEMMA_NAMES, gemmaNorm } from './gemma2.ts';
import { weightsOf } from './layer-weights.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { type Program, ProgramBuilder } from './program.ts';
import { ropeTable } from './rope.ts';
import { hfRope } from './rope-config.ts';
import { ggufSpecs, type HfNames, hfSpecs } from './weight-specs.ts';

const DEFAULT_PATTERN = 6;
const LOCAL_THETA = 10000;

export const gemma3: ModelFamily = {
  name: 'gemma3',
  hfArchitectures: ['Gemma3ForCausalLM', 'Gemma3ForConditionalGeneration'],
  hfModelTypes: ['gemma3_text', 'gemma3'],
  ggufArchitectures: ['gemma3'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = gemma3Program(config, { maxModelLen: config.contextLength });
    if (checkpoint.format === 'gguf') return ggufSpecs(program, checkpoint);
    const names = textNames(checkpoint);
    return hfSpecs(program, checkpoint, names, (name, ref) => gemmaNorm(names, name, ref));
  },
  program: gemma3Program,
};

/** Multi-modal checkpoints put the language model under a prefix. */
function textNames(checkpoint: Checkpoint): HfNames {
  const prefixes = ['model.', 'language_model.model.', 'model.language_model.'];
  const prefix = prefixes.find((each) => checkpoint.tensors.has(`${each}embed_tokens.weight`)) ?? 'model.';
  return {
    layers: `${prefix}layers.`,
    parts: { ...GEMMA_NAMES.parts, token_embd: `${prefix}embed_tokens`, output_norm: `${prefix}norm` },
  };
}

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const outer = hfReader(checkpoint);
  if (outer.boolean('use_bidirectional_attention', false))
    throw new PagodaError('unsupported', 'Gemma 3 with bidirectional attention (an embedding model) is not supported.');
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'gemma3',
    tieEmbeddings: true,
    keys: {
      defaultHeadDim: 256,
      defaultMaxPositions: 131072,
      defaultHeads: 8,
      defaultKvHeads: 4,
      defaultVocabSize: 262208,
    },
    theta: 1e6,
    activationKeys: ['hidden_activation'],
    activation: 'geluTanh',
  });
  const window = slidingWindow(reader, 4096);
  const pattern = reader.int(['sliding_window_pattern', '_sliding_window_pattern'], {
    min: 1,
    fallback: DEFAULT_PATTERN,
  });
  const attentionBias = reader.boolean('attention_bias', false);
  return modelConfig({
    ...fields,
    ...ropes(reader, fields.maxPositions),
    contextLength: fields.maxPositions, // the scaling is already in it
    windows: listedWindows(reader, fields.numLayers, window) ?? patternWindows(fields.numLayers, window, pattern),
    attentionScale: 1 / Math.sqrt(reader.number('query_pre_attn_scalar', { min: 1e-6, fallback: 256 })),
    attentionSoftcap: cap(reader, 'attn_logit_softcapping', 0),
    finalSoftcap: cap(reader, 'final_logit_softcapping', 0),
    embeddingScale: Math.fround(Math.sqrt(fields.hiddenSize)),
    attentionBias,
    outputBias: attentionBias,
  });
}

/** Classic: rope_theta, rope_scaling, rope_local_base_freq. New: rope_parameters with one entry per kind of layer. */
function ropes(
  reader: ConfigReader,
  maxPositions: number,
): Pick<ModelConfig, 'ropeTheta' | 'ropeScaling' | 'localRopeTheta'> {
  const parameters = reader.object('rope_parameters');
  const full = hfRope(reader, { theta: 1e6, maxPositions }, parameters?.object('full_attention') ?? parameters);
  const local = parameters?.object('sliding_attention')?.optionalNumber('rope_theta', 1e-9);
  return {
    ropeTheta: full.theta,
    ropeScaling: full.scaling,
    localRopeTheta: local ?? reader.number('rope_local_base_freq', { min: 1e-9, fallback: LOCAL_THETA }),
  };
}

/** Layers of the 27B model, the only one whose queries are scaled by hidden / heads instead of the head size. */
const LAYERS_OF_27B = 62;

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = ggufDecoder(checkpoint, { architecture: 'gemma3', activation: 'geluTanh' });
  const queryScalar = fields.numLayers === LAYERS_OF_27B ? fields.hiddenSize / fields.numHeads : fields.headDim;
  const window = reader.int('attention.sliding_window', { min: 0, max: 2 ** 31 - 1, fallback: 1024 });
  return modelConfig({
    ...fields,
    windows: ggufWindows(reader, fields.numLayers, window),
    localRopeTheta: reader.number('rope.freq_base_swa', { min: 1e-9, fallback: LOCAL_THETA }),
    attentionScale: 1 / Math.sqrt(queryScalar),
    finalSoftcap: reader.number('final_logit_softcapping', { min: 0, fallback: 0 }),
    embeddingScale: Math.fround(Math.sqrt(fields.hiddenSize)),
  });
}

/** The pattern is a period, or one flag per layer. */
function ggufWindows(reader: ConfigReader, numLayers: number, window: number): number[] {
  const key = 'attention.sliding_window_pattern';
  const stored = reader.raw(key);
  if (!Array.isArray(stored))
    return patternWindows(numLayers, window, reader.int(key, { min: 1, fallback: DEFAULT_PATTERN }));
  if (stored.length !== numLayers) reader.fail(key, `has ${stored.length} entries for ${numLayers} layers`);
  return stored.map((slides) => (slides ? window : 0));
}

/** The last layer of each period is global. */
function patternWindows(numLayers: number, window: number, pattern: number): number[] {
  return Array.from({ length: numLayers }, (_, layer) => ((layer + 1) % pattern === 0 ? 0 : window));
}

function gemma3Program(config: ModelConfig, { maxModelLen }: { maxModelLen: number }): Program {
  const { hiddenSize, numHeads, numKvHeads, headDim, rotaryDim, intermediateSize, vocabSize, normEps } = config;
  const qCols = numHeads * headDim;
  const kvCols = numKvHeads * headDim;
  const globalTable = ropeTable({ theta: config.ropeTheta, rotaryDim, scaling: config.ropeScaling, maxModelLen });
  const localTable = ropeTable({ theta: config.localRopeTheta, rotaryDim, scaling: null, maxModelLen });
  const rope = { headDim, rotaryDim, style: config.ropeStyle };
  const b = new ProgramBuilder();
  const top = weightsOf(null);
  const embedding = top.matrix('token_embd', vocabSize, hiddenSize);

  let hidden = b.embed(embedding, config.embeddingScale); // [T, hidden]
  for (let layer = 0; layer < config.numLayers; layer++) {
    const w = weightsOf(layer);
    const table = config.windows[layer] > 0 ? localTable : globalTable;
    const x = b.rmsNorm(hidden, w.vector('attn_norm', hiddenSize), normEps); // [T, hidden]
    let q = b.linear(x, w.matrix('attn_q', qCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_q', qCols)); // [T, heads * headDim]
    let k = b.linear(x, w.matrix('attn_k', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_k', kvCols)); // [T, kvHeads * headDim]
    const v = b.linear(x, w.matrix('attn_v', kvCols, hiddenSize), w.biasIf(config.attentionBias, 'attn_v', kvCols)); // [T, kvHeads * headDim]
    q = b.rmsNorm(q, w.vector('attn_q_norm', headDim), normEps, headDim); // [T, heads * headDim], each head on its own
    k = b.rmsNorm(k, w.vector('attn_k_norm', headDim), normEps, headDim); // [T, kvHeads * headDim], each head on its own
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
