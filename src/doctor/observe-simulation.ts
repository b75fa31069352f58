// A simulated run as an observation. A simulator knows what no server tells: which limit bound each step, and where step time goes.

import type { SchedulerFlags } from '../sim/deployment.ts';
import type { SimulationResult } from '../sim/simulation.ts';
import type { Distribution } from '../workload/streaming-distribution.ts';
import { EMPTY_SAMPLE, NO_FACTS, type Observation, type Sample, type ServerFacts } from './observation.ts';
import { isRising } from './rising.ts';
import { known, type Signals } from './signals.ts';

/** The part of a simulation's result that diagnosis reads; also what its JSON holds. */
export interface SimulatedRun {
  readonly name: string;
  readonly durationSeconds: number;
  /** From the first arrival to the last: what comes after is only the queue running empty. */
  readonly arrivalSpanSeconds: number;
  readonly numCompleted: number;
  readonly numRefused: number;
  readonly requestsPerSecond: number;
  readonly ttftSeconds: Distribution;
  readonly itlSeconds: Distribution;
  readonly itlP25Seconds: number | null;
  readonly queueMeanSeconds: number;
  readonly numSteps: number;
  readonly numStepsBoundBySeqs: number;
  readonly numStepsBoundByTokens: number;
  readonly numStepsBoundByKv: number;
  readonly numStepsWithPrefill: number;
  readonly meanPrefillTokens: number;
  readonly meanDecodeTokens: number;
  readonly numPreemptions: number;
  readonly numRecomputedTokens: number;
  readonly prefixHitShare: number;
  readonly sharedBlockShare: number | null;
  readonly promptTokens: Distribution;
  readonly outputTokens: Distribution;
  readonly series: ReadonlyArray<{
    readonly seconds: number;
    readonly windowSeconds: number;
    readonly numRunning: number;
    readonly numWaiting: number;
    readonly kvUsage: number;
    readonly prefillTokensPerSecond: number;
    readonly decodeTokensPerSecond: number;
    readonly preemptionsPerSecond: number;
  }>;
}

export function simulatedRun(result: SimulationResult): SimulatedRun {
  const { summary, scheduler, composition, realised, curves } = result;
  return {
    name: result.deployment,
    durationSeconds: summary.durationSeconds,
    arrivalSpanSeconds: realised.spanSeconds,
    numCompleted: summary.numCompleted,
    numRefused: summary.numFailed,
    requestsPerSecond: summary.requestsPerSecond,
    ttftSeconds: summary.ttftSeconds,
    itlSeconds: summary.itlSeconds,
    itlP25Seconds: curves.itlSeconds[25] ?? null,
    queueMeanSeconds: scheduler.queueSeconds.mean,
    numSteps: scheduler.numSteps,
    numStepsBoundBySeqs: composition.numStepsBoundBySeqs,
    numStepsBoundByTokens: composition.numStepsBoundByTokens,
    numStepsBoundByKv: composition.numStepsBoundByKv,
    numStepsWithPrefill: composition.numPrefillOnlySteps + composition.numMixedSteps,
    meanPrefillTokens: scheduler.meanPrefillTokens,
    meanDecodeTokens: scheduler.meanDecodeTokens,
    numPreemptions: scheduler.numPreemptions,
    numRecomputedTokens: scheduler.numRecomputedTokens,
    prefixHitShare: scheduler.prefixHitShare,
    sharedBlockShare: realised.sharedBlockShare,
    promptTokens: realised.promptTokens,
    outputTokens: realised.outputTokens,
    series: result.series,
  };
}

/** What else is known: the flags, the pool, how TTFT went over time, shares of step time, requests that never fit. */
export interface SimulationContext {
  readonly flags?: SchedulerFlags;
  readonly numBlocks?: number;
  readonly tensorParallelSize?: number;
  readonly enforceEager?: boolean;
  /** Arrival and time to first token of requests, in order of arrival. */
  readonly firstTokens?: ReadonlyArray<{ readonly arrivalSeconds: number; readonly ttftSeconds: number }>;
  /** Shares of step time and figures of the workload that the simulator does not have. */
  readonly figures?: Signals;
}

export function observeSimulation(run: SimulatedRun, context: SimulationContext = {}): Observation {
  const span = run.arrivalSpanSeconds > 0 ? run.arrivalSpanSeconds : run.durationSeconds;
  const series = run.series.filter((point) => point.seconds <= span);
  const facts = factsOf(context);
  return {
    source: run.name,
    kind: 'record',
    engine: 'unknown',
    windowSeconds: run.durationSeconds,
    samples: series.map(
      (point): Sample => ({
        ...EMPTY_SAMPLE,
        seconds: point.seconds,
        numRunning: point.numRunning,
        numWaiting: point.numWaiting,
        kvUsage: point.kvUsage,
        promptTokensPerSecond: point.prefillTokensPerSecond,
        generationTokensPerSecond: point.decodeTokensPerSecond,
        numPreemptions: point.preemptionsPerSecond * point.windowSeconds,
      }),
    ),
    facts,
    figures: { ...figuresOf(run), ...neverFit(run, facts), ...trendOf(context), ...context.figures },
    quotes: [],
  };
}

function factsOf({ flags, numBlocks, tensorParallelSize, enforceEager }: SimulationContext): ServerFacts {
  return {
    ...NO_FACTS,
    maxNumSeqs: flags?.maxNumSeqs ?? null,
    maxNumBatchedTokens: flags?.maxNumBatchedTokens ?? null,
    maxModelLen: flags?.maxModelLen ?? null,
    watermark: flags?.watermark ?? null,
    tensorParallelSize: tensorParallelSize ?? null,
    enforceEager: enforceEager ?? null,
    poolTokens: flags === undefined || numBlocks === undefined ? null : flags.blockSize * numBlocks,
  };
}

function figuresOf(run: SimulatedRun): Signals {
  const numBound = run.numStepsBoundBySeqs + run.numStepsBoundByTokens + run.numStepsBoundByKv;
  const ofBound = (num: number): number => (numBound === 0 ? 0 : num / numBound);
  const numTokens = (run.meanPrefillTokens + run.meanDecodeTokens) * run.numSteps;
  const ttft = run.ttftSeconds.mean;
  const queueShare = ttft > 0 ? Math.min(1, run.queueMeanSeconds / ttft) : null;
  return known({
    ttftMean: ttft,
    ttftP50: run.ttftSeconds.p50,
    ttftP99: run.ttftSeconds.p99,
    queueMean: run.queueMeanSeconds,
    queueShare,
    prefillShare: queueShare === null ? null : 1 - queueShare,
    itlP25: run.itlP25Seconds,
    itlP50: run.itlSeconds.p50,
    itlP99: run.itlSeconds.p99,
    slotsFullShare: ofBound(run.numStepsBoundBySeqs),
    budgetStepShare: ofBound(run.numStepsBoundByTokens),
    kvBoundStepShare: ofBound(run.numStepsBoundByKv),
    prefillTokensPerMixedStep:
      run.numStepsWithPrefill === 0 ? null : (run.meanPrefillTokens * run.numSteps) / run.numStepsWithPrefill,
    preemptionsPerMinute: run.durationSeconds > 0 ? (60 * run.numPreemptions) / run.durationSeconds : null,
    recomputedShare: numTokens > 0 ? run.numRecomputedTokens / numTokens : null,
    prefixHitShare: run.prefixHitShare,
    sharedPrefixShare: run.sharedBlockShare,
    requestsPerSecond: run.requestsPerSecond,
    promptMean: run.promptTokens.mean,
    promptP95: run.promptTokens.p95,
    outputMean: run.outputTokens.mean,
    outputP50: run.outputTokens.p50,
    outputP95: run.outputTokens.p95,
    outputP99: run.outputTokens.p99,
  });
}

/** Refused although within max-model-len's word: the pool is smaller than what is allowed. */
function neverFit({ numRefused }: SimulatedRun, { poolTokens, maxModelLen }: ServerFacts): Signals {
  if (poolTokens === null || maxModelLen === null || poolTokens >= maxModelLen || numRefused === 0) return {};
  return known({ numNeverFit: numRefused });
}

function trendOf({ firstTokens }: SimulationContext): Signals {
  if (firstTokens === undefined || firstTokens.length === 0) return {};
  const late = firstTokens.slice(-Math.max(1, Math.floor(firstTokens.length / 3)));
  const rising = isRising(
    firstTokens.map(({ arrivalSeconds }) => arrivalSeconds),
    firstTokens.map(({ ttftSeconds }) => ttftSeconds),
  );
  return known({
    ttftLate: late.reduce((sum, { ttftSeconds }) => sum + ttftSeconds, 0) / late.length,
    ttftRising: rising === null ? null : Number(rising),
  });
}
