// What is counted when: requests are followed here in the front (their first token is the one the front saw), the engine's
// state comes from its step records. Feeds /metrics and the ten-second log. A request is counted when the engine accepted
// it, so refused ones appear in no histogram; one whose client left counts as `abort`, however far it came.

import { monitorEventLoopDelay } from 'node:perf_hooks';
import { now } from '../clock.ts';
import type { FinishInfo, GenerateRequest, TokenEvent } from '../core/request.ts';
import type { EngineInfo, EngineListeners } from '../engine/engine-client.ts';
import type { SpeculationRecord, StepRecord } from '../trace/step-record.ts';
import type { Logger } from './logger.ts';
import {
  createRequestMetrics,
  createSpeculationMetrics,
  createStepMetrics,
  MetricFactory,
  type RequestMetrics,
  type SpeculationMetrics,
  STEP_PHASES,
  type StepMetrics,
} from './metrics.ts';
import { type EngineGauges, StatsLog } from './stats-log.ts';

const LOG_INTERVAL_SECONDS = 10;
/** Names that are put together at every step would be looked up anew at every step. */
const PHASE_FIELDS = STEP_PHASES.map((phase) => [phase, `${phase}Seconds`] as const);

export class Telemetry {
  /** For whoever starts the engine. */
  readonly listeners: EngineListeners;
  readonly #factory: MetricFactory;
  readonly #steps: StepMetrics;
  readonly #logger: Logger;
  readonly #log: StatsLog;
  readonly #lag = monitorEventLoopDelay({ resolution: 20 });
  #requests: RequestMetrics | null = null;
  #speculation: SpeculationMetrics | null = null;
  #last: StepRecord | null = null;
  #numOpen = 0;
  #wasDown = false;
  #wasteSum = 0;
  #wasteWeight = 0;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: { modelName: string; logger: Logger }) {
    this.#logger = options.logger;
    this.#factory = new MetricFactory(options.modelName);
    this.#steps = createStepMetrics(this.#factory);
    this.#log = new StatsLog(options.logger, now());
    this.listeners = {
      onStep: (record) => this.#onStep(record),
      onLog: (level, message) => options.logger[level]('engine', message),
      onDown: (reason, restarting) => this.#onDown(reason, restarting),
      onReady: () => this.#onReady(),
    };
    this.#declareGauges();
    this.#lag.enable();
  }

  /** Declares what depends on the engine's facts and starts the log. Called once, when the server starts. */
  start(info: EngineInfo, options: { logStats: boolean }): void {
    this.#requests = createRequestMetrics(this.#factory, info.maxModelLen);
    if (info.numSpeculativeTokens > 0)
      this.#speculation = createSpeculationMetrics(this.#factory, info.numSpeculativeTokens);
    this.#factory.info('vllm:cache_config_info', 'Facts of the KV cache.', {
      block_size: String(info.blockSize),
      num_gpu_blocks: String(info.numBlocks),
      cache_dtype: info.kvCacheDtype,
      kv_bytes_per_token: String(info.kvBytesPerToken),
    });
    if (!options.logStats) return;
    this.#timer = setInterval(() => this.#log.line(now(), this.#gauges()), LOG_INTERVAL_SECONDS * 1000);
    this.#timer.unref();
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#lag.disable();
  }

  get contentType(): string {
    return this.#factory.registry.contentType;
  }

  scrape(): Promise<string> {
    return this.#factory.registry.metrics();
  }

  /** Follows one choice. `group` is shared by the n choices of one prompt. */
  meter(request: GenerateRequest, group: ChoiceGroup): RequestMeter {
    if (this.#requests === null) throw new Error('Telemetry.start was not called.');
    return new RequestMeter({
      request,
      group,
      metrics: this.#requests,
      log: this.#log,
      onOpen: (delta) => {
        this.#numOpen += delta;
      },
    });
  }

  rejected(): void {
    this.#requests?.rejections.inc();
  }

  #onStep(record: StepRecord): void {
    this.#last = record;
    const steps = this.#steps;
    steps.steps.inc();
    steps.stepSeconds.observe(record.stepSeconds);
    steps.iterationTokens.observe(record.numPromptTokens + record.numGeneratedTokens);
    steps.promptTokensPerStep.observe(record.numPromptTokens);
    steps.generatedTokensPerStep.observe(record.numGeneratedTokens);
    steps.stepTokens('prompt').inc(record.numPromptTokens);
    steps.stepTokens('generated').inc(record.numGeneratedTokens);
    for (const [phase, field] of PHASE_FIELDS) steps.phaseSeconds(phase).inc(Math.max(0, record[field]));
    steps.recomputedTokens.inc(record.numRecomputedTokens);
    if (record.numPrefixQueryTokens > 0) {
      steps.prefixQueries.inc(record.numPrefixQueryTokens);
      steps.prefixHits.inc(record.numPrefixHitTokens);
      this.#log.addLookup(record.numPrefixQueryTokens, record.numPrefixHitTokens);
    }
    if (record.speculation !== null && record.speculation.numDrafts > 0) this.#onDrafts(record.speculation);
    this.#log.addPromptTokens(record.numPromptTokens);
    this.#wasteSum += record.kvWaste * record.numBlocksUsed;
    this.#wasteWeight += record.numBlocksUsed;
    for (const preemption of record.preemptions) {
      steps.preemptions.inc();
      this.#log.preempted(preemption);
    }
  }

  #onDrafts(record: SpeculationRecord): void {
    this.#log.addDrafts(record);
    const metrics = this.#speculation;
    if (metrics === null) return;
    metrics.drafts.inc(record.numDrafts);
    metrics.draftTokens.inc(record.numDraftTokens);
    metrics.acceptedTokens.inc(record.numAcceptedTokens);
    record.numAcceptedAt.forEach((count, position) => {
      if (count > 0) metrics.acceptedAt(String(position)).inc(count);
    });
  }

  #onDown(reason: string, restarting: boolean): void {
    this.#wasDown = true;
    this.#last = null;
    this.#logger.error(
      'engine',
      `The engine went down: ${reason}. ${restarting ? 'Starting it again.' : 'It stays down.'}`,
    );
  }

  #onReady(): void {
    if (!this.#wasDown) return;
    this.#wasDown = false;
    this.#steps.restarts.inc();
    this.#logger.info('engine', 'The engine is ready again.');
  }

  /**
   * The last step's record is old once its requests have ended, and knows nothing of requests that came since: what the
   * front knows to be open corrects it.
   */
  #gauges(): EngineGauges {
    const record = this.#last;
    const numRunning = Math.min(record?.numRunning ?? 0, this.#numOpen);
    const kvUsage = record === null || this.#numOpen === 0 ? 0 : record.numBlocksUsed / record.numBlocks;
    return { numRunning, numWaiting: this.#numOpen - numRunning, kvUsage };
  }

  #blocks(): Record<string, number> {
    const record = this.#last;
    if (record === null) return {};
    const used = this.#numOpen === 0 ? 0 : record.numBlocksUsed;
    return {
      total: record.numBlocks,
      used,
      cached: record.numBlocksCached,
      free: record.numBlocks - used - record.numBlocksCached,
    };
  }

  #declareGauges(): void {
    const factory = this.#factory;
    factory.gauge('vllm:num_requests_running', 'Requests in the running batch.', () => this.#gauges().numRunning);
    factory.gauge('vllm:num_requests_waiting', 'Requests that wait to be scheduled.', () => this.#gauges().numWaiting);
    factory.gaugeBy('vllm:num_requests_waiting_by_reason', 'Waiting requests by reason.', 'reason', () => ({
      capacity: this.#gauges().numWaiting,
      deferred: 0,
    }));
    factory.gauge('vllm:kv_cache_usage_perc', 'Share of KV blocks in use, 0 to 1.', () => this.#gauges().kvUsage);
    factory.gaugeBy('vllm:engine_sleep_state', '1 for the state the engine is in.', 'sleep_state', () => ({
      awake: 1,
      weights_offloaded: 0,
      discard_all: 0,
    }));
    factory.gaugeBy('pagoda:kv_blocks', 'KV blocks by state; cached ones can be evicted.', 'state', () =>
      this.#blocks(),
    );
    factory.gauge(
      'pagoda:kv_cache_waste_ratio',
      'Token slots in held blocks that hold no token, as a share of all slots in held blocks, after the last step.',
      () => (this.#numOpen === 0 ? 0 : (this.#last?.kvWaste ?? 0)),
    );
    factory.gauge(
      'pagoda:kv_cache_waste_ratio_mean',
      'The same over all steps since the start, each weighted by the blocks it held.',
      () => (this.#wasteWeight === 0 ? 0 : this.#wasteSum / this.#wasteWeight),
    );
    factory.gaugeBy('pagoda:event_loop_lag_seconds', 'Delay of the front process beyond its timers.', 'stat', () => {
      const lag = { mean: this.#lag.mean / 1e9, p99: this.#lag.percentile(99) / 1e9, max: this.#lag.max / 1e9 };
      this.#lag.reset();
      return { mean: Number.isFinite(lag.mean) ? lag.mean : 0, p99: lag.p99, max: lag.max };
    });
    factory.gauge('process_resident_memory_bytes', 'Resident memory of the front process.', () =>
      process.memoryUsage.rss(),
    );
  }
}

/** The n choices of one prompt. */
export class ChoiceGroup {
  readonly n: number;
  #numLeft: number;
  #longest = 0;

  constructor(n: number) {
    this.n = n;
    this.#numLeft = n;
  }

  /** The longest choice's length once all have finished, before that null. */
  finished(numTokens: number): number | null {
    this.#longest = Math.max(this.#longest, numTokens);
    return --this.#numLeft === 0 ? this.#longest : null;
  }
}

export class RequestMeter {
  readonly #request: GenerateRequest;
  readonly #group: ChoiceGroup;
  readonly #metrics: RequestMetrics;
  readonly #log: StatsLog;
  readonly #onOpen: (delta: number) => void;
  readonly #arrival = now();
  #firstToken: number | null = null;
  #lastToken = 0;
  #numTokens = 0;
  #numCached = 0;
  #stoppedByText = false;

  constructor(options: {
    request: GenerateRequest;
    group: ChoiceGroup;
    metrics: RequestMetrics;
    log: StatsLog;
    onOpen: (delta: number) => void;
  }) {
    this.#request = options.request;
    this.#group = options.group;
    this.#metrics = options.metrics;
    this.#log = options.log;
    this.#onOpen = options.onOpen;
  }

  open(): void {
    this.#onOpen(1);
  }

  /** The engine did not take it: as if it had never been. */
  refuse(): void {
    this.#onOpen(-1);
  }

  /** `count` tokens of an event belong to the request. */
  tokens(count: number, event: TokenEvent): void {
    const time = now();
    if (this.#firstToken === null) this.#first(time, event.numCachedTokens);
    else this.#metrics.interTokenLatency.observe(time - this.#lastToken);
    this.#lastToken = time;
    this.#numTokens += count;
    this.#metrics.generationTokens.inc(count);
    this.#log.addGeneratedTokens(count);
  }

  /** A stop string ended it; the engine only hears of an abort. */
  stopped(): void {
    this.#stoppedByText = true;
  }

  /** The engine's terminal event. */
  finish(finish: FinishInfo): void {
    this.#onOpen(-1);
    const metrics = this.#metrics;
    const time = now();
    metrics.success(this.#stoppedByText ? 'stop' : finish.reason).inc();
    metrics.endToEnd.observe(time - this.#arrival);
    metrics.requestPromptTokens.observe(this.#request.promptTokenIds.length);
    metrics.requestGenerationTokens.observe(this.#numTokens);
    metrics.requestMaxTokens.observe(this.#request.sampling.maxTokens);
    const longest = this.#group.finished(this.#numTokens);
    if (longest !== null) {
      metrics.requestMaxGenerationTokens.observe(longest);
      metrics.requestN.observe(this.#group.n);
    }
    const { arrivalTime, firstScheduledTime, firstTokenTime, finishTime } = finish.timing;
    if (firstScheduledTime === null) return;
    metrics.queueTime.observe(Math.max(0, firstScheduledTime - arrivalTime));
    metrics.inferenceTime.observe(finishTime - firstScheduledTime);
    if (firstTokenTime === null || this.#firstToken === null) return;
    metrics.prefillTime.observe(firstTokenTime - firstScheduledTime);
    metrics.decodeTime.observe(finishTime - firstTokenTime);
    metrics.requestPrefillTokens.observe(this.#request.promptTokenIds.length - this.#numCached);
    if (this.#numTokens > 1) {
      metrics.timePerOutputToken.observe((this.#lastToken - this.#firstToken) / (this.#numTokens - 1));
    }
  }

  #first(time: number, numCached: number): void {
    const metrics = this.#metrics;
    this.#firstToken = time;
    this.#numCached = numCached;
    const numPrompt = this.#request.promptTokenIds.length;
    metrics.timeToFirstToken.observe(time - this.#arrival);
    metrics.promptTokens.inc(numPrompt);
    metrics.promptTokensCached.inc(numCached);
    metrics.promptTokensBySource('local_cache_hit').inc(numCached);
    metrics.promptTokensBySource('local_compute').inc(numPrompt - numCached);
  }
}
