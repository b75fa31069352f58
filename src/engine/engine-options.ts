// Everything the engine needs to start; a slice of the resolved configuration (config.ts). Plain data: crosses processes.

import { isThreadsBind, THREADS_BIND_RULE } from '../device/cpu/thread-cpus.ts';
import type { KvDtype } from '../device/kv-layout.ts';
import { PagodaError } from '../errors.ts';
import { type SpeculativeConfig, speculationOptions } from './speculative-config.ts';

export interface EngineOptions {
  /** Path or name as the user gave it. */
  readonly model: string;
  readonly device: 'auto' | 'cpu' | 'reference';
  /** null = all cores this process may use. */
  readonly numThreads: number | null;
  /** auto, nobind, or a list of CPUs like 0-3,8: thread i on the i-th. */
  readonly cpuThreadsBind: string;
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
  /** Blocks of the pool, the null block included. */
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
  /** Draft tokens by prompt lookup, in vLLM's names: the same output in fewer steps. null = none. */
  readonly speculativeConfig: SpeculativeConfig | null;
  /** Keep packed weights in the cache folder, for the next start. */
  readonly packedCache: boolean;
  /** Bytes of all packed weights in the folder; the least recently used go first. */
  readonly packedCacheSize: number;
  /** null = PAGODA_CACHE_DIR, else $XDG_CACHE_HOME/pagoda, else ~/.cache/pagoda. */
  readonly cacheDir: string | null;
}

/** The one place for these defaults: flags and the LLM class take them from here. */
export const DEFAULT_ENGINE_OPTIONS: EngineOptions = Object.freeze({
  model: 'pagoda-mini',
  device: 'auto',
  numThreads: null,
  cpuThreadsBind: 'auto',
  computeDtype: 'int8',
  kvCacheDtype: 'auto',
  blockSize: 16,
  maxModelLen: null,
  maxNumSeqs: 128,
  maxNumBatchedTokens: null,
  chunkedPrefillSize: null,
  enableChunkedPrefill: true,
  enablePrefixCaching: true,
  memoryUtilization: 0.92,
  kvCacheMemoryBytes: null,
  numGpuBlocksOverride: null,
  schedulingPolicy: 'fcfs',
  watermark: 0.01,
  kvAllocation: 'paged',
  useKvCache: true,
  maxNumQueuedReqs: 256,
  speculativeConfig: null,
  packedCache: true,
  packedCacheSize: 32 * 2 ** 30,
  cacheDir: null,
});

/** Which texts `cpuThreadsBind` takes. */
export const THREADS_BIND_CHECK = { rule: THREADS_BIND_RULE, accepts: isThreadsBind };

export const BLOCK_SIZES: readonly number[] = [8, 16, 32, 64, 128];

const isCount = (value: unknown, least = 1): boolean => Number.isSafeInteger(value) && (value as number) >= least;
const orNull = (check: (value: unknown) => boolean) => (value: unknown) => value === null || check(value);
const oneOf = (...values: unknown[]) => ({
  rule: `one of ${values.join(', ')}`,
  ok: (value: unknown) => values.includes(value),
});
const flag = { rule: 'true or false', ok: (value: unknown) => typeof value === 'boolean' };
const count = { rule: 'an integer of at least 1', ok: (value: unknown) => isCount(value) };
const maybeCount = { rule: 'an integer of at least 1, or null', ok: orNull((value) => isCount(value)) };

/** Says itself what is wrong inside the object. */
function isSpeculativeConfig(value: unknown): boolean {
  if (typeof value !== 'object') return false;
  if (value === null) return true;
  try {
    speculationOptions({ ...value });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new PagodaError('bad_config', `speculativeConfig ${reason}.`, { param: 'speculativeConfig', cause: error });
  }
  return true;
}

const RULES: Readonly<Record<keyof EngineOptions, { rule: string; ok(value: unknown): boolean }>> = {
  model: { rule: 'a path or name', ok: (value) => typeof value === 'string' && value !== '' },
  device: oneOf('auto', 'cpu', 'reference'),
  numThreads: maybeCount,
  cpuThreadsBind: { rule: THREADS_BIND_RULE, ok: isThreadsBind },
  computeDtype: oneOf('int8', 'f32'),
  kvCacheDtype: oneOf('auto', 'f16', 'bf16', 'f32', 'int8'),
  blockSize: oneOf(...BLOCK_SIZES),
  maxModelLen: {
    rule: "an integer of at least 2, 'auto' or null",
    ok: (value) => value === null || value === 'auto' || isCount(value, 2),
  },
  maxNumSeqs: count,
  maxNumBatchedTokens: maybeCount,
  chunkedPrefillSize: maybeCount,
  enableChunkedPrefill: flag,
  enablePrefixCaching: flag,
  memoryUtilization: {
    rule: 'a number above 0 and up to 1',
    ok: (value) => typeof value === 'number' && value > 0 && value <= 1,
  },
  kvCacheMemoryBytes: maybeCount,
  numGpuBlocksOverride: { rule: 'an integer of at least 2, or null', ok: orNull((value) => isCount(value, 2)) },
  schedulingPolicy: oneOf('fcfs', 'priority'),
  watermark: { rule: 'a number in [0, 1)', ok: (value) => typeof value === 'number' && value >= 0 && value < 1 },
  kvAllocation: oneOf('paged', 'static'),
  useKvCache: flag,
  maxNumQueuedReqs: count,
  speculativeConfig: { rule: 'an object or null', ok: isSpeculativeConfig },
  packedCache: flag,
  packedCacheSize: count,
  cacheDir: { rule: 'a path, or null', ok: orNull((value) => typeof value === 'string' && value !== '') },
};

/** Completes options given in code. Throws bad_config for an unknown name or a value that the option does not take. */
export function completeEngineOptions(given: Partial<EngineOptions>): EngineOptions {
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(RULES, name)) {
      throw new PagodaError('bad_config', `'${name}' is not an option. Options: ${Object.keys(RULES).join(', ')}.`, {
        param: name,
      });
    }
    const { rule, ok } = RULES[name as keyof EngineOptions];
    if (!ok(value))
      throw new PagodaError('bad_config', `${name} must be ${rule}, got ${String(value)}.`, { param: name });
  }
  const defined = Object.entries(given).filter(([, value]) => value !== undefined);
  return Object.freeze({ ...DEFAULT_ENGINE_OPTIONS, ...Object.fromEntries(defined) });
}
