// The result of `bench serve` as JSON: vLLM's field names first (scripts and dashboards read them), then what only this client
// knows. Units stand in the names; vLLM's own fields are in milliseconds where they end in _ms, else in seconds.

import type { ClientVerdict } from './client-verdict.ts';
import type { LagReport } from './lag-monitor.ts';
import type { LoadMetrics } from './load-metrics.ts';
import type { RequestRecord } from './request-record.ts';
import { mean, percentile, sorted, standardDeviation } from './statistics.ts';

/** vLLM's names of what percentiles can be printed of. */
export const PERCENTILE_METRICS = ['ttft', 'tpot', 'itl', 'e2el', 'client_queue_time'] as const;
export type PercentileMetric = (typeof PERCENTILE_METRICS)[number];

export interface ServeFacts {
  /** YYYYmmdd-HHMMSS. */
  readonly date: string;
  readonly backend: string;
  readonly label: string | null;
  readonly modelId: string;
  readonly tokenizerId: string;
  readonly numPrompts: number;
  /** null = the times of a trace. */
  readonly requestRate: number | null;
  readonly burstiness: number;
  readonly maxConcurrency: number | null;
  readonly rampUp: { readonly strategy: string; readonly startRps: number; readonly endRps: number } | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly seed: number;
  readonly datasetName: string;
  readonly numProcesses: number;
  readonly promptLengths: string;
  readonly percentileMetrics: readonly PercentileMetric[];
  readonly metricPercentiles: readonly number[];
  readonly saveDetailed: boolean;
}

export interface ServeRun {
  readonly records: readonly RequestRecord[];
  readonly metrics: LoadMetrics;
  readonly lag: LagReport;
  readonly verdict: ClientVerdict;
  readonly startSeconds: number;
  /** Seconds after the start at which over-saturation showed, or null. */
  readonly overSaturatedSeconds: number | null;
  readonly wasStopped: boolean;
}

/** JSON has no infinity: vLLM writes the word. */
const rateOf = (value: number): number | string => (Number.isFinite(value) ? value : 'inf');

export function serveResult(facts: ServeFacts, run: ServeRun): Record<string, unknown> {
  const { metrics, lag, verdict } = run;
  const { summary } = metrics;
  const goodput = summary.goodput === null ? null : goodRate(summary.goodput, run);
  return {
    date: facts.date,
    endpoint_type: facts.backend,
    backend: facts.backend,
    label: facts.label,
    model_id: facts.modelId,
    tokenizer_id: facts.tokenizerId,
    num_prompts: facts.numPrompts,
    ...facts.metadata,
    request_rate: facts.requestRate === null ? 'trace' : rateOf(facts.requestRate),
    burstiness: rateOf(facts.burstiness),
    max_concurrency: facts.maxConcurrency,
    ...(facts.rampUp === null
      ? {}
      : {
          ramp_up_strategy: facts.rampUp.strategy,
          ramp_up_start_rps: facts.rampUp.startRps,
          ramp_up_end_rps: facts.rampUp.endRps,
        }),
    duration: summary.durationSeconds,
    completed: summary.numCompleted,
    failed: summary.numFailed - metrics.numCut,
    total_input_tokens: summary.numPromptTokens,
    total_output_tokens: summary.numOutputTokens,
    request_throughput: summary.requestsPerSecond,
    request_goodput: goodput,
    output_throughput: summary.outputTokensPerSecond,
    total_token_throughput: summary.totalTokensPerSecond,
    ...(facts.saveDetailed ? detailed(run) : {}),
    max_output_tokens_per_s: metrics.maxOutputTokensPerSecond,
    max_concurrent_requests: metrics.maxConcurrentRequests,
    ...Object.assign({}, ...facts.percentileMetrics.map((name) => figures(name, metrics, facts.metricPercentiles))),
    // What follows is Pagoda's own.
    cut: metrics.numCut,
    goodput_share: summary.goodput,
    finish_reasons: metrics.finishReasons,
    output_len_percentiles: lengths(run.records),
    latency_counts_from: 'scheduled send time',
    schedule_error_p99_ms: verdict.scheduleErrorP99Seconds * 1000,
    event_loop_lag_mean_ms: lag.meanSeconds * 1000,
    event_loop_lag_p99_ms: lag.p99Seconds * 1000,
    event_loop_lag_max_ms: lag.maxSeconds * 1000,
    client_bound: verdict.isClientBound,
    client_bound_reasons: verdict.reasons,
    stalls: {
      threshold_ms: metrics.stalls.thresholdSeconds * 1000,
      server: metrics.stalls.numServer,
      client: metrics.stalls.numClient,
      server_ms: metrics.stalls.serverSeconds * 1000,
      client_ms: metrics.stalls.clientSeconds * 1000,
    },
    over_saturated: run.overSaturatedSeconds !== null,
    over_saturated_after_s: run.overSaturatedSeconds,
    stopped_early: run.wasStopped,
    seed: facts.seed,
    dataset_name: facts.datasetName,
    num_processes: facts.numProcesses,
    prompt_lengths: facts.promptLengths,
  };
}

/** Good requests per second: vLLM's goodput, while the summary has a share. */
export function goodRate(share: number, { metrics, records }: ServeRun): number {
  const { durationSeconds } = metrics.summary;
  return durationSeconds > 0 ? (share * records.length) / durationSeconds : 0;
}

/** Values in seconds behind one of vLLM's metric names. */
export function valuesOf(name: PercentileMetric, metrics: LoadMetrics): readonly number[] {
  switch (name) {
    case 'ttft':
      return metrics.ttfts;
    case 'tpot':
      return metrics.tpots;
    case 'itl':
      return metrics.itls.flat();
    case 'e2el':
      return metrics.e2es;
    case 'client_queue_time':
      return metrics.queueTimes;
    default:
      return name satisfies never;
  }
}

function figures(name: PercentileMetric, metrics: LoadMetrics, percents: readonly number[]): Record<string, number> {
  const values = sorted(valuesOf(name, metrics));
  const result: Record<string, number> = {
    [`mean_${name}_ms`]: mean(values) * 1000,
    [`median_${name}_ms`]: percentile(values, 50) * 1000,
    [`std_${name}_ms`]: standardDeviation(values) * 1000,
  };
  for (const percent of percents) result[`p${percent}_${name}_ms`] = percentile(values, percent) * 1000;
  return result;
}

function lengths(records: readonly RequestRecord[]): Record<string, number> {
  const all = sorted(records.flatMap((r) => (r.outcome === 'completed' ? [r.numOutputTokens] : [])));
  return { p50: percentile(all, 50), p95: percentile(all, 95), p99: percentile(all, 99), max: all.at(-1) ?? 0 };
}

/** One entry per request, as vLLM: failed ones have zeros and their error. */
function detailed({ records, startSeconds }: ServeRun): Record<string, unknown> {
  const isDone = (record: RequestRecord): boolean => record.outcome === 'completed';
  return {
    input_lens: records.map((r) => r.numPromptTokens),
    output_lens: records.map((r) => (isDone(r) ? r.numOutputTokens : 0)),
    ttfts: records.map((r) => (isDone(r) ? (r.tokenSeconds[0] ?? r.scheduledSeconds) - r.scheduledSeconds : 0)),
    itls: records.map((r) => r.tokenSeconds.slice(1).map((time, i) => time - r.tokenSeconds[i]!)),
    latencies: records.map((r) => (isDone(r) ? (r.tokenSeconds.at(-1) ?? r.endSeconds) - r.scheduledSeconds : 0)),
    start_times: records.map((r) => r.scheduledSeconds - startSeconds),
    queue_times: records.map((r) => r.admittedSeconds - r.scheduledSeconds),
    generated_texts: records.map((r) => r.text),
    errors: records.map((r) => r.error),
  };
}
