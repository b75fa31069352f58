// How a model is laid out on the GPUs: how many share each layer, how many stand in a row, how many copies that makes.

import { PagodaError } from '../errors.ts';
import type { FoundModel } from '../sim/catalogue/find-model.ts';
import { type GpuSpec, parseGpus } from '../sim/catalogue/gpus.ts';
import type { DeploymentRequest } from './resolve-deployment.ts';

export interface Placement {
  readonly gpu: GpuSpec | null;
  readonly numGpus: number;
  readonly tensorParallelSize: number;
  readonly pipelineParallelSize: number;
  readonly numReplicas: number;
  readonly notes: readonly string[];
}

/** Throws `bad_config`: heads or layers that cannot be dealt out, more GPUs than there are. */
export function placement(request: DeploymentRequest, { shape }: FoundModel): Placement {
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
    if (numReplicas > 1)
      notes.push(`${count} GPUs hold ${numReplicas} replicas (--data-parallel-size ${numReplicas}).`);
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
