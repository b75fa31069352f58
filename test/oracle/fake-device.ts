// A device that computes nothing and remembers everything: for each token slot of each physical block, whose KV was written
// there, as (group, salt, all tokens up to that position). A step checks that every position a row sees holds what that row's
// own tokens would have written. Any mistake with sharing, preemption, ghosts, windows, slots or chunks ends in a difference.

import type { GenerateRequest } from '../../src/core/request.ts';
import type { StepPlan } from '../../src/core/step.ts';
import { chooseToken } from './expected-output.ts';

interface Row {
  readonly request: GenerateRequest;
  readonly slot: number;
  readonly numComputed: number;
  /** -1 = the token the device sampled last. The last `numDrafts` are guesses. */
  readonly tokenIds: readonly number[];
  readonly samples: boolean;
  readonly numDrafts: number;
  readonly tables: ReadonlyArray<readonly number[]>;
}

/** What an engine takes out of a plan at once, before anything else happens to the sequences. */
export interface Batch {
  readonly plan: StepPlan;
  readonly freedSlots: readonly number[];
  readonly added: ReadonlyArray<{
    readonly slot: number;
    readonly tokenIds: number[];
    readonly request: GenerateRequest;
  }>;
  readonly rows: readonly Row[];
}

export function makeBatch(plan: StepPlan): Batch {
  return {
    plan,
    freedSlots: plan.preempted.map(({ slot }) => slot),
    added: plan.admitted.map((sequence) => ({
      slot: sequence.slot,
      tokenIds: Array.from(sequence.tokenIds.subarray(0, sequence.numTokens)),
      request: sequence.request,
    })),
    rows: plan.scheduled.map(({ sequence, numComputed, numTokens, samples, numDrafts }) => ({
      request: sequence.request,
      slot: sequence.slot,
      numComputed,
      tokenIds: Array.from({ length: numTokens }, (_, i) =>
        numComputed + i < sequence.numTokens
          ? sequence.tokenIds[numComputed + i]!
          : numDrafts > 0
            ? sequence.draftTokenIds[numComputed + i - sequence.numTokens]!
            : -1,
      ),
      samples,
      numDrafts,
      tables: sequence.blockTables.map((table) => Array.from(table.subarray(0, sequence.numTableBlocks))),
    })),
  };
}

interface SlotState {
  readonly request: GenerateRequest;
  readonly tokenIds: number[];
  /** [position] number of the prefix that ends there. */
  readonly prefixes: number[];
}

export class FakeDevice {
  readonly #blockSize: number;
  readonly #windows: readonly number[];
  readonly #memory = new Map<number, string>();
  readonly #slots = new Map<number, SlotState>();
  /** Each distinct prefix (with its salt) has a number, given by the number of the prefix before it and its last token. */
  readonly #prefixNumbers = new Map<string, number>();

  constructor(options: { blockSize: number; windows: readonly number[] }) {
    this.#blockSize = options.blockSize;
    this.#windows = options.windows;
  }

  /**
   * Runs a step: all writes, then all reads, as a device does layer by layer. Returns what the rows sampled, 1 + numDrafts for
   * each sequence, -1 where none.
   */
  run(batch: Batch): Int32Array {
    for (const slot of batch.freedSlots) this.#slots.delete(slot);
    for (const { slot, tokenIds, request } of batch.added) this.#slots.set(slot, { request, tokenIds, prefixes: [] });
    const written = new Set<number>();
    for (const row of batch.rows) this.#slots.get(row.slot)?.tokenIds.push(...draftsOf(row));
    for (const row of batch.rows) this.#write(row, written);
    for (const row of batch.rows) this.#read(row);
    for (const row of batch.rows) this.#forgetDrafts(row);
    return Int32Array.from(batch.rows.flatMap((row) => this.#sample(row)));
  }

  #sample(row: Row): number[] {
    const sampled = new Array<number>(1 + row.numDrafts).fill(-1);
    if (!row.samples) return sampled;
    const state = this.#slots.get(row.slot)!;
    const end = row.numComputed + row.tokenIds.length - row.numDrafts;
    if (end !== state.tokenIds.length)
      throw new Error(`${row.request.id} samples after ${end} of ${state.tokenIds.length} tokens.`);
    const drafts = draftsOf(row);
    for (let i = 0; i <= row.numDrafts; i++) {
      const token = chooseToken(state.request, state.tokenIds);
      state.tokenIds.push(token);
      sampled[i] = token;
      if (token !== drafts[i]) break;
    }
    return sampled;
  }

  #forgetDrafts(row: Row): void {
    const { tokenIds, prefixes } = this.#slots.get(row.slot)!;
    tokenIds.length -= row.numDrafts;
    prefixes.length = Math.min(prefixes.length, tokenIds.length);
  }

  #write(row: Row, written: Set<number>): void {
    const state = this.#slots.get(row.slot);
    if (state === undefined || state.request !== row.request)
      throw new Error(`Slot ${row.slot} is not that of ${row.request.id}.`);
    row.tokenIds.forEach((tokenId, i) => {
      const position = row.numComputed + i;
      const own = state.tokenIds[position];
      const isRight = tokenId === -1 ? own !== undefined && position === state.tokenIds.length - 1 : tokenId === own;
      if (!isRight) throw new Error(`${row.request.id} feeds ${tokenId} at ${position}, the device has ${own}.`);
      for (let group = 0; group < this.#windows.length; group++) {
        const place = this.#place(row, group, position);
        if (written.has(place)) throw new Error(`Two rows write the same token slot in step ${row.request.id}.`);
        written.add(place);
        this.#memory.set(place, this.#content(state, group, position));
      }
    });
  }

  #read(row: Row): void {
    const state = this.#slots.get(row.slot)!;
    const end = row.numComputed + row.tokenIds.length;
    this.#windows.forEach((window, group) => {
      for (let position = window === 0 ? 0 : Math.max(0, row.numComputed - window + 1); position < end; position++) {
        const found = this.#memory.get(this.#place(row, group, position));
        const content = this.#content(state, group, position);
        if (found !== content)
          throw new Error(`${row.request.id} sees ${found} at ${position} of group ${group}, its own is ${content}.`);
      }
    });
  }

  #place(row: Row, group: number, position: number): number {
    const block = row.tables[group]![Math.floor(position / this.#blockSize)];
    if (block === undefined || block === 0)
      throw new Error(`${row.request.id} has no block for position ${position} of group ${group}.`);
    return block * this.#blockSize + (position % this.#blockSize);
  }

  #content(state: SlotState, group: number, position: number): string {
    const { prefixes, tokenIds, request } = state;
    while (prefixes.length <= position) {
      const at = prefixes.length;
      const key = `${at === 0 ? `salt ${request.cacheSalt}` : prefixes[at - 1]}:${tokenIds[at]}`;
      let number = this.#prefixNumbers.get(key);
      if (number === undefined) {
        number = this.#prefixNumbers.size;
        this.#prefixNumbers.set(key, number);
      }
      prefixes.push(number);
    }
    return `${group}/${prefixes[position]}`;
  }
}

function draftsOf(row: Row): readonly number[] {
  return row.tokenIds.slice(row.tokenIds.length - row.numDrafts);
}
