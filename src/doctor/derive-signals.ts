// The figures of rules, from an observation: those that the source had ready, and those that follow from its samples and facts.

import type { Observation, Sample, ServerFacts, Targets } from './observation.ts';
import { isRising } from './rising.ts';
import { known, type Signals } from './signals.ts';

/** Where no target is given: beyond these nobody calls a server quick. */
const DEFAULT_TTFT_SECONDS = 2;
const DEFAULT_ITL_TAIL_SECONDS = 0.2;
/** A target for the time between tokens is meant for most of them: a tail of so many times it is beyond it. */
const TAIL_FACTOR = 2;
/** A running number that stands still so often under a queue is a limit. */
const PINNED_SHARE = 0.9;
const MIN_PINNED_SAMPLES = 3;
const FULL_KV_USAGE = 0.9;

export function deriveSignals(observation: Observation, targets: Targets): Signals {
  const { samples, facts, windowSeconds, figures } = observation;
  const fromSamples = {
    ...known({ windowSeconds, numSamples: samples.length }),
    ...queueSignals(samples, facts),
    ...kvSignals(samples, facts),
    ...rateSignals(samples, windowSeconds),
    ...trendSignals(samples),
    ...known({
      maxNumSeqs: facts.maxNumSeqs,
      maxNumBatchedTokens: facts.maxNumBatchedTokens,
      maxModelLen: facts.maxModelLen,
      poolTokens: facts.poolTokens,
      tensorParallelSize: facts.tensorParallelSize,
      enforceEager: facts.enforceEager === null ? null : Number(facts.enforceEager),
      fullLengthConcurrency: concurrencyOf(facts),
    }),
    ...figures,
  };
  return { ...fromSamples, ...ratios(fromSamples, targets) };
}

function concurrencyOf({ fullLengthConcurrency, poolTokens, maxModelLen }: ServerFacts): number | null {
  return fullLengthConcurrency ?? (poolTokens !== null && maxModelLen !== null ? poolTokens / maxModelLen : null);
}

const present = (values: ReadonlyArray<number | null>): number[] => values.filter((value) => value !== null);
const meanOf = (values: readonly number[]): number | null =>
  values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length;
const maxOf = (values: readonly number[]): number | null =>
  values.length === 0 ? null : values.reduce((most, value) => Math.max(most, value));

/** The value that a share of the values does not exceed. */
export function highOf(values: readonly number[], share: number): number | null {
  const ascending = [...values].sort((a, b) => a - b);
  return ascending[Math.max(0, Math.ceil(share * ascending.length) - 1)] ?? null;
}

function queueSignals(samples: readonly Sample[], facts: ServerFacts): Signals {
  const both = samples.filter((sample) => sample.numRunning !== null && sample.numWaiting !== null);
  const running = present(samples.map((sample) => sample.numRunning));
  const waiting = present(samples.map((sample) => sample.numWaiting));
  const slots = facts.maxNumSeqs ?? pinnedAt(both);
  const isFull = (sample: Sample): boolean => sample.numWaiting! > 0 && sample.numRunning! >= slots! - 0.5;
  return known({
    runningMean: meanOf(running),
    runningMax: maxOf(running),
    waitingMean: meanOf(waiting),
    waitingShare: waiting.length === 0 ? null : waiting.filter((num) => num > 0).length / waiting.length,
    numSlots: slots,
    slotsFullShare:
      slots === null ? unlimitedShare(both) : both.length === 0 ? null : both.filter(isFull).length / both.length,
  });
}

/** Without a known or visible limit: 0 where enough samples show that the number moves (or nobody waits), else unknown. */
function unlimitedShare(samples: readonly Sample[]): number | null {
  const numQueued = samples.filter((sample) => sample.numWaiting! > 0).length;
  return samples.length > 0 && (numQueued === 0 || numQueued >= MIN_PINNED_SAMPLES) ? 0 : null;
}

/** The number of running requests that hardly ever changes while others wait, or null. */
function pinnedAt(samples: readonly Sample[]): number | null {
  // With a full KV cache it is the cache that holds the number.
  const queued = samples.filter((sample) => sample.numWaiting! > 0 && (sample.kvUsage ?? 0) < FULL_KV_USAGE);
  if (queued.length < MIN_PINNED_SAMPLES || queued.length < PINNED_SHARE * samples.length) return null;
  const most = maxOf(queued.map((sample) => sample.numRunning!))!;
  const atMost = queued.filter((sample) => sample.numRunning! === most).length;
  return atMost >= PINNED_SHARE * queued.length ? most : null;
}

function kvSignals(samples: readonly Sample[], { poolTokens }: ServerFacts): Signals {
  const usage = present(samples.map((sample) => sample.kvUsage));
  const held = samples.flatMap(({ kvUsage, numRunning }) =>
    poolTokens === null || kvUsage === null || numRunning === null || numRunning < 1
      ? []
      : [(kvUsage * poolTokens) / numRunning],
  );
  const contextTokens = meanOf(held.filter((tokens) => tokens > 0));
  return known({
    kvUsageMean: meanOf(usage),
    kvUsageHigh: highOf(usage, 0.9),
    kvUsageMax: maxOf(usage),
    contextTokens,
    requestsThatFit: contextTokens === null || poolTokens === null ? null : Math.floor(poolTokens / contextTokens),
  });
}

function rateSignals(samples: readonly Sample[], windowSeconds: number): Signals {
  const preemptions = present(samples.map((sample) => sample.numPreemptions));
  const prompt = meanOf(present(samples.map((sample) => sample.promptTokensPerSecond)));
  const generation = meanOf(present(samples.map((sample) => sample.generationTokensPerSecond)));
  const numPreemptions = preemptions.reduce((sum, num) => sum + num, 0);
  return known({
    promptTokensPerSecond: prompt,
    generationTokensPerSecond: generation,
    prefillTokenShare:
      prompt === null || generation === null || prompt + generation === 0 ? null : prompt / (prompt + generation),
    preemptionsPerMinute: preemptions.length === 0 || windowSeconds <= 0 ? null : (60 * numPreemptions) / windowSeconds,
  });
}

/** The first and the last third of a series, compared. */
function thirds(values: ReadonlyArray<number | null>): { readonly early: number; readonly late: number } | null {
  const num = Math.floor(values.length / 3);
  const early = meanOf(present(values.slice(0, num)));
  const late = meanOf(present(values.slice(values.length - num)));
  return num === 0 || early === null || late === null ? null : { early, late };
}

function trendSignals(samples: readonly Sample[]): Signals {
  const hits = thirds(samples.map((sample) => sample.prefixHitShare));
  const lengths = thirds(samples.map((sample) => sample.lengthFinishShare));
  const ttft = thirds(samples.map((sample) => sample.ttftSeconds));
  const inSystem = samples.map(({ numRunning, numWaiting }) =>
    numRunning === null || numWaiting === null ? null : numRunning + numWaiting,
  );
  const seconds = samples.map((sample) => sample.seconds);
  const rising = (values: ReadonlyArray<number | null>): number | null => {
    const answer = isRising(seconds, values);
    return answer === null ? null : Number(answer);
  };
  return known({
    prefixHitShare: meanOf(present(samples.map((sample) => sample.prefixHitShare))),
    prefixHitDrop: hits === null ? null : hits.early - hits.late,
    lengthFinishJump: lengths === null ? null : lengths.late - lengths.early,
    ttftLate: ttft?.late ?? null,
    ttftRising: rising(samples.map((sample) => sample.ttftSeconds)),
    concurrencyRising: rising(inSystem),
  });
}

function ratios(signals: Signals, targets: Targets): Signals {
  const over = (value: number | undefined, base: number | null | undefined): number | null =>
    value === undefined || base === undefined || base === null || base <= 0 ? null : value / base;
  const { itlP25, itlP50, itlP99, ttftP50, ttftMean, outputP50, outputP95 } = signals;
  return known({
    itlTailRatio: over(itlP99, itlP50),
    itlBodyRatio: over(itlP50, itlP25),
    itlP25OfTarget: over(itlP25, targets.tpotSeconds),
    itlTailOfTarget: over(
      itlP99,
      targets.tpotSeconds === null ? DEFAULT_ITL_TAIL_SECONDS : TAIL_FACTOR * targets.tpotSeconds,
    ),
    ttftOfTarget: over(ttftP50 ?? ttftMean, targets.ttftSeconds ?? DEFAULT_TTFT_SECONDS),
    outputTailRatio: over(outputP95, outputP50),
    recomputedShare: signals.recomputedShare ?? recomputedEstimate(signals),
  });
}

/** Without a counter of its own: what a preemption loses is about what a running request holds. */
function recomputedEstimate(signals: Signals): number | null {
  const { preemptionsPerMinute, contextTokens, promptTokensPerSecond, generationTokensPerSecond } = signals;
  if (preemptionsPerMinute === undefined || contextTokens === undefined) return null;
  if (promptTokensPerSecond === undefined || generationTokensPerSecond === undefined) return null;
  const computed = promptTokensPerSecond + generationTokensPerSecond;
  const lost = (preemptionsPerMinute / 60) * contextTokens;
  return computed === 0 ? null : Math.min(1, lost / Math.max(computed, lost));
}
