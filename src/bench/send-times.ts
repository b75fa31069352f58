// When each request is to be sent, in seconds after the start, by the rules of `vllm bench serve`: gamma-distributed gaps
// (burstiness 1 = Poisson), scaled so that the last request stands exactly at requests / rate; or a ramp of the rate.

import { Draws } from './draws.ts';

export interface RampUp {
  readonly strategy: 'linear' | 'exponential';
  readonly startRps: number;
  readonly endRps: number;
}

export interface SendPlan {
  readonly numRequests: number;
  /** Requests per second; Infinity = all at once. */
  readonly requestRate: number;
  /** Shape of the gamma distribution; Infinity = equal gaps. */
  readonly burstiness: number;
  readonly rampUp: RampUp | null;
  readonly seed: number;
}

export function sendTimes(plan: SendPlan): Float64Array {
  const { numRequests, requestRate, burstiness, rampUp, seed } = plan;
  const times = new Float64Array(numRequests);
  if (rampUp === null && requestRate === Number.POSITIVE_INFINITY) return times;
  const draws = new Draws(seed, 'arrivals');
  let time = 0;
  for (let i = 0; i < numRequests; i++) {
    const rate = rampUp === null ? requestRate : rateAt(rampUp, i, numRequests);
    time += burstiness === Number.POSITIVE_INFINITY ? 1 / rate : draws.gamma(burstiness, 1 / (rate * burstiness));
    times[i] = time;
  }
  // The realised rate is the one that was asked for, whatever the draws; a ramp has none to meet.
  if (rampUp === null && time > 0) {
    const factor = numRequests / requestRate / time;
    for (let i = 0; i < numRequests; i++) times[i]! *= factor;
  }
  return times;
}

function rateAt(rampUp: RampUp, index: number, numRequests: number): number {
  const progress = index / Math.max(numRequests - 1, 1);
  const { strategy, startRps, endRps } = rampUp;
  if (strategy === 'linear') return startRps + (endRps - startRps) * progress;
  return startRps * (endRps / startRps) ** progress;
}
