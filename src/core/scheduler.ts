// Decides what each step computes. There are no phases: a sequence has computedTokens <= numTokens + numPlaceholders, and a step
// gives some sequences some tokens, within a token budget and a block budget. Prefill, decode, chunks, prefix-cache hits and
// recomputation after a preemption are all this one rule. Pure and synchronous: time comes in as `now`, plans go out as data.
//
// schedule() may be called for step k + 1 before update() of step k (the device is busy with k): it counts tokens that k
// samples as placeholders. A sequence that turns out to have ended at update(k) leaves a ghost row in k + 1, which
// update(k + 1) ignores; its blocks are free at once, because whoever gets them writes only after k + 1.
//
// Progress. The best-ranked running sequence is never preempted and alone always fits, so it gets a token in every step and
// ends. The best-ranked live sequence is either running, or at the head of the waiting queue, where nobody passes it: the
// running ones then end one after the other until it is admitted. So nobody starves behind a finite number of better ranks.

import { PagodaError } from '../errors.ts';
import { checkCanEverRun, maxTotalTokens } from './door.ts';
import { checkIntegrity } from './integrity.ts';
import { KvManager } from './kv-manager.ts';
import { PlanTurns } from './plan-turns.ts';
import { ProgressBuffer, type SequenceProgress } from './progress.ts';
import type { FinishReason, GenerateRequest } from './request.ts';
import { checkSchedulerOptions, type SchedulerOptions } from './scheduler-options.ts';
import type { SchedulerStats } from './scheduler-stats.ts';
import { Sequence } from './sequence.ts';
import { Speculation } from './speculation.ts';
import type { ScheduledSequence, StepPlan } from './step.ts';
import type { PlanBuffer } from './step-plan.ts';
import { appendUntilStop, FAULT, type Stop } from './stop-check.ts';
import { chooseVictim } from './victim.ts';
import { type IsBefore, isBeforeUnder, WaitingQueue } from './waiting-queue.ts';

export class Scheduler {
  readonly options: SchedulerOptions;
  readonly #kv: KvManager;
  readonly #isBefore: IsBefore;
  readonly #waiting: WaitingQueue;
  /** In order of admission. Only the last one can have more to compute than fits into a step: its chunk used up the budget. */
  readonly #running: Sequence[] = [];
  /** Everything that was accepted and has not ended. */
  readonly #live = new Map<string, Sequence>();
  readonly #freeSlots: number[] = [];
  /** Sequences with blocks that the plan in the making fills. */
  readonly #filling: Sequence[] = [];
  readonly #turns = new PlanTurns();
  readonly #progress = new ProgressBuffer();
  readonly #speculation: Speculation | null;
  readonly #maxPrefillTokens: number;
  readonly #watermarkBlocks: number;
  #numAccepted = 0;
  #totalPrefixQueryTokens = 0;
  #totalPrefixHitTokens = 0;
  #totalRecomputedTokens = 0;
  #totalPreemptions = 0;

  /** Throws PagodaError `bad_config`. */
  constructor(options: SchedulerOptions) {
    checkSchedulerOptions(options);
    this.options = options;
    const { maxNumBatchedTokens, chunkedPrefillSize, enableChunkedPrefill } = options;
    const isChunkLimited = enableChunkedPrefill && chunkedPrefillSize !== null;
    this.#maxPrefillTokens = isChunkLimited ? Math.min(chunkedPrefillSize, maxNumBatchedTokens) : maxNumBatchedTokens;
    // Without a cache, and when everything is reserved, a sequence keeps all its blocks, whatever the window.
    const keepsAll = options.kvAllocation === 'static' || !options.useKvCache;
    this.#kv = new KvManager({
      blockSize: options.blockSize,
      numBlocks: options.numBlocks,
      groups: keepsAll ? options.groups.map(() => ({ window: 0 })) : options.groups,
      enablePrefixCaching: options.enablePrefixCaching && options.useKvCache,
      cacheSecret: options.cacheSecret,
      maxTokensPerStep: this.#maxPrefillTokens,
      keepsAll,
    });
    this.#speculation = options.speculation === null ? null : new Speculation(options.speculation, this.#kv);
    this.#watermarkBlocks = Math.ceil(options.watermark * this.#kv.pool.numUsable);
    this.#isBefore = isBeforeUnder(options.policy);
    this.#waiting = new WaitingQueue(this.#isBefore);
    for (let slot = options.maxNumSeqs - 1; slot >= 0; slot--) this.#freeSlots.push(slot);
  }

  /** True while any accepted request has not ended. */
  get hasWork(): boolean {
    return this.#live.size > 0;
  }

  /** True while drafts may be made: they continue known tokens, so a step is best planned after the update of the one before. */
  get plansInTurn(): boolean {
    return this.#speculation?.isOnFor(this.#running.length) ?? false;
  }

  /**
   * Accepts a request. It will end in exactly one progress with a finish reason, from `update` or `abort`.
   * Throws PagodaError: `context_length_exceeded` (can never fit), `queue_full`, `bad_request` (empty, or the id is in use).
   */
  add(request: GenerateRequest): Sequence {
    return this.addAll([request])[0]!;
  }

  /** Accepts requests that belong together: all of them, or none and throws as `add` does. */
  addAll(requests: readonly GenerateRequest[]): Sequence[] {
    const ids = new Set<string>();
    for (const request of requests) {
      if (this.#live.has(request.id) || ids.has(request.id)) {
        throw new PagodaError('bad_request', `A request with the id ${request.id} is already in progress.`, {
          param: 'request_id',
        });
      }
      ids.add(request.id);
      checkCanEverRun(request, this.#kv, this.options);
    }
    const { maxNumQueuedReqs } = this.options;
    if (this.#waiting.size + requests.length > maxNumQueuedReqs) {
      throw new PagodaError(
        'queue_full',
        `The queue is full: ${this.#waiting.size} of at most ${maxNumQueuedReqs} requests are waiting, and ${requests.length} more came. Please try again later.`,
      );
    }
    return requests.map((request) => this.#accept(request));
  }

  /**
   * Plans the next step. Running sequences come first, then waiting ones. At most two plans may be without their update.
   * Counts everything planned as done; an empty plan means there is nothing to do until an update or a new request.
   */
  schedule(now: number): StepPlan {
    const plan = this.#turns.begin(this.options.maxNumBatchedTokens, this.#maxPrefillTokens);
    this.#scheduleRunning(plan);
    this.#fileFullBlocks();
    if (plan.preempted.length === 0) this.#admitWaiting(plan, now);
    this.#speculation?.addDrafts(plan);
    plan.end();
    return plan;
  }

  /**
   * Takes the results of a plan; plans are updated in the order in which they were made. `sampledTokens` has 1 + numDrafts rows
   * for each of `plan.scheduled`: the tokens it sampled, then -1. `faults[i]` other than 0 ends that sequence with reason
   * `error` (so does a missing token). Returns what happened to whom, valid until the next update; all blocks of ended sequences are free again.
   */
  update(
    plan: StepPlan,
    sampledTokens: ArrayLike<number>,
    faults: ArrayLike<number> | null,
    now: number,
  ): readonly SequenceProgress[] {
    const { scheduled } = this.#turns.take(plan);
    this.#progress.begin();
    let numFinished = 0;
    let nextRow = 0;
    for (let i = 0; i < scheduled.length; i++) {
      const entry = scheduled[i]!;
      const { sequence } = entry;
      const firstRow = nextRow;
      nextRow += 1 + entry.numDrafts;
      if (sequence.status === 'finished') continue; // a ghost
      const isFaulty = faults !== null && faults[i] !== 0;
      if (!entry.samples && !isFaulty) continue;
      const numBefore = sequence.numTokens;
      const stop = this.#takeRows(entry, sampledTokens, firstRow, isFaulty);
      const numNewTokens = sequence.numTokens - numBefore;
      const progress = this.#progress.push(sequence, i, firstRow, numNewTokens);
      if (numNewTokens > 0) sequence.firstTokenTime ??= now;
      if (stop === null) continue;
      progress.finishReason = stop.reason;
      progress.stopTokenId = stop.stopTokenId;
      this.#finish(sequence, now);
      numFinished++;
    }
    if (numFinished > 0) this.#removeStopped();
    return this.#progress.end();
  }

  /**
   * Ends a request early, wherever it is. Returns its last progress, or null when the id is unknown (it has already ended).
   * `stop`: a stop string was found; `error`: the engine gives it up.
   */
  abort(id: string, reason: 'abort' | 'stop' | 'error', now: number): SequenceProgress | null {
    const sequence = this.#live.get(id);
    if (sequence === undefined) return null;
    if (reason === 'error') this.#kv.forgetContents(sequence);
    const wasRunning = sequence.status === 'running';
    this.#finish(sequence, now);
    if (wasRunning) this.#removeStopped();
    const finishReason: FinishReason = reason;
    return { sequence, planIndex: -1, firstRow: -1, numNewTokens: 0, finishReason, stopTokenId: null };
  }

  /** Makes every cached prefix unfindable, e.g. after a step whose writes cannot be trusted. Running sequences go on. */
  resetPrefixCache(): void {
    for (let block = 1; block < this.#kv.pool.numBlocks; block++) this.#kv.pool.forget(block);
  }

  /** Reads all counters. O(running sequences). */
  stats(): SchedulerStats {
    const { pool, blockSize } = this.#kv;
    let numEmpty = 0;
    for (const sequence of this.#running) {
      const numHeld = this.options.useKvCache
        ? sequence.computedTokens
        : Math.min(sequence.numTokens, sequence.capacityTokens);
      numEmpty += (sequence.capacityTokens - numHeld) * this.options.groups.length;
    }
    return {
      numRunning: this.#running.length,
      numWaiting: this.#waiting.size,
      numBlocks: pool.numUsable,
      numBlocksUsed: pool.numUsed,
      numBlocksCached: pool.numFreeCached,
      kvWaste: pool.numUsed === 0 ? 0 : numEmpty / (pool.numUsed * blockSize),
      totalPrefixQueryTokens: this.#totalPrefixQueryTokens,
      totalPrefixHitTokens: this.#totalPrefixHitTokens,
      totalRecomputedTokens: this.#totalRecomputedTokens,
      totalPreemptions: this.#totalPreemptions,
      speculation: this.#speculation?.counts ?? null,
    };
  }

  /** Recomputes every count from scratch and throws PagodaError `internal` on the first that differs. */
  checkIntegrity(): void {
    checkIntegrity({
      options: this.options,
      kv: this.#kv,
      running: this.#running,
      waiting: this.#waiting,
      isBefore: this.#isBefore,
      live: this.#live,
      freeSlots: this.#freeSlots,
      plans: this.#turns.plans,
    });
  }

  /** Adds what the rows of an entry sampled; says whether the sequence ends. */
  #takeRows(
    { sequence, samples, numDrafts }: ScheduledSequence,
    sampledTokens: ArrayLike<number>,
    firstRow: number,
    isFaulty: boolean,
  ): Stop | null {
    let end = firstRow;
    while (samples && end <= firstRow + numDrafts && sampledTokens[end]! >= 0) end++;
    // Rows before the broken one are sound; without drafts there are none.
    if (isFaulty && numDrafts === 0) end = firstRow;
    const stop = appendUntilStop(sequence, sampledTokens, firstRow, end);
    if (samples) sequence.numPlaceholders--;
    if (numDrafts > 0) this.#speculation?.settle(sequence, Math.max(0, end - firstRow - 1));
    if (stop !== null) return stop;
    if (isFaulty || end === firstRow) {
      this.#kv.forgetContents(sequence);
      return FAULT;
    }
    if (sequence.hasFullBlock) this.#kv.fileFullBlocks(sequence);
    return null;
  }

  #accept(request: GenerateRequest): Sequence {
    const sequence = new Sequence(request, {
      order: this.#numAccepted++,
      maxTotalTokens: maxTotalTokens(request, this.options.maxModelLen),
      numGroups: this.options.groups.length,
    });
    this.#kv.register(sequence);
    this.#live.set(sequence.id, sequence);
    this.#waiting.push(sequence);
    return sequence;
  }

  #scheduleRunning(plan: PlanBuffer): void {
    const running = this.#running;
    for (let i = 0; i < running.length && plan.tokensLeft > 0; i++) {
      const sequence = running[i]!;
      if (sequence.status !== 'running') continue; // a victim of this loop
      const numTokens = this.#tokensFor(sequence, plan);
      if (numTokens === 0) continue;
      const end = sequence.computedTokens + numTokens;
      if (end > sequence.capacityTokens && !this.#makeRoom(sequence, end, plan)) continue;
      this.#give(sequence, numTokens, plan);
    }
    if (plan.preempted.length > 0) this.#removeStopped();
  }

  #admitWaiting(plan: PlanBuffer, now: number): void {
    while (this.#freeSlots.length > 0 && plan.tokensLeft > 0 && plan.prefillTokensLeft > 0) {
      const sequence = this.#waiting.peek();
      // A preempted one whose last token is still in flight comes back when the token is known.
      if (sequence === null || sequence.numPlaceholders > 0) return;
      const prefixTokens = this.#kv.findPrefix(sequence);
      const numTokens = this.#chunkOf(sequence, prefixTokens, plan);
      if (numTokens === 0 || !this.#canAdmit(sequence, prefixTokens)) return;
      this.#admit(sequence, prefixTokens, now);
      plan.admitted.push(sequence);
      const end = this.options.kvAllocation === 'static' ? this.options.maxModelLen : prefixTokens + numTokens;
      if (!this.#kv.grow(sequence, end))
        throw new PagodaError('internal', `No blocks for ${sequence.id}, which was found to fit.`);
      this.#give(sequence, numTokens, plan);
      this.#fileFullBlocks();
    }
  }

  /** Tokens a running sequence gets in this step: what it lacks, cut to the budgets. */
  #tokensFor(sequence: Sequence, plan: PlanBuffer): number {
    const numKnown = sequence.numTokens + sequence.numPlaceholders;
    if (numKnown >= sequence.maxTotalTokens || sequence.numDrafts > 0) return 0; // its last token is in flight
    if (numKnown - sequence.computedTokens === 1) return 1;
    return this.#chunkOf(sequence, sequence.computedTokens, plan);
  }

  /** Tokens for a sequence that lacks several: as many as fit, or all or nothing when prompts must not be cut. */
  #chunkOf(sequence: Sequence, start: number, plan: PlanBuffer): number {
    const numKnown = sequence.numTokens + sequence.numPlaceholders;
    const numTokens = Math.min(numKnown - start, plan.prefillTokensLeft, plan.tokensLeft);
    // Outputs can make a sequence longer than a whole step: computing it again has to be cut in any case.
    const mustBeWhole = !this.options.enableChunkedPrefill && numKnown <= this.options.maxNumBatchedTokens;
    return mustBeWhole && start + numTokens < numKnown ? 0 : numTokens;
  }

  /** The whole sequence must fit, and the watermark stay free while others run: they will need more blocks soon. */
  #canAdmit(sequence: Sequence, prefixTokens: number): boolean {
    const numTokens = this.options.kvAllocation === 'static' ? this.options.maxModelLen : sequence.numTokens;
    const numSpare = this.#running.length > 0 ? this.#watermarkBlocks : 0;
    return this.#kv.blocksToAdmit(sequence, prefixTokens, numTokens) + numSpare <= this.#kv.pool.numFree;
  }

  #admit(sequence: Sequence, prefixTokens: number, now: number): void {
    this.#waiting.remove(sequence);
    this.#running.push(sequence);
    this.#kv.adoptPrefix(sequence, prefixTokens);
    sequence.status = 'running';
    sequence.slot = this.#freeSlots.pop()!;
    sequence.computedTokens = prefixTokens;
    if (sequence.firstScheduledTime === null) {
      sequence.firstScheduledTime = now;
      sequence.numCachedTokens = prefixTokens;
    }
    if (this.#kv.enablePrefixCaching) {
      this.#totalPrefixQueryTokens += sequence.numTokens;
      this.#totalPrefixHitTokens += prefixTokens;
    }
  }

  /** Puts a sequence that has the blocks into the plan and counts its tokens as computed. */
  #give(sequence: Sequence, numTokens: number, plan: PlanBuffer): void {
    const start = sequence.computedTokens;
    const end = start + numTokens;
    const numKnown = sequence.numTokens + sequence.numPlaceholders;
    const samples = end === numKnown;
    plan.push(sequence, numTokens, samples, numKnown - start > 1);
    this.#totalRecomputedTokens += numRecomputed(sequence, start, end);
    sequence.computedTokens = samples && !this.options.useKvCache ? 0 : end;
    if (samples) sequence.numPlaceholders++;
    if (sequence.hasFullBlock) this.#filling.push(sequence);
  }

  /** Gets blocks up to `numTokens` positions, from victims if it must; false when the sequence itself was the victim. */
  #makeRoom(sequence: Sequence, numTokens: number, plan: PlanBuffer): boolean {
    while (!this.#kv.grow(sequence, numTokens)) {
      const victim = chooseVictim(this.#running, {
        policy: this.options.policy,
        isBefore: this.#isBefore,
        kv: this.#kv,
      });
      this.#preempt(victim, sequence, plan);
      if (victim === sequence) return false;
    }
    return true;
  }

  /** Takes everything from a running sequence and lets it wait; it comes back as a new one with a longer prompt. */
  #preempt(victim: Sequence, neededBy: Sequence, plan: PlanBuffer): void {
    const dropped = plan.drop(victim);
    if (dropped !== null) {
      victim.computedTokens = dropped.numComputed;
      this.#totalRecomputedTokens -= numRecomputed(
        victim,
        dropped.numComputed,
        dropped.numComputed + dropped.numTokens,
      );
      if (dropped.samples) victim.numPlaceholders--;
    }
    plan.preempted.push({
      sequence: victim,
      slot: victim.slot,
      neededBy,
      numTokensToRecompute: victim.computedTokens,
      numBlocksFreed: this.#kv.release(victim),
    });
    this.#kv.clearTables(victim);
    this.#freeSlots.push(victim.slot);
    victim.slot = -1;
    victim.numLostTokens = Math.max(victim.numLostTokens, victim.computedTokens);
    victim.computedTokens = 0;
    victim.numPreemptions++;
    this.#totalPreemptions++;
    victim.status = 'waiting';
    this.#waiting.push(victim);
  }

  /** Frees all that a live sequence holds; `#removeStopped` takes it out of the running ones. */
  #finish(sequence: Sequence, now: number): void {
    if (sequence.status === 'running') {
      this.#kv.release(sequence);
      this.#freeSlots.push(sequence.slot);
    } else {
      this.#waiting.remove(sequence);
    }
    sequence.status = 'finished';
    sequence.finishTime = now;
    this.#live.delete(sequence.id);
  }

  #removeStopped(): void {
    const running = this.#running;
    let kept = 0;
    for (let i = 0; i < running.length; i++) {
      const sequence = running[i]!;
      if (sequence.status === 'running') running[kept++] = sequence;
    }
    running.length = kept;
  }

  /** Known tokens fill blocks as soon as they are planned. Before admissions, so that those find them; after preemptions, which may unplan them. */
  #fileFullBlocks(): void {
    if (this.#filling.length === 0) return;
    for (const sequence of this.#filling) this.#kv.fileFullBlocks(sequence);
    this.#filling.length = 0;
  }
}

/** How many of the positions [start, end) a preemption had taken away. */
function numRecomputed(sequence: Sequence, start: number, end: number): number {
  return start < sequence.numLostTokens ? Math.min(end, sequence.numLostTokens) - start : 0;
}
