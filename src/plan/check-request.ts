// Ranges of the plain numbers of a deployment request. Every refusal names the flag and the nearest value that works.

import { PagodaError } from '../errors.ts';
import type { DeploymentRequest } from './resolve-deployment.ts';

const MAX_MODEL_LEN = 16_777_216;

/** Ranges of plain numbers; combinations are checked where they are used. */
export function checkRequestNumbers(request: DeploymentRequest): void {
  const count = (flag: string, value: number | null | undefined, min: number, max: number) => {
    if (value === null || value === undefined) return;
    if (Number.isSafeInteger(value) && value >= min && value <= max) return;
    const nearest = Number.isFinite(value) ? Math.min(max, Math.max(min, Math.round(value))) : min;
    throw new PagodaError(
      'bad_config',
      `${flag} must be a whole number from ${min} to ${max}, got ${value}; the nearest is ${nearest}.`,
      {
        param: flag,
      },
    );
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
    throw new PagodaError(
      'bad_config',
      `--gpu-memory-utilization must be above 0 and up to 1, got ${utilization}; the default is 0.9.`,
      {
        param: '--gpu-memory-utilization',
      },
    );
  }
  if (watermark !== null && watermark !== undefined && !(watermark >= 0 && watermark < 1)) {
    throw new PagodaError(
      'bad_config',
      `--watermark must be from 0 up to, but not including, 1, got ${watermark}; the default is 0.`,
      {
        param: '--watermark',
      },
    );
  }
}
