// Turns a StepPlan into the flat arrays of a ForwardBatch. Two batches take turns, because the device reads one while the
// next is filled. Arrays have their final capacity from the start, except block tables, which double when sharing prefixes
// makes them longer than expected.

import type { Sequence } from '../core/sequence.ts';
import type { StepPlan } from '../core/step.ts';
import { type ForwardBatch, LogitRows } from '../device/forward-batch.ts';
import type { PromptLogprobs } from './prompt-logprobs.ts';

export interface BatchLimits {
  readonly maxTokens: number;
  readonly maxSeqs: number;
  readonly numGroups: number;
  readonly blockSize: number;
}

/** The token that the slot sampled last: the device knows it, JavaScript perhaps not yet. */
const LAST_SAMPLED = -1;
const INITIAL_BLOCKS_PER_TABLE = 16;

export class BatchBuilder {
  readonly #limits: BatchLimits;
  readonly #batches: [ForwardBatch, ForwardBatch];
  #turn = 0;

  constructor(limits: BatchLimits) {
    this.#limits = limits;
    this.#batches = [emptyBatch(limits), emptyBatch(limits)];
  }

  /** The result is valid until the call after the next one. */
  fill(plan: StepPlan, promptLogprobs: ReadonlyMap<string, PromptLogprobs>): ForwardBatch {
    this.#turn = 1 - this.#turn;
    const batch = this.#reserveTables(plan);
    batch.numSeqs = plan.scheduled.length;
    batch.numTokens = plan.numTokens;
    let numTokens = 0;
    let numEntries = 0;
    for (let s = 0; s < plan.scheduled.length; s++) {
      const { sequence, numComputed, numTokens: count, samples, numDrafts } = plan.scheduled[s]!;
      batch.tokenStart[s] = numTokens;
      batch.numComputed[s] = numComputed;
      batch.slot[s] = sequence.slot;
      batch.samples[s] = samples ? 1 + numDrafts : 0;
      const wantsPrompt = promptLogprobs.get(sequence.id)?.needs(numComputed) ?? false;
      batch.logitRows[s] = wantsPrompt ? LogitRows.all : samples ? LogitRows.last : LogitRows.none;
      const end = numComputed + count;
      for (let position = numComputed; position < end; position++) {
        batch.tokenIds[numTokens++] = tokenAt(sequence, position, numDrafts);
      }
      const numBlocks = Math.ceil(end / this.#limits.blockSize);
      for (let group = 0; group < this.#limits.numGroups; group++) {
        batch.blockTableStart[s * this.#limits.numGroups + group] = numEntries;
        const table = sequence.blockTables[group]!;
        for (let block = 0; block < numBlocks; block++) batch.blockTables[numEntries++] = table[block]!;
      }
    }
    batch.tokenStart[batch.numSeqs] = numTokens;
    batch.blockTableStart[batch.numSeqs * this.#limits.numGroups] = numEntries;
    return batch;
  }

  #reserveTables(plan: StepPlan): ForwardBatch {
    const { blockSize, numGroups } = this.#limits;
    let needed = 0;
    for (const entry of plan.scheduled)
      needed += Math.ceil((entry.numComputed + entry.numTokens) / blockSize) * numGroups;
    const batch = this.#batches[this.#turn]!;
    if (needed <= batch.blockTables.length) return batch;
    const larger = { ...batch, blockTables: new Int32Array(Math.max(needed, 2 * batch.blockTables.length)) };
    this.#batches[this.#turn] = larger;
    return larger;
  }
}

/** Known tokens first; after them drafts, which only known tokens have, or the one that is being sampled. */
function tokenAt(sequence: Sequence, position: number, numDrafts: number): number {
  if (position < sequence.numTokens) return sequence.tokenIds[position]!;
  return numDrafts > 0 ? sequence.draftTokenIds[position - sequence.numTokens]! : LAST_SAMPLED;
}

function emptyBatch({ maxTokens, maxSeqs, numGroups }: BatchLimits): ForwardBatch {
  return {
    numSeqs: 0,
    numTokens: 0,
    tokenIds: new Int32Array(maxTokens),
    tokenStart: new Int32Array(maxSeqs + 1),
    numComputed: new Int32Array(maxSeqs),
    slot: new Int32Array(maxSeqs),
    logitRows: new Uint8Array(maxSeqs),
    samples: new Uint8Array(maxSeqs),
    blockTables: new Int32Array(maxSeqs * numGroups * INITIAL_BLOCKS_PER_TABLE),
    blockTableStart: new Int32Array(maxSeqs * numGroups + 1),
  };
}
