// What a run of a workload amounts to, simulated or measured: the figures that are printed, compared and diagnosed.

import type { Distribution } from '../workload/streaming-distribution.ts';

export interface RunSummary {
  readonly numCompleted: number;
  readonly numFailed: number;
  readonly durationSeconds: number;
  readonly numPromptTokens: number;
  readonly numOutputTokens: number;
  readonly requestsPerSecond: number;
  readonly outputTokensPerSecond: number;
  readonly totalTokensPerSecond: number;
  /** First token minus arrival. */
  readonly ttftSeconds: Distribution;
  /** (last token - first token) / (output tokens - 1), requests with at least two tokens. */
  readonly tpotSeconds: Distribution;
  /** Between consecutive tokens, over all requests. */
  readonly itlSeconds: Distribution;
  /** Last token minus arrival. */
  readonly e2eSeconds: Distribution;
  /** Share of requests that met every target; null without targets. */
  readonly goodput: number | null;
}

/** What only the engine or a simulator knows. */
export interface SchedulerSummary {
  readonly numSteps: number;
  readonly numPreemptions: number;
  readonly numRecomputedTokens: number;
  readonly queueSeconds: Distribution;
  readonly meanRunning: number;
  readonly maxRunning: number;
  readonly maxWaiting: number;
  /** Shares 0..1 over the run's time. */
  readonly meanKvUsage: number;
  readonly maxKvUsage: number;
  readonly meanKvWaste: number;
  readonly prefixHitShare: number;
  /** Tokens per step, by kind. */
  readonly meanPrefillTokens: number;
  readonly meanDecodeTokens: number;
  readonly numMixedSteps: number;
}
