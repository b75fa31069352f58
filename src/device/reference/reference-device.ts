// The device in plain TypeScript: the specification of what a step computes, and what runs where no compiler is. Everything
// is float32 storage with double-precision arithmetic; one step runs to its end inside the call of `step`.

import { setImmediate } from 'node:timers/promises';
import type { Checkpoint } from '../../checkpoint/checkpoint.ts';
import { readWeight } from '../../checkpoint/weights.ts';
import { PagodaError } from '../../errors.ts';
import type { LoadedModel } from '../../model/load-model.ts';
import type { Device, DeviceInfo, DeviceLimits, SequenceInit } from '../device.ts';
import { type ForwardBatch, LogitRows, type StepResult } from '../forward-batch.ts';
import { type KvDtype, type KvLayout, kvLayout } from '../kv-layout.ts';
import type { TokenPlaces } from './attention.ts';
import { ReferenceKvCache } from './kv-cache.ts';
import { ProgramRunner } from './program-runner.ts';
import { type LogitRow, ResultBuilder } from './result-builder.ts';
import { SequenceSlot } from './sequence-slot.ts';

export interface KvOptions {
  readonly dtype: KvDtype;
  readonly blockSize: number;
}

export function createReferenceDevice(
  model: LoadedModel,
  checkpoint: Checkpoint,
  kv: KvOptions,
  limits: DeviceLimits,
): ReferenceDevice {
  const weights = new Map<string, Float32Array>();
  for (const spec of model.weights.values()) weights.set(spec.name, readWeight(checkpoint, spec));
  return new ReferenceDevice(model, weights, kv, limits);
}

export class ReferenceDevice implements Device {
  readonly info: DeviceInfo;
  readonly kv: KvLayout;
  readonly #limits: DeviceLimits;
  readonly #vocabSize: number;
  readonly #runner: ProgramRunner;
  readonly #slots: Array<SequenceSlot | null>;
  readonly #results: ResultBuilder;
  #cache: ReferenceKvCache | null = null;

  constructor(
    model: Pick<LoadedModel, 'program'>,
    weights: ReadonlyMap<string, Float32Array>,
    kv: KvOptions,
    limits: DeviceLimits,
  ) {
    const { program } = model;
    this.kv = kvLayout(program, kv.dtype, kv.blockSize);
    this.#limits = limits;
    this.#vocabSize = program.vocabSize;
    this.#runner = new ProgramRunner(program, weights, this.kv);
    this.#slots = new Array<SequenceSlot | null>(limits.maxSeqs).fill(null);
    this.#results = new ResultBuilder(limits, program.vocabSize);
    const weightBytes = [...weights.values()].reduce((sum, data) => sum + data.byteLength, 0);
    this.info = { name: 'reference', isa: 'typescript', numThreads: 1, computeDtype: 'f32', weightBytes };
  }

  allocateKvCache(numBlocks: number): void {
    this.#cache = new ReferenceKvCache(this.kv, numBlocks);
  }

  addSequence(init: SequenceInit): void {
    if (!(init.slot in this.#slots))
      throw new PagodaError('internal', `Slot ${init.slot} is outside [0, ${this.#slots.length}).`);
    if (this.#slots[init.slot]) throw new PagodaError('internal', `Slot ${init.slot} is taken.`);
    this.#slots[init.slot] = new SequenceSlot(init);
  }

  removeSequence(slot: number): void {
    if (!this.#slots[slot]) throw new PagodaError('internal', `Slot ${slot} is empty.`);
    this.#slots[slot] = null;
  }

  async step(batch: ForwardBatch): Promise<StepResult> {
    // Work is done before the first await, so that steps, added and removed sequences keep the order of their calls.
    const result = this.#run(batch);
    // Let the process do other things between steps: this device never gives the thread away by itself.
    await setImmediate();
    return result;
  }

  async logits(tokenIds: ArrayLike<number>): Promise<Float32Array> {
    const numTokens = tokenIds.length;
    const { blockSize, groups } = this.kv;
    const tableLength = Math.ceil(numTokens / blockSize);
    const cache = new ReferenceKvCache(this.kv, 1 + tableLength * groups.length);
    const positions = Int32Array.from({ length: numTokens }, (_, i) => i);
    const places: TokenPlaces = {
      positions,
      blockSize,
      blockOf: (_, group, position) => 1 + group * tableLength + Math.floor(position / blockSize),
    };
    const ids = Int32Array.from(tokenIds);
    this.#checkTokens(ids);
    return this.#runner.run({ tokenIds: ids, places, logitTokens: positions, cache }).logits.data;
  }

  async dispose(): Promise<void> {
    this.#cache = null;
    this.#slots.fill(null);
  }

  #run(batch: ForwardBatch): StepResult {
    const start = performance.now();
    const cache = this.#cache;
    if (!cache) throw new PagodaError('internal', 'allocateKvCache must be called before the first step.');
    this.#checkBatch(batch, cache);
    const { tokenIds, seqOfToken, positions } = this.#tokens(batch);
    const rows = logitRows(batch, tokenIds);
    const numGroups = this.kv.groups.length;
    const places: TokenPlaces = {
      positions,
      blockSize: this.kv.blockSize,
      blockOf: (token, group, position) => {
        const table = batch.blockTableStart[seqOfToken[token] * numGroups + group];
        return batch.blockTables[table + Math.floor(position / this.kv.blockSize)];
      },
    };
    const logitTokens = Int32Array.from(rows, (row) => row.token);
    const { logits, linearSeconds, attentionSeconds } = this.#runner.run({ tokenIds, places, logitTokens, cache });
    const samplingStart = performance.now();
    const slots = Array.from({ length: batch.numSeqs }, (_, seq) => this.#slot(batch.slot[seq]));
    const numRows = Array.from(slots, (_, seq) => Math.max(1, batch.samples[seq]));
    const result = this.#results.build(rows, logits.data, { slots, numRows });
    const end = performance.now();
    const totalSeconds = (end - start) / 1000;
    const samplingSeconds = (end - samplingStart) / 1000;
    return {
      ...result,
      timing: {
        totalSeconds,
        attentionSeconds,
        linearSeconds,
        samplingSeconds,
        rowsSeconds: Math.max(0, totalSeconds - attentionSeconds - linearSeconds - samplingSeconds),
        serialSeconds: 0,
      },
    };
  }

  #slot(index: number): SequenceSlot {
    const slot = this.#slots[index];
    if (!slot) throw new PagodaError('internal', `Slot ${index} holds no sequence.`);
    return slot;
  }

  /** Ids with -1 replaced by what the sequence sampled last, and where each token stands. */
  #tokens(batch: ForwardBatch): { tokenIds: Int32Array; seqOfToken: Int32Array; positions: Int32Array } {
    const tokenIds = batch.tokenIds.slice(0, batch.numTokens);
    const seqOfToken = new Int32Array(batch.numTokens);
    const positions = new Int32Array(batch.numTokens);
    for (let seq = 0; seq < batch.numSeqs; seq++) {
      for (let t = batch.tokenStart[seq]; t < batch.tokenStart[seq + 1]; t++) {
        seqOfToken[t] = seq;
        positions[t] = batch.numComputed[seq] + t - batch.tokenStart[seq];
        if (tokenIds[t] === -1) tokenIds[t] = this.#slot(batch.slot[seq]).lastToken;
      }
    }
    this.#checkTokens(tokenIds);
    return { tokenIds, seqOfToken, positions };
  }

  #checkTokens(tokenIds: Int32Array): void {
    for (const id of tokenIds)
      if (id < 0 || id >= this.#vocabSize)
        throw new PagodaError('internal', `Token id ${id} is outside [0, ${this.#vocabSize}).`);
  }

  /** A batch with impossible numbers is a fault of the engine, found here instead of as garbage. */
  #checkBatch(batch: ForwardBatch, cache: ReferenceKvCache): void {
    const { numSeqs, numTokens, tokenStart } = batch;
    const { maxSeqs, maxTokens, maxModelLen } = this.#limits;
    if (numSeqs > maxSeqs || numTokens > maxTokens) {
      throw new PagodaError(
        'internal',
        `A step of ${numSeqs} sequences and ${numTokens} tokens exceeds the limits ${maxSeqs} and ${maxTokens}.`,
      );
    }
    if (tokenStart[0] !== 0 || tokenStart[numSeqs] !== numTokens)
      throw new PagodaError('internal', 'tokenStart does not cover the tokens of the step.');
    const numGroups = this.kv.groups.length;
    for (let seq = 0; seq < numSeqs; seq++) {
      const length = batch.numComputed[seq] + tokenStart[seq + 1] - tokenStart[seq];
      if (tokenStart[seq + 1] <= tokenStart[seq])
        throw new PagodaError('internal', `Sequence ${seq} of the step has no tokens.`);
      if (batch.samples[seq] > tokenStart[seq + 1] - tokenStart[seq])
        throw new PagodaError('internal', `Sequence ${seq} of the step samples from more rows than it has.`);
      if (batch.numComputed[seq] < 0 || length > maxModelLen)
        throw new PagodaError('internal', `A sequence of ${length} tokens exceeds max-model-len ${maxModelLen}.`);
      this.#slot(batch.slot[seq]);
      for (let group = 0; group < numGroups; group++) this.#checkTable(batch, cache, { seq, group, length });
    }
  }

  #checkTable(
    batch: ForwardBatch,
    cache: ReferenceKvCache,
    { seq, group, length }: { seq: number; group: number; length: number },
  ): void {
    const numGroups = this.kv.groups.length;
    const { blockSize, groups } = this.kv;
    const start = batch.blockTableStart[seq * numGroups + group];
    const entries = batch.blockTableStart[seq * numGroups + group + 1] - start;
    if (entries * blockSize < length)
      throw new PagodaError('internal', `A block table of ${entries} blocks is too short for ${length} tokens.`);
    const { window } = groups[group];
    // The oldest position that any token of this step still sees.
    const oldest = window > 0 ? Math.max(0, batch.numComputed[seq] - window + 1) : 0;
    for (let entry = Math.floor(oldest / blockSize); entry * blockSize < length; entry++) {
      const block = batch.blockTables[start + entry];
      if (!(block > 0 && block < cache.numBlocks))
        throw new PagodaError('internal', `Block ${block} is outside [1, ${cache.numBlocks}).`);
    }
  }
}

/** Rows of the step that need logits: in order of tokens. */
function logitRows(batch: ForwardBatch, tokenIds: Int32Array): LogitRow[] {
  const rows: LogitRow[] = [];
  for (let seq = 0; seq < batch.numSeqs; seq++) {
    const wanted = batch.logitRows[seq];
    if (wanted === LogitRows.none) continue;
    const end = batch.tokenStart[seq + 1];
    const firstSampled = end - batch.samples[seq];
    for (let token = wanted === LogitRows.all ? batch.tokenStart[seq] : firstSampled; token < end; token++) {
      const position = batch.numComputed[seq] + token - batch.tokenStart[seq];
      rows.push({
        seq,
        token,
        position,
        samples: token >= firstSampled,
        draft: token + 1 < end ? tokenIds[token + 1] : -1,
        reports: wanted === LogitRows.all,
      });
    }
  }
  return rows;
}
