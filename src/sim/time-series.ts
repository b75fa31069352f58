// The course of a run in at most 240 windows of equal length: when a run goes on beyond the last one, neighbours are merged and
// the windows are twice as long. So charts and diagnoses of a week take as little memory as those of a minute.

const MOST_WINDOWS = 240;

/** Sums over a window; states are weighted by the seconds of the steps in which they held. */
interface Window {
  busySeconds: number;
  runningSeconds: number;
  waitingSeconds: number;
  kvUsageSeconds: number;
  numPrefillTokens: number;
  numDecodeTokens: number;
  numPreemptions: number;
  numSteps: number;
}

export interface SeriesPoint {
  /** Start of the window. */
  readonly seconds: number;
  readonly windowSeconds: number;
  /** Means over the replicas and the time in which steps ran. */
  readonly numRunning: number;
  readonly numWaiting: number;
  readonly kvUsage: number;
  /** Over all replicas. */
  readonly prefillTokensPerSecond: number;
  readonly decodeTokensPerSecond: number;
  readonly preemptionsPerSecond: number;
  readonly stepSeconds: number;
  /** Share of the replicas' time in which a step ran. */
  readonly busyShare: number;
}

export interface SeriesSample {
  readonly seconds: number;
  readonly stepSeconds: number;
  readonly numRunning: number;
  readonly numWaiting: number;
  readonly kvUsage: number;
  readonly numPrefillTokens: number;
  readonly numDecodeTokens: number;
  readonly numPreemptions: number;
}

export class TimeSeries {
  readonly #numReplicas: number;
  #windowSeconds: number;
  #windows: Window[] = [];

  constructor(numReplicas: number, windowSeconds = 0.125) {
    this.#numReplicas = numReplicas;
    this.#windowSeconds = windowSeconds;
  }

  /** A step counts in the window in which it starts. */
  add(sample: SeriesSample): void {
    while (sample.seconds >= MOST_WINDOWS * this.#windowSeconds) this.#halve();
    const index = Math.floor(sample.seconds / this.#windowSeconds);
    while (this.#windows.length <= index) this.#windows.push(emptyWindow());
    const window = this.#windows[index]!;
    const { stepSeconds } = sample;
    window.busySeconds += stepSeconds;
    window.runningSeconds += sample.numRunning * stepSeconds;
    window.waitingSeconds += sample.numWaiting * stepSeconds;
    window.kvUsageSeconds += sample.kvUsage * stepSeconds;
    window.numPrefillTokens += sample.numPrefillTokens;
    window.numDecodeTokens += sample.numDecodeTokens;
    window.numPreemptions += sample.numPreemptions;
    window.numSteps++;
  }

  points(): SeriesPoint[] {
    const windowSeconds = this.#windowSeconds;
    return this.#windows.map((window, index) => {
      const busy = window.busySeconds || 1;
      return {
        seconds: index * windowSeconds,
        windowSeconds,
        numRunning: window.runningSeconds / busy,
        numWaiting: window.waitingSeconds / busy,
        kvUsage: window.kvUsageSeconds / busy,
        prefillTokensPerSecond: window.numPrefillTokens / windowSeconds,
        decodeTokensPerSecond: window.numDecodeTokens / windowSeconds,
        preemptionsPerSecond: window.numPreemptions / windowSeconds,
        stepSeconds: window.numSteps === 0 ? 0 : window.busySeconds / window.numSteps,
        busyShare: Math.min(1, window.busySeconds / (windowSeconds * this.#numReplicas)),
      };
    });
  }

  #halve(): void {
    const merged: Window[] = [];
    for (let index = 0; index < this.#windows.length; index += 2) {
      const window = this.#windows[index]!;
      const next = this.#windows[index + 1];
      if (next !== undefined) {
        for (const key of Object.keys(window) as Array<keyof Window>) window[key] += next[key];
      }
      merged.push(window);
    }
    this.#windows = merged;
    this.#windowSeconds *= 2;
  }
}

function emptyWindow(): Window {
  return {
    busySeconds: 0,
    runningSeconds: 0,
    waitingSeconds: 0,
    kvUsageSeconds: 0,
    numPrefillTokens: 0,
    numDecodeTokens: 0,
    numPreemptions: 0,
    numSteps: 0,
  };
}
