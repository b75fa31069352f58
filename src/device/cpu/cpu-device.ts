// The device that runs on native threads: one asynchronous native call per step. JavaScript prepares batches and reads results;
// it never computes. Two steps may be in flight; further ones wait for their turn in order.

import { availableParallelism } from 'node:os';
import type { Checkpoint } from '../../checkpoint/checkpoint.ts';
import type { SamplingParams } from '../../core/sampling-params.ts';
import { PagodaError } from '../../errors.ts';
import type { LoadedModel } from '../../model/load-model.ts';
import type { Device, DeviceInfo, DeviceLimits, SequenceInit } from '../device.ts';
import type { ForwardBatch, StepResult } from '../forward-batch.ts';
import { type KvDtype, type KvLayout, kvLayout } from '../kv-layout.ts';
import { type Addon, type DeviceHandle, FORMATS, loadAddon, type NativeSequence, ROW_FORMS } from './addon.ts';
import { type LoadProgress, loadWeights } from './load-weights.ts';
import { lower } from './lower.ts';
import { PackedCache, type PackedCacheOptions } from './packed-cache.ts';
import { planWeights } from './plan-weights.ts';
import { StepResults } from './step-results.ts';
import { readTopology, type ThreadsBind, threadCpus, threadsOfBind } from './thread-cpus.ts';

/**
 * `--kv-cache-dtype auto` on this device: bf16 where attention multiplies pairs of bf16 twice as fast as float32 (decision 8), else f16, whose
 * values beyond 65504 are clamped. With float32 arithmetic attention never rounds queries and weights: f16.
 */
export function cpuAutoKvDtype(options: Pick<CpuDeviceOptions, 'isa' | 'computeDtype'>): KvDtype {
  const { addon } = loadAddon();
  if (addon === null || options.computeDtype === 'f32') return 'f16';
  const { isas, bf16AttentionIsas } = addon.info();
  const wanted = wantedIsa(options);
  return bf16AttentionIsas.includes(wanted === 'auto' ? (isas[0] ?? '') : wanted) ? 'bf16' : 'f16';
}

function wantedIsa({ isa }: Pick<CpuDeviceOptions, 'isa'>): string {
  return isa ?? (process.env.PAGODA_CPU_ISA || 'auto');
}

export interface CpuDeviceOptions {
  /** amx | avx512 | avx2 | portable | auto; PAGODA_CPU_ISA when absent, else auto. */
  readonly isa?: string;
  /** Default: all cores this process may use. */
  readonly numThreads?: number;
  /** int8: quantized weights are multiplied with int8 activations, BF16 weights with bf16 ones where the CPU is fast at that; f32: everything in float32. Default int8. */
  readonly computeDtype?: 'int8' | 'f32';
  /** Default auto; see thread-cpus.ts. */
  readonly threadsBind?: ThreadsBind;
  /** Where packed weights are kept; absent = nowhere. */
  readonly packedCache?: PackedCacheOptions;
  readonly onProgress?: LoadProgress;
}

export function isCpuDeviceAvailable(): { available: boolean; reason: string | null } {
  const { addon, reason } = loadAddon();
  return { available: addon !== null, reason };
}

/** Instruction sets the device can be forced to here, fastest first; empty without native kernels. */
export function cpuIsas(): readonly string[] {
  return loadAddon().addon?.info().isas ?? [];
}

/** Bytes allocated on this process's native heap now; -1 where the C library does not tell. */
export function heapBytes(): number {
  return loadAddon().addon?.heapBytes() ?? -1;
}

export async function createCpuDevice(
  model: LoadedModel,
  checkpoint: Checkpoint,
  kvOptions: { readonly dtype: KvDtype; readonly blockSize: number },
  limits: DeviceLimits,
  options: CpuDeviceOptions = {},
): Promise<Device> {
  const { addon, reason } = loadAddon();
  if (!addon) throw new PagodaError('unsupported', `The cpu device is not available: ${reason}.`);
  const kv = kvLayout(model.program, kvOptions.dtype, kvOptions.blockSize);
  const computeDtype = options.computeDtype ?? 'int8';
  const handle = createHandle(addon, options);
  try {
    const planned = planWeights(model, checkpoint);
    const { packedCache } = options;
    const cache = packedCache ? PackedCache.open({ addon, handle }, checkpoint, planned, packedCache) : null;
    await cache?.load();
    const weights = await loadWeights({ addon, handle }, planned, checkpoint, options.onProgress);
    const int8 = computeDtype === 'int8';
    const { rowForms } = addon.deviceInfo(handle);
    const rowForm = (name: string) => (int8 ? ROW_FORMS[rowForms[FORMATS[weights.formatOf(name)]]!]! : 'float');
    await addon.setPlan(
      handle,
      lower({ program: model.program, kv, limits, weightIndex: weights.indexOf, rowForm, int8 }),
    );
    return new CpuDevice({ addon, handle, kv, limits, computeDtype, cache });
  } catch (error) {
    await addon.dispose(handle);
    throw loadError(error, checkpoint);
  }
}

function createHandle(addon: Addon, options: CpuDeviceOptions): DeviceHandle {
  const isa = wantedIsa(options);
  const threadsBind = options.threadsBind ?? 'auto';
  const numThreads = options.numThreads ?? threadsOfBind(threadsBind) ?? availableParallelism();
  const places = nativePlaces(threadsBind, numThreads);
  try {
    return addon.create({ isa, numThreads, ...places });
  } catch (error) {
    throw new PagodaError('bad_config', `The cpu device cannot start: ${text(error)}.`, {
      param: options.isa ? 'isa' : 'PAGODA_CPU_ISA',
      cause: error,
    });
  }
}

function nativePlaces(
  threadsBind: ThreadsBind,
  numThreads: number,
): { readonly cpus?: Int32Array; readonly cpuStarts?: Int32Array } {
  try {
    const lists = threadCpus(threadsBind, numThreads, readTopology());
    if (lists === null) return {};
    const starts = [0];
    for (const list of lists) starts.push(starts.at(-1)! + list.length);
    return { cpus: Int32Array.from(lists.flat()), cpuStarts: Int32Array.from(starts) };
  } catch (error) {
    throw new PagodaError('bad_config', `--cpu-threads-bind ${text(error)}.`, {
      param: '--cpu-threads-bind',
      cause: error,
    });
  }
}

class CpuDevice implements Device {
  readonly info: DeviceInfo;
  readonly kv: KvLayout;
  readonly #addon: Addon;
  readonly #handle: DeviceHandle;
  readonly #results: StepResults;
  readonly #cache: PackedCache | null;
  /** What was submitted last to each of the two native step slots, while it is not finished. */
  readonly #busy: [Promise<unknown> | null, Promise<unknown> | null] = [null, null];
  #numSteps = 0;
  #disposed: Promise<void> | null = null;

  constructor({ addon, handle, kv, limits, computeDtype, cache }: Parts) {
    this.#cache = cache;
    this.#addon = addon;
    this.#handle = handle;
    this.kv = kv;
    this.#results = new StepResults(addon, handle, limits);
    this.info = { name: 'cpu', computeDtype, ...addon.deviceInfo(handle) };
  }

  allocateKvCache(numBlocks: number): void {
    try {
      this.#addon.allocateKv(this.#handle, { numBlocks });
    } catch (error) {
      const bytes = numBlocks * this.kv.blockBytes;
      throw new PagodaError(
        'out_of_memory',
        `A KV pool of ${numBlocks} blocks (${bytes} bytes) cannot be reserved: ${text(error)}.`,
        { cause: error },
      );
    }
    // The last thing before steps can come.
    this.#cache?.startWriting();
  }

  addSequence(init: SequenceInit): void {
    checked(() => this.#addon.addSequence(this.#handle, nativeSequence(init)));
  }

  removeSequence(slot: number): void {
    checked(() => this.#addon.removeSequence(this.#handle, { slot }));
  }

  step(batch: ForwardBatch): Promise<StepResult> {
    const stepSlot = this.#numSteps++ % 2;
    const before = this.#busy[stepSlot];
    const result = this.#finish(
      stepSlot,
      before ? before.then(() => this.#submit(stepSlot, batch)) : this.#submit(stepSlot, batch),
    );
    this.#busy[stepSlot] = result.catch(() => {});
    return result;
  }

  #submit(stepSlot: number, batch: ForwardBatch): Promise<void> {
    const { numSeqs, numTokens, tokenIds, tokenStart, numComputed, slot, logitRows, samples } = batch;
    const { blockTableStart, blockTables } = batch;
    try {
      return this.#addon.submitStep(
        this.#handle,
        stepSlot,
        numSeqs,
        numTokens,
        tokenIds,
        tokenStart,
        numComputed,
        slot,
        logitRows,
        samples,
        blockTableStart,
        blockTables,
      );
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async #finish(stepSlot: number, submitted: Promise<void>): Promise<StepResult> {
    const turn = this.#numSteps;
    try {
      await submitted;
      return this.#results.read(stepSlot);
    } catch (error) {
      throw deviceError(error);
    } finally {
      // Nobody queued behind this step: the slot is free at once.
      if (this.#numSteps < turn + 2) this.#busy[stepSlot] = null;
    }
  }

  async logits(tokenIds: ArrayLike<number>): Promise<Float32Array> {
    return attempt(() => this.#addon.logits(this.#handle, { tokenIds: Int32Array.from(tokenIds) })).catch((error) => {
      throw deviceError(error);
    });
  }

  dispose(): Promise<void> {
    this.#disposed ??= this.#dispose();
    return this.#disposed;
  }

  async #dispose(): Promise<void> {
    await this.#cache?.settle();
    await this.#addon.dispose(this.#handle);
  }
}

interface Parts {
  readonly addon: Addon;
  readonly handle: DeviceHandle;
  readonly kv: KvLayout;
  readonly limits: DeviceLimits;
  readonly computeDtype: 'int8' | 'f32';
  readonly cache: PackedCache | null;
}

function nativeSequence({ slot, tokenIds, numPromptTokens, sampling }: SequenceInit): NativeSequence {
  const words = sampling.badWords.filter((word) => word.length > 0);
  const starts = [0];
  for (const word of words) starts.push(starts.at(-1)! + word.length);
  return {
    slot,
    tokenIds: Int32Array.from(tokenIds),
    numPromptTokens,
    sampling: {
      temperature: sampling.temperature,
      topK: Math.max(0, sampling.topK),
      topP: sampling.topP,
      minP: sampling.minP,
      repetitionPenalty: sampling.repetitionPenalty,
      presencePenalty: sampling.presencePenalty,
      frequencyPenalty: sampling.frequencyPenalty,
      minTokens: sampling.minTokens,
      seed: BigInt.asUintN(64, sampling.seed),
      numLogprobs: numLogprobs(sampling.logprobs),
      numPromptLogprobs: numLogprobs(sampling.promptLogprobs),
      biasIds: Int32Array.from(sampling.logitBias, ([token]) => token),
      biasValues: Float64Array.from(sampling.logitBias, ([, bias]) => bias),
      allowedIds: sampling.allowedTokenIds ? Int32Array.from(sampling.allowedTokenIds) : null,
      badWords: Int32Array.from(words.flat()),
      badWordStarts: Int32Array.from(starts),
      endTokens: Int32Array.from([...sampling.eosTokenIds, ...sampling.stopTokenIds]),
    },
  };
}

function numLogprobs(count: SamplingParams['logprobs']): number {
  return count === null ? -2 : count;
}

function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A native error as one of ours: `invalid` = we called wrongly, `failed` = the device could not do it. */
function deviceError(error: unknown): PagodaError {
  if (error instanceof PagodaError) return error;
  const code = error instanceof Error && 'code' in error ? error.code : null;
  if (code === 'out_of_memory')
    return new PagodaError('out_of_memory', 'The cpu device ran out of memory.', { cause: error });
  return new PagodaError(code === 'failed' ? 'device_fault' : 'internal', `cpu device: ${text(error)}`, {
    cause: error,
  });
}

function loadError(error: unknown, checkpoint: Checkpoint): PagodaError {
  if (error instanceof PagodaError) return error;
  const known = deviceError(error);
  if (known.code !== 'device_fault') return known;
  return new PagodaError('bad_model_file', `${checkpoint.source} cannot be loaded: ${text(error)}`, { cause: error });
}

function checked<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw deviceError(error);
  }
}

/** Calls now; an exception becomes a rejection. */
async function attempt<T>(call: () => Promise<T>): Promise<T> {
  return call();
}
