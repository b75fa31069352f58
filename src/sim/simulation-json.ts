// The results of simulations as JSON: snake_case names that end in their units, one object per configuration. The schema stands in
// docs/simulate.md; names are only ever added.

import type { Distribution } from '../workload/streaming-distribution.ts';
import type { LatencyTargets } from './run-recorder.ts';
import type { SimulationResult } from './simulation.ts';

export interface NamedResult {
  readonly label: string;
  readonly result: SimulationResult;
}

export interface JsonOptions {
  readonly targets: LatencyTargets;
  readonly notes: readonly string[];
}

export function simulationJson(results: readonly NamedResult[], { targets, notes }: JsonOptions) {
  return {
    workload: { name: results[0]?.result.workload ?? '', seed: results[0]?.result.seed ?? 0 },
    targets: {
      ttft_seconds: targets.ttftSeconds,
      tpot_seconds: targets.tpotSeconds,
      e2e_seconds: targets.e2eSeconds,
    },
    notes,
    configurations: results.map(({ label, result }) => ({ label, ...resultJson(result) })),
  };
}

function resultJson({ deployment, summary, scheduler, composition, realised, series, firstRefusal }: SimulationResult) {
  return {
    deployment,
    num_completed: summary.numCompleted,
    num_refused: summary.numFailed,
    first_refusal: firstRefusal,
    duration_seconds: summary.durationSeconds,
    prompt_tokens: summary.numPromptTokens,
    output_tokens: summary.numOutputTokens,
    requests_per_second: summary.requestsPerSecond,
    output_tokens_per_second: summary.outputTokensPerSecond,
    total_tokens_per_second: summary.totalTokensPerSecond,
    ttft_seconds: spread(summary.ttftSeconds),
    tpot_seconds: spread(summary.tpotSeconds),
    itl_seconds: spread(summary.itlSeconds),
    e2e_seconds: spread(summary.e2eSeconds),
    goodput_share: summary.goodput,
    scheduler: {
      num_steps: scheduler.numSteps,
      num_prefill_only_steps: composition.numPrefillOnlySteps,
      num_mixed_steps: composition.numMixedSteps,
      num_decode_only_steps: composition.numDecodeOnlySteps,
      num_steps_bound_by_seqs: composition.numStepsBoundBySeqs,
      num_steps_bound_by_tokens: composition.numStepsBoundByTokens,
      num_steps_bound_by_kv: composition.numStepsBoundByKv,
      mean_step_seconds: composition.meanStepSeconds,
      max_step_seconds: composition.maxStepSeconds,
      busy_share: composition.busyShare,
      mean_prefill_tokens_per_step: scheduler.meanPrefillTokens,
      mean_decode_tokens_per_step: scheduler.meanDecodeTokens,
      mean_running: scheduler.meanRunning,
      max_running: scheduler.maxRunning,
      max_waiting: scheduler.maxWaiting,
      queue_seconds: spread(scheduler.queueSeconds),
      mean_kv_usage_share: scheduler.meanKvUsage,
      max_kv_usage_share: scheduler.maxKvUsage,
      mean_kv_waste_share: scheduler.meanKvWaste,
      prefix_hit_share: scheduler.prefixHitShare,
      num_preemptions: scheduler.numPreemptions,
      recomputed_tokens: scheduler.numRecomputedTokens,
    },
    realised_workload: {
      num_requests: realised.numRequests,
      prompt_tokens: spread(realised.promptTokens),
      output_tokens: spread(realised.outputTokens),
      prompt_tokens_cv: realised.promptTokensCv,
      output_tokens_cv: realised.outputTokensCv,
      rank_correlation: realised.rankCorrelation,
      span_seconds: realised.spanSeconds,
      requests_per_second: realised.requestsPerSecond,
      interarrival_cv: realised.interarrivalCv,
      index_of_dispersion_1s: realised.indexOfDispersion1s,
      index_of_dispersion_10s: realised.indexOfDispersion10s,
      index_of_dispersion_60s: realised.indexOfDispersion60s,
      peak_over_mean_10s: realised.peakOverMean10s,
      shared_block_share: realised.sharedBlockShare,
    },
    series: series.map((point) => ({
      seconds: point.seconds,
      window_seconds: point.windowSeconds,
      running: point.numRunning,
      waiting: point.numWaiting,
      kv_usage_share: point.kvUsage,
      prefill_tokens_per_second: point.prefillTokensPerSecond,
      decode_tokens_per_second: point.decodeTokensPerSecond,
      preemptions_per_second: point.preemptionsPerSecond,
      mean_step_seconds: point.stepSeconds,
      busy_share: point.busyShare,
    })),
  };
}

function spread({ mean, p50, p90, p95, p99, max }: Distribution) {
  return { mean, p50, p90, p95, p99, max };
}
