// The Prometheus metrics: vLLM's names, labels and buckets (so that its dashboards work), and `pagoda:*` for what vLLM lacks.
// Only declarations and labels live here; telemetry.ts says what is counted when.

import { Gauge, Registry } from 'prom-client';
import { TalliedCounter, TalliedHistogram } from './tallied-metrics.ts';

const TTFT_BUCKETS = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
];
const TOKEN_TIME_BUCKETS = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
const REQUEST_TIME_BUCKETS = [
  0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
];
const ITERATION_BUCKETS = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const STEP_TIME_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const N_BUCKETS = [1, 2, 5, 10, 20];

/** 1, 2, 5, 10, 20, 50, … up to `maxModelLen`. */
export function tokenBuckets(maxModelLen: number): number[] {
  const buckets: number[] = [];
  for (let decade = 1; ; decade *= 10) {
    for (const mantissa of [1, 2, 5]) {
      const value = mantissa * decade;
      if (value > maxModelLen) return buckets;
      buckets.push(value);
    }
  }
}

export interface HistogramHandle {
  observe(value: number): void;
}
export interface CounterHandle {
  inc(value?: number): void;
}
export interface GaugeHandle {
  set(value: number): void;
}

/** Makes metrics that all carry `model_name` and `engine`. */
export class MetricFactory {
  readonly registry = new Registry();
  readonly #base: Readonly<Record<string, string>>;

  constructor(modelName: string) {
    this.#base = { model_name: modelName, engine: '0' };
  }

  counter(name: string, help: string): CounterHandle {
    return this.counterBy(name, help, null)('');
  }

  /** A counter with one more label; each value that is known beforehand starts at 0, so that rates have a beginning. */
  counterBy(
    name: string,
    help: string,
    label: string | null,
    values: readonly string[] = [],
  ): (value: string) => CounterHandle {
    const metric = new TalliedCounter({ name, help, registry: this.registry, labelNames: this.#names(label) });
    const children = new Map<string, CounterHandle>();
    const child = (value: string): CounterHandle => {
      let handle = children.get(value);
      if (handle === undefined) {
        handle = metric.tally(this.#labels(label, value));
        children.set(value, handle);
      }
      return handle;
    };
    for (const value of values) child(value);
    if (label === null) child('');
    return child;
  }

  gauge(name: string, help: string, read?: () => number): GaugeHandle {
    const labels = this.#base;
    const metric: Gauge<string> = new Gauge({
      name,
      help,
      registers: [this.registry],
      labelNames: this.#names(null),
      ...(read === undefined ? {} : { collect: () => metric.labels(labels).set(read()) }),
    });
    return metric.labels(labels);
  }

  /** A gauge per value of one more label, all read when scraped. */
  gaugeBy(name: string, help: string, label: string, read: () => Readonly<Record<string, number>>): void {
    const metric: Gauge<string> = new Gauge({
      name,
      help,
      registers: [this.registry],
      labelNames: this.#names(label),
      collect: () => {
        for (const [value, number] of Object.entries(read())) metric.labels(this.#labels(label, value)).set(number);
      },
    });
  }

  /** A constant 1 whose labels are facts. */
  info(name: string, help: string, facts: Readonly<Record<string, string>>): void {
    const labelNames = [...this.#names(null), ...Object.keys(facts)];
    new Gauge({ name, help, registers: [this.registry], labelNames }).labels({ ...this.#base, ...facts }).set(1);
  }

  histogram(name: string, help: string, buckets: number[]): HistogramHandle {
    return new TalliedHistogram({ name, help, buckets, registry: this.registry, labels: this.#base });
  }

  #names(label: string | null): string[] {
    return label === null ? Object.keys(this.#base) : [...Object.keys(this.#base), label];
  }

  #labels(label: string | null, value: string): Record<string, string> {
    return label === null ? this.#base : { ...this.#base, [label]: value };
  }
}

/** Names of StepRecord's times without `Seconds`. */
export const STEP_PHASES = [
  'schedule',
  'fill',
  'launch',
  'handover',
  'device',
  'attention',
  'linear',
  'rows',
  'sampling',
  'serial',
  'update',
  'delivery',
] as const;

export type RequestMetrics = ReturnType<typeof createRequestMetrics>;
export type StepMetrics = ReturnType<typeof createStepMetrics>;

/** What is counted per request (per choice: a request with n choices counts n times, as in vLLM). */
export function createRequestMetrics(factory: MetricFactory, maxModelLen: number) {
  const tokens = tokenBuckets(maxModelLen);
  const seconds = (name: string, help: string): HistogramHandle =>
    factory.histogram(`vllm:${name}_seconds`, `${help}, in seconds.`, REQUEST_TIME_BUCKETS);
  const count = (name: string, help: string): HistogramHandle => factory.histogram(`vllm:${name}`, help, tokens);
  return {
    promptTokens: factory.counter(
      'vllm:prompt_tokens_total',
      'Prompt tokens of requests that produced their first token; each of n choices counts its prompt, cached tokens included.',
    ),
    promptTokensBySource: factory.counterBy(
      'vllm:prompt_tokens_by_source_total',
      'Prompt tokens by where their KV came from.',
      'source',
      ['local_compute', 'local_cache_hit', 'external_kv_transfer'],
    ),
    promptTokensCached: factory.counter(
      'vllm:prompt_tokens_cached_total',
      'Prompt tokens taken from the prefix cache.',
    ),
    generationTokens: factory.counter('vllm:generation_tokens_total', 'Generated tokens, the end token included.'),
    success: factory.counterBy('vllm:request_success_total', 'Finished requests by reason.', 'finished_reason', [
      'stop',
      'length',
      'abort',
      'error',
      'repetition',
    ]),
    rejections: factory.counter('vllm:admission_rejections_total', 'Requests refused because the queue was full.'),
    requestPromptTokens: count('request_prompt_tokens', 'Prompt tokens per request.'),
    requestGenerationTokens: count('request_generation_tokens', 'Generated tokens per request.'),
    requestMaxGenerationTokens: count('request_max_num_generation_tokens', 'Longest choice per request.'),
    requestMaxTokens: count('request_params_max_tokens', 'max_tokens of requests.'),
    requestPrefillTokens: count(
      'request_prefill_kv_computed_tokens',
      'Prompt tokens computed (not cached) per request.',
    ),
    requestN: factory.histogram('vllm:request_params_n', 'n of requests.', N_BUCKETS),
    timeToFirstToken: factory.histogram(
      'vllm:time_to_first_token_seconds',
      'Time to first token, in seconds.',
      TTFT_BUCKETS,
    ),
    interTokenLatency: factory.histogram(
      'vllm:inter_token_latency_seconds',
      'Time between tokens, in seconds.',
      TOKEN_TIME_BUCKETS,
    ),
    timePerOutputToken: factory.histogram(
      'vllm:request_time_per_output_token_seconds',
      'Mean time per token after the first, per request, in seconds.',
      TOKEN_TIME_BUCKETS,
    ),
    endToEnd: seconds('e2e_request_latency', 'Arrival to last token'),
    queueTime: seconds('request_queue_time', 'Arrival to first scheduling'),
    inferenceTime: seconds('request_inference_time', 'First scheduling to last token'),
    prefillTime: seconds('request_prefill_time', 'First scheduling to first token'),
    decodeTime: seconds('request_decode_time', 'First token to last token'),
  };
}

export type SpeculationMetrics = ReturnType<typeof createSpeculationMetrics>;

/** Only with speculation, as in vLLM. `numPositions`: most draft tokens of one draft. */
export function createSpeculationMetrics(factory: MetricFactory, numPositions: number) {
  const name = (what: string): string => `vllm:spec_decode_${what}_total`;
  return {
    drafts: factory.counter(name('num_drafts'), 'Times that a sequence got draft tokens.'),
    draftTokens: factory.counter(name('num_draft_tokens'), 'Draft tokens computed.'),
    acceptedTokens: factory.counter(name('num_accepted_tokens'), 'Draft tokens that were what was sampled.'),
    acceptedAt: factory.counterBy(
      name('num_accepted_tokens_per_pos'),
      'Accepted draft tokens by their position in the draft.',
      'position',
      Array.from({ length: numPositions }, (_, position) => String(position)),
    ),
  };
}

/** What is counted per engine step. */
export function createStepMetrics(factory: MetricFactory) {
  return {
    preemptions: factory.counter(
      'vllm:num_preemptions_total',
      'Preemptions: all blocks given back, tokens recomputed.',
    ),
    prefixQueries: factory.counter('vllm:prefix_cache_queries_total', 'Tokens looked up in the prefix cache.'),
    prefixHits: factory.counter('vllm:prefix_cache_hits_total', 'Tokens found in the prefix cache.'),
    iterationTokens: factory.histogram('vllm:iteration_tokens_total', 'Tokens computed per step.', ITERATION_BUCKETS),
    steps: factory.counter('pagoda:engine_steps_total', 'Engine steps.'),
    stepSeconds: factory.histogram(
      'pagoda:step_duration_seconds',
      'Duration of a step, in seconds.',
      STEP_TIME_BUCKETS,
    ),
    phaseSeconds: factory.counterBy(
      'pagoda:step_phase_seconds_total',
      'Where step time went, in seconds; attention, linear, rows, sampling and serial are parts of device; schedule, fill, update and delivery run beside it.',
      'phase',
      STEP_PHASES,
    ),
    stepTokens: factory.counterBy('pagoda:step_tokens_total', 'Tokens in steps by kind.', 'kind', [
      'prompt',
      'generated',
    ]),
    promptTokensPerStep: factory.histogram(
      'pagoda:prompt_tokens_per_step',
      'Prompt tokens per step.',
      ITERATION_BUCKETS,
    ),
    generatedTokensPerStep: factory.histogram(
      'pagoda:generated_tokens_per_step',
      'Tokens sampled per step.',
      ITERATION_BUCKETS,
    ),
    recomputedTokens: factory.counter(
      'pagoda:recomputed_tokens_total',
      'Tokens computed again because a preemption had thrown their KV away.',
    ),
    restarts: factory.counter('pagoda:engine_restarts_total', 'Times the engine was started again after it had gone.'),
  };
}
