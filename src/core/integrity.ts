// Recomputes every count of the scheduler from scratch and compares: tests call it after each operation, the engine when it is
// idle. It only reads. A difference is a bug of ours, hence PagodaError `internal`.

import { PagodaError } from '../errors.ts';
import type { BlockPool } from './block-pool.ts';
import type { KvManager } from './kv-manager.ts';
import type { SchedulerOptions } from './scheduler-options.ts';
import type { Sequence } from './sequence.ts';
import type { PlanBuffer } from './step-plan.ts';
import type { IsBefore, WaitingQueue } from './waiting-queue.ts';

export interface SchedulerState {
  readonly options: SchedulerOptions;
  readonly kv: KvManager;
  readonly running: readonly Sequence[];
  readonly waiting: WaitingQueue;
  readonly isBefore: IsBefore;
  readonly live: ReadonlyMap<string, Sequence>;
  readonly freeSlots: readonly number[];
  readonly plans: readonly PlanBuffer[];
}

/** Throws PagodaError `internal` that says what differs. */
export function checkIntegrity(state: SchedulerState): void {
  checkReferences(state);
  checkFreeList(state.kv.pool);
  checkCachedContents(state.kv.pool);
  for (const sequence of state.running) checkRunning(sequence, state);
  checkSlots(state);
  checkWaiting(state);
  for (const plan of state.plans) checkPlan(plan, state);
  checkPlaceholders(state);
}

function expect(isRight: boolean, message: () => string): void {
  if (!isRight) throw new PagodaError('internal', `Scheduler integrity: ${message()}`);
}

function checkReferences({ kv, running }: SchedulerState): void {
  const counts = new Int32Array(kv.pool.numBlocks);
  for (const sequence of running) {
    for (const table of sequence.blockTables) {
      for (let index = 0; index < sequence.numTableBlocks; index++) counts[table[index]!]!++;
    }
  }
  counts[0] = 0; // entries out of the window
  for (let block = 0; block < counts.length; block++) {
    expect(
      counts[block] === kv.pool.refCounts[block],
      () => `block ${block} has ${kv.pool.refCounts[block]} references, tables name it ${counts[block]} times.`,
    );
  }
}

function checkFreeList(pool: BlockPool): void {
  const sentinel = pool.numBlocks;
  const isFree = new Uint8Array(pool.numBlocks);
  let numFree = 0;
  let numFreeCached = 0;
  let before = sentinel;
  for (let block = pool.next[sentinel]!; block !== sentinel; block = pool.next[block]!) {
    expect(
      block > 0 && block < pool.numBlocks && isFree[block] === 0,
      () => `the free list visits block ${block} wrongly.`,
    );
    expect(
      pool.previous[block] === before,
      () => `block ${block} links back to ${pool.previous[block]}, not to ${before}.`,
    );
    expect(pool.refCounts[block] === 0, () => `block ${block} is free and has ${pool.refCounts[block]} references.`);
    isFree[block] = 1;
    numFree++;
    if (pool.contents.has(block)) numFreeCached++;
    before = block;
  }
  expect(
    pool.previous[sentinel] === before,
    () => `the free list ends at ${before}, its back is ${pool.previous[sentinel]}.`,
  );
  for (let block = 1; block < pool.numBlocks; block++) {
    expect(
      isFree[block] === 1 || pool.refCounts[block]! > 0,
      () => `block ${block} is lost: no references and not free.`,
    );
  }
  expect(numFree === pool.numFree, () => `${numFree} blocks are in the free list, the count says ${pool.numFree}.`);
  expect(
    numFreeCached === pool.numFreeCached,
    () => `${numFreeCached} free blocks are cached, the count says ${pool.numFreeCached}.`,
  );
}

function checkCachedContents(pool: BlockPool): void {
  expect(pool.contents.isConsistent(), () => 'the index of cached contents does not find exactly the filed blocks.');
  expect(!pool.contents.has(0), () => 'the null block is filed.');
}

function checkRunning(sequence: Sequence, { options, kv, live }: SchedulerState): void {
  const { id, computedTokens, capacityTokens, numTableBlocks, numDrafts } = sequence;
  const numKnown = sequence.numTokens + sequence.numPlaceholders;
  expect(
    sequence.status === 'running' && live.get(id) === sequence,
    () => `${id} runs with status ${sequence.status}.`,
  );
  expect(
    computedTokens >= 0 && computedTokens <= numKnown,
    () => `${id} has computed ${computedTokens} of ${numKnown} tokens.`,
  );
  expect(
    numKnown <= sequence.maxTotalTokens,
    () => `${id} goes to ${numKnown} tokens, beyond its end at ${sequence.maxTotalTokens}.`,
  );
  expect(
    capacityTokens === numTableBlocks * options.blockSize,
    () => `${id} has ${numTableBlocks} blocks for ${capacityTokens} tokens.`,
  );
  expect(
    computedTokens <= capacityTokens,
    () => `${id} has computed ${computedTokens} tokens in room for ${capacityTokens}.`,
  );
  if (options.kvAllocation === 'paged' && options.useKvCache) {
    expect(
      capacityTokens - computedTokens - numDrafts < options.blockSize,
      () => `${id} holds ${capacityTokens - computedTokens} empty token slots for ${numDrafts} drafts.`,
    );
  }
  sequence.blockTables.forEach((table, group) => {
    const window = kv.windows[group]!;
    const first = window === 0 ? 0 : Math.max(0, Math.floor((computedTokens - window + 1) / options.blockSize));
    for (let index = first; index < numTableBlocks; index++) {
      expect(table[index] !== 0, () => `${id} lacks block ${index} of group ${group}, which it still sees.`);
    }
  });
}

function checkSlots({ options, running, freeSlots }: SchedulerState): void {
  const slots = [...freeSlots, ...running.map((sequence) => sequence.slot)];
  const isComplete = slots.length === options.maxNumSeqs && new Set(slots).size === slots.length;
  expect(
    isComplete && slots.every((slot) => slot >= 0 && slot < options.maxNumSeqs),
    () => `slots are lost or shared: ${slots.join(', ')}.`,
  );
}

function checkWaiting({ running, waiting, isBefore, live }: SchedulerState): void {
  waiting.sequences.forEach((sequence, index) => {
    const { id, status } = sequence;
    expect(
      status === 'waiting' && live.get(id) === sequence && sequence.waitingIndex === index,
      () => `${id} waits with status ${status}.`,
    );
    expect(
      sequence.slot === -1 && sequence.numTableBlocks === 0 && sequence.computedTokens === 0,
      () => `${id} waits and holds something.`,
    );
    const parent = waiting.sequences[(index - 1) >> 1];
    expect(index === 0 || !isBefore(sequence, parent!), () => `${id} waits behind ${parent?.id}, which it precedes.`);
  });
  expect(
    live.size === running.length + waiting.size,
    () => `${live.size} live sequences, ${running.length} running, ${waiting.size} waiting.`,
  );
}

function checkPlan(plan: PlanBuffer, { options }: SchedulerState): void {
  if (!plan.isInFlight) return;
  const { stepId, scheduled } = plan;
  const numTokens = scheduled.reduce((sum, entry) => sum + entry.numTokens, 0);
  const numPrefillTokens = scheduled.reduce((sum, entry) => sum + (entry.isPrefill ? entry.numTokens : 0), 0);
  expect(
    scheduled.every((entry) => entry.numTokens >= 1),
    () => `step ${stepId} has a sequence without tokens.`,
  );
  expect(
    new Set(scheduled.map((entry) => entry.sequence)).size === scheduled.length,
    () => `step ${stepId} has a sequence twice.`,
  );
  expect(
    numTokens === plan.numTokens && numPrefillTokens === plan.numPrefillTokens,
    () => `step ${stepId} miscounts its tokens.`,
  );
  expect(
    numTokens <= options.maxNumBatchedTokens,
    () => `step ${stepId} has ${numTokens} tokens, more than ${options.maxNumBatchedTokens}.`,
  );
  const isChunkLimited = options.enableChunkedPrefill && options.chunkedPrefillSize !== null;
  const mostPrefill = isChunkLimited ? options.chunkedPrefillSize : options.maxNumBatchedTokens;
  expect(
    numPrefillTokens <= mostPrefill!,
    () => `step ${stepId} has ${numPrefillTokens} prefill tokens, more than ${mostPrefill}.`,
  );
}

function checkPlaceholders({ live, plans }: SchedulerState): void {
  const promised = new Map<Sequence, number>();
  const drafted = new Map<Sequence, number>();
  for (const plan of plans) {
    if (!plan.isInFlight) continue;
    for (const { sequence, samples, numDrafts } of plan.scheduled) {
      if (samples) promised.set(sequence, (promised.get(sequence) ?? 0) + 1);
      if (numDrafts > 0) drafted.set(sequence, (drafted.get(sequence) ?? 0) + numDrafts);
    }
  }
  for (const sequence of live.values()) {
    const numPromised = promised.get(sequence) ?? 0;
    expect(
      sequence.numPlaceholders === numPromised,
      () => `${sequence.id} has ${sequence.numPlaceholders} placeholders for ${numPromised} promised tokens.`,
    );
    expect(
      sequence.numDrafts === (drafted.get(sequence) ?? 0),
      () => `${sequence.id} has ${sequence.numDrafts} drafts, the plans in flight ${drafted.get(sequence) ?? 0}.`,
    );
  }
}
