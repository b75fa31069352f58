// Log-probabilities of the raw distribution of one row, as they are reported: before temperature, masks and penalties.

import { chunkedSum, exactExp } from './exact-exp.ts';
import { argmax } from './sample.ts';

export interface RankedToken {
  readonly tokenId: number;
  readonly logprob: number;
}

/** log of the sum of exp over the row. */
export function logSumExp(logits: Float32Array, scratch: Float64Array): number {
  const best = argmax(logits);
  const max = best < 0 ? 0 : logits[best];
  for (let i = 0; i < logits.length; i++) scratch[i] = exactExp(logits[i] - max);
  return max + Math.log(chunkedSum(scratch));
}

/** 1 + the number of tokens with a larger logit. */
export function rankOf(logits: Float32Array, token: number): number {
  let rank = 1;
  for (let i = 0; i < logits.length; i++) if (logits[i] > logits[token]) rank++;
  return rank;
}

/** The `count` best tokens (-1 = all), best first, ties to the lower id. */
export function bestTokens(logits: Float32Array, count: number, lse: number): RankedToken[] {
  const wanted = count < 0 ? logits.length : Math.min(count, logits.length);
  const before = (a: number, b: number) => logits[b] - logits[a] || a - b;
  let best: number[] = [];
  if (wanted * 8 > logits.length) {
    best = Array.from({ length: logits.length }, (_, i) => i).sort(before);
  } else {
    for (let token = 0; token < logits.length && wanted > 0; token++) {
      if (best.length === wanted && !(logits[token] > logits[best[wanted - 1]])) continue;
      if (best.length === wanted) best.pop();
      let place = best.length;
      while (place > 0 && logits[token] > logits[best[place - 1]]) place--;
      best.splice(place, 0, token);
    }
  }
  return best.slice(0, wanted).map((tokenId) => ({ tokenId, logprob: Math.fround(logits[tokenId] - lse) }));
}
