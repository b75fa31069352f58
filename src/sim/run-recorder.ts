// Adds a run up while it goes: latencies into streaming distributions, states weighted by time. Nothing here grows with the number
// of requests or tokens.

import type { SchedulerOptions } from '../core/scheduler-options.ts';
import { StreamingDistribution } from '../workload/streaming-distribution.ts';
import type { RunSummary, SchedulerSummary } from './run-summary.ts';
import type { EndedRequest, SimulatedStep } from './simulation-observer.ts';
import { type SeriesPoint, TimeSeries } from './time-series.ts';

/** Null = no such target. A request is good when it meets all of them. */
export interface LatencyTargets {
  readonly ttftSeconds: number | null;
  readonly tpotSeconds: number | null;
  readonly e2eSeconds: number | null;
}

export const NO_TARGETS: LatencyTargets = { ttftSeconds: null, tpotSeconds: null, e2eSeconds: null };

/** What steps were made of, and what kept them from being larger. */
export interface StepComposition {
  readonly numPrefillOnlySteps: number;
  readonly numDecodeOnlySteps: number;
  readonly numMixedSteps: number;
  /** While somebody waited: all sequences taken, the step's tokens used up, or no blocks. */
  readonly numStepsBoundBySeqs: number;
  readonly numStepsBoundByTokens: number;
  readonly numStepsBoundByKv: number;
  readonly meanStepSeconds: number;
  readonly maxStepSeconds: number;
  /** Share of the replicas' time in which a step ran. */
  readonly busyShare: number;
}

export interface RecorderOptions {
  readonly numReplicas: number;
  readonly limits: Pick<
    SchedulerOptions,
    'maxNumSeqs' | 'maxNumBatchedTokens' | 'chunkedPrefillSize' | 'enableChunkedPrefill'
  >;
  readonly overheadSeconds: number;
  readonly targets: LatencyTargets;
}

export class RunRecorder {
  readonly #options: RecorderOptions;
  readonly ttft = new StreamingDistribution();
  readonly tpot = new StreamingDistribution();
  readonly itl = new StreamingDistribution();
  readonly e2e = new StreamingDistribution();
  readonly queue = new StreamingDistribution();
  readonly steps = new StreamingDistribution();
  readonly #series: TimeSeries;
  numCompleted = 0;
  numRefused = 0;
  firstRefusal: string | null = null;
  #numGood = 0;
  #numPromptTokens = 0;
  #numOutputTokens = 0;
  #busySeconds = 0;
  #runningSeconds = 0;
  #kvSeconds = 0;
  #usedBlockSeconds = 0;
  #wastedBlockSeconds = 0;
  #maxRunning = 0;
  #maxWaiting = 0;
  #maxKvUsage = 0;
  #numPrefillTokens = 0;
  #numDecodeTokens = 0;
  #numPreemptions = 0;
  #numPrefillOnly = 0;
  #numDecodeOnly = 0;
  #numMixed = 0;
  #boundBySeqs = 0;
  #boundByTokens = 0;
  #boundByKv = 0;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#series = new TimeSeries(options.numReplicas);
  }

  onStep(step: SimulatedStep): void {
    const { stepSeconds, load, stats, plan, numWaiting } = step;
    const kvUsage = stats.numBlocksUsed / stats.numBlocks;
    this.steps.add(stepSeconds);
    this.#busySeconds += stepSeconds;
    this.#runningSeconds += stats.numRunning * stepSeconds;
    this.#kvSeconds += kvUsage * stepSeconds;
    this.#usedBlockSeconds += stats.numBlocksUsed * stepSeconds;
    this.#wastedBlockSeconds += stats.kvWaste * stats.numBlocksUsed * stepSeconds;
    if (stats.numRunning > this.#maxRunning) this.#maxRunning = stats.numRunning;
    if (numWaiting > this.#maxWaiting) this.#maxWaiting = numWaiting;
    if (kvUsage > this.#maxKvUsage) this.#maxKvUsage = kvUsage;
    this.#numPrefillTokens += load.numPrefillTokens;
    this.#numDecodeTokens += load.numDecodes;
    this.#numPreemptions += plan.preempted.length;
    if (load.numDecodes === 0) this.#numPrefillOnly++;
    else if (load.numPrefillTokens === 0) this.#numDecodeOnly++;
    else this.#numMixed++;
    if (numWaiting > 0) this.#noteBound(step);
    this.#series.add({
      seconds: step.startSeconds,
      stepSeconds,
      numRunning: stats.numRunning,
      numWaiting,
      kvUsage,
      numPrefillTokens: load.numPrefillTokens,
      numDecodeTokens: load.numDecodes,
      numPreemptions: plan.preempted.length,
    });
  }

  onFirstToken(seconds: number): void {
    this.ttft.add(seconds);
  }

  /** So many sequences got a token this long after their last one. */
  onGaps(seconds: number, times: number): void {
    this.itl.addMany(seconds, times);
  }

  onRequestEnd(request: EndedRequest): void {
    const { arrivalSeconds, firstTokenSeconds, endSeconds, numOutputTokens } = request;
    this.numCompleted++;
    this.#numPromptTokens += request.numPromptTokens;
    this.#numOutputTokens += numOutputTokens;
    const ttft = firstTokenSeconds - arrivalSeconds;
    const e2e = endSeconds - arrivalSeconds;
    const tpot = numOutputTokens > 1 ? (endSeconds - firstTokenSeconds) / (numOutputTokens - 1) : 0;
    if (numOutputTokens > 1) this.tpot.add(tpot);
    this.e2e.add(e2e);
    this.queue.add(Math.max(0, request.firstScheduledSeconds - arrivalSeconds - this.#options.overheadSeconds));
    const { ttftSeconds, tpotSeconds, e2eSeconds } = this.#options.targets;
    const isGood =
      (ttftSeconds === null || ttft <= ttftSeconds) &&
      (tpotSeconds === null || tpot <= tpotSeconds) &&
      (e2eSeconds === null || e2e <= e2eSeconds);
    if (isGood) this.#numGood++;
  }

  onRefused(message: string): void {
    this.numRefused++;
    this.firstRefusal ??= message;
  }

  /** `durationSeconds`: from the start to the end of the last request. */
  summary(durationSeconds: number): RunSummary {
    const perSecond = (count: number) => (durationSeconds === 0 ? 0 : count / durationSeconds);
    const { ttftSeconds, tpotSeconds, e2eSeconds } = this.#options.targets;
    const hasTargets = ttftSeconds !== null || tpotSeconds !== null || e2eSeconds !== null;
    const numRequests = this.numCompleted + this.numRefused;
    return {
      numCompleted: this.numCompleted,
      numFailed: this.numRefused,
      durationSeconds,
      numPromptTokens: this.#numPromptTokens,
      numOutputTokens: this.#numOutputTokens,
      requestsPerSecond: perSecond(this.numCompleted),
      outputTokensPerSecond: perSecond(this.#numOutputTokens),
      totalTokensPerSecond: perSecond(this.#numPromptTokens + this.#numOutputTokens),
      ttftSeconds: this.ttft.figures(),
      tpotSeconds: this.tpot.figures(),
      itlSeconds: this.itl.figures(),
      e2eSeconds: this.e2e.figures(),
      goodput: hasTargets && numRequests > 0 ? this.#numGood / numRequests : null,
    };
  }

  /** `totals` are the schedulers' own counters, added up. */
  schedulerSummary(durationSeconds: number, totals: SchedulerTotals): SchedulerSummary {
    const numSteps = this.steps.count;
    const replicaSeconds = durationSeconds * this.#options.numReplicas;
    const overTime = (sum: number) => (replicaSeconds === 0 ? 0 : sum / replicaSeconds);
    return {
      numSteps,
      numPreemptions: this.#numPreemptions,
      numRecomputedTokens: totals.numRecomputedTokens,
      queueSeconds: this.queue.figures(),
      meanRunning: overTime(this.#runningSeconds),
      maxRunning: this.#maxRunning,
      maxWaiting: this.#maxWaiting,
      meanKvUsage: overTime(this.#kvSeconds),
      maxKvUsage: this.#maxKvUsage,
      meanKvWaste: this.#usedBlockSeconds === 0 ? 0 : this.#wastedBlockSeconds / this.#usedBlockSeconds,
      prefixHitShare: totals.numPrefixQueryTokens === 0 ? 0 : totals.numPrefixHitTokens / totals.numPrefixQueryTokens,
      meanPrefillTokens: numSteps === 0 ? 0 : this.#numPrefillTokens / numSteps,
      meanDecodeTokens: numSteps === 0 ? 0 : this.#numDecodeTokens / numSteps,
      numMixedSteps: this.#numMixed,
    };
  }

  composition(durationSeconds: number): StepComposition {
    const replicaSeconds = durationSeconds * this.#options.numReplicas;
    return {
      numPrefillOnlySteps: this.#numPrefillOnly,
      numDecodeOnlySteps: this.#numDecodeOnly,
      numMixedSteps: this.#numMixed,
      numStepsBoundBySeqs: this.#boundBySeqs,
      numStepsBoundByTokens: this.#boundByTokens,
      numStepsBoundByKv: this.#boundByKv,
      meanStepSeconds: this.steps.mean,
      maxStepSeconds: this.steps.max,
      busyShare: replicaSeconds === 0 ? 0 : Math.min(1, this.#busySeconds / replicaSeconds),
    };
  }

  series(): SeriesPoint[] {
    return this.#series.points();
  }

  /** Why a waiting request was not in the step. */
  #noteBound({ stats, load }: SimulatedStep): void {
    const { maxNumSeqs, maxNumBatchedTokens, chunkedPrefillSize, enableChunkedPrefill } = this.#options.limits;
    const isChunkFull =
      enableChunkedPrefill && chunkedPrefillSize !== null && load.numPrefillTokens >= chunkedPrefillSize;
    if (stats.numRunning >= maxNumSeqs) this.#boundBySeqs++;
    else if (load.numTokens >= maxNumBatchedTokens || isChunkFull) this.#boundByTokens++;
    else this.#boundByKv++;
  }
}

export interface SchedulerTotals {
  readonly numRecomputedTokens: number;
  readonly numPrefixQueryTokens: number;
  readonly numPrefixHitTokens: number;
}
