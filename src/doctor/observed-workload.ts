// The load that was observed, as a workload that a simulator can run again: its rate (or, behind a queue, the number of requests in
// the system) and lengths with the quantiles seen.

import { type LengthSpec, MOST_TOKENS } from '../workload/lengths.ts';
import { createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import type { Workload } from '../workload/workload.ts';
import type { DeploymentChange } from './rule.ts';
import type { Signals } from './signals.ts';

/** Where only a mean is known. */
const DEFAULT_SIGMA = 0.5;
/** 95 % point of the normal distribution. */
const Z95 = 1.645;
const MIN_REQUESTS = 64;
const MAX_REQUESTS = 512;
const SEED = 0;

/** Null when lengths or load are unknown. `change` may alter the load itself. */
export function observedWorkload(signals: Signals, change: DeploymentChange): Workload | null {
  const lengths = observedLengths(signals);
  const load = observedLoad(signals, change.loadFactor ?? 1);
  if (lengths === null || load === null || change.sharedPrefixFirst === true) return null;
  const numWanted =
    load.kind === 'closed' ? 4 * load.concurrency : load.requestsPerSecond * (signals.windowSeconds ?? 60);
  return createSyntheticWorkload({
    name: 'as observed',
    seed: SEED,
    numRequests: Math.round(Math.min(MAX_REQUESTS, Math.max(MIN_REQUESTS, numWanted))),
    arrivals: load.kind === 'open' ? { kind: 'poisson', requestsPerSecond: load.requestsPerSecond } : null,
    closedLoop: load.kind === 'closed' ? { concurrency: load.concurrency, thinkSeconds: 0 } : null,
    maxSeconds: null,
    prompt: lengths.prompt,
    output: { ...lengths.output, max: change.maxTokens ?? lengths.output.max },
    rankCorrelation: 0,
    prefix: { kind: 'none' },
  });
}

type Load =
  | { readonly kind: 'open'; readonly requestsPerSecond: number }
  | { readonly kind: 'closed'; readonly concurrency: number };

/** Behind a standing queue the rate of finished requests is the server's, not the users': then the number in the system counts. */
function observedLoad(signals: Signals, factor: number): Load | null {
  const { runningMean, waitingMean, requestsPerSecond } = signals;
  if (runningMean !== undefined && waitingMean !== undefined && waitingMean >= 0.5) {
    return { kind: 'closed', concurrency: Math.max(1, Math.round(factor * (runningMean + waitingMean))) };
  }
  if (requestsPerSecond === undefined || requestsPerSecond <= 0) return null;
  return { kind: 'open', requestsPerSecond: factor * requestsPerSecond };
}

interface Lengths {
  readonly prompt: LengthSpec;
  readonly output: LengthSpec;
}

function observedLengths(signals: Signals): Lengths | null {
  const { promptMean, promptP95, outputMean, outputP50, outputP95 } = signals;
  if (promptMean !== undefined && outputMean !== undefined) {
    const output =
      outputP50 !== undefined && outputP95 !== undefined && outputP50 > 0
        ? lognormal(Math.log(outputP50), Math.max(0, Math.log(outputP95 / outputP50) / Z95))
        : byMean(outputMean, outputP95);
    return { prompt: byMean(promptMean, promptP95), output };
  }
  return lengthsFromRates(signals);
}

/**
 * A log knows no lengths, but the ratio of prompt to generated tokens and what a running request holds: about its prompt and
 * half of its output.
 */
function lengthsFromRates(signals: Signals): Lengths | null {
  const { promptTokensPerSecond, generationTokensPerSecond, contextTokens } = signals;
  if (promptTokensPerSecond === undefined || contextTokens === undefined) return null;
  if (generationTokensPerSecond === undefined || generationTokensPerSecond <= 0) return null;
  const ratio = promptTokensPerSecond / generationTokensPerSecond;
  const outputMean = contextTokens / (ratio + 0.5);
  return { prompt: byMean(Math.max(1, ratio * outputMean)), output: byMean(Math.max(1, outputMean)) };
}

function byMean(mean: number, p95?: number): LengthSpec {
  const sigma = p95 === undefined ? DEFAULT_SIGMA : sigmaOf(p95 / mean);
  return lognormal(Math.log(mean) - sigma ** 2 / 2, sigma);
}

/** p95 / mean of a lognormal is exp(1.645 s - s^2 / 2); the smaller of the two solutions. */
function sigmaOf(ratio: number): number {
  if (ratio <= 1) return 0;
  const rest = Z95 ** 2 - 2 * Math.log(ratio);
  return rest <= 0 ? Z95 : Z95 - Math.sqrt(rest);
}

const lognormal = (mu: number, sigma: number): LengthSpec =>
  sigma === 0
    ? { shape: { kind: 'fixed', tokens: Math.max(1, Math.round(Math.exp(mu))) }, min: 1, max: MOST_TOKENS }
    : { shape: { kind: 'lognormal', mu, sigma }, min: 1, max: MOST_TOKENS };
