// The door of the scheduler: what can never be served is refused with the numbers, instead of waiting for ever. Behind it one
// request alone always fits, which the scheduler's progress rests on.

import { PagodaError } from '../errors.ts';
import type { KvManager } from './kv-manager.ts';
import type { GenerateRequest } from './request.ts';
import type { SchedulerOptions } from './scheduler-options.ts';

/** Tokens (prompt + output) at which the request ends at the latest. */
export function maxTotalTokens(request: GenerateRequest, maxModelLen: number): number {
  return Math.min(maxModelLen, request.promptTokenIds.length + request.sampling.maxTokens);
}

/** Throws PagodaError `bad_request` or `context_length_exceeded`. */
export function checkCanEverRun(request: GenerateRequest, kv: KvManager, options: SchedulerOptions): void {
  const numPromptTokens = request.promptTokenIds.length;
  const { maxTokens } = request.sampling;
  if (numPromptTokens === 0)
    throw new PagodaError('bad_request', 'The prompt is empty: it needs at least one token.', { param: 'prompt' });
  if (!(maxTokens >= 1))
    throw new PagodaError('bad_request', `max_tokens must be at least 1, got ${maxTokens}.`, { param: 'max_tokens' });
  if (numPromptTokens >= options.maxModelLen) {
    throw tooLong(
      `This model's maximum context length is ${options.maxModelLen} tokens. However, you requested ${maxTokens} output tokens ` +
        `and your prompt contains ${numPromptTokens} input tokens, for a total of ${numPromptTokens + maxTokens} tokens. ` +
        'Please reduce the length of the input prompt or the number of requested output tokens.',
    );
  }
  if (!options.enableChunkedPrefill && numPromptTokens > options.maxNumBatchedTokens) {
    throw tooLong(
      `Chunked prefill is off, so a prompt must fit into one step of ${options.maxNumBatchedTokens} tokens. However, your prompt contains ` +
        `${numPromptTokens} input tokens. Please reduce the length of the input prompt, raise --max-num-batched-tokens or enable chunked prefill.`,
    );
  }
  const total = maxTotalTokens(request, options.maxModelLen);
  const needed = kv.peakBlocks(tokensToReserve(total, options));
  if (needed > kv.pool.numUsable) {
    throw tooLong(
      `The KV cache has ${kv.pool.numUsable} blocks of ${kv.blockSize} tokens, enough for ${mostTokens(kv, options)} tokens of one request. However, ` +
        `you requested ${total - numPromptTokens} output tokens and your prompt contains ${numPromptTokens} input tokens, for a total of ${total} tokens ` +
        `in ${needed} blocks. Please reduce the length of the input prompt or the number of requested output tokens, or give the KV cache more memory.`,
    );
  }
}

/** Positions that get blocks for a sequence that may reach `total` tokens; the last token it samples is never computed. */
function tokensToReserve(total: number, options: SchedulerOptions): number {
  return options.kvAllocation === 'static' ? options.maxModelLen : total - 1;
}

/** Longest request (prompt + output) that the whole pool can hold; 0 = none. */
function mostTokens(kv: KvManager, options: SchedulerOptions): number {
  let low = 0;
  let high = options.maxModelLen;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (kv.peakBlocks(tokensToReserve(middle, options)) <= kv.pool.numUsable) low = middle;
    else high = middle - 1;
  }
  return low;
}

function tooLong(message: string): PagodaError {
  return new PagodaError('context_length_exceeded', message, { param: 'input_tokens' });
}
