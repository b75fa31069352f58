// Everything the engine needs to start; a slice of the resolved configuration (config.ts). Plain data: crosses processes.

import type { KvDtype } from '../device/kv-layout.ts';

export interface EngineOptions {
  /** Path or name as the user gave it. */
  readonly model: string;
  readonly device: 'auto' | 'cpu' | 'reference';
  /** null = all cores this process may use. */
  readonly numThreads: number | null;
  readonly computeDtype: 'int8' | 'f32';
  readonly kvCacheDtype: KvDtype | 'auto';
  readonly blockSize: number;
  /** null = from the model; 'auto' = the largest that fits the pool. */
  readonly maxModelLen: number | 'auto' | null;
  readonly maxNumSeqs: number;
  /** null = 2048, or max-model-len when chunked prefill is off. */
  readonly maxNumBatchedTokens: number | null;
  /** Most prompt tokens in one step, over all sequences; null = only the step budget limits. */
  readonly chunkedPrefillSize: number | null;
  readonly enableChunkedPrefill: boolean;
  readonly enablePrefixCaching: boolean;
  /** Share of the memory really available to the process that weights and KV pool may use, (0, 1]. */
  readonly memoryUtilization: number;
  readonly kvCacheMemoryBytes: number | null;
  readonly numGpuBlocksOverride: number | null;
  readonly schedulingPolicy: 'fcfs' | 'priority';
  /** Share of blocks kept free at admission while something runs. */
  readonly watermark: number;
  /** `static` reserves max-model-len for every sequence at admission: for comparison only. */
  readonly kvAllocation: 'paged' | 'static';
  /** false recomputes every token in every step: shows what the cache saves. */
  readonly useKvCache: boolean;
  /** Waiting requests beyond this are refused. */
  readonly maxNumQueuedReqs: number;
}
