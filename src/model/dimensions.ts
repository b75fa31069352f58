// The sizes that every decoder has, read and checked against each other from config.json or GGUF metadata, and the defaults
// that make a complete ModelConfig of them. A file with impossible sizes is refused here, by the name of its key.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import type { ConfigReader } from './config-reader.ts';
import type { ModelConfig } from './model-config.ts';

const MAX_LAYERS = 512;
const MAX_WIDTH = 1 << 20;
const MAX_VOCABULARY = 1 << 24;
const MAX_POSITIONS = 2 ** 31 - 1;

export interface Dimensions {
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly intermediateSize: number;
  readonly vocabSize: number;
  /** max_position_embeddings or context_length, as stored. */
  readonly maxPositions: number;
}

/** Key names and defaults where a family differs from Llama. */
export interface HfDimensionKeys {
  readonly hiddenSize?: string;
  readonly numLayers?: string;
  readonly numHeads?: string;
  readonly intermediateSize?: string;
  readonly maxPositions?: string;
  readonly defaultMaxPositions?: number;
  readonly defaultHeads?: number;
  readonly defaultKvHeads?: number;
  readonly defaultVocabSize?: number;
  /** Head size when the file does not say; default hidden / heads. */
  readonly defaultHeadDim?: number | null;
  /** MLP width when the file does not say. */
  readonly defaultIntermediateSize?: number;
}

export function hfDimensions(reader: ConfigReader, keys: HfDimensionKeys = {}): Dimensions {
  const hiddenKey = keys.hiddenSize ?? 'hidden_size';
  const headsKey = keys.numHeads ?? 'num_attention_heads';
  const hiddenSize = reader.int(hiddenKey, { min: 1, max: MAX_WIDTH });
  const numHeads = reader.int(headsKey, { min: 1, max: MAX_WIDTH, ...fallback(keys.defaultHeads) });
  const numKvHeads = reader.int('num_key_value_heads', {
    min: 1,
    max: MAX_WIDTH,
    fallback: keys.defaultKvHeads ?? numHeads,
  });
  checkKvHeads(reader, { numHeads, numKvHeads, key: 'num_key_value_heads' });
  return {
    hiddenSize,
    numHeads,
    numKvHeads,
    numLayers: reader.int(keys.numLayers ?? 'num_hidden_layers', { min: 1, max: MAX_LAYERS }),
    headDim:
      reader.has('head_dim') || keys.defaultHeadDim
        ? reader.int('head_dim', { min: 1, max: MAX_WIDTH, ...fallback(keys.defaultHeadDim ?? undefined) })
        : evenHeads(reader, { hiddenSize, numHeads, key: hiddenKey }),
    intermediateSize: reader.int(keys.intermediateSize ?? 'intermediate_size', {
      min: 1,
      max: MAX_WIDTH,
      ...fallback(keys.defaultIntermediateSize),
    }),
    vocabSize: reader.int('vocab_size', { min: 1, max: MAX_VOCABULARY, ...fallback(keys.defaultVocabSize) }),
    maxPositions: reader.int(keys.maxPositions ?? 'max_position_embeddings', {
      min: 1,
      max: MAX_POSITIONS,
      fallback: keys.defaultMaxPositions ?? 2048,
    }),
  };
}

export function ggufDimensions(reader: ConfigReader, checkpoint: Checkpoint): Dimensions {
  const hiddenSize = reader.int('embedding_length', { min: 1, max: MAX_WIDTH });
  const numLayers = reader.int('block_count', { min: 1, max: MAX_LAYERS });
  const numHeads = perLayer(reader, 'attention.head_count');
  const numKvHeads = reader.has('attention.head_count_kv') ? perLayer(reader, 'attention.head_count_kv') : numHeads;
  checkKvHeads(reader, { numHeads, numKvHeads, key: 'attention.head_count_kv' });
  const headDim = reader.has('attention.key_length')
    ? reader.int('attention.key_length', { min: 1, max: MAX_WIDTH })
    : evenHeads(reader, { hiddenSize, numHeads, key: 'embedding_length' });
  const valueDim = reader.int('attention.value_length', { min: 1, max: MAX_WIDTH, fallback: headDim });
  if (valueDim !== headDim)
    reader.fail('attention.value_length', `is ${valueDim}; it must equal the key length ${headDim}`);
  const rows = checkpoint.tensors.get('token_embd.weight')?.shape[0];
  const vocabSize = reader.int('vocab_size', { min: 1, max: MAX_VOCABULARY, ...fallback(rows) });
  return {
    hiddenSize,
    numLayers,
    numHeads,
    numKvHeads,
    headDim,
    vocabSize,
    intermediateSize: perLayer(reader, 'feed_forward_length'),
    maxPositions: reader.int('context_length', { min: 1, max: MAX_POSITIONS }),
  };
}

/** Fields that a family must give, and those it may. */
export type ConfigFields = Dimensions &
  Pick<ModelConfig, 'architecture' | 'normEps' | 'activation' | 'tieEmbeddings'> &
  Partial<ModelConfig>;

/** A complete config: what the family does not say is what a plain Llama does. */
export function modelConfig(fields: ConfigFields): ModelConfig {
  const { maxPositions, ...rest } = fields;
  const ropeTheta = fields.ropeTheta ?? 10000;
  return {
    contextLength: maxPositions,
    ropeTheta,
    localRopeTheta: ropeTheta,
    ropeScaling: null,
    ropeStyle: 'half',
    rotaryDim: fields.headDim,
    windows: uniformWindows(fields.numLayers, 0),
    attentionScale: 1 / Math.sqrt(fields.headDim),
    attentionSoftcap: 0,
    finalSoftcap: 0,
    embeddingScale: 1,
    attentionBias: false,
    outputBias: false,
    mlpBias: false,
    moe: null,
    parallelResidual: false,
    ...rest,
  };
}

export function uniformWindows(numLayers: number, window: number): number[] {
  return new Array<number>(numLayers).fill(window);
}

/** Rotated columns of a head; the file's key is named when they cannot be paired. */
export function rotaryDim(
  reader: ConfigReader,
  options: { headDim: number; partialFactor: number; key: string },
): number {
  const columns = Math.trunc(options.headDim * options.partialFactor);
  if (columns < 2 || columns % 2 !== 0)
    reader.fail(options.key, `gives ${columns} rotated columns per head; it must be an even number of at least 2`);
  return columns;
}

/** GGUF names the rotated columns themselves. */
export function ggufRotaryDim(reader: ConfigReader, headDim: number): number {
  const columns = reader.int('rope.dimension_count', { min: 2, max: headDim, fallback: headDim });
  if (columns % 2 !== 0) reader.fail('rope.dimension_count', `is ${columns}; it must be even`);
  return columns;
}

function checkKvHeads(
  reader: ConfigReader,
  { numHeads, numKvHeads, key }: { numHeads: number; numKvHeads: number; key: string },
): void {
  if (numKvHeads > numHeads || numHeads % numKvHeads !== 0)
    reader.fail(key, `is ${numKvHeads}; it must divide the ${numHeads} attention heads`);
}

function evenHeads(
  reader: ConfigReader,
  { hiddenSize, numHeads, key }: { hiddenSize: number; numHeads: number; key: string },
): number {
  if (hiddenSize % numHeads !== 0)
    reader.fail(key, `is ${hiddenSize}; it must be a multiple of the ${numHeads} attention heads`);
  return hiddenSize / numHeads;
}

/** A number that GGUF may also give once per layer; the layers must agree. */
function perLayer(reader: ConfigReader, key: string): number {
  const range = { min: 1, max: MAX_WIDTH };
  if (!Array.isArray(reader.raw(key))) return reader.int(key, range);
  const values = reader.numbers(key) ?? [];
  if (new Set(values).size !== 1) reader.fail(key, 'differs between layers, which is not supported');
  const [value] = values;
  if (!Number.isInteger(value) || value < range.min || value > range.max)
    reader.fail(key, `is ${value}; it must be a whole number in [1, ${MAX_WIDTH}]`);
  return value;
}

function fallback(value: number | undefined): { fallback?: number } {
  return value === undefined ? {} : { fallback: value };
}
