// What was seen of a server over some time, whatever the source: a series of samples, figures over the whole time, and facts about
// how it was started. observe-*.ts build it; derive-signals.ts makes the figures of rules from it.

import type { Signals } from './signals.ts';

export type EngineKind = 'vllm' | 'sglang' | 'pagoda' | 'unknown';

/** A moment or a short interval; null = the source does not say. */
export interface Sample {
  /** Since the first sample. */
  readonly seconds: number;
  readonly numRunning: number | null;
  readonly numWaiting: number | null;
  /** 0..1. */
  readonly kvUsage: number | null;
  readonly promptTokensPerSecond: number | null;
  readonly generationTokensPerSecond: number | null;
  /** In the interval that ends here. */
  readonly numPreemptions: number | null;
  readonly prefixHitShare: number | null;
  /** Mean of the first tokens in the interval. */
  readonly ttftSeconds: number | null;
  /** Of the requests that finished in the interval. */
  readonly lengthFinishShare: number | null;
}

export const EMPTY_SAMPLE: Sample = {
  seconds: 0,
  numRunning: null,
  numWaiting: null,
  kvUsage: null,
  promptTokensPerSecond: null,
  generationTokensPerSecond: null,
  numPreemptions: null,
  prefixHitShare: null,
  ttftSeconds: null,
  lengthFinishShare: null,
};

/** How the server was started, as far as known. */
export interface ServerFacts {
  readonly maxNumSeqs: number | null;
  readonly maxNumBatchedTokens: number | null;
  readonly maxModelLen: number | null;
  readonly gpuMemoryUtilization: number | null;
  readonly kvCacheDtype: string | null;
  readonly tensorParallelSize: number | null;
  readonly enforceEager: boolean | null;
  readonly watermark: number | null;
  readonly poolTokens: number | null;
  readonly fullLengthConcurrency: number | null;
}

export const NO_FACTS: ServerFacts = {
  maxNumSeqs: null,
  maxNumBatchedTokens: null,
  maxModelLen: null,
  gpuMemoryUtilization: null,
  kvCacheDtype: null,
  tensorParallelSize: null,
  enforceEager: null,
  watermark: null,
  poolTokens: null,
  fullLengthConcurrency: null,
};

/** What the operator wants; null = no target. */
export interface Targets {
  readonly ttftSeconds: number | null;
  /** Between tokens. */
  readonly tpotSeconds: number | null;
}

export interface Observation {
  /** What it comes from: a URL or file names. */
  readonly source: string;
  readonly kind: 'metrics' | 'log' | 'record';
  readonly engine: EngineKind;
  readonly windowSeconds: number;
  readonly samples: readonly Sample[];
  readonly facts: ServerFacts;
  /** Figures that the source has ready. */
  readonly figures: Signals;
  /** Lines worth quoting, e.g. of a failed start. */
  readonly quotes: readonly string[];
}
