// What a workload turned out to be: lengths, rate, burstiness, correlation, shared prefixes. Fixed memory, whatever the number
// of requests, so that it stands in every result.

import { ArrivalCounts } from './arrival-counts.ts';
import { RandomSource } from './random-source.ts';
import { type Distribution, StreamingDistribution } from './streaming-distribution.ts';
import type { Workload, WorkloadRequest } from './workload.ts';

/** Pairs kept for the rank correlation, and ids kept for the share of blocks seen before. */
const NUM_PAIRS = 4096;
const MOST_IDS = 1_000_000;

export interface WorkloadStatistics {
  readonly numRequests: number;
  readonly numPromptTokens: number;
  readonly numOutputTokens: number;
  readonly promptTokens: Distribution;
  readonly outputTokens: Distribution;
  readonly promptTokensCv: number;
  readonly outputTokensCv: number;
  /** Spearman's rho of prompt and output lengths, from a random sample of 4,096 requests at most. */
  readonly rankCorrelation: number;
  /** From the first arrival to the last one. */
  readonly spanSeconds: number;
  /** Null when all arrive at once. */
  readonly requestsPerSecond: number | null;
  readonly interarrivalCv: number;
  readonly indexOfDispersion1s: number | null;
  readonly indexOfDispersion10s: number | null;
  readonly indexOfDispersion60s: number | null;
  readonly peakOverMean10s: number | null;
  /** Of the prompts' hash ids, those that an unlimited cache would hold already; null when nothing is shared. */
  readonly sharedBlockShare: number | null;
}

export class WorkloadStatisticsCollector {
  readonly #prompt = new StreamingDistribution();
  readonly #output = new StreamingDistribution();
  readonly #gaps = new StreamingDistribution();
  readonly #counts = [1, 10, 60].map((seconds) => new ArrivalCounts(seconds));
  readonly #sampling = new RandomSource(0, 'statistics');
  readonly #promptSample: number[] = [];
  readonly #outputSample: number[] = [];
  readonly #ids = new Set<number>();
  #numIds = 0;
  #numSeenIds = 0;
  #numPromptTokens = 0;
  #numOutputTokens = 0;
  #firstSeconds = 0;
  #lastSeconds = 0;

  /** `arrivalSeconds` is when it was sent, which a closed loop only knows while it runs. */
  add(request: WorkloadRequest, arrivalSeconds: number): void {
    if (this.#prompt.count === 0) this.#firstSeconds = arrivalSeconds;
    else this.#gaps.add(Math.max(0, arrivalSeconds - this.#lastSeconds));
    this.#lastSeconds = Math.max(this.#lastSeconds, arrivalSeconds);
    for (const counts of this.#counts) counts.add(arrivalSeconds);
    this.#prompt.add(request.numPromptTokens);
    this.#output.add(request.numOutputTokens);
    this.#numPromptTokens += request.numPromptTokens;
    this.#numOutputTokens += request.numOutputTokens;
    this.#samplePair(request.numPromptTokens, request.numOutputTokens);
    if (request.hashIds !== null) this.#countIds(request.hashIds);
  }

  statistics(): WorkloadStatistics {
    const numRequests = this.#prompt.count;
    const spanSeconds = this.#lastSeconds - this.#firstSeconds;
    const [second, tenSeconds, minute] = this.#counts;
    return {
      numRequests,
      numPromptTokens: this.#numPromptTokens,
      numOutputTokens: this.#numOutputTokens,
      promptTokens: this.#prompt.figures(),
      outputTokens: this.#output.figures(),
      promptTokensCv: this.#prompt.cv,
      outputTokensCv: this.#output.cv,
      rankCorrelation: spearman(this.#promptSample, this.#outputSample),
      spanSeconds,
      requestsPerSecond: spanSeconds > 0 ? (numRequests - 1) / spanSeconds : null,
      interarrivalCv: this.#gaps.cv,
      indexOfDispersion1s: second!.indexOfDispersion(),
      indexOfDispersion10s: tenSeconds!.indexOfDispersion(),
      indexOfDispersion60s: minute!.indexOfDispersion(),
      peakOverMean10s: tenSeconds!.peakOverMean(),
      sharedBlockShare: this.#numIds === 0 ? null : this.#numSeenIds / this.#numIds,
    };
  }

  /** Reservoir sampling: every pair is as likely to be kept. */
  #samplePair(prompt: number, output: number): void {
    const count = this.#prompt.count;
    const index = count <= NUM_PAIRS ? count - 1 : this.#sampling.below(count);
    if (index >= NUM_PAIRS) return;
    this.#promptSample[index] = prompt;
    this.#outputSample[index] = output;
  }

  #countIds(ids: readonly number[]): void {
    this.#numIds += ids.length;
    for (const id of ids) {
      if (this.#ids.has(id)) this.#numSeenIds++;
      else if (this.#ids.size < MOST_IDS) this.#ids.add(id);
    }
  }
}

/** Statistics of a whole open-loop workload. */
export function workloadStatistics(workload: Workload): WorkloadStatistics {
  const collector = new WorkloadStatisticsCollector();
  for (const request of workload.requests()) collector.add(request, request.arrivalSeconds);
  return collector.statistics();
}

/** Pearson's correlation of the ranks; equal values share their mean rank. 0 without variation. */
export function spearman(xs: readonly number[], ys: readonly number[]): number {
  const a = ranks(xs);
  const b = ranks(ys);
  const middle = (xs.length - 1) / 2;
  let covariance = 0;
  let varianceA = 0;
  let varianceB = 0;
  for (let i = 0; i < a.length; i++) {
    covariance += (a[i]! - middle) * (b[i]! - middle);
    varianceA += (a[i]! - middle) ** 2;
    varianceB += (b[i]! - middle) ** 2;
  }
  return varianceA === 0 || varianceB === 0 ? 0 : covariance / Math.sqrt(varianceA * varianceB);
}

function ranks(values: readonly number[]): Float64Array {
  const order = Array.from(values, (_, i) => i).sort((i, j) => values[i]! - values[j]!);
  const result = new Float64Array(values.length);
  for (let start = 0; start < order.length; ) {
    let end = start + 1;
    while (end < order.length && values[order[end]!] === values[order[start]!]) end++;
    for (let i = start; i < end; i++) result[order[i]!] = (start + end - 1) / 2;
    start = end;
  }
  return result;
}
