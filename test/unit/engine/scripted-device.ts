// A device without arithmetic: the next token is a hash of all tokens before it, read back from a "KV cache" that it really
// keeps by block table, so that a wrong slot, block, position or placeholder shows as a wrong token. It checks every call.

import { setImmediate } from 'node:timers/promises';
import type { Device, DeviceInfo, SequenceInit } from '../../../src/device/device.ts';
import type { ForwardBatch, PromptRowLogprob, StepResult } from '../../../src/device/forward-batch.ts';
import type { KvLayout } from '../../../src/device/kv-layout.ts';

export const VOCABULARY = 1000;

/** What any correct engine must produce after these tokens. */
export function nextToken(tokens: readonly number[], vocabulary = VOCABULARY): number {
  let hash = 17;
  for (const token of tokens) hash = (Math.imul(hash, 31) + token + 1) >>> 0;
  return hash % vocabulary;
}

export interface ScriptedOptions {
  readonly blockSize: number;
  readonly maxSeqs: number;
  /** Few tokens make guesses come true; default VOCABULARY. */
  readonly vocabulary?: number;
  /** Called at each step with its number, from 0; may throw. */
  readonly onStep?: (step: number) => void;
  /** Faults the rows that this says. */
  readonly faulty?: (tokens: readonly number[]) => boolean;
}

interface Slot {
  readonly init: SequenceInit;
  last: number;
}

export class ScriptedDevice implements Device {
  readonly info: DeviceInfo = { name: 'scripted', isa: 'none', numThreads: 1, computeDtype: 'f32', weightBytes: 0 };
  readonly kv: KvLayout;
  readonly #options: ScriptedOptions;
  readonly #slots: Array<Slot | null>;
  #cache = new Int32Array(0);
  /** What was asked for, in order: slots change between the steps submitted before and after. */
  #tail: Promise<unknown> = Promise.resolve();
  #numPending = 0;
  numSteps = 0;
  isDisposed = false;

  constructor(options: ScriptedOptions) {
    this.#options = options;
    this.#slots = new Array<Slot | null>(options.maxSeqs).fill(null);
    this.kv = {
      groups: [{ window: 0, layers: [0] }],
      layersPerGroup: 1,
      layerPlace: [{ group: 0, index: 0 }],
      numKvHeads: 1,
      headDim: 1,
      dtype: 'f32',
      blockSize: options.blockSize,
      layerBytes: 8,
      blockBytes: 8 * options.blockSize,
      bytesPerToken: 8,
    };
  }

  get numResident(): number {
    return this.#slots.filter((slot) => slot !== null).length;
  }

  allocateKvCache(numBlocks: number): void {
    this.#cache = new Int32Array(numBlocks * this.kv.blockSize).fill(-7);
  }

  addSequence(init: SequenceInit): void {
    this.#inTurn(() => {
      if (this.#slots[init.slot] !== null) throw new Error(`Slot ${init.slot} is taken.`);
      this.#slots[init.slot] = { init, last: -1 };
    });
  }

  removeSequence(slot: number): void {
    this.#inTurn(() => {
      if (this.#slots[slot] === null) throw new Error(`Slot ${slot} is empty.`);
      this.#slots[slot] = null;
    });
  }

  /** At once while nothing is pending; a failure later shows as one of the steps behind it. */
  #inTurn(change: () => void): void {
    if (this.#numPending === 0) change();
    else this.#tail = this.#tail.then(change);
  }

  step(batch: ForwardBatch): Promise<StepResult> {
    if (++this.#numPending > 2) throw new Error('A third step was submitted.');
    const copy = structuredClone(batch);
    const result = this.#tail
      .then(() => setImmediate())
      .then(() => {
        const step = this.numSteps++;
        this.#options.onStep?.(step);
        const result = this.#run(batch);
        if (JSON.stringify(copy) !== JSON.stringify(batch)) throw new Error('The batch changed during its step.');
        return result;
      })
      .finally(() => this.#numPending--);
    this.#tail = result;
    result.catch(() => undefined);
    return result;
  }

  #run(batch: ForwardBatch): StepResult {
    const { blockSize } = this.kv;
    const numRows = Array.from({ length: batch.numSeqs }, (_, s) => Math.max(1, batch.samples[s]!));
    const sampledTokens = new Int32Array(numRows.reduce((a, b) => a + b, 0)).fill(-1);
    let firstRow = -1;
    const faults = new Uint8Array(batch.numSeqs);
    const promptLogprobs: PromptRowLogprob[] = [];
    for (let s = 0; s < batch.numSeqs; s++) {
      firstRow = s === 0 ? 0 : firstRow + numRows[s - 1]!;
      const slot = this.#slots[batch.slot[s]!];
      if (!slot) throw new Error(`Slot ${batch.slot[s]} holds no sequence.`);
      const start = batch.numComputed[s]!;
      const end = start + batch.tokenStart[s + 1]! - batch.tokenStart[s]!;
      const place = (position: number) => {
        const block = batch.blockTables[batch.blockTableStart[s]! + Math.floor(position / blockSize)]!;
        if (block === 0) throw new Error('A token in the null block.');
        return block * blockSize + (position % blockSize);
      };
      for (let position = start; position < end; position++) {
        const id = batch.tokenIds[batch.tokenStart[s]! + position - start]!;
        if (id === -1 && slot.last === -1) throw new Error('A placeholder, but nothing was sampled.');
        this.#cache[place(position)] = id === -1 ? slot.last : id;
      }
      const tokens = Array.from({ length: end }, (_, position) => this.#cache[place(position)]!);
      if (batch.logitRows[s] === 2) {
        const prompt = slot.init.tokenIds;
        for (let position = start + 1; position < Math.min(end + 1, slot.init.numPromptTokens); position++) {
          promptLogprobs.push({
            seq: s,
            position,
            tokenId: prompt[position]!,
            logprob: -position,
            rank: 1,
            topTokens: [],
            topLogprobs: [],
          });
        }
      }
      for (let row = 0; row < batch.samples[s]!; row++) {
        const numSeen = end - batch.samples[s]! + 1 + row;
        if (this.#options.faulty?.(tokens.slice(0, numSeen))) faults[s] = 1;
        slot.last = nextToken(tokens.slice(0, numSeen), this.#options.vocabulary);
        if (faults[s] === 1 && row > 0) break;
        sampledTokens[firstRow + row] = slot.last;
        if (slot.last !== tokens[numSeen]) break;
      }
    }
    return {
      sampledTokens,
      faults,
      promptLogprobs,
      sampledLogprobs: Float32Array.from(sampledTokens, (token) => -token / VOCABULARY),
      sampledRanks: new Int32Array(sampledTokens.length).fill(1),
      topStart: new Int32Array(sampledTokens.length + 1),
      topTokens: new Int32Array(0),
      topLogprobs: new Float32Array(0),
      timing: {
        totalSeconds: 0,
        attentionSeconds: 0,
        linearSeconds: 0,
        samplingSeconds: 0,
        rowsSeconds: 0,
        serialSeconds: 0,
      },
    };
  }

  async logits(): Promise<Float32Array> {
    throw new Error('Not scripted.');
  }

  async dispose(): Promise<void> {
    if (this.#numPending > 0) throw new Error('Disposed during a step.');
    this.isDisposed = true;
  }
}
