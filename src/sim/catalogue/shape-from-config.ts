// A model's shape from the dimensions in config.json, for architectures that Pagoda plans but does not run: DeepSeek's latent
// attention, gpt-oss, Falcon, hybrids with linear attention, and any decoder with the usual names.

import { ConfigReader } from '../../model/config-reader.ts';
import {
  type AttentionShape,
  type ExpertShape,
  expertParameters,
  type MatrixProduct,
  type ModelShape,
  productParameters,
  type WeightDtype,
} from './model-shape.ts';
import { activeParameters } from './shape-from-program.ts';

export type ConfigFields = Readonly<Record<string, unknown>>;

const MAX_WIDTH = 1 << 20;
const MAX_LAYERS = 512;
const MAX_VOCABULARY = 1 << 24;

interface Sizes {
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
}

export function shapeFromConfig(
  config: ConfigFields,
  named: { readonly name: string; readonly weightDtype: WeightDtype },
): ModelShape {
  const reader = configReader(config);
  const sizes = readSizes(reader, config);
  const vocabSize = reader.int('vocab_size', { min: 1, max: MAX_VOCABULARY });
  const attention = reader.has('kv_lora_rank') ? latentAttention(reader, sizes) : plainAttention(reader, sizes);
  const mlp = mlpOf(reader, sizes, config);
  const isTied = reader.boolean('tie_word_embeddings', reader.string('model_type') === 'falcon');
  const products: MatrixProduct[] = [
    ...attention.products,
    ...mlp.products,
    product({ rows: 'R', inputs: sizes.hiddenSize, outputs: vocabSize, count: 1 }),
  ];
  const draft: ModelShape = {
    ...named,
    ...sizes,
    architecture: architectureOf(reader),
    intermediateSize: mlp.innerColumns,
    vocabSize,
    contextLength: reader.int(['max_position_embeddings', 'n_positions'], { min: 1, fallback: 2048 }),
    products,
    attentions: attention.layers,
    experts: mlp.experts,
    embeddingParameters: vocabSize * sizes.hiddenSize,
    headParameters: isTied ? 0 : vocabSize * sizes.hiddenSize,
    smallParameters: (2 * sizes.numLayers + 1) * sizes.hiddenSize,
    storedWeightBytes: null,
    numParameters: 0,
    numActiveParameters: 0,
  };
  const numParameters =
    productParameters(draft, 1) +
    expertParameters(draft) +
    draft.embeddingParameters +
    draft.headParameters +
    draft.smallParameters;
  return { ...draft, numParameters, numActiveParameters: activeParameters(draft) };
}

/** Multi-modal configs keep the language model's fields in `text_config`. */
function configReader(config: ConfigFields): ConfigReader {
  const text = config.text_config;
  const fields =
    typeof text === 'object' && text !== null && !Array.isArray(text) ? (text as Record<string, unknown>) : config;
  return new ConfigReader('config.json', (key) => (Object.hasOwn(fields, key) ? fields[key] : undefined));
}

function architectureOf(reader: ConfigReader): string {
  return reader.string('model_type') ?? reader.strings('architectures')?.[0] ?? 'unknown';
}

function readSizes(reader: ConfigReader, config: ConfigFields): Sizes {
  const hiddenSize = reader.int(['hidden_size', 'n_embd', 'd_model'], { min: 1, max: MAX_WIDTH });
  const numHeads = reader.int(['num_attention_heads', 'n_head'], { min: 1, max: MAX_WIDTH });
  const isMultiQuery = config.multi_query === true && config.new_decoder_architecture !== true;
  const numKvHeads = isMultiQuery
    ? 1
    : reader.int(['num_key_value_heads', 'num_kv_heads', 'n_head_kv'], { min: 1, max: MAX_WIDTH, fallback: numHeads });
  if (numHeads % numKvHeads !== 0)
    reader.fail('num_key_value_heads', `is ${numKvHeads}; it must divide the ${numHeads} attention heads`);
  return {
    hiddenSize,
    numHeads,
    numKvHeads,
    numLayers: reader.int(['num_hidden_layers', 'n_layer'], { min: 1, max: MAX_LAYERS }),
    headDim: reader.int('head_dim', { min: 1, max: MAX_WIDTH, fallback: Math.floor(hiddenSize / numHeads) }),
  };
}

function plainAttention(reader: ConfigReader, sizes: Sizes): { layers: AttentionShape[]; products: MatrixProduct[] } {
  const { hiddenSize, numHeads, numKvHeads, headDim, numLayers } = sizes;
  const byWindow = new Map<number, number>();
  let numAttending = 0;
  for (const window of layerWindows(reader, numLayers)) {
    if (window === null) continue; // linear attention keeps a state per sequence, nothing per token
    numAttending++;
    byWindow.set(window, (byWindow.get(window) ?? 0) + 1);
  }
  const attention = { numHeads, numKvHeads, headDim, valueDim: headDim, latent: null };
  return {
    layers: [...byWindow].map(([window, count]) => ({ ...attention, window, numLayers: count })),
    // A layer without keys and values has matrices of much the same size.
    products: [
      product({
        inputs: hiddenSize,
        outputs: numHeads * headDim,
        kvOutputs: 2 * numKvHeads * headDim,
        count: numLayers,
      }),
      product({ inputs: numHeads * headDim, outputs: hiddenSize, split: 'inputs', count: numLayers }),
    ].filter(() => numAttending > 0),
  };
}

/** Per layer: the window, 0 = full attention, null = no attention over tokens. */
function layerWindows(reader: ConfigReader, numLayers: number): Array<number | null> {
  const window = reader.raw('sliding_window') === null ? 0 : reader.int('sliding_window', { min: 0, fallback: 0 });
  const kinds = reader.strings('layer_types');
  if (kinds !== null) {
    if (kinds.length !== numLayers) reader.fail('layer_types', `has ${kinds.length} entries for ${numLayers} layers`);
    return kinds.map((kind) => (kind === 'full_attention' ? 0 : kind.startsWith('sliding') ? window : null));
  }
  const interval = reader.int('full_attention_interval', { min: 1, fallback: 1 });
  const pattern = reader.int('sliding_window_pattern', { min: 1, fallback: 1 });
  return Array.from({ length: numLayers }, (_, layer) => {
    if ((layer + 1) % interval !== 0) return null;
    return window > 0 && pattern > 1 && (layer + 1) % pattern === 0 ? 0 : window;
  });
}

/** DeepSeek-V2 and V3 (arXiv 2405.04434): keys and values are one vector of kv_lora_rank + qk_rope_head_dim. */
function latentAttention(reader: ConfigReader, sizes: Sizes): { layers: AttentionShape[]; products: MatrixProduct[] } {
  const { hiddenSize, numHeads, numLayers } = sizes;
  const size = (key: string, least = 1) => reader.int(key, { min: least, max: MAX_WIDTH });
  const rank = size('kv_lora_rank');
  const ropeDim = size('qk_rope_head_dim');
  const plainDim = size('qk_nope_head_dim');
  const valueDim = size('v_head_dim');
  const queryRank = reader.has('q_lora_rank') ? size('q_lora_rank') : null;
  const headDim = plainDim + ropeDim;
  const each = { count: numLayers };
  const queries: MatrixProduct[] =
    queryRank === null
      ? [product({ ...each, inputs: hiddenSize, outputs: numHeads * headDim })]
      : [
          product({ ...each, inputs: hiddenSize, outputs: queryRank, split: 'none' }),
          product({ ...each, inputs: queryRank, outputs: numHeads * headDim }),
        ];
  return {
    layers: [{ numLayers, numHeads, numKvHeads: 1, headDim, valueDim, window: 0, latent: { rank, ropeDim } }],
    products: [
      ...queries,
      product({ ...each, inputs: hiddenSize, outputs: rank + ropeDim, split: 'none' }),
      product({ ...each, inputs: rank, outputs: numHeads * (plainDim + valueDim) }),
      product({ ...each, inputs: numHeads * valueDim, outputs: hiddenSize, split: 'inputs' }),
    ],
  };
}

interface Mlp {
  readonly products: MatrixProduct[];
  readonly experts: ExpertShape[];
  readonly innerColumns: number;
}

function mlpOf(reader: ConfigReader, sizes: Sizes, config: ConfigFields): Mlp {
  const { hiddenSize, numLayers } = sizes;
  const numExperts = reader.int(['n_routed_experts', 'num_local_experts', 'num_experts'], { min: 0, fallback: 0 });
  const isFalcon = reader.string('model_type') === 'falcon';
  const inner = reader.int(['intermediate_size', 'ffn_hidden_size', 'n_inner'], {
    min: 1,
    max: MAX_WIDTH,
    fallback: 4 * hiddenSize,
  });
  // Falcon's MLP has no gate.
  const dense = (count: number, columns: number): MatrixProduct[] => [
    product({ inputs: hiddenSize, outputs: (isFalcon ? 1 : 2) * columns, count }),
    product({ inputs: columns, outputs: hiddenSize, split: 'inputs', count }),
  ];
  if (numExperts === 0) return { products: dense(numLayers, inner), experts: [], innerColumns: inner };
  const expertSize = reader.int('moe_intermediate_size', { min: 1, max: MAX_WIDTH, fallback: inner });
  const topK = reader.int(['num_experts_per_tok', 'experts_per_token'], { min: 1, max: numExperts });
  const numDense = Math.min(numLayers, reader.int('first_k_dense_replace', { min: 0, fallback: 0 }));
  const numShared = reader.int('n_shared_experts', { min: 0, fallback: 0 });
  const sharedColumns = reader.int('shared_expert_intermediate_size', {
    min: 0,
    max: MAX_WIDTH,
    fallback: config.n_shared_experts === undefined ? 0 : numShared * expertSize,
  });
  const numMixed = numLayers - numDense;
  return {
    products: [
      ...(numDense > 0 ? dense(numDense, inner) : []),
      product({ inputs: hiddenSize, outputs: numExperts, split: 'none', count: numMixed }),
      ...(sharedColumns > 0 ? dense(numMixed, sharedColumns) : []),
    ],
    experts: [{ numLayers: numMixed, numExperts, topK, inputs: hiddenSize, expertSize }],
    innerColumns: topK * expertSize + sharedColumns,
  };
}

function product(fields: Pick<MatrixProduct, 'inputs' | 'outputs' | 'count'> & Partial<MatrixProduct>): MatrixProduct {
  return { rows: 'T', kvOutputs: 0, split: 'outputs', ...fields };
}
