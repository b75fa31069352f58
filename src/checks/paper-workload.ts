// Requests as papers describe them: lognormal lengths, those outside the data set's filter thrown away, Poisson arrivals.

import { RandomSource } from '../workload/random-source.ts';
import type { Workload, WorkloadRequest } from '../workload/workload.ts';

export interface PaperLengths {
  /** mu and sigma of ln(tokens). */
  readonly prompt: { readonly mu: number; readonly sigma: number };
  readonly output: { readonly mu: number; readonly sigma: number };
  accepts(numPromptTokens: number, numOutputTokens: number): boolean;
}

export interface PaperWorkload extends PaperLengths {
  readonly seed: number;
  readonly requestsPerSecond: number;
  /** One of the two ends it. */
  readonly numRequests?: number;
  readonly maxSeconds?: number;
}

export function paperRequests(given: PaperWorkload): WorkloadRequest[] {
  const lengths = new RandomSource(given.seed, 'lengths');
  const arrivals = new RandomSource(given.seed, 'arrivals');
  const { numRequests = Number.POSITIVE_INFINITY, maxSeconds = Number.POSITIVE_INFINITY } = given;
  const requests: WorkloadRequest[] = [];
  let arrivalSeconds = 0;
  while (requests.length < numRequests) {
    const numPromptTokens = Math.floor(Math.exp(given.prompt.mu + given.prompt.sigma * lengths.normal()));
    const numOutputTokens = Math.floor(Math.exp(given.output.mu + given.output.sigma * lengths.normal()));
    if (!given.accepts(numPromptTokens, numOutputTokens)) continue;
    arrivalSeconds += arrivals.exponential(1 / given.requestsPerSecond);
    if (arrivalSeconds > maxSeconds) break;
    requests.push({ arrivalSeconds, numPromptTokens, numOutputTokens, hashIds: null, sessionId: null, priority: 0 });
  }
  return requests;
}

export function workloadOfRequests(name: string, requests: readonly WorkloadRequest[]): Workload {
  return {
    name,
    seed: 0,
    hashBlockTokens: 16,
    closedLoop: null,
    numRequests: requests.length,
    requests: () => requests,
  };
}
