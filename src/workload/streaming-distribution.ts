// Percentiles of many numbers >= 0 in fixed memory: exact (linear between ranks, as numpy) up to 4,096 of them, from then on by
// a histogram whose buckets grow by 0.2 %, so that a quantile is off by at most that. Sum, count and extremes stay exact.

const MOST_EXACT = 4096;
const GROWTH = Math.log(1.002);
/** Everything up to here is one bucket, which stands for 0: a microsecond, when the numbers are seconds. */
const SMALLEST = 1e-6;
/** Up to 1e9 in units of 1. */
const NUM_BUCKETS = Math.ceil(Math.log(1e15) / GROWTH) + 2;

export interface Distribution {
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
}

export class StreamingDistribution {
  count = 0;
  #sum = 0;
  #sumOfSquares = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = 0;
  #exact: Float64Array | null = new Float64Array(64);
  /** The exact values in order, when somebody asked. */
  #sorted = new Float64Array(0);
  /** Made when the exact values no longer suffice. */
  #buckets: Float64Array | null = null;
  #lastValue = -1;
  #lastBucket = 0;

  add(value: number): void {
    this.addMany(value, 1);
  }

  /** The same value several times: all sequences of a step have the same gap. */
  addMany(value: number, times: number): void {
    this.#sum += value * times;
    this.#sumOfSquares += value * value * times;
    if (value < this.#min) this.#min = value;
    if (value > this.#max) this.#max = value;
    if (this.#buckets !== null) {
      this.#buckets[this.#bucketOf(value)]! += times;
      this.count += times;
      return;
    }
    for (let i = 0; i < times; i++) this.#keep(value);
  }

  get mean(): number {
    return this.count === 0 ? 0 : this.#sum / this.count;
  }

  get min(): number {
    return this.count === 0 ? 0 : this.#min;
  }

  get max(): number {
    return this.#max;
  }

  /** Standard deviation over mean. */
  get cv(): number {
    if (this.count === 0 || this.mean === 0) return 0;
    return Math.sqrt(Math.max(0, this.#sumOfSquares / this.count - this.mean ** 2)) / this.mean;
  }

  /** 0 <= share <= 1; 0 when there is nothing. */
  quantile(share: number): number {
    if (this.count === 0) return 0;
    return this.#buckets === null ? this.#exactQuantile(share) : this.#bucketQuantile(share, this.#buckets);
  }

  figures(): Distribution {
    return {
      mean: this.mean,
      p50: this.quantile(0.5),
      p90: this.quantile(0.9),
      p95: this.quantile(0.95),
      p99: this.quantile(0.99),
      max: this.max,
    };
  }

  /** Values at equally spaced shares from 0 to 1. */
  knots(numKnots: number): number[] {
    return Array.from({ length: numKnots }, (_, i) => this.quantile(i / (numKnots - 1)));
  }

  #keep(value: number): void {
    let exact = this.#exact;
    if (exact === null || this.count === MOST_EXACT) {
      this.#spill();
      this.#buckets![this.#bucketOf(value)]!++;
      this.count++;
      return;
    }
    if (this.count === exact.length) {
      const larger = new Float64Array(Math.min(MOST_EXACT, 4 * exact.length));
      larger.set(exact);
      this.#exact = exact = larger;
    }
    exact[this.count++] = value;
  }

  #spill(): void {
    if (this.#buckets !== null) return;
    this.#buckets = new Float64Array(NUM_BUCKETS);
    for (const value of this.#exact ?? []) this.#buckets[this.#bucketOf(value)]!++;
    this.#exact = null;
  }

  /** Repeated values are the rule (one step, many sequences), hence the memory of one. */
  #bucketOf(value: number): number {
    if (value === this.#lastValue) return this.#lastBucket;
    const index = value <= SMALLEST ? 0 : 1 + Math.floor(Math.log(value / SMALLEST) / GROWTH);
    this.#lastValue = value;
    this.#lastBucket = Math.min(NUM_BUCKETS - 1, index);
    return this.#lastBucket;
  }

  #exactQuantile(share: number): number {
    if (this.#sorted.length !== this.count) this.#sorted = this.#exact!.slice(0, this.count).sort();
    const sorted = this.#sorted;
    const at = share * (this.count - 1);
    const index = Math.min(this.count - 1, Math.floor(at));
    const next = sorted[Math.min(this.count - 1, index + 1)]!;
    return sorted[index]! + (at - index) * (next - sorted[index]!);
  }

  #bucketQuantile(share: number, buckets: Float64Array): number {
    const rank = share * (this.count - 1);
    let seen = 0;
    for (let index = 0; index < NUM_BUCKETS; index++) {
      seen += buckets[index]!;
      if (seen <= rank) continue;
      const middle = index === 0 ? 0 : SMALLEST * Math.exp((index - 0.5) * GROWTH);
      return Math.min(this.#max, Math.max(this.#min, middle));
    }
    return this.#max;
  }
}
