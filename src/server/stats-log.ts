// The operator's log of the engine: one line every ten seconds while there is work, in vLLM's words (its log parsers work on
// it), and one line per preemption. Throughput is tokens over the time really elapsed since the last line or silent interval.

import type { PreemptionRecord, SpeculationRecord } from '../trace/step-record.ts';
import type { Logger } from './logger.ts';

/** The hit rate is over this many of the latest cache look-ups. */
const HIT_RATE_WINDOW = 1000;

export interface EngineGauges {
  readonly numRunning: number;
  readonly numWaiting: number;
  /** Share of the KV pool in use, 0..1. */
  readonly kvUsage: number;
}

const NO_DRAFTS: SpeculationRecord = { numDrafts: 0, numDraftTokens: 0, numAcceptedTokens: 0, numAcceptedAt: [] };

export class StatsLog {
  readonly #logger: Logger;
  #promptTokens = 0;
  #generatedTokens = 0;
  #preemptions = 0;
  #drafts = NO_DRAFTS;
  #intervalStart: number;
  readonly #queries = new Float64Array(HIT_RATE_WINDOW);
  readonly #hits = new Float64Array(HIT_RATE_WINDOW);
  #numLookups = 0;
  #queryTokens = 0;
  #hitTokens = 0;

  /** `now` is in seconds, on the clock that `line` is called with. */
  constructor(logger: Logger, now: number) {
    this.#logger = logger;
    this.#intervalStart = now;
  }

  /** Prompt tokens are those computed, not those found in the cache. */
  addPromptTokens(count: number): void {
    this.#promptTokens += count;
  }

  addGeneratedTokens(count: number): void {
    this.#generatedTokens += count;
  }

  addLookup(queryTokens: number, hitTokens: number): void {
    const slot = this.#numLookups++ % HIT_RATE_WINDOW;
    this.#queryTokens += queryTokens - this.#queries[slot]!;
    this.#hitTokens += hitTokens - this.#hits[slot]!;
    this.#queries[slot] = queryTokens;
    this.#hits[slot] = hitTokens;
  }

  addDrafts(record: SpeculationRecord): void {
    const sum = this.#drafts;
    this.#drafts = {
      numDrafts: sum.numDrafts + record.numDrafts,
      numDraftTokens: sum.numDraftTokens + record.numDraftTokens,
      numAcceptedTokens: sum.numAcceptedTokens + record.numAcceptedTokens,
      numAcceptedAt: record.numAcceptedAt.map((count, i) => count + (sum.numAcceptedAt[i] ?? 0)),
    };
  }

  preempted(preemption: PreemptionRecord): void {
    this.#preemptions++;
    this.#logger.warn(
      'scheduler',
      `Preempted request ${preemption.requestId}: no free KV block for request ${preemption.neededBy}. ` +
        `Freed ${preemption.numBlocksFreed} blocks, ${preemption.numTokensToRecompute} tokens to recompute. ` +
        'If this happens often, give the KV cache more memory or lower --max-num-seqs.',
    );
  }

  /** Called every interval; says nothing when nothing happened and nothing is open. */
  line(now: number, gauges: EngineGauges): void {
    const elapsed = Math.max(now - this.#intervalStart, 1e-3);
    const isIdle =
      this.#promptTokens + this.#generatedTokens + this.#preemptions + gauges.numRunning + gauges.numWaiting === 0;
    if (!isIdle) {
      const preemptions = this.#preemptions > 0 ? `, Preemptions: ${this.#preemptions}` : '';
      const hitRate = this.#queryTokens > 0 ? (100 * this.#hitTokens) / this.#queryTokens : 0;
      this.#logger.info(
        'loggers',
        `Engine 000: Avg prompt throughput: ${(this.#promptTokens / elapsed).toFixed(1)} tokens/s, ` +
          `Avg generation throughput: ${(this.#generatedTokens / elapsed).toFixed(1)} tokens/s, ` +
          `Running: ${gauges.numRunning} reqs, Waiting: ${gauges.numWaiting} reqs${preemptions}, ` +
          `GPU KV cache usage: ${(100 * gauges.kvUsage).toFixed(1)}%, Prefix cache hit rate: ${hitRate.toFixed(1)}%`,
      );
    }
    if (this.#drafts.numDrafts > 0) this.#logger.info('metrics', speculationLine(this.#drafts, elapsed));
    this.#drafts = NO_DRAFTS;
    this.#promptTokens = 0;
    this.#generatedTokens = 0;
    this.#preemptions = 0;
    this.#intervalStart = now;
  }
}

/** The acceptance length counts the token that every step gives. */
function speculationLine(
  { numDrafts, numDraftTokens, numAcceptedTokens, numAcceptedAt }: SpeculationRecord,
  elapsed: number,
): string {
  return (
    `SpecDecoding metrics: Mean acceptance length: ${(1 + numAcceptedTokens / numDrafts).toFixed(2)}, ` +
    `Accepted throughput: ${(numAcceptedTokens / elapsed).toFixed(2)} tokens/s, ` +
    `Drafted throughput: ${(numDraftTokens / elapsed).toFixed(2)} tokens/s, ` +
    `Accepted: ${numAcceptedTokens} tokens, Drafted: ${numDraftTokens} tokens, ` +
    `Per-position acceptance rate: ${numAcceptedAt.map((count) => (count / numDrafts).toFixed(3)).join(', ')}, ` +
    `Avg Draft acceptance rate: ${((100 * numAcceptedTokens) / numDraftTokens).toFixed(1)}%`
  );
}
