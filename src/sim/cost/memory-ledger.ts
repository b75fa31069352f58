// Where one GPU's memory goes, as a subtraction: total, what is not to be used, weights, activations, communication, runtime,
// CUDA graphs; what remains is the KV pool. vLLM's order and meaning: utilization is a share of the total, not of the free memory.

import {
  expertParameters,
  type ModelShape,
  type Parallelism,
  productParameters,
  stageLayers,
  type WeightDtype,
  weightBytesPerParameter,
} from '../catalogue/model-shape.ts';
import { type KvCacheDtype, kvGroups } from './kv-memory.ts';

const MIB = 2 ** 20;
/** CUDA context and libraries, as vLLM's logs of small single-GPU runs show it. */
const RUNTIME_BYTES = 358 * MIB;
/** NCCL's buffers by tensor parallel size (aiconfigurator's memory model). */
const COMMUNICATION_BYTES: ReadonlyArray<readonly [tp: number, bytes: number]> = [
  [1, 0],
  [2, 342 * MIB],
  [Number.POSITIVE_INFINITY, 392 * MIB],
];
/** CUDA graphs: a pool and so much per captured batch size. */
const GRAPH_POOL_BYTES = 256 * MIB;
const GRAPH_BYTES_PER_SIZE = 12 * MIB;
const LARGEST_CAPTURE = 512;
/** Buffers of width h alive at the peak of one layer, and of the MLP's inner width. */
const HIDDEN_BUFFERS = 6;
const INNER_BUFFERS = 1.5;

export interface LedgerInput {
  readonly shape: ModelShape;
  readonly weightDtype: WeightDtype;
  readonly kvDtype: KvCacheDtype;
  readonly parallelism: Parallelism;
  readonly blockSize: number;
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  readonly isEager: boolean;
  /** Of one GPU; null = not known, then `kvCacheMemoryBytes` decides. */
  readonly gpuMemoryBytes: number | null;
  readonly utilization: number;
  /** Takes the place of the subtraction. */
  readonly kvCacheMemoryBytes: number | null;
}

export interface MemoryLedger {
  /** Null when no GPU was named. */
  readonly totalBytes: number | null;
  readonly utilization: number;
  /** total x utilization, rounded up. */
  readonly requestedBytes: number | null;
  readonly reservedBytes: number | null;
  readonly weightBytes: number;
  readonly activationBytes: number;
  readonly communicationBytes: number;
  readonly runtimeBytes: number;
  readonly graphBytes: number;
  /** May be negative: then nothing fits. Null when neither a GPU nor a size was named. */
  readonly kvPoolBytes: number | null;
  readonly isPoolGiven: boolean;
  readonly blockBytes: number;
  readonly groupWindows: readonly number[];
  readonly numBlocks: number | null;
  /** Tokens that the blocks hold when windows free nothing. */
  readonly kvTokens: number | null;
  /** Which pipeline stage it is: the one with the fewest blocks. */
  readonly stage: number;
}

/** The ledger of the tightest GPU of one replica. */
export function memoryLedger(input: LedgerInput): MemoryLedger {
  const { pipelineParallelSize } = input.parallelism;
  const stages = stageLayers(input.shape.numLayers, pipelineParallelSize).map((numLayers, stage) =>
    stageLedger(input, stage, numLayers),
  );
  return stages.reduce((tightest, each) => ((each.kvPoolBytes ?? 0) < (tightest.kvPoolBytes ?? 0) ? each : tightest));
}

function stageLedger(input: LedgerInput, stage: number, numLayers: number): MemoryLedger {
  const { shape, parallelism, blockSize, gpuMemoryBytes, utilization, kvCacheMemoryBytes, kvDtype } = input;
  const weightBytes = stageWeightBytes(input, stage, numLayers);
  const activationBytes = peakActivationBytes(input);
  const communicationBytes = COMMUNICATION_BYTES.find(([tp]) => parallelism.tensorParallelSize <= tp)![1];
  const graphBytes = input.isEager ? 0 : GRAPH_POOL_BYTES + GRAPH_BYTES_PER_SIZE * numCaptureSizes(input.maxNumSeqs);
  const requestedBytes = gpuMemoryBytes === null ? null : Math.ceil(gpuMemoryBytes * utilization);
  const fixed = weightBytes + activationBytes + communicationBytes + RUNTIME_BYTES + graphBytes;
  const left = requestedBytes === null ? null : requestedBytes - fixed;
  const kvPoolBytes = kvCacheMemoryBytes ?? left;
  const { windows, blockBytes } = kvGroups(shape, { ...parallelism, blockSize, kvDtype });
  const numBlocks = kvPoolBytes === null ? null : Math.max(0, Math.floor(kvPoolBytes / blockBytes));
  return {
    totalBytes: gpuMemoryBytes,
    utilization,
    requestedBytes,
    reservedBytes: requestedBytes === null ? null : gpuMemoryBytes! - requestedBytes,
    weightBytes,
    activationBytes,
    communicationBytes,
    runtimeBytes: RUNTIME_BYTES,
    graphBytes,
    kvPoolBytes,
    isPoolGiven: kvCacheMemoryBytes !== null,
    blockBytes,
    groupWindows: windows,
    numBlocks,
    kvTokens: numBlocks === null ? null : Math.floor(numBlocks / windows.length) * blockSize,
    stage,
  };
}

/** All weights of the model in one copy. */
export function totalWeightBytes(shape: ModelShape, dtype: WeightDtype): number {
  if (shape.storedWeightBytes !== null && dtype === shape.weightDtype) return shape.storedWeightBytes;
  const { layers, experts, rest } = weightBytesPerParameter(dtype);
  return (
    productParameters(shape, 1) * layers +
    expertParameters(shape) * experts +
    (shape.embeddingParameters + shape.headParameters + shape.smallParameters) * rest
  );
}

function stageWeightBytes(input: LedgerInput, stage: number, numLayers: number): number {
  const { shape, weightDtype, parallelism } = input;
  const { tensorParallelSize: tp, pipelineParallelSize: pp } = parallelism;
  const { layers, experts, rest } = weightBytesPerParameter(weightDtype);
  const share = numLayers / shape.numLayers;
  // What is really stored may be a mixture of formats: the whole is scaled to it.
  const scale =
    shape.storedWeightBytes !== null && weightDtype === shape.weightDtype
      ? shape.storedWeightBytes / totalWeightBytes({ ...shape, storedWeightBytes: null }, weightDtype)
      : 1;
  const isLast = stage === pp - 1;
  // A tied output matrix lies on the last stage, too.
  const head =
    shape.headParameters > 0 || (pp > 1 && stage > 0) ? shape.headParameters || shape.embeddingParameters : 0;
  const ends = (stage === 0 ? shape.embeddingParameters : 0) + (isLast ? head : 0);
  const bytes =
    share * productParameters(shape, tp) * layers +
    ((share * expertParameters(shape)) / tp) * experts +
    (ends / tp + share * shape.smallParameters) * rest;
  return Math.round(bytes * scale);
}

/** Largest activations of a step with the full token budget, and float32 logits with the sampler's copy. */
export function peakActivationBytes(input: LedgerInput): number {
  const { shape, maxNumBatchedTokens, maxNumSeqs } = input;
  const tp = input.parallelism.tensorParallelSize;
  const { hiddenSize, intermediateSize, numHeads, numKvHeads, headDim, vocabSize } = shape;
  const perToken =
    2 * hiddenSize * HIDDEN_BUFFERS +
    ((2 * 2 * intermediateSize) / tp) * INNER_BUFFERS +
    ((2 * (numHeads + 2 * numKvHeads)) / tp) * headDim * 2;
  const logits = Math.min(maxNumBatchedTokens, maxNumSeqs) * vocabSize * 4 * 2;
  return Math.round(maxNumBatchedTokens * perToken + logits);
}

/** vLLM captures 1, 2, 4, every 8 up to 256, then every 16, up to min(2 x max_num_seqs, 512). */
export function numCaptureSizes(maxNumSeqs: number): number {
  const largest = Math.min(2 * maxNumSeqs, LARGEST_CAPTURE);
  const small = [1, 2, 4].filter((size) => size <= largest).length;
  return small + Math.floor(Math.min(largest, 256) / 8) + Math.floor(Math.max(0, largest - 256) / 16);
}
