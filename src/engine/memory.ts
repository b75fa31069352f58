// How many KV blocks there are and how long a sequence may get: from the memory at hand and the options, or a refusal with the
// numbers, in vLLM's words where vLLM has them. Pure arithmetic; every size is in bytes.

import { KvManager } from '../core/kv-manager.ts';
import type { KvLayout } from '../device/kv-layout.ts';
import { PagodaError } from '../errors.ts';

export interface MemoryRequest {
  readonly kv: KvLayout;
  /** The model's own limit. */
  readonly contextLength: number;
  /** null = contextLength; 'auto' = the largest that fits. */
  readonly maxModelLen: number | 'auto' | null;
  readonly maxNumSeqs: number;
  /** Most prompt tokens of one sequence in one step: what a window layer must hold beyond its window. */
  readonly maxTokensPerStep: number;
  /** What the process could get before the weights were loaded. */
  readonly availableBytes: number;
  readonly weightBytes: number;
  readonly activationBytes: number;
  readonly memoryUtilization: number;
  readonly kvCacheMemoryBytes: number | null;
  readonly numGpuBlocksOverride: number | null;
  /** `static` lets every sequence reserve its full length. */
  readonly kvAllocation: 'paged' | 'static';
  /** Largest pool the device can hold, beyond which `auto` sizing does not go. */
  readonly maxPoolBytes: number;
}

export interface MemoryPlan {
  readonly maxModelLen: number;
  /** Including the null block. */
  readonly numBlocks: number;
  readonly poolBytes: number;
  /** Tokens the pool holds, of sequences of maxModelLen. */
  readonly kvCacheTokens: number;
  readonly maxConcurrency: number;
}

export function planMemory(request: MemoryRequest): MemoryPlan {
  const { kv, contextLength, maxModelLen } = request;
  if (typeof maxModelLen === 'number' && maxModelLen > contextLength) {
    throw new PagodaError(
      'bad_config',
      `User-specified max_model_len (${maxModelLen}) is greater than the derived max_model_len (max_position_embeddings=${contextLength} ` +
        "in the model's config). Set --max-model-len to at most that.",
      { param: '--max-model-len' },
    );
  }
  const blocksFor = blockCounter(request);
  const numUsable = usableBlocks(request, blocksFor);
  const longest = longestThatFits(Math.min(contextLength, MAX_LENGTH), numUsable, blocksFor);
  const wanted = maxModelLen === 'auto' ? longest : (maxModelLen ?? contextLength);
  if (wanted < 2 || wanted > longest) throw tooLong(request, wanted, longest, { numUsable, blocksFor });
  const maxConcurrency = numUsable / blocksFor(wanted);
  const hasWindows = kv.groups.some((group) => group.window > 0);
  return {
    maxModelLen: wanted,
    numBlocks: numUsable + 1,
    poolBytes: (numUsable + 1) * kv.blockBytes,
    kvCacheTokens: hasWindows
      ? Math.floor(maxConcurrency * wanted)
      : Math.floor(numUsable / kv.groups.length) * kv.blockSize,
    maxConcurrency,
  };
}

const MAX_LENGTH = 2 ** 24;

/** Blocks that one sequence of a length needs at most; the KV of its last token is never written. */
function blockCounter(request: MemoryRequest): (length: number) => number {
  const { kv, maxTokensPerStep } = request;
  const isStatic = request.kvAllocation === 'static';
  const counter = new KvManager({
    blockSize: kv.blockSize,
    numBlocks: 2,
    groups: kv.groups.map((group) => ({ window: isStatic ? 0 : group.window })),
    keepsAll: isStatic,
    enablePrefixCaching: false,
    cacheSecret: new Uint8Array(32),
    maxTokensPerStep,
  });
  return (length) => counter.peakBlocks(isStatic ? length : Math.max(1, length - 1));
}

/** Without the null block. */
function usableBlocks(request: MemoryRequest, blocksFor: (length: number) => number): number {
  const { kv, numGpuBlocksOverride, kvCacheMemoryBytes, availableBytes, weightBytes, activationBytes } = request;
  const fixedBytes =
    numGpuBlocksOverride !== null
      ? numGpuBlocksOverride * kv.blockBytes
      : kvCacheMemoryBytes !== null
        ? kvCacheMemoryBytes
        : null;
  if (fixedBytes !== null) {
    const needed = fixedBytes + weightBytes + activationBytes;
    if (needed > availableBytes) {
      throw new PagodaError(
        'out_of_memory',
        `The KV cache of ${gib(fixedBytes)} GiB, the weights (${gib(weightBytes)} GiB) and the activations (${gib(activationBytes)} GiB) ` +
          `need ${gib(needed)} GiB, but only ${gib(availableBytes)} GiB are available. Decrease ` +
          `${numGpuBlocksOverride !== null ? '--num-gpu-blocks-override' : '--kv-cache-memory-bytes'} or reduce memory used by other processes.`,
      );
    }
    return Math.floor(fixedBytes / kv.blockBytes) - 1;
  }
  const budget = kvBudget(request);
  if (budget < 2 * kv.blockBytes) {
    throw new PagodaError(
      'out_of_memory',
      'No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine. ' +
        `(${gib(availableBytes)} GiB available x ${request.memoryUtilization} - weights ${gib(weightBytes)} GiB - activations ${gib(activationBytes)} GiB)`,
    );
  }
  const affordable = Math.floor(budget / kv.blockBytes) - 1;
  // More than every slot filled to the end could never be used at once.
  const length = typeof request.maxModelLen === 'number' ? request.maxModelLen : request.contextLength;
  const useful = request.maxNumSeqs * blocksFor(Math.min(length, request.contextLength));
  return Math.min(affordable, useful);
}

function kvBudget(request: MemoryRequest): number {
  const { availableBytes, memoryUtilization, weightBytes, activationBytes, maxPoolBytes } = request;
  return Math.min(maxPoolBytes, availableBytes * memoryUtilization - weightBytes - activationBytes);
}

function longestThatFits(limit: number, numUsable: number, blocksFor: (length: number) => number): number {
  let low = 0;
  let high = limit;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (blocksFor(middle) <= numUsable) low = middle;
    else high = middle - 1;
  }
  return low;
}

function tooLong(
  request: MemoryRequest,
  wanted: number,
  longest: number,
  { numUsable, blocksFor }: { numUsable: number; blocksFor: (length: number) => number },
): PagodaError {
  const { blockBytes } = request.kv;
  const needed = blocksFor(Math.max(2, wanted)) * blockBytes;
  return new PagodaError(
    'out_of_memory',
    `To serve at least one request with the model's max seq len (${Math.max(2, wanted)}), (${gib(needed)} GiB KV cache is needed, which is larger ` +
      `than the available KV cache memory (${gib(numUsable * blockBytes)} GiB). Based on the available memory, the estimated maximum model length is ` +
      `${longest}. Try increasing \`gpu_memory_utilization\` or decreasing \`max_model_len\` when initializing the engine.`,
    { param: '--max-model-len' },
  );
}

/** Bytes as GiB with two decimals; small sizes keep enough digits to say something. */
export function gib(bytes: number): string {
  const value = bytes / 2 ** 30;
  return value !== 0 && Math.abs(value) < 0.01 ? value.toPrecision(2) : value.toFixed(2);
}
