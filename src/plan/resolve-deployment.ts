// From what a user asked for (model, GPUs, parallelism, scheduler flags; most of it left open) to a Deployment with every number
// final, with vLLM's defaults and clamps. plan, simulate and doctor share it. Throws PagodaError `bad_config` with one line.

import { PagodaError } from '../errors.ts';
import { findModel, type FoundModel } from '../sim/catalogue/find-model.ts';
import { type GpuSpec, parseGpus } from '../sim/catalogue/gpus.ts';
import type { WeightDtype } from '../sim/catalogue/model-shape.ts';
import { ENGINE_PROFILES, type EngineProfile, type EngineProfileName } from '../sim/cost/engine-profile.ts';
import { blocksOfSequence, type KvCacheDtype, longestSequence } from '../sim/cost/kv-memory.ts';
import { type MemoryLedger, memoryLedger } from '../sim/cost/memory-ledger.ts';
import { RooflineCost } from '../sim/cost/roofline-cost.ts';
import type { Deployment, SchedulerFlags } from '../sim/deployment.ts';
import type { StepCost } from '../sim/step-cost.ts';

/** Null or absent = not said. Numbers are parsed already; names are not yet looked up. */
export interface DeploymentRequest {
  readonly model: string;
  /** `a100-80gb:4`; null = memory arithmetic only. */
  readonly gpu?: string | null;
  readonly tensorParallelSize?: number | null;
  readonly pipelineParallelSize?: number | null;
  /** Copies of the model behind a router; as many as the GPUs hold when not said. */
  readonly dataParallelSize?: number | null;
  readonly gpuMemoryUtilization?: number | null;
  readonly kvCacheMemoryBytes?: number | null;
  readonly numGpuBlocksOverride?: number | null;
  readonly weightDtype?: WeightDtype | null;
  readonly kvCacheDtype?: KvCacheDtype | null;
  readonly maxModelLen?: number | 'auto' | null;
  readonly maxNumSeqs?: number | null;
  readonly maxNumBatchedTokens?: number | null;
  readonly chunkedPrefillSize?: number | null;
  readonly enableChunkedPrefill?: boolean | null;
  readonly enablePrefixCaching?: boolean | null;
  readonly blockSize?: number | null;
  readonly watermark?: number | null;
  readonly schedulingPolicy?: 'fcfs' | 'priority' | null;
  readonly kvAllocation?: 'paged' | 'static' | null;
  readonly enforceEager?: boolean | null;
  readonly engineProfile?: EngineProfileName | null;
}

export interface ResolvedDeployment {
  readonly deployment: Deployment;
  readonly found: FoundModel;
  /** Null without --gpu. */
  readonly gpu: GpuSpec | null;
  readonly numGpus: number;
  readonly tensorParallelSize: number;
  readonly pipelineParallelSize: number;
  readonly weightDtype: WeightDtype;
  readonly kvDtype: KvCacheDtype;
  readonly engine: EngineProfile;
  readonly isEager: boolean;
  readonly ledger: MemoryLedger;
  /** One line each: what was chosen for the user, and what is only estimated. */
  readonly notes: readonly string[];
}

const DEFAULT_UTILIZATION = 0.9;
const DEFAULT_BLOCK_SIZE = 16;
const MAX_MODEL_LEN = 16_777_216;

/** Throws `bad_config`, or `out_of_memory` when the weights or one full-length request do not fit. */
export function resolveDeployment(request: DeploymentRequest): ResolvedDeployment {
  const draft = draftDeployment(request);
  const problem = fitProblem(draft);
  if (problem !== null) throw problem;
  return draft;
}

/** The same, but what does not fit is left for `fitProblem` to say: a planner shows the ledger first. */
export function draftDeployment(request: DeploymentRequest): ResolvedDeployment {
  checkNumbers(request);
  const found = findModel(request.model);
  const { shape } = found;
  const place = placement(request, found);
  const { gpu, tensorParallelSize, pipelineParallelSize } = place;
  const weightDtype = request.weightDtype ?? shape.weightDtype;
  const kvDtype = request.kvCacheDtype ?? 'bf16';
  const isEager = request.enforceEager ?? false;
  const engine = ENGINE_PROFILES[request.engineProfile ?? 'vllm'];
  const parallelism = { tensorParallelSize, pipelineParallelSize };
  const blockSize = request.blockSize ?? DEFAULT_BLOCK_SIZE;
  const draftFlags = schedulerFlags(request, gpu, shape.contextLength);
  const ledger = overrideBlocks(
    memoryLedger({
      shape,
      weightDtype,
      kvDtype,
      parallelism,
      blockSize,
      isEager,
      maxNumSeqs: draftFlags.maxNumSeqs,
      maxNumBatchedTokens: draftFlags.maxNumBatchedTokens,
      gpuMemoryBytes: gpu?.memoryBytes ?? null,
      utilization: request.gpuMemoryUtilization ?? DEFAULT_UTILIZATION,
      kvCacheMemoryBytes: request.kvCacheMemoryBytes ?? null,
    }),
    request.numGpuBlocksOverride ?? null,
    blockSize,
  );
  const maxModelLen = request.maxModelLen === 'auto' ? autoLength(ledger, shape.contextLength, blockSize) : draftFlags.maxModelLen;
  const flags: SchedulerFlags = { ...draftFlags, maxModelLen };
  const cost = gpu === null ? new UnknownCost() : new RooflineCost(shape, { gpu, parallelism, weightDtype, kvDtype, engine, isEager });
  const deployment: Deployment = {
    name: deploymentName(shape.name, place),
    flags,
    numBlocks: ledger.numBlocks ?? 0,
    groupWindows: ledger.groupWindows,
    numReplicas: place.numReplicas,
    cost,
  };
  const notes = [...found.notes, ...place.notes, ...(gpu?.isFitted === false ? [estimateNote(gpu)] : [])];
  return { ...place, deployment, found, weightDtype, kvDtype, engine, isEager, ledger, notes };
}

/** Why the deployment cannot start, as vLLM would refuse; null when it can. */
export function fitProblem({ deployment, ledger, found, gpu }: ResolvedDeployment): PagodaError | null {
  const { flags } = deployment;
  if (ledger.kvPoolBytes === null || ledger.numBlocks === null) return null;
  if (ledger.numBlocks < 1) {
    return new PagodaError(
      'out_of_memory',
      `${found.shape.name} does not fit: ${gib(ledger.weightBytes)} GiB of weights and ${gib(nonKvBytes(ledger) - ledger.weightBytes)} GiB of working memory leave ${gib(ledger.kvPoolBytes)} GiB of ${gib(ledger.requestedBytes ?? 0)} GiB per GPU (${gpu?.label ?? 'no GPU'}) for the KV cache. Use more GPUs (--tensor-parallel-size), smaller weights (--quantization fp8), or a higher --gpu-memory-utilization.`,
      { param: '--gpu' },
    );
  }
  const needed = blocksOfSequence(flags.maxModelLen, ledger.groupWindows, flags.blockSize);
  if (needed <= ledger.numBlocks) return null;
  const longest = longestSequence(ledger.numBlocks, ledger.groupWindows, flags.blockSize);
  return new PagodaError(
    'out_of_memory',
    `--max-model-len ${flags.maxModelLen}: one request of that length needs ${gib(needed * ledger.blockBytes)} GiB of KV cache per GPU, and there are ${gib(ledger.kvPoolBytes)} GiB. The longest that fits is ${longest}: set --max-model-len ${longest}, or raise --gpu-memory-utilization, --tensor-parallel-size, or use --kv-cache-dtype fp8.`,
    { param: '--max-model-len' },
  );
}

export function nonKvBytes(ledger: MemoryLedger): number {
  return (
    ledger.weightBytes + ledger.activationBytes + ledger.communicationBytes + ledger.runtimeBytes + ledger.graphBytes
  );
}

interface Placement {
  readonly gpu: GpuSpec | null;
  readonly numGpus: number;
  readonly tensorParallelSize: number;
  readonly pipelineParallelSize: number;
  readonly numReplicas: number;
  readonly notes: readonly string[];
}

function placement(request: DeploymentRequest, { shape }: FoundModel): Placement {
  const tensorParallelSize = request.tensorParallelSize ?? 1;
  const pipelineParallelSize = request.pipelineParallelSize ?? 1;
  checkTensorParallel(tensorParallelSize, shape.numHeads, shape.numKvHeads);
  if (pipelineParallelSize > shape.numLayers) {
    throw new PagodaError(
      'bad_config',
      `--pipeline-parallel-size ${pipelineParallelSize}: ${shape.name} has ${shape.numLayers} layers, so at most ${shape.numLayers} stages.`,
      { param: '--pipeline-parallel-size' },
    );
  }
  const perReplica = tensorParallelSize * pipelineParallelSize;
  if (request.gpu === null || request.gpu === undefined) {
    const numReplicas = request.dataParallelSize ?? 1;
    const numGpus = perReplica * numReplicas;
    return { gpu: null, numGpus, tensorParallelSize, pipelineParallelSize, numReplicas, notes: [] };
  }
  const { gpu, count } = parseGpus(request.gpu);
  const numReplicas = request.dataParallelSize ?? Math.max(1, Math.floor(count / perReplica));
  if (perReplica * numReplicas > count) {
    throw new PagodaError(
      'bad_config',
      `--gpu ${request.gpu}: tensor parallel ${tensorParallelSize} x pipeline parallel ${pipelineParallelSize} x ${numReplicas} replicas need ${perReplica * numReplicas} GPUs; give --gpu ${gpu.name}:${perReplica * numReplicas} or smaller sizes.`,
      { param: '--gpu' },
    );
  }
  const numUsed = perReplica * numReplicas;
  const notes: string[] = [];
  if (numUsed < count) notes.push(`${count - numUsed} of ${count} GPUs are not used.`);
  if (request.dataParallelSize === undefined || request.dataParallelSize === null) {
    if (numReplicas > 1) notes.push(`${count} GPUs hold ${numReplicas} replicas (--data-parallel-size ${numReplicas}).`);
  }
  return { gpu, numGpus: count, tensorParallelSize, pipelineParallelSize, numReplicas, notes };
}

/** Heads are dealt out evenly. */
function checkTensorParallel(tp: number, numHeads: number, numKvHeads: number): void {
  const works = (size: number) => numHeads % size === 0 && (numKvHeads % size === 0 || size % numKvHeads === 0);
  if (works(tp)) return;
  let nearest = 1;
  for (let size = 1; size <= numHeads; size++) {
    if (works(size) && Math.abs(size - tp) <= Math.abs(nearest - tp)) nearest = size;
  }
  throw new PagodaError(
    'bad_config',
    `--tensor-parallel-size ${tp}: must divide the model's ${numHeads} attention heads (${numKvHeads} KV heads); the nearest size is ${nearest}.`,
    { param: '--tensor-parallel-size' },
  );
}

function schedulerFlags(request: DeploymentRequest, gpu: GpuSpec | null, contextLength: number): SchedulerFlags {
  const asked = request.maxModelLen;
  const maxModelLen = typeof asked === 'number' ? asked : contextLength;
  const enableChunkedPrefill = request.enableChunkedPrefill ?? true;
  const givenSeqs = request.maxNumSeqs ?? null;
  const givenTokens = request.maxNumBatchedTokens ?? null;
  const ownTokens = gpu?.defaultMaxNumBatchedTokens ?? 2048;
  const tokens = givenTokens ?? Math.max(enableChunkedPrefill ? ownTokens : Math.max(ownTokens, maxModelLen), givenSeqs ?? 0);
  const seqs = givenSeqs ?? Math.min(gpu?.defaultMaxNumSeqs ?? 256, tokens);
  if (tokens < seqs) {
    throw new PagodaError(
      'bad_config',
      `--max-num-batched-tokens ${tokens} must be at least --max-num-seqs ${seqs}, so that every sequence gets its token.`,
      { param: '--max-num-batched-tokens' },
    );
  }
  if (!enableChunkedPrefill && tokens < maxModelLen) {
    throw new PagodaError(
      'bad_config',
      `--max-num-batched-tokens ${tokens} must be at least --max-model-len ${maxModelLen} without chunked prefill.`,
      { param: '--max-num-batched-tokens' },
    );
  }
  return {
    maxNumSeqs: seqs,
    // More than all sequences can ever need does nothing.
    maxNumBatchedTokens: Math.max(seqs, Math.min(tokens, seqs * maxModelLen)),
    chunkedPrefillSize: request.chunkedPrefillSize ?? null,
    enableChunkedPrefill,
    enablePrefixCaching: request.enablePrefixCaching ?? true,
    blockSize: request.blockSize ?? DEFAULT_BLOCK_SIZE,
    maxModelLen,
    watermark: request.watermark ?? 0,
    schedulingPolicy: request.schedulingPolicy ?? 'fcfs',
    kvAllocation: request.kvAllocation ?? 'paged',
  };
}

function overrideBlocks(ledger: MemoryLedger, numBlocks: number | null, blockSize: number): MemoryLedger {
  if (numBlocks === null) return ledger;
  return {
    ...ledger,
    numBlocks,
    kvPoolBytes: numBlocks * ledger.blockBytes,
    kvTokens: Math.floor(numBlocks / ledger.groupWindows.length) * blockSize,
    isPoolGiven: true,
  };
}

function autoLength(ledger: MemoryLedger, contextLength: number, blockSize: number): number {
  if (ledger.numBlocks === null) return contextLength;
  return Math.max(2, Math.min(contextLength, longestSequence(ledger.numBlocks, ledger.groupWindows, blockSize)));
}

function deploymentName(model: string, place: Placement): string {
  const { gpu, numReplicas, tensorParallelSize: tp, pipelineParallelSize: pp } = place;
  const hardware = gpu === null ? '' : ` on ${tp * pp * numReplicas} x ${gpu.name}`;
  const stages = pp > 1 ? `, PP ${pp}` : '';
  const copies = numReplicas > 1 ? `, ${numReplicas} replicas` : '';
  return `${model}${hardware}, TP ${tp}${stages}${copies}`;
}

function estimateNote(gpu: GpuSpec): string {
  return `${gpu.label}: its peaks are the vendor's, its efficiencies those of a relative; times are estimates.`;
}

/** Without a GPU there is memory arithmetic but no time. */
class UnknownCost implements StepCost {
  readonly requestOverheadSeconds = 0;

  stepSeconds(): number {
    throw new PagodaError('bad_config', '--gpu is needed to tell how long steps take, like --gpu a100-80gb:4.', {
      param: '--gpu',
    });
  }
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(2);
}

/** Ranges of plain numbers; combinations are checked where they are used. */
function checkNumbers(request: DeploymentRequest): void {
  const count = (flag: string, value: number | null | undefined, min: number, max: number) => {
    if (value === null || value === undefined) return;
    if (Number.isSafeInteger(value) && value >= min && value <= max) return;
    const nearest = Number.isFinite(value) ? Math.min(max, Math.max(min, Math.round(value))) : min;
    throw new PagodaError('bad_config', `${flag} must be a whole number from ${min} to ${max}, got ${value}; the nearest is ${nearest}.`, {
      param: flag,
    });
  };
  const { maxModelLen, gpuMemoryUtilization: utilization, watermark } = request;
  count('--tensor-parallel-size', request.tensorParallelSize, 1, 1024);
  count('--pipeline-parallel-size', request.pipelineParallelSize, 1, 1024);
  count('--data-parallel-size', request.dataParallelSize, 1, 4096);
  count('--kv-cache-memory-bytes', request.kvCacheMemoryBytes, 1, Number.MAX_SAFE_INTEGER);
  count('--num-gpu-blocks-override', request.numGpuBlocksOverride, 1, 2 ** 31 - 1);
  count('--max-num-seqs', request.maxNumSeqs, 1, 65_536);
  count('--max-num-batched-tokens', request.maxNumBatchedTokens, 1, 16_777_216);
  count('--chunked-prefill-size', request.chunkedPrefillSize, 1, 16_777_216);
  count('--block-size', request.blockSize, 1, 1024);
  if (typeof maxModelLen === 'number') count('--max-model-len', maxModelLen, 2, MAX_MODEL_LEN);
  if (utilization !== null && utilization !== undefined && !(utilization > 0 && utilization <= 1)) {
    throw new PagodaError('bad_config', `--gpu-memory-utilization must be above 0 and up to 1, got ${utilization}; the default is 0.9.`, {
      param: '--gpu-memory-utilization',
    });
  }
  if (watermark !== null && watermark !== undefined && !(watermark >= 0 && watermark < 1)) {
    throw new PagodaError('bad_config', `--watermark must be from 0 up to, but not including, 1, got ${watermark}; the default is 0.`, {
      param: '--watermark',
    });
  }
}
