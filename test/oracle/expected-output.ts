// A stupid generator: one request, alone, all tokens recomputed for each new one. What the scheduler and a device make of the
// same request in any company must be exactly this. The "model" is a hash of the whole prefix and the request's seed.

import type { FinishReason, GenerateRequest } from '../../src/core/request.ts';

export const VOCABULARY = 6;

/** The token this "model" chooses after a prefix. */
export function chooseToken(request: GenerateRequest, prefix: ArrayLike<number>): number {
  let state = Number(request.sampling.seed & 0xffffffffn) | 0;
  for (let i = 0; i < prefix.length; i++) state = Math.imul(state ^ (prefix[i]! + 0x9e37), 0x01000193) ^ (state >>> 15);
  state = Math.imul(state ^ (state >>> 13), 0x5bd1e995);
  const draw = (state ^ (state >>> 15)) >>> 0;
  // Token 0 ends many sequences, so it is rare.
  return draw % 41 === 0 ? 0 : 1 + (draw % (VOCABULARY - 1));
}

export interface ExpectedOutput {
  readonly outputIds: readonly number[];
  readonly reason: FinishReason;
  readonly stopTokenId: number | null;
}

export function expectedOutput(request: GenerateRequest, maxModelLen: number): ExpectedOutput {
  const { sampling } = request;
  const tokens = [...request.promptTokenIds];
  const outputIds: number[] = [];
  for (;;) {
    const token = chooseToken(request, tokens);
    tokens.push(token);
    outputIds.push(token);
    if (outputIds.length >= sampling.minTokens) {
      if (!sampling.ignoreEos && sampling.eosTokenIds.includes(token))
        return { outputIds, reason: 'stop', stopTokenId: null };
      if (sampling.stopTokenIds.includes(token)) return { outputIds, reason: 'stop', stopTokenId: token };
    }
    if (outputIds.length === sampling.maxTokens || tokens.length === maxModelLen)
      return { outputIds, reason: 'length', stopTokenId: null };
  }
}
