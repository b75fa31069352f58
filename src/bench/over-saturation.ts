// Finds out while a load runs that more is offered than the server can take: then requests under way and time to first token both
// keep rising and no average means anything. Rule and limits follow GuideLLM's over-saturation detector: the slopes of both
// against time are significantly above zero (one-sided t-test, 95 %) over the last 120 s, after at least 30 s, above 2.5 s TTFT.

import { trend } from '../workload/trend.ts';

const MIN_SECONDS = 30;
const WINDOW_SECONDS = 120;
const MIN_TTFT_SECONDS = 2.5;
const MIN_POINTS = 10;

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
