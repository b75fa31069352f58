// Finds out while a load runs that more is offered than the server can take: then requests under way and time to first token both
// keep rising and no average means anything. Rule and limits follow GuideLLM's over-saturation detector: the slopes of both
// against time are significantly above zero (one-sided t-test, 95 %) over the last 120 s, after at least 30 s, above 2.5 s TTFT.

const MIN_SECONDS = 30;
const WINDOW_SECONDS = 120;
const MIN_TTFT_SECONDS = 2.5;
const MIN_POINTS = 10;

export interface Trend {
  /** Units per second. */
  readonly slope: number;
  /** Slope over its standard error; 0 below three points. */
  readonly t: number;
  readonly isRising: boolean;
}

/** Least squares through (x, y), and whether the slope is above zero with 95 % confidence. */
export function trend(xs: readonly number[], ys: readonly number[]): Trend {
  const n = xs.length;
  if (n < 3) return { slope: 0, t: 0, isRising: false };
  const meanX = xs.reduce((sum, x) => sum + x, 0) / n;
  const meanY = ys.reduce((sum, y) => sum + y, 0) / n;
  let sxx = 0;
  let sxy = 0;
  let syy = 0;
  for (let i = 0; i < n; i++) {
    const dx = xs[i]! - meanX;
    const dy = ys[i]! - meanY;
    sxx += dx * dx;
    sxy += dx * dy;
    syy += dy * dy;
  }
  if (sxx === 0) return { slope: 0, t: 0, isRising: false };
  const slope = sxy / sxx;
  const residual = Math.max(0, syy - slope * sxy);
  const error = Math.sqrt(residual / (n - 2) / sxx);
  const t = error > 0 ? slope / error : slope === 0 ? 0 : Math.sign(slope) * Number.POSITIVE_INFINITY;
  return { slope, t, isRising: t > criticalT(n - 2) };
}

/** One-sided 95 % point of Student's t; within 1 % from 3 degrees of freedom on (Cornish-Fisher expansion). */
function criticalT(degrees: number): number {
  if (degrees <= 2) return degrees === 1 ? 6.314 : 2.92;
  const z = 1.6449;
  return z + (z ** 3 + z) / (4 * degrees) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * degrees ** 2);
}

interface Point {
  readonly seconds: number;
  readonly value: number;
}

export class OverSaturation {
  readonly #concurrency: Point[] = [];
  readonly #ttft: Point[] = [];
  #startSeconds: number | null = null;

  /** Requests under way at a time. Times must not go back. */
  addConcurrency(seconds: number, numRequests: number): void {
    this.#startSeconds ??= seconds;
    add(this.#concurrency, { seconds, value: numRequests });
  }

  /** A first token that came at `seconds`. */
  addTtft(seconds: number, ttftSeconds: number): void {
    this.#startSeconds ??= seconds;
    add(this.#ttft, { seconds, value: ttftSeconds });
  }

  isOverSaturated(nowSeconds: number): boolean {
    if (this.#startSeconds === null || nowSeconds - this.#startSeconds < MIN_SECONDS) return false;
    if (this.#concurrency.length < MIN_POINTS || this.#ttft.length < MIN_POINTS) return false;
    const recent = this.#ttft.slice(-Math.max(MIN_POINTS, Math.ceil(this.#ttft.length / 4)));
    const recentMean = recent.reduce((sum, point) => sum + point.value, 0) / recent.length;
    return recentMean > MIN_TTFT_SECONDS && rising(this.#concurrency) && rising(this.#ttft);
  }
}

function add(points: Point[], point: Point): void {
  points.push(point);
  let numOld = 0;
  while (points[numOld]!.seconds < point.seconds - WINDOW_SECONDS) numOld++;
  if (numOld > 0) points.splice(0, numOld);
}

function rising(points: readonly Point[]): boolean {
  return trend(
    points.map((point) => point.seconds),
    points.map((point) => point.value),
  ).isRising;
}

export interface SaturationInput {
  /** When requests were due, absolute seconds, ascending; those later than `untilSeconds` are not looked at. */
  readonly scheduledSeconds: readonly number[];
  /** First tokens: when, and how long they took. */
  readonly firstTokens: ReadonlyArray<{ readonly seconds: number; readonly ttftSeconds: number }>;
  readonly endSeconds: readonly number[];
  readonly untilSeconds: number;
}

/** Replays a run (or its beginning) second by second; when over-saturation showed, in absolute seconds, or null. */
export function overSaturatedAt(input: SaturationInput): number | null {
  const { scheduledSeconds, untilSeconds } = input;
  const first = scheduledSeconds[0];
  if (first === undefined) return null;
  const ends = [...input.endSeconds].sort((a, b) => a - b);
  const tokens = [...input.firstTokens].sort((a, b) => a.seconds - b.seconds);
  // After the last request was due the queue only drains.
  const last = Math.min(untilSeconds, scheduledSeconds.at(-1)!);
  const detector = new OverSaturation();
  let numSent = 0;
  let numEnded = 0;
  let numTokens = 0;
  for (let time = first; time <= last; time++) {
    while (numSent < scheduledSeconds.length && scheduledSeconds[numSent]! <= time) numSent++;
    while (numEnded < ends.length && ends[numEnded]! <= time) numEnded++;
    detector.addConcurrency(time, numSent - numEnded);
    for (; numTokens < tokens.length && tokens[numTokens]!.seconds <= time; numTokens++) {
      detector.addTtft(tokens[numTokens]!.seconds, tokens[numTokens]!.ttftSeconds);
    }
    if (detector.isOverSaturated(time)) return time;
  }
  return null;
}
