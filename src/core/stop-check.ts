// When a sequence ends, in vLLM's order: nothing but the length before min_tokens, then end-of-sequence ids, then the
// request's own stop ids, then the length. Stop strings are found in the front, which aborts with reason `stop`.

import type { FinishReason } from './request.ts';
import type { Sequence } from './sequence.ts';

export interface Stop {
  readonly reason: FinishReason;
  readonly stopTokenId: number | null;
}

const END_OF_SEQUENCE: Stop = Object.freeze({ reason: 'stop', stopTokenId: null });
/** The device could not say what comes next. */
export const FAULT: Stop = Object.freeze({ reason: 'error', stopTokenId: null });
const FULL_LENGTH: Stop = Object.freeze({ reason: 'length', stopTokenId: null });

/** Gives the sequence the tokens [first, end), up to the one that ends it; null = it goes on after all of them. */
export function appendUntilStop(
  sequence: Sequence,
  tokens: ArrayLike<number>,
  first: number,
  end: number,
): Stop | null {
  for (let i = first; i < end; i++) {
    sequence.appendSampled(tokens[i]!);
    const stop = checkStop(sequence);
    if (stop !== null) return stop;
  }
  return null;
}

/** Whether the last token of the sequence ends it; null = it goes on. */
function checkStop(sequence: Sequence): Stop | null {
  const sampling = sequence.request.sampling;
  const lastToken = sequence.tokenIds[sequence.numTokens - 1]!;
  if (sequence.numOutputTokens >= sampling.minTokens) {
    if (!sampling.ignoreEos && contains(sampling.eosTokenIds, lastToken)) return END_OF_SEQUENCE;
    if (contains(sampling.stopTokenIds, lastToken)) return { reason: 'stop', stopTokenId: lastToken };
  }
  return sequence.numTokens >= sequence.maxTotalTokens ? FULL_LENGTH : null;
}

/** Lists of a few ids, for every token: a loop is compiled in place, `includes` is a call. */
function contains(ids: readonly number[], id: number): boolean {
  for (let i = 0; i < ids.length; i++) if (ids[i] === id) return true;
  return false;
}
