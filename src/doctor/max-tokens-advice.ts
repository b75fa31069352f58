// A proposal for max_tokens from the lengths of outputs that were seen: limits far above them reserve nothing in a paged cache, but
// they let a runaway generation run, and they let requests be accepted that might not fit.

import type { Signals } from './signals.ts';

export interface MaxTokensAdvice {
  readonly outputP95Tokens: number;
  readonly outputP99Tokens: number;
  /** What requests ask for now, mean; null = unknown. */
  readonly nowTokens: number | null;
  /** Cuts 1 % of the outputs. */
  readonly proposedTokens: number;
  /** Cuts 5 % of the outputs. */
  readonly tightTokens: number;
}

/** Null when lengths are unknown. */
export function maxTokensAdvice({ outputP95, outputP99, maxTokensMean }: Signals): MaxTokensAdvice | null {
  if (outputP95 === undefined || outputP99 === undefined || outputP99 <= 0) return null;
  return {
    outputP95Tokens: outputP95,
    outputP99Tokens: outputP99,
    nowTokens: maxTokensMean ?? null,
    proposedTokens: roundUp(outputP99),
    tightTokens: roundUp(outputP95),
  };
}

/** To a number people would choose: whole blocks, coarser where it is large. */
function roundUp(tokens: number): number {
  const unit = tokens > 1024 ? 256 : tokens > 128 ? 32 : 16;
  return Math.max(unit, Math.ceil(tokens / unit) * unit);
}
