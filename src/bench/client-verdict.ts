// Whether the client kept up: only then are its figures the server's.

import type { LagReport } from './lag-monitor.ts';
import type { LoadMetrics } from './load-metrics.ts';
import { percentile, sorted } from './statistics.ts';

/** Requests this late (99th percentile) were not sent as scheduled. */
const MAX_SCHEDULE_ERROR_SECONDS = 0.01;
/** Lag of the event loop beyond this share of the median gap between tokens shows in the gaps. */
const MAX_LAG_SHARE = 0.5;
/** Below this no lag matters. */
const MIN_LAG_SECONDS = 0.005;

export interface ClientVerdict {
  readonly isClientBound: boolean;
  /** Why, one line each. */
  readonly reasons: readonly string[];
  readonly scheduleErrorP99Seconds: number;
}

export function clientVerdict(metrics: LoadMetrics, lag: LagReport): ClientVerdict {
  const scheduleErrorP99Seconds = percentile(sorted(metrics.scheduleErrors), 99);
  const milliseconds = (seconds: number): string => `${(seconds * 1000).toFixed(1)} ms`;
  const reasons: string[] = [];
  if (scheduleErrorP99Seconds > MAX_SCHEDULE_ERROR_SECONDS) {
    reasons.push(
      `1 % of the requests left more than ${milliseconds(scheduleErrorP99Seconds)} after their time: the client could not send as scheduled.`,
    );
  }
  const gap = metrics.summary.itlSeconds.p50;
  if (lag.p99Seconds > Math.max(MIN_LAG_SECONDS, MAX_LAG_SHARE * gap)) {
    reasons.push(
      `The client's event loop was up to ${milliseconds(lag.p99Seconds)} late (99th percentile), with ${milliseconds(gap)} between tokens: times are partly the client's.`,
    );
  }
  return { isClientBound: reasons.length > 0, reasons, scheduleErrorP99Seconds };
}
