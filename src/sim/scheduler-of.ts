// The scheduler of one replica, the very class that serves, with a deployment's flags.

import { Scheduler } from '../core/scheduler.ts';
import { PagodaError } from '../errors.ts';
import type { Deployment } from './deployment.ts';

/** Simulated prompts are nobody's secret; a fixed key keeps runs equal. */
const CACHE_SECRET = new Uint8Array(32);

/** Throws PagodaError `bad_config`. */
export function schedulerOf({ flags, numBlocks, groupWindows, name }: Deployment): Scheduler {
  if (!(numBlocks >= 1)) {
    throw new PagodaError('bad_config', `${name} has no memory for a KV cache: nothing can be simulated on it.`, {
      param: '--gpu',
    });
  }
  return new Scheduler({
    // More sequences than tokens in a step cannot run together.
    maxNumSeqs: Math.min(flags.maxNumSeqs, flags.maxNumBatchedTokens),
    maxNumBatchedTokens: flags.maxNumBatchedTokens,
    chunkedPrefillSize: flags.chunkedPrefillSize,
    enableChunkedPrefill: flags.enableChunkedPrefill,
    enablePrefixCaching: flags.enablePrefixCaching,
    policy: flags.schedulingPolicy,
    watermark: flags.watermark,
    maxModelLen: flags.maxModelLen,
    kvAllocation: flags.kvAllocation,
    useKvCache: true,
    blockSize: flags.blockSize,
    // And the null block.
    numBlocks: numBlocks + 1,
    groups: groupWindows.map((window) => ({ window })),
    maxNumQueuedReqs: Number.MAX_SAFE_INTEGER,
    cacheSecret: CACHE_SECRET,
    // Simulated tokens are numbers without a text: nothing could be proposed from them.
    speculation: null,
  });
}
