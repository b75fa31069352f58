// From what a user asked for (model, GPUs, parallelism, scheduler flags; most of it left open) to a Deployment with every number
// final, with vLLM's defaults and clamps. plan, simulate and doctor share it. Throws PagodaError `bad_config` with one line.

import { PagodaError } from '../errors.ts';
import { type FoundModel, findModel } from '../sim/catalogue/find-model.ts';
import type { GpuSpec } from '../sim/catalogue/gpus.ts';
import type { WeightDtype } from '../sim/catalogue/model-shape.ts';
import { ENGINE_PROFILES, type EngineProfile, type EngineProfileName } from '../sim/cost/engine-profile.ts';
import { blocksOfSequence, type KvCacheDtype, longestSequence } from '../sim/cost/kv-memory.ts';
import { LinearStepCost } from '../sim/cost/linear-step-cost.ts';
import { type MemoryLedger, memoryLedger } from '../sim/cost/memory-ledger.ts';
import { RooflineCost } from '../sim/cost/roofline-cost.ts';
import type { Deployment, SchedulerFlags } from '../sim/deployment.ts';
import type { StepCost } from '../sim/step-cost.ts';
import { type Calibration, type DeviceCalibration, readCalibration } from './calibration-file.ts';
import { checkRequestNumbers } from './check-request.ts';
import { type Placement, placement } from './placement.ts';

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
  /** A file of `pagoda calibrate`: constants of the engine, or a measured device that takes the place of GPUs. */
  readonly calibration?: string | null;
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
  /** Whether the cost model knows how long steps take: with a GPU or a measured device. */
  readonly hasTimes: boolean;
  readonly ledger: MemoryLedger;
  /** One line each: what was chosen for the user, and what is only estimated. */
  readonly notes: readonly string[];
}

const DEFAULT_UTILIZATION = 0.9;
const DEFAULT_BLOCK_SIZE = 16;

/** Throws `bad_config`, or `out_of_memory` when the weights or one full-length request do not fit. */
export function resolveDeployment(request: DeploymentRequest): ResolvedDeployment {
  const draft = draftDeployment(request);
  const problem = fitProblem(draft);
  if (problem !== null) throw problem;
  return draft;
}

/** The same, but what does not fit is left for `fitProblem` to say: a planner shows the ledger first. */
export function draftDeployment(request: DeploymentRequest): ResolvedDeployment {
  checkRequestNumbers(request);
  const calibration = readCalibrationOf(request);
  if (calibration?.kind === 'device') return measuredDeployment(request, calibration);
  const found = findModel(request.model);
  const { shape } = found;
  const place = placement(request, found);
  const { gpu, tensorParallelSize, pipelineParallelSize } = place;
  const weightDtype = request.weightDtype ?? shape.weightDtype;
  const kvDtype = request.kvCacheDtype ?? 'bf16';
  const isEager = request.enforceEager ?? false;
  const engine = calibration?.engine ?? ENGINE_PROFILES[request.engineProfile ?? 'vllm'];
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
  const maxModelLen =
    request.maxModelLen === 'auto' ? autoLength(ledger, shape.contextLength, blockSize) : draftFlags.maxModelLen;
  const flags: SchedulerFlags = { ...draftFlags, maxModelLen };
  const cost =
    gpu === null
      ? new UnknownCost()
      : new RooflineCost(shape, { gpu, parallelism, weightDtype, kvDtype, engine, isEager });
  const deployment: Deployment = {
    name: deploymentName(shape.name, place),
    flags,
    numBlocks: ledger.numBlocks ?? 0,
    groupWindows: ledger.groupWindows,
    numReplicas: place.numReplicas,
    cost,
  };
  const notes = [...found.notes, ...place.notes, ...(gpu?.isFitted === false ? [estimateNote(gpu)] : [])];
  return { ...place, deployment, found, weightDtype, kvDtype, engine, isEager, hasTimes: gpu !== null, ledger, notes };
}

function readCalibrationOf({ calibration, gpu, engineProfile }: DeploymentRequest): Calibration | null {
  if (calibration === null || calibration === undefined) return null;
  const read = readCalibration(calibration);
  const refused = read.kind === 'device' ? ['--gpu', gpu] : ['--engine-profile', engineProfile];
  if ((refused[1] ?? null) === null) return read;
  throw new PagodaError('bad_config', `--calibration ${calibration} holds a ${read.kind}: leave ${refused[0]} out.`, {
    param: '--calibration',
  });
}

/** A device that was measured with its own pool and limits; flags win over them. */
function measuredDeployment(request: DeploymentRequest, calibration: DeviceCalibration): ResolvedDeployment {
  const { maxNumSeqs, maxNumBatchedTokens, maxModelLen, blockSize, numBlocks } = calibration;
  const asked = request.maxNumSeqs ?? maxNumSeqs;
  const resolved = draftDeployment({
    ...request,
    calibration: null,
    maxNumSeqs: asked,
    maxNumBatchedTokens: request.maxNumBatchedTokens ?? Math.max(asked, maxNumBatchedTokens),
    maxModelLen: request.maxModelLen ?? maxModelLen,
    blockSize: request.blockSize ?? blockSize,
    numGpuBlocksOverride:
      (request.kvCacheMemoryBytes ?? null) === null
        ? (request.numGpuBlocksOverride ?? numBlocks)
        : (request.numGpuBlocksOverride ?? null),
  });
  const cost = new LinearStepCost(calibration.prices, calibration.requestSeconds);
  const { deployment } = resolved;
  const name = `${deployment.name} on ${calibration.device}`;
  return { ...resolved, hasTimes: true, deployment: { ...deployment, name, cost, plansAhead: true } };
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

function schedulerFlags(request: DeploymentRequest, gpu: GpuSpec | null, contextLength: number): SchedulerFlags {
  const asked = request.maxModelLen;
  const maxModelLen = typeof asked === 'number' ? asked : contextLength;
  const enableChunkedPrefill = request.enableChunkedPrefill ?? true;
  const givenSeqs = request.maxNumSeqs ?? null;
  const givenTokens = request.maxNumBatchedTokens ?? null;
  const ownTokens = gpu?.defaultMaxNumBatchedTokens ?? 2048;
  const tokens =
    givenTokens ?? Math.max(enableChunkedPrefill ? ownTokens : Math.max(ownTokens, maxModelLen), givenSeqs ?? 0);
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
