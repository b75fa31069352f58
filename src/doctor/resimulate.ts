// The effect of a change, by running the observed load once more on the modelled deployment, with and without it. The scheduler is
// the real one; what is modelled is the device.

import { PagodaError } from '../errors.ts';
import { type DeploymentRequest, resolveDeployment } from '../plan/resolve-deployment.ts';
import type { KvCacheDtype } from '../sim/cost/kv-memory.ts';
import { simulate } from '../sim/simulation.ts';
import type { Resimulate } from './diagnose.ts';
import { observedWorkload } from './observed-workload.ts';
import type { DeploymentChange } from './rule.ts';
import type { Signals } from './signals.ts';

/** Throws what is wrong with the deployment as it is. A change that is not possible there answers null. */
export function resimulator(request: DeploymentRequest, signals: Signals): Resimulate {
  const current = resolveDeployment(request);
  return (change) => {
    const workload = observedWorkload(signals, change);
    if (workload === null) return null;
    try {
      const changed = changedRequest(request, change, {
        numReplicas: current.deployment.numReplicas,
        tensorParallelSize: current.tensorParallelSize,
      });
      const { summary } = simulate(resolveDeployment(changed).deployment, workload);
      return summary.numCompleted === 0 ? null : summary;
    } catch (error) {
      if (error instanceof PagodaError) return null;
      throw error;
    }
  };
}

interface Current {
  readonly numReplicas: number;
  readonly tensorParallelSize: number;
}

/** Exported for its test. More GPUs are added where a change needs them: it says so in its side effect. */
export function changedRequest(
  request: DeploymentRequest,
  change: DeploymentChange,
  current: Current,
): DeploymentRequest {
  const { maxNumSeqs, maxNumBatchedTokens, watermark, maxModelLen, gpuMemoryUtilization, kvCacheDtype } = change;
  const tensorParallelSize = change.tensorParallelSize ?? current.tensorParallelSize;
  const numReplicas = current.numReplicas * (change.numReplicas ?? 1);
  const numGpus = tensorParallelSize * numReplicas * (request.pipelineParallelSize ?? 1);
  const needsGpus = change.tensorParallelSize !== undefined || change.numReplicas !== undefined;
  return {
    ...request,
    ...(maxNumSeqs === undefined ? {} : { maxNumSeqs }),
    ...(maxNumBatchedTokens === undefined ? {} : { maxNumBatchedTokens }),
    ...(watermark === undefined ? {} : { watermark }),
    ...(maxModelLen === undefined ? {} : { maxModelLen }),
    ...(gpuMemoryUtilization === undefined ? {} : { gpuMemoryUtilization }),
    ...(kvCacheDtype === undefined ? {} : { kvCacheDtype: kvCacheDtype as KvCacheDtype }),
    ...(change.enforceEager === undefined ? {} : { enforceEager: change.enforceEager }),
    ...(change.enablePrefixCaching === undefined ? {} : { enablePrefixCaching: change.enablePrefixCaching }),
    ...(change.greedySampler === true ? { engineProfile: 'vllm' as const } : {}),
    ...(needsGpus
      ? { tensorParallelSize, dataParallelSize: numReplicas, gpu: withGpus(request.gpu ?? null, numGpus) }
      : {}),
  };
}

const withGpus = (gpu: string | null, numGpus: number): string | null =>
  gpu === null ? null : `${gpu.split(':')[0]}:${numGpus}`;
