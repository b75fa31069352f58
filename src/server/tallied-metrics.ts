// Prometheus metrics that cost an addition where they are counted: prom-client checks labels and hashes them at every observation, which
// is what a token of a stream can least afford. Labels are fixed when a metric is made; its text is put together when it is scraped.

import { Counter, type Histogram, type Registry } from 'prom-client';

export interface TallyOptions {
  readonly name: string;
  readonly help: string;
  readonly registry: Registry;
  readonly labelNames: string[];
}

type Labels = Readonly<Record<string, string>>;

/** What one set of labels has counted since the last scrape. */
export class Tally {
  #pending = 0;

  inc(value = 1): void {
    this.#pending += value;
  }

  take(): number {
    const value = this.#pending;
    this.#pending = 0;
    return value;
  }
}

/** A counter of one tally per set of labels. */
export class TalliedCounter {
  readonly #tallies: Array<{ readonly labels: Labels; readonly tally: Tally }> = [];

  constructor({ registry, ...options }: TallyOptions) {
    const tallies = this.#tallies;
    new Counter({
      ...options,
      registers: [registry],
      collect() {
        for (const { labels, tally } of tallies) this.inc(labels, tally.take());
      },
    });
  }

  /** Starts at 0, so that rates have a beginning. */
  tally(labels: Labels): Tally {
    const tally = new Tally();
    this.#tallies.push({ labels, tally });
    return tally;
  }
}

/** A histogram of one set of labels. */
export class TalliedHistogram {
  readonly name: string;
  readonly #help: string;
  readonly #labels: Labels;
  readonly #bounds: readonly number[];
  /** [buckets + 1] observations at or below each bound and above the one before; the last is above all. */
  readonly #counts: Float64Array;
  #sum = 0;

  /** `buckets` ascend. */
  constructor(options: Omit<TallyOptions, 'labelNames'> & { labels: Labels; buckets: readonly number[] }) {
    this.name = options.name;
    this.#help = options.help;
    this.#labels = options.labels;
    this.#bounds = options.buckets;
    this.#counts = new Float64Array(options.buckets.length + 1);
    // Of a metric a registry wants no more than its name and `get`.
    options.registry.registerMetric(this as unknown as Histogram);
  }

  observe(value: number): void {
    if (!Number.isFinite(value)) throw new TypeError(`${this.name}: ${value} is no number to observe`);
    const bounds = this.#bounds;
    let bucket = 0;
    while (bucket < bounds.length && value > bounds[bucket]!) bucket++;
    this.#counts[bucket]!++;
    this.#sum += value;
  }

  /** In prom-client's form. */
  async get() {
    let count = 0;
    const values = [];
    for (let bucket = 0; bucket < this.#counts.length; bucket++) {
      count += this.#counts[bucket]!;
      const le = this.#bounds[bucket] ?? '+Inf';
      values.push({ metricName: `${this.name}_bucket`, labels: { le, ...this.#labels }, value: count });
    }
    values.push(
      { metricName: `${this.name}_sum`, labels: this.#labels, value: this.#sum },
      { metricName: `${this.name}_count`, labels: this.#labels, value: count },
    );
    return { name: this.name, help: this.#help, type: 'histogram', aggregator: 'sum', values };
  }
}
