// Drives a scheduler with random requests, aborts, faults and orders of schedule and update over the fake device, checks every
// rule of a plan that can be stated in a line, and compares every output with the stupid generator.

import type { SequenceProgress } from '../../src/core/progress.ts';
import type { GenerateRequest } from '../../src/core/request.ts';
import { DEFAULT_SAMPLING } from '../../src/core/sampling-params.ts';
import { Scheduler } from '../../src/core/scheduler.ts';
import type { SchedulerOptions } from '../../src/core/scheduler-options.ts';
import type { Sequence } from '../../src/core/sequence.ts';
import type { StepPlan } from '../../src/core/step.ts';
import { isBeforeUnder } from '../../src/core/waiting-queue.ts';
import { PagodaError } from '../../src/errors.ts';
import { expectedOutput, VOCABULARY } from './expected-output.ts';
import { type Batch, FakeDevice, makeBatch } from './fake-device.ts';

/** What happened in a run: proof that the interesting things did. */
export interface Tally {
  numSteps: number;
  numFinished: number;
  numRefused: number;
  numAborted: number;
  numFaults: number;
  numGhosts: number;
  numPreemptions: number;
  numHitTokens: number;
  numRecomputedTokens: number;
  numDraftTokens: number;
  numAcceptedTokens: number;
}

export function emptyTally(): Tally {
  return {
    numSteps: 0,
    numFinished: 0,
    numRefused: 0,
    numAborted: 0,
    numFaults: 0,
    numGhosts: 0,
    numPreemptions: 0,
    numHitTokens: 0,
    numRecomputedTokens: 0,
    numDraftTokens: 0,
    numAcceptedTokens: 0,
  };
}

/** Mulberry32: a run is decided by its seed. */
export function randomFrom(seed: number): (bound: number) => number {
  let state = seed | 0;
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  };
}

export class SchedulerDriver {
  readonly #options: SchedulerOptions;
  readonly #scheduler: Scheduler;
  readonly #device: FakeDevice;
  readonly #random: (bound: number) => number;
  readonly #tally: Tally;
  readonly #inFlight: Batch[] = [];
  readonly #live = new Map<string, Sequence>();
  readonly #ended = new Set<string>();
  #numRequests = 0;
  #now = 0;

  constructor(options: SchedulerOptions, seed: number, tally: Tally) {
    this.#options = options;
    this.#scheduler = new Scheduler(options);
    this.#device = new FakeDevice({
      blockSize: options.blockSize,
      windows: options.groups.map(({ window }) => window),
    });
    this.#random = randomFrom(seed);
    this.#tally = tally;
  }

  /** Random operations, then no more requests until everything has ended; at the end nothing may be held. */
  run(numOperations: number): void {
    for (let i = 0; i < numOperations; i++) {
      this.#operate();
      this.#scheduler.checkIntegrity();
      this.#now++;
    }
    for (let left = 20_000; this.#scheduler.hasWork || this.#inFlight.length > 0; left--) {
      if (left === 0) throw new Error('Livelock: the requests do not end.');
      if (this.#inFlight.length === 2 || (this.#inFlight.length === 1 && this.#random(2) === 0)) this.#complete();
      else this.#schedule();
      this.#scheduler.checkIntegrity();
    }
    const stats = this.#scheduler.stats();
    if (stats.numBlocksUsed !== 0 || stats.numRunning !== 0 || stats.numWaiting !== 0)
      throw new Error('Something is still held.');
    if (this.#live.size !== 0) throw new Error(`No end for ${[...this.#live.keys()]}`);
    this.#tally.numHitTokens += stats.totalPrefixHitTokens;
    this.#tally.numRecomputedTokens += stats.totalRecomputedTokens;
    this.#tally.numDraftTokens += stats.speculation?.numDraftTokens ?? 0;
    this.#tally.numAcceptedTokens += stats.speculation?.numAcceptedAt.reduce((a, b) => a + b, 0) ?? 0;
  }

  #operate(): void {
    const choice = this.#random(100);
    if (choice < 20) this.#add();
    else if (choice < 22) this.#abort();
    else if (this.#inFlight.length === 2 || (this.#inFlight.length === 1 && choice < 55)) this.#complete();
    else this.#schedule();
  }

  #makeRequest(): GenerateRequest {
    const random = this.#random;
    // Prompts begin with one of three long texts, cut anywhere, so that many prefixes are shared.
    const shared = random(3);
    const numShared = random(4) === 0 ? random(this.#options.maxModelLen) : random(this.#options.maxModelLen >> 1);
    const promptTokenIds = Array.from(
      { length: numShared },
      (_, i) => 1 + ((i * (shared + 1) + shared) % (VOCABULARY - 1)),
    );
    for (let i = random(6); i > 0; i--) promptTokenIds.push(random(VOCABULARY));
    const maxTokens = 1 + random(40);
    return {
      id: `request-${this.#numRequests++}`,
      promptTokenIds,
      sampling: {
        ...DEFAULT_SAMPLING,
        maxTokens,
        minTokens: random(4) === 0 ? random(maxTokens + 1) : 0,
        eosTokenIds: [0],
        ignoreEos: random(4) === 0,
        stopTokenIds: random(5) === 0 ? [random(VOCABULARY)] : [],
        // Few seeds: several requests continue a shared prompt in the same way.
        seed: BigInt(random(3)),
        promptLogprobs: random(12) === 0 ? 0 : null,
      },
      priority: random(3),
      arrivalTime: this.#now,
      cacheSalt: [null, null, null, 'a', 'b', ''][random(6)]!,
    };
  }

  #add(): void {
    const request = this.#makeRequest();
    const numWaiting = this.#scheduler.stats().numWaiting;
    try {
      this.#live.set(request.id, this.#scheduler.add(request));
    } catch (error) {
      if (!(error instanceof PagodaError)) throw error;
      const isRight =
        error.code === 'queue_full'
          ? numWaiting >= this.#options.maxNumQueuedReqs
          : ['context_length_exceeded', 'bad_request'].includes(error.code);
      if (!isRight) throw error;
      this.#tally.numRefused++;
    }
  }

  #abort(): void {
    const ids = [...this.#live.keys()];
    if (ids.length === 0) return;
    const id = ids[this.#random(ids.length)]!;
    const progress = this.#scheduler.abort(id, 'abort', this.#now);
    if (progress === null) throw new Error(`${id} cannot be aborted.`);
    this.#note(progress);
    this.#tally.numAborted++;
    if (this.#scheduler.abort(id, 'abort', this.#now) !== null) throw new Error(`${id} ended twice.`);
  }

  #schedule(): void {
    const running = [...this.#live.values()].filter((sequence) => sequence.status === 'running');
    const decoders = running.filter((sequence) => isDecoder(sequence));
    const plan = this.#scheduler.schedule(this.#now);
    this.#checkPlan(plan, running, decoders);
    this.#tally.numPreemptions += plan.preempted.length;
    if (plan.scheduled.length > 0) this.#inFlight.push(makeBatch(plan));
    else if (this.#inFlight.length === 0 && this.#scheduler.hasWork && plan.preempted.length === 0)
      throw new Error('Deadlock: nothing is scheduled.');
  }

  #checkPlan(plan: StepPlan, running: readonly Sequence[], decoders: readonly Sequence[]): void {
    const isBefore = isBeforeUnder(this.#options.policy);
    const victims = new Set(plan.preempted.map(({ sequence }) => sequence));
    const rows = new Map(plan.scheduled.map((row) => [row.sequence, row]));
    if (victims.size > 0 && plan.admitted.length > 0) throw new Error('Admitted and preempted in one step.');
    if (victims.size > 0 && this.#options.kvAllocation === 'static')
      throw new Error('Everything was reserved, and still a victim.');
    for (const victim of victims) {
      if (rows.has(victim)) throw new Error(`${victim.id} was preempted and runs.`);
      if (running.every((other) => other === victim || isBefore(victim, other)))
        throw new Error(`${victim.id} was the best and was preempted.`);
    }
    if (this.#options.useKvCache) {
      for (const decoder of decoders) {
        const row = rows.get(decoder);
        if (!victims.has(decoder) && (row === undefined || row.numTokens - row.numDrafts !== 1))
          throw new Error(`${decoder.id} did not get its token.`);
      }
    }
    const numDrafting = plan.scheduled.filter(({ numDrafts }) => numDrafts > 0).length;
    if (numDrafting > 0 && plan.scheduled.length > (this.#options.speculation?.maxSeqs ?? 0))
      throw new Error('Drafts in a step with too many sequences.');
    for (const admitted of plan.admitted) {
      for (const other of this.#live.values()) {
        if (other.status === 'waiting' && isBefore(other, admitted))
          throw new Error(`${admitted.id} passed ${other.id}.`);
      }
    }
  }

  #complete(): void {
    const batch = this.#inFlight.shift()!;
    const sampled = this.#device.run(batch);
    const faults = new Uint8Array(batch.plan.scheduled.length);
    if (this.#random(150) === 0) faults[this.#random(faults.length)] = 1;
    for (const { sequence } of batch.plan.scheduled) if (sequence.status === 'finished') this.#tally.numGhosts++;
    for (const progress of this.#scheduler.update(batch.plan, sampled, faults, this.#now)) {
      if (progress.finishReason === 'error' && faults[progress.planIndex] === 0)
        throw new Error(`${progress.sequence.id} failed without a fault.`);
      this.#note(progress);
    }
    this.#tally.numSteps++;
  }

  #note(progress: SequenceProgress): void {
    const { sequence, finishReason } = progress;
    if (this.#ended.has(sequence.id)) throw new Error(`${sequence.id} goes on after its end.`);
    if (finishReason === null) return;
    this.#ended.add(sequence.id);
    this.#live.delete(sequence.id);
    const expected = expectedOutput(sequence.request, this.#options.maxModelLen);
    const outputIds = Array.from(sequence.tokenIds.subarray(sequence.numPromptTokens, sequence.numTokens));
    const isCut = finishReason === 'abort' || finishReason === 'error';
    const wanted = isCut ? expected.outputIds.slice(0, outputIds.length) : expected.outputIds;
    if (outputIds.join() !== wanted.join())
      throw new Error(`${sequence.id} gave ${outputIds}, alone it gives ${wanted}.`);
    if (finishReason === 'error') this.#tally.numFaults++;
    if (isCut) return;
    if (finishReason !== expected.reason || progress.stopTokenId !== expected.stopTokenId)
      throw new Error(`${sequence.id} ended by ${finishReason}.`);
    this.#tally.numFinished++;
  }
}

function isDecoder(sequence: Sequence): boolean {
  // What follows drafts in flight is decided when they are settled.
  if (sequence.numDrafts > 0) return false;
  const numKnown = sequence.numTokens + sequence.numPlaceholders;
  return numKnown - sequence.computedTokens === 1 && numKnown < sequence.maxTotalTokens;
}
