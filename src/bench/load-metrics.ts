// What the records of a run amount to. Everything is computed from the recorded times and counts alone, so the same records give
// the same figures to the last digit. Only completed requests count towards latencies and tokens, as in vLLM.

import type { RunSummary } from '../sim/run-summary.ts';
import type { LagReport } from './lag-monitor.ts';
import { e2eSeconds, type RequestRecord, tpotSeconds, ttftSeconds } from './request-record.ts';
import { distribution, percentile, sorted } from './statistics.ts';

/** What a good request stays within; seconds. */
export interface GoodputTargets {
  readonly ttftSeconds?: number;
  readonly tpotSeconds?: number;
  readonly e2eSeconds?: number;
}

/** Gaps between token events that are far beyond the usual ones, and whose fault they are. */
export interface Stalls {
  readonly thresholdSeconds: number;
  readonly numServer: number;
  readonly numClient: number;
  readonly serverSeconds: number;
  readonly clientSeconds: number;
}

export interface LoadMetrics {
  readonly summary: RunSummary;
  readonly numCut: number;
  /** One entry per completed request, in order of index; null where a request has no such figure. */
  readonly ttfts: readonly number[];
  readonly tpots: readonly number[];
  readonly itls: ReadonlyArray<readonly number[]>;
  readonly e2es: readonly number[];
  /** Time in the client's own queue behind --max-concurrency. */
  readonly queueTimes: readonly number[];
  /** Sent minus the time at which it should and could have been sent: the client's own lateness. */
  readonly scheduleErrors: readonly number[];
  readonly maxOutputTokensPerSecond: number;
  readonly maxConcurrentRequests: number;
  readonly finishReasons: Readonly<Record<string, number>>;
  readonly stalls: Stalls;
}

export interface MetricsInput {
  readonly records: readonly RequestRecord[];
  readonly startSeconds: number;
  readonly targets: GoodputTargets;
  readonly lag: LagReport;
}

export function loadMetrics(input: MetricsInput): LoadMetrics {
  const { records, startSeconds, targets, lag } = input;
  const completed = records.filter((record) => record.outcome === 'completed');
  const numOf = (outcome: RequestRecord['outcome']): number =>
    records.reduce((sum, record) => sum + (record.outcome === outcome ? 1 : 0), 0);
  const itls = completed.map(gaps);
  const durationSeconds = Math.max(0, lastSeconds(records) - startSeconds);
  const numPromptTokens = completed.reduce((sum, record) => sum + record.numPromptTokens, 0);
  const numOutputTokens = completed.reduce((sum, record) => sum + record.numOutputTokens, 0);
  const rate = (count: number): number => (durationSeconds > 0 ? count / durationSeconds : 0);
  const ttfts = completed.map((record) => ttftSeconds(record) ?? 0);
  const tpots = completed.flatMap((record) => tpotSeconds(record) ?? []);
  const e2es = completed.map((record) => e2eSeconds(record) ?? 0);
  const hasTargets = Object.values(targets).some((target) => target !== undefined);
  const numGood = completed.filter((record) => isGood(record, targets)).length;
  const finishReasons: Record<string, number> = {};
  for (const { finishReason } of completed) {
    const reason = finishReason ?? 'unknown';
    finishReasons[reason] = (finishReasons[reason] ?? 0) + 1;
  }
  return {
    summary: {
      numCompleted: completed.length,
      numFailed: numOf('failed') + numOf('cut'),
      durationSeconds,
      numPromptTokens,
      numOutputTokens,
      requestsPerSecond: rate(completed.length),
      outputTokensPerSecond: rate(numOutputTokens),
      totalTokensPerSecond: rate(numPromptTokens + numOutputTokens),
      ttftSeconds: distribution(ttfts),
      tpotSeconds: distribution(tpots),
      itlSeconds: distribution(itls.flat()),
      e2eSeconds: distribution(e2es),
      goodput: hasTargets && records.length > 0 ? numGood / records.length : null,
    },
    numCut: numOf('cut'),
    ttfts,
    tpots,
    itls,
    e2es,
    queueTimes: completed.map((record) => record.admittedSeconds - record.scheduledSeconds),
    scheduleErrors: records.map((record) => Math.max(0, record.sentSeconds - record.admittedSeconds)),
    maxOutputTokensPerSecond: peakTokensPerSecond(completed, startSeconds),
    maxConcurrentRequests: peakConcurrency(completed, startSeconds),
    finishReasons,
    stalls: stallsOf(completed, itls, lag),
  };
}

function gaps(record: RequestRecord): number[] {
  const times = record.tokenSeconds;
  return times.slice(1).map((time, i) => time - times[i]!);
}

function lastSeconds(records: readonly RequestRecord[]): number {
  return records.reduce((last, record) => Math.max(last, record.endSeconds), Number.NEGATIVE_INFINITY);
}

function isGood(record: RequestRecord, targets: GoodputTargets): boolean {
  const meets = (value: number | null, target: number | undefined): boolean =>
    target === undefined || (value ?? 0) <= target;
  return (
    meets(ttftSeconds(record), targets.ttftSeconds) &&
    meets(tpotSeconds(record), targets.tpotSeconds) &&
    meets(e2eSeconds(record), targets.e2eSeconds)
  );
}

/** Most tokens that arrived within one second of the run; an event's tokens count at its time, spread evenly over the events. */
function peakTokensPerSecond(completed: readonly RequestRecord[], startSeconds: number): number {
  const buckets = new Map<number, number>();
  for (const record of completed) {
    const numPerEvent = record.numOutputTokens / Math.max(1, record.tokenSeconds.length);
    for (const time of record.tokenSeconds) {
      const second = Math.floor(time - startSeconds);
      buckets.set(second, (buckets.get(second) ?? 0) + numPerEvent);
    }
  }
  return Math.max(0, ...buckets.values());
}

/** Most requests that were under way in one second of the run, as vLLM counts them: every second that a request touches. */
function peakConcurrency(completed: readonly RequestRecord[], startSeconds: number): number {
  const changes = new Map<number, number>();
  const add = (second: number, delta: number): void => void changes.set(second, (changes.get(second) ?? 0) + delta);
  for (const record of completed) {
    add(Math.floor(record.sentSeconds - startSeconds), 1);
    add(Math.floor((record.tokenSeconds.at(-1) ?? record.endSeconds) - startSeconds) + 1, -1);
  }
  let running = 0;
  let peak = 0;
  for (const [, delta] of [...changes].sort(([a], [b]) => a - b)) {
    running += delta;
    peak = Math.max(peak, running);
  }
  return peak;
}

const STALL_SECONDS = 0.25;
const STALL_FACTOR = 10;

/** A stall is the server's unless the client's own loop slept through at least half of it. */
function stallsOf(completed: readonly RequestRecord[], itls: ReadonlyArray<readonly number[]>, lag: LagReport): Stalls {
  const median = percentile(sorted(itls.flat()), 50);
  const thresholdSeconds = Math.max(STALL_SECONDS, STALL_FACTOR * median);
  const total = { numServer: 0, numClient: 0, serverSeconds: 0, clientSeconds: 0 };
  for (const record of completed) {
    for (let i = 1; i < record.tokenSeconds.length; i++) {
      const from = record.tokenSeconds[i - 1]!;
      const to = record.tokenSeconds[i]!;
      if (to - from <= thresholdSeconds) continue;
      const asleep = lag.spikes.reduce(
        (sum, spike) => sum + Math.max(0, Math.min(to, spike.toSeconds) - Math.max(from, spike.fromSeconds)),
        0,
      );
      if (2 * asleep >= to - from) {
        total.numClient++;
        total.clientSeconds += to - from;
      } else {
        total.numServer++;
        total.serverSeconds += to - from;
      }
    }
  }
  return { thresholdSeconds, ...total };
}
