// A window of /metrics pages as an observation: gauges as samples, counters and histograms as what happened in between. One page
// alone gives the figures since the start of the server.

import { PagodaError } from '../errors.ts';
import { engineOf, type MetricNames, namesOf } from './metric-names.ts';
import { type EngineKind, NO_FACTS, type Observation, type Sample, type ServerFacts } from './observation.ts';
import { type Histogram, histogramDelta, histogramQuantile, Scrape, shareAbove } from './prometheus-text.ts';
import { known, type Signals } from './signals.ts';

export interface MetricsPage {
  /** When it was read; only differences count. */
  readonly seconds: number;
  readonly text: string;
}

/** Throws bad_config when a page is not that of an engine, or lacks what every diagnosis needs. `source` names it in messages. */
export function observeMetrics(
  source: string,
  pages: readonly MetricsPage[],
  facts: ServerFacts = NO_FACTS,
): Observation {
  const scrapes = pages.map(({ text }) => new Scrape(text));
  const last = scrapes.at(-1);
  if (last === undefined) throw new PagodaError('bad_config', `${source} gave no metrics.`);
  const engine = engineOf(last);
  if (engine === 'unknown') {
    throw new PagodaError(
      'bad_config',
      `${source} has no vllm:, sglang: or pagoda: metrics; give the address of such a server (SGLang needs --enable-metrics).`,
    );
  }
  const reader = new Reader(scrapes, engine);
  reader.need('running', source);
  reader.need('waiting', source);
  reader.need('kvUsage', source);
  const begin = pages[0]!.seconds;
  const windowSeconds = pages.length > 1 ? pages.at(-1)!.seconds - begin : reader.uptimeSeconds(pages.at(-1)!.seconds);
  return {
    source,
    kind: 'metrics',
    engine,
    windowSeconds,
    samples: pages.map(({ seconds }, i) =>
      reader.sample(i, seconds - begin, seconds - (pages[i - 1]?.seconds ?? seconds)),
    ),
    facts: { ...factsOf(reader, facts) },
    figures: figuresOf(reader, { windowSeconds, facts }),
    quotes: [],
  };
}

class Reader {
  readonly scrapes: readonly Scrape[];
  readonly #names: MetricNames;

  constructor(scrapes: readonly Scrape[], engine: EngineKind) {
    this.scrapes = scrapes;
    this.#names = namesOf(engine);
  }

  get last(): Scrape {
    return this.scrapes.at(-1)!;
  }

  need(key: keyof MetricNames, source: string): void {
    if (this.gauge(key, this.scrapes.length - 1) !== null) return;
    throw new PagodaError(
      'bad_config',
      `${source} lacks the metric ${this.#names[key][0]}, which every diagnosis needs.`,
    );
  }

  gauge(key: keyof MetricNames, index: number): number | null {
    const scrape = this.scrapes[index]!;
    for (const name of this.#names[key]) {
      // Usage is a share per engine, the others are numbers of requests.
      const value = key === 'kvUsage' || key === 'prefixHitRate' ? scrape.mean(name) : scrape.sum(name);
      if (value !== null) return value;
    }
    return null;
  }

  /** Growth from one scrape to another; from null = since the start. */
  growth(key: keyof MetricNames, from: number | null, to: number): number | null {
    const after = this.gauge(key, to);
    if (after === null) return null;
    const before = from === null ? 0 : (this.gauge(key, from) ?? 0);
    return after >= before ? after - before : after;
  }

  /** Over the whole window. */
  total(key: keyof MetricNames): number | null {
    return this.growth(key, this.scrapes.length > 1 ? 0 : null, this.scrapes.length - 1);
  }

  histogram(key: keyof MetricNames, from: number | null, to: number): Histogram | null {
    for (const name of this.#names[key]) {
      const after = this.scrapes[to]!.histogram(name);
      if (after === null) continue;
      const before = from === null ? null : this.scrapes[from]!.histogram(name);
      const delta = histogramDelta(before, after);
      return delta.count > 0 ? delta : null;
    }
    return null;
  }

  window(key: keyof MetricNames): Histogram | null {
    return this.histogram(key, this.scrapes.length > 1 ? 0 : null, this.scrapes.length - 1);
  }

  /** Growth by a label's value, e.g. the reasons of finished requests. */
  growthBy(name: string, label: string, from: number | null, to: number): Map<string, number> {
    const before = from === null ? new Map<string, number>() : this.scrapes[from]!.sumBy(name, label);
    const after = [...this.scrapes[to]!.sumBy(name, label)];
    return new Map(after.map(([key, value]) => [key, Math.max(0, value - (before.get(key) ?? 0))]));
  }

  lengthFinishShare(from: number | null, to: number): number | null {
    const counts = this.growthBy(this.#names.finished[0]!, 'finished_reason', from, to);
    const numLength = counts.get('length') ?? 0;
    const numStop = counts.get('stop') ?? 0;
    return numLength + numStop === 0 ? null : numLength / (numLength + numStop);
  }

  prefixHitShare(from: number | null, to: number): number | null {
    const queries = this.growth('prefixQueries', from, to);
    const hits = this.growth('prefixHits', from, to);
    if (queries !== null && hits !== null && queries > 0) return hits / queries;
    return this.gauge('prefixHitRate', to);
  }

  sample(index: number, seconds: number, intervalSeconds: number): Sample {
    const from = index === 0 ? null : index - 1;
    const rate = (key: keyof MetricNames): number | null => {
      const growth = from === null || intervalSeconds <= 0 ? null : this.growth(key, from, index);
      return growth === null ? null : growth / intervalSeconds;
    };
    const ttft = from === null ? null : this.histogram('ttft', from, index);
    return {
      seconds,
      numRunning: this.gauge('running', index),
      numWaiting: this.gauge('waiting', index),
      kvUsage: this.gauge('kvUsage', index),
      promptTokensPerSecond: rate('promptTokens'),
      generationTokensPerSecond: rate('generationTokens'),
      numPreemptions: from === null ? null : this.growth('preemptions', from, index),
      prefixHitShare: from === null ? null : this.prefixHitShare(from, index),
      ttftSeconds: ttft === null ? null : ttft.sum / ttft.count,
      lengthFinishShare: from === null ? null : this.lengthFinishShare(from, index),
    };
  }

  /** Since the start of the process, where it says when that was; else 0 = unknown. */
  uptimeSeconds(nowSeconds: number): number {
    const start = this.last.sum('process_start_time_seconds');
    return start === null ? 0 : Math.max(0, nowSeconds - start);
  }
}

function factsOf(reader: Reader, given: ServerFacts): ServerFacts {
  const labels = reader.last.samples('vllm:cache_config_info')[0]?.labels;
  const number = (name: string): number | null => {
    const value = Number(labels?.get(name));
    return labels?.has(name) && Number.isFinite(value) ? value : null;
  };
  const numBlocks = number('num_gpu_blocks');
  const blockSize = number('block_size');
  const pool = reader.gauge('poolTokens', reader.scrapes.length - 1);
  return {
    ...given,
    gpuMemoryUtilization: given.gpuMemoryUtilization ?? number('gpu_memory_utilization'),
    kvCacheDtype: given.kvCacheDtype ?? labels?.get('cache_dtype') ?? null,
    poolTokens: given.poolTokens ?? pool ?? (numBlocks !== null && blockSize !== null ? numBlocks * blockSize : null),
  };
}

function figuresOf(reader: Reader, { windowSeconds, facts }: { windowSeconds: number; facts: ServerFacts }): Signals {
  const ttft = reader.window('ttft');
  const queue = reader.window('queue');
  const prefill = reader.window('prefill');
  const itl = reader.window('itl');
  const mean = (histogram: Histogram | null): number | null =>
    histogram === null ? null : histogram.sum / histogram.count;
  const quantile = (histogram: Histogram | null, share: number): number | null =>
    histogram === null ? null : histogramQuantile(histogram, share);
  const ttftMean = mean(ttft);
  const shareOf = (histogram: Histogram | null): number | null => {
    const value = mean(histogram);
    return value === null || ttftMean === null || ttftMean <= 0 ? null : Math.min(1, value / ttftMean);
  };
  const queueShare = shareOf(queue);
  const prefillShare = shareOf(prefill);
  const prompt = reader.window('promptLength');
  const output = reader.window('outputLength');
  const perSecond = (count: number | null): number | null =>
    count === null || windowSeconds <= 0 ? null : count / windowSeconds;
  const numPreemptions = reader.total('preemptions');
  return known({
    ttftMean,
    ttftP50: quantile(ttft, 0.5),
    ttftP99: quantile(ttft, 0.99),
    queueMean: mean(queue),
    queueShare,
    prefillShare,
    frontShare: queueShare === null || prefillShare === null ? null : Math.max(0, 1 - queueShare - prefillShare),
    itlP25: quantile(itl, 0.25),
    itlP50: quantile(itl, 0.5),
    itlP99: quantile(itl, 0.99),
    promptMean: mean(prompt),
    promptP95: quantile(prompt, 0.95),
    outputMean: mean(output),
    outputP50: quantile(output, 0.5),
    outputP95: quantile(output, 0.95),
    outputP99: quantile(output, 0.99),
    maxTokensMean: mean(reader.window('maxTokens')),
    prefixHitShare: reader.prefixHitShare(reader.scrapes.length > 1 ? 0 : null, reader.scrapes.length - 1),
    lengthFinishShare: reader.lengthFinishShare(reader.scrapes.length > 1 ? 0 : null, reader.scrapes.length - 1),
    preemptionsPerMinute: numPreemptions === null || windowSeconds <= 0 ? null : (60 * numPreemptions) / windowSeconds,
    promptTokensPerSecond: perSecond(reader.total('promptTokens')),
    generationTokensPerSecond: perSecond(reader.total('generationTokens')),
    requestsPerSecond: perSecond(reader.total('finished')),
    ...stepFigures(reader, facts),
  });
}

/** What only Pagoda counts: recomputed tokens, phases of a step; and steps against the token budget, where that is known. */
function stepFigures(reader: Reader, facts: ServerFacts): Signals {
  const steps = reader.window('stepTokens');
  const prompt = reader.total('promptTokens');
  const generation = reader.total('generationTokens');
  const recomputed = reader.total('recomputed');
  const computed = (prompt ?? 0) + (generation ?? 0) + (recomputed ?? 0);
  const phases = reader.growthBy(
    'pagoda:step_phase_seconds_total',
    'phase',
    reader.scrapes.length > 1 ? 0 : null,
    reader.scrapes.length - 1,
  );
  const whole = ['schedule', 'fill', 'launch', 'device', 'update'].reduce(
    (sum, name) => sum + (phases.get(name) ?? 0),
    0,
  );
  const ofStep = (...names: string[]): number | null =>
    whole <= 0 ? null : names.reduce((sum, name) => sum + (phases.get(name) ?? 0), 0) / whole;
  return known({
    budgetStepShare:
      steps === null || facts.maxNumBatchedTokens === null ? null : shareAbove(steps, facts.maxNumBatchedTokens),
    recomputedShare: recomputed === null || computed === 0 ? null : recomputed / computed,
    overheadShare: ofStep('schedule', 'fill', 'launch', 'update'),
    samplingShare: ofStep('sampling'),
  });
}
