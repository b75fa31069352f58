// A configuration as commands to paste: only what differs from the defaults of the program that reads it.

import type { DeploymentRequest, ResolvedDeployment } from './resolve-deployment.ts';

export interface CommandLines {
  readonly vllm: string;
  readonly pagoda: string;
  /** What one of them cannot express. */
  readonly notes: readonly string[];
}

export function commandLines(resolved: ResolvedDeployment, request: DeploymentRequest): CommandLines {
  const { deployment, tensorParallelSize, pipelineParallelSize, kvDtype, weightDtype, found, isEager } = resolved;
  const { flags, numReplicas } = deployment;
  const notes: string[] = [];
  const vllm = [`vllm serve ${quoted(request.model)}`];
  const pagoda = [`pagoda serve ${quoted(request.model)}`];
  const both = (text: string) => {
    vllm.push(text);
    pagoda.push(text);
  };
  if (tensorParallelSize > 1) vllm.push(`--tensor-parallel-size ${tensorParallelSize}`);
  if (pipelineParallelSize > 1) vllm.push(`--pipeline-parallel-size ${pipelineParallelSize}`);
  if (numReplicas > 1) vllm.push(`--data-parallel-size ${numReplicas}`);
  if (tensorParallelSize * pipelineParallelSize * numReplicas > 1)
    notes.push('pagoda serve runs on one CPU device: its line leaves parallelism out.');
  both(`--gpu-memory-utilization ${request.gpuMemoryUtilization ?? 0.9}`);
  if (request.kvCacheMemoryBytes) both(`--kv-cache-memory-bytes ${request.kvCacheMemoryBytes}`);
  both(`--max-model-len ${flags.maxModelLen}`);
  both(`--max-num-seqs ${flags.maxNumSeqs}`);
  both(`--max-num-batched-tokens ${flags.maxNumBatchedTokens}`);
  if (flags.blockSize !== 16) both(`--block-size ${flags.blockSize}`);
  if (!flags.enablePrefixCaching) both('--no-enable-prefix-caching');
  if (!flags.enableChunkedPrefill) both('--no-enable-chunked-prefill');
  if (flags.schedulingPolicy !== 'fcfs') both(`--scheduling-policy ${flags.schedulingPolicy}`);
  if (flags.watermark > 0) pagoda.push(`--watermark ${flags.watermark}`);
  if (flags.kvAllocation === 'static') {
    pagoda.push('--kv-allocation static');
    notes.push('vLLM always pages; static allocation is only for comparison.');
  }
  if (flags.chunkedPrefillSize !== null) {
    pagoda.push(`--chunked-prefill-size ${flags.chunkedPrefillSize}`);
    notes.push('vLLM has no --chunked-prefill-size: --max-num-batched-tokens bounds its chunks.');
  }
  if (isEager) vllm.push('--enforce-eager');
  if (weightDtype !== found.shape.weightDtype && weightDtype === 'fp8') vllm.push('--quantization fp8');
  if (kvDtype === 'fp8') {
    vllm.push('--kv-cache-dtype fp8');
    pagoda.push('--kv-cache-dtype int8');
    notes.push('CPUs have no fp8: int8 takes about the same memory.');
  } else if (kvDtype === 'int8' || kvDtype === 'f32') pagoda.push(`--kv-cache-dtype ${kvDtype}`);
  return { vllm: vllm.join(' '), pagoda: pagoda.join(' '), notes };
}

/** For a POSIX shell. */
function quoted(text: string): string {
  return /^[\w./:@+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
