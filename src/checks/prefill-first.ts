// The scheduler that Sarathi-Serve was measured against: vLLM of 2023, which runs whole prompts as soon as they fit, alone, while
// the running sequences stand still. Only here, as the baseline of a published comparison; it shares no rule with ours.

import type { StepCost } from '../sim/step-cost.ts';
import type { WorkloadRequest } from '../workload/workload.ts';

export interface PrefillFirstOptions {
  readonly maxNumSeqs: number;
  /** Prompt tokens per step; one prompt always fits. */
  readonly maxNumBatchedTokens: number;
  readonly numBlocks: number;
  readonly blockSize: number;
  readonly cost: StepCost;
}

export interface PrefillFirstResult {
  /** Between consecutive tokens, over all requests. */
  readonly gapSeconds: number[];
  /** From arrival to the first step, per request. */
  readonly delaySeconds: number[];
}

interface Live {
  readonly request: WorkloadRequest;
  /** Tokens in the cache, 0 while waiting. */
  numComputed: number;
  numGenerated: number;
  numBlocks: number;
  lastTokenSeconds: number;
  hasStarted: boolean;
}

export function runPrefillFirst(
  requests: readonly WorkloadRequest[],
  options: PrefillFirstOptions,
): PrefillFirstResult {
  const run = new PrefillFirst(requests, options);
  while (run.step());
  return { gapSeconds: run.gapSeconds, delaySeconds: run.delaySeconds };
}

class PrefillFirst {
  readonly gapSeconds: number[] = [];
  readonly delaySeconds: number[] = [];
  readonly #requests: readonly WorkloadRequest[];
  readonly #options: PrefillFirstOptions;
  readonly #waiting: Live[] = [];
  #running: Live[] = [];
  #numFree: number;
  #nextArrival = 0;
  #now = 0;

  constructor(requests: readonly WorkloadRequest[], options: PrefillFirstOptions) {
    this.#requests = requests;
    this.#options = options;
    this.#numFree = options.numBlocks;
  }

  /** False when everything has ended. */
  step(): boolean {
    while (
      this.#nextArrival < this.#requests.length &&
      this.#requests[this.#nextArrival]!.arrivalSeconds <= this.#now
    ) {
      const request = this.#requests[this.#nextArrival++]!;
      this.#waiting.push({
        request,
        numComputed: 0,
        numGenerated: 0,
        numBlocks: 0,
        lastTokenSeconds: -1,
        hasStarted: false,
      });
    }
    if (this.#waiting.length === 0 && this.#running.length === 0) {
      if (this.#nextArrival >= this.#requests.length) return false;
      this.#now = this.#requests[this.#nextArrival]!.arrivalSeconds;
      return true;
    }
    const admitted = this.#admit();
    if (admitted.length > 0) this.#prefill(admitted);
    else this.#decode();
    return true;
  }

  #admit(): Live[] {
    const { maxNumSeqs, maxNumBatchedTokens, blockSize } = this.#options;
    const admitted: Live[] = [];
    let numLeft = maxNumBatchedTokens;
    while (this.#waiting.length > 0 && this.#running.length + admitted.length < maxNumSeqs) {
      const live = this.#waiting[0]!;
      const numTokens = live.request.numPromptTokens + live.numGenerated;
      const numBlocks = Math.ceil((numTokens + 1) / blockSize);
      if ((admitted.length > 0 && numTokens > numLeft) || numBlocks > this.#numFree) break;
      this.#waiting.shift();
      this.#numFree -= numBlocks;
      live.numBlocks = numBlocks;
      numLeft -= numTokens;
      if (!live.hasStarted) this.delaySeconds.push(this.#now - live.request.arrivalSeconds);
      live.hasStarted = true;
      admitted.push(live);
    }
    return admitted;
  }

  #prefill(admitted: readonly Live[]): void {
    let numTokens = 0;
    let prefillPairs = 0;
    for (const live of admitted) {
      const length = live.request.numPromptTokens + live.numGenerated;
      live.numComputed = length;
      numTokens += length;
      prefillPairs += (length * (length + 1)) / 2;
    }
    this.#running.push(...admitted);
    const load = { numSequences: admitted.length, numTokens, numPrefillTokens: numTokens, numDecodes: 0 };
    this.#now += this.#options.cost.stepSeconds({ ...load, decodeContextTokens: 0, prefillPairs });
    for (const live of admitted) this.#takeToken(live);
    this.#removeEnded();
  }

  #decode(): void {
    const { blockSize, cost } = this.#options;
    for (let i = 0; i < this.#running.length; i++) {
      const live = this.#running[i]!;
      const needed = Math.ceil((live.numComputed + 1) / blockSize) - live.numBlocks;
      while (needed > this.#numFree && this.#running.length > i) this.#preemptLast();
      if (this.#running[i] !== live) break;
      if (needed <= 0) continue;
      this.#numFree -= needed;
      live.numBlocks += needed;
    }
    if (this.#running.length === 0) return;
    let decodeContextTokens = 0;
    for (const live of this.#running) decodeContextTokens += ++live.numComputed;
    const count = this.#running.length;
    const load = { numSequences: count, numTokens: count, numDecodes: count, numPrefillTokens: 0, prefillPairs: 0 };
    this.#now += cost.stepSeconds({ ...load, decodeContextTokens });
    for (const live of this.#running) this.#takeToken(live);
    this.#removeEnded();
  }

  #preemptLast(): void {
    const victim = this.#running.pop()!;
    this.#numFree += victim.numBlocks;
    victim.numBlocks = 0;
    victim.numComputed = 0;
    this.#waiting.unshift(victim);
  }

  #takeToken(live: Live): void {
    live.numGenerated++;
    if (live.lastTokenSeconds >= 0) this.gapSeconds.push(this.#now - live.lastTokenSeconds);
    live.lastTokenSeconds = this.#now;
  }

  #removeEnded(): void {
    this.#running = this.#running.filter((live) => {
      if (live.numGenerated < live.request.numOutputTokens) return true;
      this.#numFree += live.numBlocks;
      return false;
    });
  }
}
