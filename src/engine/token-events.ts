// From the scheduler's progress and the device's numbers to the TokenEvents that leave the engine.

import type { SequenceProgress } from '../core/progress.ts';
import type { FinishInfo, TokenEvent, TokenLogprob } from '../core/request.ts';
import type { StepResult } from '../device/forward-batch.ts';
import type { PromptLogprobs } from './prompt-logprobs.ts';

export const FAULT_MESSAGE =
  'The model produced no usable numbers (NaN or infinity) for this request; it was ended. Other requests are not affected.';

export function tokenEvent(
  progress: SequenceProgress,
  result: StepResult | null,
  prompt: PromptLogprobs | null,
  message: string | null,
): TokenEvent {
  const { sequence, numNewTokens, finishReason } = progress;
  const hasToken = numNewTokens > 0;
  // A view and its iterator would cost more than all else here.
  const tokenIds: number[] = [];
  for (let i = sequence.numTokens - numNewTokens; i < sequence.numTokens; i++) tokenIds.push(sequence.tokenIds[i]!);
  const wantsLogprobs = sequence.request.sampling.logprobs !== null;
  return {
    id: sequence.id,
    tokenIds,
    logprobs: wantsLogprobs ? logprobsOf(progress, tokenIds, result) : null,
    promptLogprobs: hasToken ? (prompt?.take() ?? null) : null,
    numCachedTokens: sequence.numCachedTokens,
    finish: finishReason === null ? null : finishInfo(progress, message),
  };
}

function finishInfo({ sequence, finishReason, stopTokenId }: SequenceProgress, message: string | null): FinishInfo {
  const reason = finishReason ?? 'error';
  return {
    reason,
    stopTokenId,
    message: reason === 'error' ? (message ?? FAULT_MESSAGE) : null,
    timing: sequence.timing(),
  };
}

function logprobsOf(
  { firstRow }: SequenceProgress,
  tokenIds: readonly number[],
  result: StepResult | null,
): TokenLogprob[] {
  return result === null ? [] : tokenIds.map((tokenId, i) => sampledLogprob(result, firstRow + i, tokenId));
}

function sampledLogprob(result: StepResult, row: number, tokenId: number): TokenLogprob {
  const start = result.topStart[row]!;
  const end = result.topStart[row + 1]!;
  const top = [];
  for (let i = start; i < end; i++) {
    top.push({ tokenId: result.topTokens[i]!, logprob: result.topLogprobs[i]!, rank: i - start + 1 });
  }
  return { tokenId, logprob: result.sampledLogprobs[row]!, rank: result.sampledRanks[row]!, top };
}
