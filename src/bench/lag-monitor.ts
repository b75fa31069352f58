// How late the event loop of the load client is. A late loop sends late and stamps late, so its figures are partly the client's:
// the report says so, and a gap between tokens is only put on the server when the client was awake meanwhile.

import type { Clock } from './http-exchange.ts';

const INTERVAL_SECONDS = 0.01;
/** Lags from here on are kept with their times. */
const SPIKE_SECONDS = 0.005;
const MAX_SPIKES = 100_000;
/** Upper bounds of the histogram, seconds. */
const BOUNDS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10];

export interface LagSpike {
  /** The loop did not run from `fromSeconds` to `toSeconds`. */
  readonly fromSeconds: number;
  readonly toSeconds: number;
}

export interface LagReport {
  readonly numSamples: number;
  readonly meanSeconds: number;
  /** Upper bound of the histogram's bin. */
  readonly p99Seconds: number;
  readonly maxSeconds: number;
  readonly spikes: readonly LagSpike[];
}

export class LagMonitor {
  readonly #clock: Clock;
  readonly #bins = new Float64Array(BOUNDS.length + 1);
  readonly #spikes: LagSpike[] = [];
  #numSamples = 0;
  #sumSeconds = 0;
  #maxSeconds = 0;
  #timer: NodeJS.Timeout | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  start(): void {
    let expected = this.#clock() + INTERVAL_SECONDS;
    const tick = (): void => {
      const time = this.#clock();
      this.observe(expected, time);
      expected = time + INTERVAL_SECONDS;
      this.#timer = setTimeout(tick, INTERVAL_SECONDS * 1000);
      this.#timer.unref();
    };
    this.#timer = setTimeout(tick, INTERVAL_SECONDS * 1000);
    this.#timer.unref();
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** A callback due at `expected` ran at `actual`. */
  observe(expected: number, actual: number): void {
    const lag = Math.max(0, actual - expected);
    this.#numSamples++;
    this.#sumSeconds += lag;
    this.#maxSeconds = Math.max(this.#maxSeconds, lag);
    const bin = BOUNDS.findIndex((bound) => lag <= bound);
    this.#bins[bin === -1 ? BOUNDS.length : bin]!++;
    if (lag >= SPIKE_SECONDS && this.#spikes.length < MAX_SPIKES) {
      this.#spikes.push({ fromSeconds: expected, toSeconds: actual });
    }
  }

  report(): LagReport {
    let seen = 0;
    let p99 = 0;
    for (const [bin, count] of this.#bins.entries()) {
      seen += count;
      p99 = BOUNDS[bin] ?? this.#maxSeconds;
      if (seen >= 0.99 * this.#numSamples) break;
    }
    return {
      numSamples: this.#numSamples,
      meanSeconds: this.#numSamples === 0 ? 0 : this.#sumSeconds / this.#numSamples,
      p99Seconds: Math.min(p99, this.#maxSeconds),
      maxSeconds: this.#maxSeconds,
      spikes: this.#spikes,
    };
  }
}

/** Several processes as one: the worst counts, since each takes its share of the requests. */
export function worstLag(reports: readonly LagReport[]): LagReport {
  const numSamples = reports.reduce((sum, report) => sum + report.numSamples, 0);
  return {
    numSamples,
    meanSeconds: Math.max(0, ...reports.map((report) => report.meanSeconds)),
    p99Seconds: Math.max(0, ...reports.map((report) => report.p99Seconds)),
    maxSeconds: Math.max(0, ...reports.map((report) => report.maxSeconds)),
    spikes: reports.flatMap((report) => report.spikes),
  };
}
