// What the scheduler needs to know; plain numbers, so that tests and the simulator can make one in a line.

import { PagodaError } from '../errors.ts';
import type { WindowGroup } from './kv-manager.ts';
import type { SpeculationOptions } from './speculation.ts';
import type { SchedulingPolicy } from './waiting-queue.ts';

export interface SchedulerOptions {
  /** Most sequences running at once; also the number of device slots. */
  readonly maxNumSeqs: number;
  /** Most tokens in one step; at least maxNumSeqs, so that every running sequence can get its token in every step. */
  readonly maxNumBatchedTokens: number;
  /** Most prefill tokens in one step, over all sequences; null = only maxNumBatchedTokens limits. Used with chunked prefill only. */
  readonly chunkedPrefillSize: number | null;
  /** false: a prompt is computed in one step or waits. */
  readonly enableChunkedPrefill: boolean;
  readonly enablePrefixCaching: boolean;
  readonly policy: SchedulingPolicy;
  /** Share of the blocks that must stay free after an admission while something runs, [0, 1). */
  readonly watermark: number;
  readonly maxModelLen: number;
  /** `static` reserves maxModelLen for every sequence at its admission and never gives up windows: for comparison only. */
  readonly kvAllocation: 'paged' | 'static';
  /** false: all tokens of a sequence are computed again for every token it samples; implies no prefix caching. */
  readonly useKvCache: boolean;
  readonly blockSize: number;
  /** Including the null block 0. */
  readonly numBlocks: number;
  readonly groups: readonly WindowGroup[];
  /** Requests beyond this many waiting ones are refused. */
  readonly maxNumQueuedReqs: number;
  /** Drawn at boot; makes the names of cached blocks unpredictable. */
  readonly cacheSecret: Uint8Array;
  /** null = no drafts. */
  readonly speculation: SpeculationOptions | null;
}

/** Throws PagodaError `bad_config` that names the option and its allowed values. */
export function checkSchedulerOptions(options: SchedulerOptions): void {
  requireCount('max_num_seqs', options.maxNumSeqs, 1);
  requireCount('max_num_batched_tokens', options.maxNumBatchedTokens, 1);
  if (options.chunkedPrefillSize !== null) requireCount('chunked_prefill_size', options.chunkedPrefillSize, 1);
  requireCount('max_model_len', options.maxModelLen, 2);
  requireCount('block_size', options.blockSize, 1);
  requireCount('num_blocks', options.numBlocks, 2);
  requireCount('max_num_queued_reqs', options.maxNumQueuedReqs, 0);
  if (options.maxNumBatchedTokens < options.maxNumSeqs) {
    throw new PagodaError(
      'bad_config',
      `max_num_batched_tokens (${options.maxNumBatchedTokens}) must be greater than or equal to max_num_seqs (${options.maxNumSeqs}).`,
      { param: 'max_num_batched_tokens' },
    );
  }
  if (!(options.watermark >= 0 && options.watermark < 1)) {
    throw new PagodaError('bad_config', `watermark must be in [0, 1), got ${options.watermark}.`, {
      param: 'watermark',
    });
  }
  if (options.groups.length === 0) throw new PagodaError('bad_config', 'At least one KV group is needed.');
  for (const group of options.groups) requireCount('window', group.window, 0);
  if (options.speculation !== null) checkSpeculation(options.speculation, options.useKvCache);
}

function checkSpeculation(
  { numDraftTokens, minNgram, maxNgram, maxSeqs }: SpeculationOptions,
  useKvCache: boolean,
): void {
  requireCount('num_speculative_tokens', numDraftTokens, 1);
  requireCount('prompt_lookup_min', minNgram, 1);
  requireCount('prompt_lookup_max', maxNgram, minNgram);
  requireCount('disable_by_batch_size', maxSeqs, 1);
  if (!useKvCache)
    throw new PagodaError('bad_config', 'Speculation needs the KV cache: it skips what a step computed.');
}

function requireCount(name: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return;
  throw new PagodaError('bad_config', `${name} must be an integer of at least ${least}, got ${value}.`, {
    param: name,
  });
}
