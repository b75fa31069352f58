// How bursty arrivals are: the index of dispersion (variance over mean of the counts in windows of equal length; 1 for Poisson)
// and the peak over the mean. One pass, fixed memory; windows begin with the first arrival, the unfinished last one is dropped.

export class ArrivalCounts {
  readonly windowSeconds: number;
  #start = Number.NaN;
  #window = 0;
  #inWindow = 0;
  #numWindows = 0;
  #sum = 0;
  #sumOfSquares = 0;
  #peak = 0;

  constructor(windowSeconds: number) {
    this.windowSeconds = windowSeconds;
  }

  /** Arrivals in order. */
  add(seconds: number): void {
    if (Number.isNaN(this.#start)) this.#start = seconds;
    const window = Math.floor((seconds - this.#start) / this.windowSeconds);
    if (window > this.#window) {
      this.#close(this.#inWindow);
      this.#numWindows += window - this.#window - 1; // empty ones
      this.#window = window;
      this.#inWindow = 0;
    }
    this.#inWindow++;
  }

  /** Null with fewer than two whole windows. */
  indexOfDispersion(): number | null {
    if (this.#numWindows < 2 || this.#sum === 0) return null;
    const mean = this.#sum / this.#numWindows;
    return (this.#sumOfSquares / this.#numWindows - mean * mean) / mean;
  }

  peakOverMean(): number | null {
    return this.#numWindows < 2 || this.#sum === 0 ? null : (this.#peak * this.#numWindows) / this.#sum;
  }

  #close(count: number): void {
    this.#numWindows++;
    this.#sum += count;
    this.#sumOfSquares += count * count;
    this.#peak = Math.max(this.#peak, count);
  }
}
