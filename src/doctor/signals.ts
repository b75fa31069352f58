// The vocabulary of diagnosis: every figure a rule may ask for, with its name in words and its unit. Sources (metrics, logs, records
// of runs) fill in what they know; what is absent is unknown and no rule takes it for zero.

export type Unit = 'seconds' | 'share' | 'count' | 'per minute' | 'per second' | 'tokens' | 'ratio' | 'yes or no';

export const SIGNALS = {
  windowSeconds: { words: 'time looked at', unit: 'seconds' },
  numSamples: { words: 'samples in that time', unit: 'count' },
  // --- scheduler
  runningMean: { words: 'requests running, mean', unit: 'count' },
  runningMax: { words: 'requests running, most', unit: 'count' },
  waitingMean: { words: 'requests waiting, mean', unit: 'count' },
  waitingShare: { words: 'share of the time with requests waiting', unit: 'share' },
  maxNumSeqs: { words: 'limit on running requests (max-num-seqs)', unit: 'count' },
  slotsFullShare: { words: 'share of the time with requests waiting and all slots taken', unit: 'share' },
  numSlots: { words: 'slots, as seen', unit: 'count' },
  budgetStepShare: {
    words: 'share of the steps, while others waited, that used the whole token budget',
    unit: 'share',
  },
  maxNumBatchedTokens: { words: 'token budget of a step (max-num-batched-tokens)', unit: 'tokens' },
  prefillTokensPerMixedStep: { words: 'prompt tokens in a step that also decodes, mean', unit: 'tokens' },
  prefillTokenShare: { words: 'share of the computed tokens that are prompt tokens', unit: 'share' },
  promptTokensPerSecond: { words: 'prompt tokens computed per second', unit: 'per second' },
  generationTokensPerSecond: { words: 'tokens generated per second', unit: 'per second' },
  requestsPerSecond: { words: 'requests finished per second', unit: 'per second' },
  // --- KV cache
  kvUsageMean: { words: 'KV cache in use, mean', unit: 'share' },
  kvUsageHigh: { words: 'KV cache in use, 90th percentile', unit: 'share' },
  kvUsageMax: { words: 'KV cache in use, most', unit: 'share' },
  kvBoundStepShare: { words: 'share of the steps, while others waited, that had no block for them', unit: 'share' },
  preemptionsPerMinute: { words: 'preemptions per minute', unit: 'per minute' },
  recomputedShare: { words: 'share of the computed tokens that had been computed before', unit: 'share' },
  poolTokens: { words: 'tokens that the KV cache holds', unit: 'tokens' },
  contextTokens: { words: 'tokens held per running request, mean', unit: 'tokens' },
  requestsThatFit: { words: 'requests of that size that fit', unit: 'count' },
  maxModelLen: { words: 'longest request allowed (max-model-len)', unit: 'tokens' },
  fullLengthConcurrency: { words: 'requests of full length that fit', unit: 'ratio' },
  numNeverFit: { words: 'requests larger than the whole KV cache', unit: 'count' },
  prefixHitShare: { words: 'prompt tokens found in the prefix cache', unit: 'share' },
  prefixHitDrop: { words: 'prefix hit rate lost between the first and the last third', unit: 'share' },
  sharedPrefixShare: { words: 'prompt tokens that an unlimited prefix cache would find', unit: 'share' },
  // --- latency, as the server or the client saw it
  ttftMean: { words: 'TTFT, mean', unit: 'seconds' },
  ttftP50: { words: 'TTFT, median', unit: 'seconds' },
  ttftP99: { words: 'TTFT, 99th percentile', unit: 'seconds' },
  ttftLate: { words: 'TTFT in the last third, mean', unit: 'seconds' },
  queueMean: { words: 'time in the queue, mean', unit: 'seconds' },
  queueShare: { words: "queue's share of TTFT", unit: 'share' },
  prefillShare: { words: "prefill's share of TTFT", unit: 'share' },
  frontShare: { words: 'share of TTFT outside queue and prefill', unit: 'share' },
  itlP25: { words: 'time between tokens, 25th percentile', unit: 'seconds' },
  itlP50: { words: 'time between tokens, median', unit: 'seconds' },
  itlP99: { words: 'time between tokens, 99th percentile', unit: 'seconds' },
  itlTailRatio: { words: 'time between tokens, 99th percentile over median', unit: 'ratio' },
  itlBodyRatio: { words: 'time between tokens, median over 25th percentile', unit: 'ratio' },
  itlP25OfTarget: { words: 'time between tokens, 25th percentile over its target', unit: 'ratio' },
  itlTailOfTarget: { words: 'time between tokens, 99th percentile over its target', unit: 'ratio' },
  ttftOfTarget: { words: 'TTFT, median over its target', unit: 'ratio' },
  ttftRising: { words: 'TTFT rises over the run (t-test, 95 %)', unit: 'yes or no' },
  concurrencyRising: { words: 'requests in the system rise over the run (t-test, 95 %)', unit: 'yes or no' },
  // --- where step time goes
  overheadShare: { words: 'share of step time in scheduling and post-processing', unit: 'share' },
  samplingShare: { words: 'share of step time in sampling', unit: 'share' },
  allReduceShare: { words: 'share of step time in collectives', unit: 'share' },
  launchShare: { words: 'share of step time in launching kernels', unit: 'share' },
  tensorParallelSize: { words: 'GPUs per layer (tensor-parallel-size)', unit: 'count' },
  enforceEager: { words: 'CUDA graphs switched off (enforce-eager)', unit: 'yes or no' },
  // --- requests
  promptP95: { words: 'prompt tokens, 95th percentile', unit: 'tokens' },
  promptMean: { words: 'prompt tokens, mean', unit: 'tokens' },
  outputMean: { words: 'output tokens, mean', unit: 'tokens' },
  outputP50: { words: 'output tokens, median', unit: 'tokens' },
  outputP95: { words: 'output tokens, 95th percentile', unit: 'tokens' },
  outputP99: { words: 'output tokens, 99th percentile', unit: 'tokens' },
  maxTokensMean: { words: 'max_tokens that requests ask for, mean', unit: 'tokens' },
  outputTailRatio: { words: 'output tokens, 95th percentile over median', unit: 'ratio' },
  lengthFinishShare: { words: 'requests that ended at their token limit', unit: 'share' },
  lengthFinishJump: { words: 'rise of that share between the first and the last third', unit: 'share' },
  // --- start, client, comparison of runs
  numBootErrors: { words: 'memory errors at the start', unit: 'count' },
  clientBound: { words: 'load client too slow', unit: 'yes or no' },
  clientLagP99: { words: "load client's event loop late, 99th percentile", unit: 'seconds' },
  clientTtftExcess: { words: 'TTFT at the client beyond that at the server, over the latter', unit: 'ratio' },
  rerunGain: { words: 'second run with the same seed quicker by', unit: 'share' },
  meanTtftFalls: { words: 'mean TTFT falls while the load rises', unit: 'yes or no' },
  dpImbalance: { words: 'spread of running requests over the engines, relative to the fullest', unit: 'share' },
} as const satisfies Record<string, { readonly words: string; readonly unit: Unit }>;

export type SignalName = keyof typeof SIGNALS;

export type Signals = Readonly<Partial<Record<SignalName, number>>>;

/** Leaves out what is null or no number: unknown. */
export function known(values: Readonly<Partial<Record<SignalName, number | null | undefined>>>): Signals {
  const signals: Partial<Record<SignalName, number>> = {};
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === 'number' && Number.isFinite(value)) signals[name as SignalName] = value;
  }
  return signals;
}

/** A value as people read it. */
export function signalText(name: SignalName, value: number): string {
  switch (SIGNALS[name].unit) {
    case 'seconds':
      return value < 1
        ? `${(value * 1000).toFixed(value < 0.1 ? 1 : 0)} ms`
        : `${value.toFixed(value < 100 ? 2 : 0)} s`;
    case 'share':
      return `${(value * 100).toFixed(1)} %`;
    case 'yes or no':
      return value >= 0.5 ? 'yes' : 'no';
    case 'ratio':
      return `${value.toFixed(2)}x`;
    case 'tokens':
      return `${Math.round(value).toLocaleString('en-US')}`;
    case 'per minute':
      return `${value.toFixed(1)}/min`;
    case 'per second':
      return `${value.toFixed(value < 100 ? 1 : 0)}/s`;
    case 'count':
      return Number.isInteger(value) ? String(value) : value.toFixed(1);
  }
}
