// Requests as papers describe them: lengths of a distribution, those outside the data set's filter thrown away, Poisson arrivals.

import { LengthSampler, type LengthShape, MOST_TOKENS } from '../workload/lengths.ts';
import { RandomSource } from '../workload/random-source.ts';
import type { Workload, WorkloadRequest } from '../workload/workload.ts';

export interface PaperLengths {
  readonly prompt: LengthShape;
  readonly output: LengthShape;
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
  const [prompt, output] = [given.prompt, given.output].map(
    (shape) => new LengthSampler({ shape, min: 1, max: MOST_TOKENS }),
  ) as [LengthSampler, LengthSampler];
  const { numRequests = Number.POSITIVE_INFINITY, maxSeconds = Number.POSITIVE_INFINITY } = given;
  const requests: WorkloadRequest[] = [];
  let arrivalSeconds = 0;
  while (requests.length < numRequests) {
    const numPromptTokens = prompt.at(lengths.uniform(), lengths);
    const numOutputTokens = output.at(lengths.uniform(), lengths);
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
