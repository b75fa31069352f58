// Where each engine keeps its figures. The first name that a scrape has counts; later ones are those of other versions.

import type { EngineKind } from './observation.ts';
import type { Scrape } from './prometheus-text.ts';

type Names = readonly string[];

export interface MetricNames {
  readonly running: Names;
  readonly waiting: Names;
  readonly kvUsage: Names;
  readonly preemptions: Names;
  readonly prefixQueries: Names;
  readonly prefixHits: Names;
  /** Where there is only a rate. */
  readonly prefixHitRate: Names;
  readonly promptTokens: Names;
  readonly generationTokens: Names;
  readonly finished: Names;
  readonly ttft: Names;
  readonly itl: Names;
  readonly queue: Names;
  readonly prefill: Names;
  readonly promptLength: Names;
  readonly outputLength: Names;
  readonly maxTokens: Names;
  readonly stepTokens: Names;
  readonly recomputed: Names;
  readonly poolTokens: Names;
}

const VLLM: MetricNames = {
  running: ['vllm:num_requests_running'],
  waiting: ['vllm:num_requests_waiting'],
  kvUsage: ['vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc'],
  preemptions: ['vllm:num_preemptions_total', 'vllm:num_preemptions'],
  prefixQueries: [
    'vllm:prefix_cache_queries_total',
    'vllm:gpu_prefix_cache_queries_total',
    'vllm:prefix_cache_queries',
  ],
  prefixHits: ['vllm:prefix_cache_hits_total', 'vllm:gpu_prefix_cache_hits_total', 'vllm:prefix_cache_hits'],
  prefixHitRate: ['vllm:gpu_prefix_cache_hit_rate'],
  promptTokens: ['vllm:prompt_tokens_total', 'vllm:prompt_tokens'],
  generationTokens: ['vllm:generation_tokens_total', 'vllm:generation_tokens'],
  finished: ['vllm:request_success_total', 'vllm:request_success'],
  ttft: ['vllm:time_to_first_token_seconds'],
  itl: ['vllm:inter_token_latency_seconds', 'vllm:time_per_output_token_seconds'],
  queue: ['vllm:request_queue_time_seconds'],
  prefill: ['vllm:request_prefill_time_seconds'],
  promptLength: ['vllm:request_prompt_tokens'],
  outputLength: ['vllm:request_generation_tokens'],
  maxTokens: ['vllm:request_params_max_tokens'],
  stepTokens: ['vllm:iteration_tokens_total'],
  recomputed: ['pagoda:recomputed_tokens_total'],
  poolTokens: [],
};

/** docs.sglang.io, production metrics; retractions are its preemptions. */
const SGLANG: MetricNames = {
  running: ['sglang:num_running_reqs'],
  waiting: ['sglang:num_queue_reqs'],
  kvUsage: ['sglang:token_usage'],
  preemptions: ['sglang:num_retracted_requests_total', 'sglang:num_retracted_reqs_total', 'sglang:num_retracted_reqs'],
  prefixQueries: ['sglang:prompt_tokens_total'],
  prefixHits: ['sglang:cached_tokens_total'],
  prefixHitRate: ['sglang:cache_hit_rate'],
  promptTokens: ['sglang:prompt_tokens_total'],
  generationTokens: ['sglang:generation_tokens_total'],
  finished: ['sglang:num_requests_total'],
  ttft: ['sglang:time_to_first_token_seconds'],
  itl: ['sglang:inter_token_latency_seconds', 'sglang:time_per_output_token_seconds'],
  queue: ['sglang:queue_time_seconds', 'sglang:request_queue_time_seconds'],
  prefill: [],
  promptLength: ['sglang:prompt_tokens_histogram'],
  outputLength: ['sglang:generation_tokens_histogram'],
  maxTokens: [],
  stepTokens: [],
  recomputed: [],
  poolTokens: ['sglang:max_total_num_tokens'],
};

export function engineOf(scrape: Scrape): EngineKind {
  const names = [...scrape.names()];
  if (names.some((name) => name.startsWith('pagoda:'))) return 'pagoda';
  if (names.some((name) => name.startsWith('vllm:'))) return 'vllm';
  return names.some((name) => name.startsWith('sglang:')) ? 'sglang' : 'unknown';
}

export const namesOf = (engine: EngineKind): MetricNames => (engine === 'sglang' ? SGLANG : VLLM);

/** vLLM's flags in other engines' words. */
const SGLANG_FLAGS: Readonly<Record<string, string>> = {
  'gpu-memory-utilization': 'mem-fraction-static',
  'max-num-seqs': 'max-running-requests',
  'max-num-batched-tokens': 'chunked-prefill-size',
  'tensor-parallel-size': 'tp-size',
  'max-model-len': 'context-length',
};

export const flagOf = (engine: EngineKind, flag: string): string =>
  engine === 'sglang' ? (SGLANG_FLAGS[flag] ?? flag) : flag;
