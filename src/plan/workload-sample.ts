// A workload's first requests as plain data: small enough to replay many times and to send to worker threads, and its arrivals can
// be made denser or sparser without drawing anything anew.

import { PagodaError } from '../errors.ts';
import type { Workload, WorkloadRequest } from '../workload/workload.ts';

export interface WorkloadSample {
  readonly name: string;
  readonly seed: number;
  readonly hashBlockTokens: number;
  readonly closedLoop: Workload['closedLoop'];
  readonly requests: readonly WorkloadRequest[];
}

export function sampleOf(workload: Workload, maxRequests: number): WorkloadSample {
  const requests: WorkloadRequest[] = [];
  for (const request of workload.requests()) {
    if (requests.length === maxRequests) break;
    requests.push(request);
  }
  if (requests.length === 0) throw new PagodaError('bad_config', `The workload ${workload.name} has no requests.`);
  const { name, seed, hashBlockTokens, closedLoop } = workload;
  return { name, seed, hashBlockTokens, closedLoop, requests };
}

/** `requestsPerSecond`: the same arrivals at another mean rate; null = as they are. */
export function workloadOfSample(sample: WorkloadSample, requestsPerSecond: number | null = null): Workload {
  const { requests } = sample;
  const scale = requestsPerSecond === null ? 1 : meanRate(sample) / requestsPerSecond;
  return {
    name: requestsPerSecond === null ? sample.name : `${sample.name} at ${requestsPerSecond.toFixed(2)}/s`,
    seed: sample.seed,
    hashBlockTokens: sample.hashBlockTokens,
    closedLoop: sample.closedLoop,
    numRequests: requests.length,
    requests: () =>
      scale === 1 ? requests : requests.map((each) => ({ ...each, arrivalSeconds: each.arrivalSeconds * scale })),
  };
}

/** Requests per second of an open loop; Infinity when they come all at once. */
export function meanRate({ requests }: WorkloadSample): number {
  const last = requests.at(-1)?.arrivalSeconds ?? 0;
  return last === 0 ? Number.POSITIVE_INFINITY : requests.length / last;
}

export interface LengthFigures {
  readonly meanPromptTokens: number;
  readonly meanOutputTokens: number;
  readonly meanTokens: number;
  readonly p99Tokens: number;
  readonly maxTokens: number;
}

export function lengthFigures({ requests }: WorkloadSample): LengthFigures {
  const totals = requests.map((each) => each.numPromptTokens + each.numOutputTokens).sort((a, b) => a - b);
  const mean = (of: (each: WorkloadRequest) => number) =>
    requests.reduce((sum, each) => sum + of(each), 0) / requests.length;
  const meanPromptTokens = mean((each) => each.numPromptTokens);
  const meanOutputTokens = mean((each) => each.numOutputTokens);
  return {
    meanPromptTokens,
    meanOutputTokens,
    meanTokens: meanPromptTokens + meanOutputTokens,
    p99Tokens: totals[Math.min(totals.length - 1, Math.ceil(0.99 * totals.length) - 1)]!,
    maxTokens: totals.at(-1)!,
  };
}
