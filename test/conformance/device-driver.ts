// Drives any Device the way an engine does, only simpler: hands out KV blocks, cuts sequences into steps, keeps what was
// sampled. Tests say which sequences get how many tokens in which step.

import { DEFAULT_SAMPLING, type SamplingParams } from '../../src/core/sampling-params.ts';
import type { Device } from '../../src/device/device.ts';
import {
  type ForwardBatch,
  LogitRows,
  type PromptRowLogprob,
  type StepResult,
} from '../../src/device/forward-batch.ts';

export const GREEDY: SamplingParams = { ...DEFAULT_SAMPLING, temperature: 0 };

/** A sequence and everything that came out of it. */
export interface DrivenSequence {
  readonly slot: number;
  readonly sampling: SamplingParams;
  readonly tokens: number[];
  readonly numPrompt: number;
  numComputed: number;
  /** One table per KV group. */
  readonly tables: number[][];
  readonly logprobs: number[];
  readonly ranks: number[];
  readonly tops: Array<Array<[token: number, logprob: number]>>;
  readonly promptLogprobs: PromptRowLogprob[];
  fault: boolean;
}

export interface Work {
  readonly sequence: DrivenSequence;
  readonly numTokens: number;
  /** Guesses at the tokens after the known ones; then `numTokens` reaches the last known one. */
  readonly drafts?: readonly number[];
}

export class DeviceDriver {
  readonly device: Device;
  readonly #freeBlocks: number[];
  readonly #freeSlots: number[];
  /** Pass the token sampled last as -1, as an engine does that is one step ahead. */
  usePlaceholders = false;

  constructor(device: Device, options: { numBlocks: number; maxSeqs: number }) {
    this.device = device;
    device.allocateKvCache(options.numBlocks);
    // Blocks in an order that is not the order of positions.
    this.#freeBlocks = Array.from(
      { length: options.numBlocks - 1 },
      (_, i) => 1 + ((i * 7919) % (options.numBlocks - 1)),
    );
    if (new Set(this.#freeBlocks).size !== options.numBlocks - 1)
      this.#freeBlocks = Array.from({ length: options.numBlocks - 1 }, (_, i) => i + 1);
    this.#freeSlots = Array.from({ length: options.maxSeqs }, (_, i) => i);
  }

  add(tokens: readonly number[], sampling: SamplingParams = GREEDY, numPrompt = tokens.length): DrivenSequence {
    const slot = this.#freeSlots.pop();
    if (slot === undefined) throw new Error('no free slot');
    this.device.addSequence({ slot, tokenIds: tokens, numPromptTokens: numPrompt, sampling });
    return {
      slot,
      sampling,
      tokens: [...tokens],
      numPrompt,
      numComputed: 0,
      tables: this.device.kv.groups.map(() => []),
      logprobs: [],
      ranks: [],
      tops: [],
      promptLogprobs: [],
      fault: false,
    };
  }

  /** As `add`, for tokens that begin with the first `numShared` of `from`: full blocks of those are in both tables. */
  addSharing(from: DrivenSequence, numShared: number, tokens: readonly number[]): DrivenSequence {
    const sequence = this.add(tokens, from.sampling);
    const numBlocks = Math.floor(numShared / this.device.kv.blockSize);
    sequence.tables.forEach((table, group) => {
      table.push(...from.tables[group].slice(0, numBlocks));
    });
    sequence.numComputed = numBlocks * this.device.kv.blockSize;
    return sequence;
  }

  remove(sequence: DrivenSequence): void {
    this.device.removeSequence(sequence.slot);
    this.#freeSlots.push(sequence.slot);
    // To the front: the next sequence gets blocks that hold another one's values.
    for (const table of sequence.tables) this.#freeBlocks.unshift(...table.filter((block) => block !== 0).reverse());
  }

  /** Gives back the blocks that no window sees any more, as an engine does. */
  freeBehindWindows(sequence: DrivenSequence): void {
    const { blockSize, groups } = this.device.kv;
    groups.forEach(({ window }, group) => {
      if (window === 0) return;
      const table = sequence.tables[group];
      for (let entry = 0; (entry + 1) * blockSize <= sequence.numComputed - window + 1; entry++) {
        if (table[entry] !== 0) this.#freeBlocks.push(table[entry]);
        table[entry] = 0;
      }
    });
  }

  async step(work: readonly Work[]): Promise<StepResult> {
    const batch = this.batch(work);
    const result = await this.device.step(batch);
    let row = 0;
    work.forEach(({ sequence, numTokens, drafts = [] }, s) => {
      sequence.numComputed += numTokens;
      sequence.fault ||= result.faults[s] === 1;
      const numBefore = sequence.tokens.length;
      for (const end = row + drafts.length + 1; row < end; row++) {
        if (result.sampledTokens[row] >= 0) this.#take(sequence, result, row);
      }
      // Accepted drafts are computed, too.
      sequence.numComputed += Math.max(0, sequence.tokens.length - numBefore - 1);
    });
    for (const report of result.promptLogprobs) work[report.seq].sequence.promptLogprobs.push(report);
    return result;
  }

  #take(sequence: DrivenSequence, result: StepResult, row: number): void {
    sequence.tokens.push(result.sampledTokens[row]);
    sequence.logprobs.push(result.sampledLogprobs[row]);
    sequence.ranks.push(result.sampledRanks[row]);
    const top: Array<[number, number]> = [];
    for (let i = result.topStart[row]; i < result.topStart[row + 1]; i++)
      top.push([result.topTokens[i], result.topLogprobs[i]]);
    sequence.tops.push(top);
  }

  /** Prompt in chunks, then one token a step, all sequences together, until each has `numOutputs` tokens. */
  async generate(
    sequences: readonly DrivenSequence[],
    numOutputs: number,
    chunkSize = 1 << 20,
    draftsFor: (sequence: DrivenSequence) => readonly number[] = () => [],
  ): Promise<void> {
    for (;;) {
      const open = sequences.filter((each) => !each.fault && each.tokens.length - each.numPrompt < numOutputs);
      if (open.length === 0) return;
      await this.step(
        open.map((sequence) => {
          const numTokens = Math.min(chunkSize, sequence.tokens.length - sequence.numComputed);
          const isDecode = sequence.numComputed + 1 === sequence.tokens.length;
          return { sequence, numTokens, drafts: isDecode ? draftsFor(sequence) : [] };
        }),
      );
      for (const sequence of open) this.freeBehindWindows(sequence);
    }
  }

  batch(work: readonly Work[]): ForwardBatch {
    const numTokens = work.reduce((sum, { numTokens: count, drafts = [] }) => sum + count + drafts.length, 0);
    const tables = work.flatMap(({ sequence, numTokens: count, drafts = [] }) =>
      this.#grownTables(sequence, sequence.numComputed + count + drafts.length),
    );
    const batch: ForwardBatch = {
      numSeqs: work.length,
      numTokens,
      tokenIds: new Int32Array(numTokens),
      tokenStart: new Int32Array(work.length + 1),
      numComputed: Int32Array.from(work, ({ sequence }) => sequence.numComputed),
      slot: Int32Array.from(work, ({ sequence }) => sequence.slot),
      logitRows: new Uint8Array(work.length),
      samples: new Uint8Array(work.length),
      blockTables: Int32Array.from(tables.flat()),
      blockTableStart: Int32Array.from([0, ...tables.map((_, i) => tables.slice(0, i + 1).flat().length)]),
    };
    work.forEach(({ sequence, numTokens: count, drafts = [] }, s) => {
      batch.tokenStart[s + 1] = batch.tokenStart[s] + count + drafts.length;
      const reachesEnd = sequence.numComputed + count === sequence.tokens.length;
      batch.samples[s] = reachesEnd ? 1 + drafts.length : 0;
      const reports = sequence.sampling.promptLogprobs !== null && sequence.numComputed < sequence.numPrompt;
      batch.logitRows[s] = reports ? LogitRows.all : reachesEnd ? LogitRows.last : LogitRows.none;
      for (let i = 0; i < count; i++)
        batch.tokenIds[batch.tokenStart[s] + i] = this.#idFor(sequence, sequence.numComputed + i);
      batch.tokenIds.set(drafts, batch.tokenStart[s] + count);
    });
    return batch;
  }

  #idFor(sequence: DrivenSequence, position: number): number {
    const sampledLast = position >= sequence.numPrompt && position === sequence.tokens.length - 1;
    return this.usePlaceholders && sampledLast ? -1 : sequence.tokens[position];
  }

  #grownTables(sequence: DrivenSequence, length: number): number[][] {
    for (const table of sequence.tables) {
      while (table.length * this.device.kv.blockSize < length) {
        const block = this.#freeBlocks.shift();
        if (block === undefined) throw new Error('no free block');
        table.push(block);
      }
    }
    return sequence.tables.map((table) => [...table]);
  }
}
