// The configurations worth trying on so many GPUs: how they are divided into replicas, the step budget, what makes room in the KV
// cache. What the user has fixed stays fixed, tensor parallelism excepted.

import type { GpuSpec } from '../sim/catalogue/gpus.ts';
import type { ModelShape } from '../sim/catalogue/model-shape.ts';
import type { DeploymentRequest } from './resolve-deployment.ts';
import { lengthFigures, type WorkloadSample } from './workload-sample.ts';

const BUDGETS = [2048, 512, 8192] as const;
const MAX_TENSOR_PARALLEL = 8;

/** GPU counts to try, rising: powers of two up to `most`, and `most` itself. */
export function gpuCounts(most: number): number[] {
  const counts: number[] = [];
  for (let count = 1; count < most; count *= 2) counts.push(count);
  return [...counts, most];
}

export interface CandidateInput {
  readonly request: DeploymentRequest;
  readonly shape: ModelShape;
  readonly gpu: GpuSpec;
  readonly numGpus: number;
  readonly sample: WorkloadSample;
}

/** Layouts on exactly `numGpus` GPUs, each with the first budget; `variantsOf` has the rest. */
export function layouts(input: CandidateInput): DeploymentRequest[] {
  const { request, shape, gpu, numGpus } = input;
  const pp = request.pipelineParallelSize ?? 1;
  const found: DeploymentRequest[] = [];
  for (let tp = 1; tp * pp <= numGpus && tp <= MAX_TENSOR_PARALLEL; tp *= 2) {
    const divides = shape.numHeads % tp === 0 && (shape.numKvHeads % tp === 0 || tp % shape.numKvHeads === 0);
    if (!divides || numGpus % (tp * pp) !== 0) continue;
    const dataParallelSize = numGpus / (tp * pp);
    found.push({
      ...request,
      gpu: `${gpu.name}:${numGpus}`,
      tensorParallelSize: tp,
      dataParallelSize,
      maxModelLen: request.maxModelLen ?? tunedLength(input),
      maxNumSeqs: request.maxNumSeqs ?? tunedSeqs(input.sample, dataParallelSize),
      maxNumBatchedTokens: request.maxNumBatchedTokens ?? BUDGETS[0],
    });
  }
  return found;
}

/** The same layout with other budgets, then with more room for keys and values. */
export function variantsOf(layout: DeploymentRequest, given: DeploymentRequest): DeploymentRequest[] {
  const budgets =
    (given.maxNumBatchedTokens ?? null) !== null
      ? []
      : BUDGETS.slice(1)
          .filter((budget) => budget >= (layout.maxNumSeqs ?? 1))
          .map((maxNumBatchedTokens) => ({ ...layout, maxNumBatchedTokens }));
  const utilization = (given.gpuMemoryUtilization ?? null) === null ? [{ ...layout, gpuMemoryUtilization: 0.95 }] : [];
  const dtype = (given.kvCacheDtype ?? null) === null ? [{ ...layout, kvCacheDtype: 'fp8' as const }] : [];
  return [...budgets, ...utilization, ...dtype];
}

/** The longest request, rounded up to 256 tokens, within what the model was made for. */
function tunedLength({ sample, shape }: CandidateInput): number {
  const { maxTokens } = lengthFigures(sample);
  return Math.max(2, Math.min(shape.contextLength, Math.ceil(maxTokens / 256) * 256));
}

/** Room for every user of a closed loop, at least 16, in powers of two; an open loop keeps 256. */
function tunedSeqs({ closedLoop }: WorkloadSample, numReplicas: number): number {
  if (closedLoop === null) return 256;
  const needed = Math.max(16, Math.ceil(closedLoop.concurrency / numReplicas));
  return Math.min(1024, 2 ** Math.ceil(Math.log2(needed)));
}
