// The native addon, described whole: every function and every plain object that crosses into native/binding.cc. Numbers are
// checked again on the other side. Nothing else in src/ loads build/pagoda.node.

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { TensorType } from '../../checkpoint/checkpoint.ts';
import type { Activation } from '../../model/program.ts';
import type { KvDtype } from '../kv-layout.ts';

declare const handleBrand: unique symbol;
/** One native device: threads, weights, plan, KV pool. */
export interface DeviceHandle {
  readonly [handleBrand]: true;
}

/** Numbers of `enum class Format` (native/ops/kernels.h). */
export const FORMATS: Readonly<Record<TensorType, number>> = {
  F32: 0,
  F16: 1,
  BF16: 2,
  Q8_0: 3,
  Q4_0: 4,
  Q4_1: 5,
  Q5_0: 6,
  Q5_1: 7,
  Q2_K: 8,
  Q3_K: 9,
  Q4_K: 10,
  Q5_K: 11,
  Q6_K: 12,
  IQ4_NL: 13,
  IQ4_XS: 14,
  MXFP4: 15,
};

/** In which form a product takes its activations; the order is that of `enum class RowForm` (native/ops/kernels.h). */
export const ROW_FORMS = ['float', 'int8', 'bf16'] as const;
export type RowForm = (typeof ROW_FORMS)[number];

/** Numbers of `enum class KvType`. */
export const KV_TYPES: Readonly<Record<KvDtype, number>> = { f32: 0, f16: 1, bf16: 2, int8: 3 };

/** Numbers of `enum class ActivationKind`. */
export const ACTIVATIONS: Readonly<Record<Activation, number>> = { silu: 0, gelu: 1, geluTanh: 2, relu: 3 };

/** The order is that of `enum class OpKind` (native/runtime/plan.h). */
export const OP_KINDS = [
  'embed',
  'addPosition',
  'rmsNorm',
  'layerNorm',
  'quantize',
  'rope',
  'kvWrite',
  'gatedActivation',
  'activation',
  'add',
  'selectRows',
  'rescore',
  'softcap',
  'linear',
  'attention',
  'moe',
  'sample',
] as const;
export type NativeOpKind = (typeof OP_KINDS)[number];

export interface NativeWeightPiece {
  readonly file: string;
  readonly offset: number;
  readonly rowBytes: number;
  readonly numRows: number;
}

/** Weights are numbered in the order of loading. Either `pieces` or `values` (F32) holds the content. */
export interface NativeWeight {
  readonly name: string;
  readonly rows: number;
  readonly cols: number;
  /** Experts: the rows are cut into so many equal matrices. */
  readonly numParts: number;
  readonly isVector: boolean;
  readonly format: number;
  readonly pieces?: readonly NativeWeightPiece[];
  readonly values?: Float32Array;
}

export interface NativeMoe {
  readonly router: number;
  readonly gate: number;
  readonly up: number;
  readonly down: number;
  readonly numExperts: number;
  readonly topK: number;
  readonly expertCols: number;
  readonly renormalise: boolean;
  readonly sharedGate?: number;
  readonly sharedUp?: number;
  readonly sharedDown?: number;
  readonly sharedCols?: number;
  readonly sharedGateWeight?: number;
}

/** `struct Op`: a superset of what the kinds need. Buffers, weights and tables are indexes. */
export interface NativeOp {
  readonly kind: number;
  /** Ops of one phase run without a barrier between them. */
  readonly phase: number;
  readonly in?: number;
  readonly in2?: number;
  readonly out?: number;
  readonly q?: number;
  readonly weight?: number;
  readonly bias?: number;
  readonly cols?: number;
  readonly groupCols?: number;
  readonly numHeads?: number;
  readonly headDim?: number;
  readonly rotaryDim?: number;
  readonly table?: number;
  readonly layer?: number;
  readonly offset?: number;
  readonly interleaved?: boolean;
  readonly accumulate?: boolean;
  readonly activation?: number;
  readonly scale?: number;
  readonly eps?: number;
  readonly cap?: number;
  readonly moe?: NativeMoe;
}

export interface NativeBuffer {
  readonly perLogitRow: boolean;
  /** Index in ROW_FORMS. */
  readonly form: number;
  readonly cols: number;
}

export interface NativePlan {
  readonly limits: {
    readonly maxTokens: number;
    readonly maxSeqs: number;
    readonly maxModelLen: number;
    readonly logitRows: number;
  };
  readonly kv: {
    readonly numKvHeads: number;
    readonly headDim: number;
    readonly blockSize: number;
    readonly layersPerGroup: number;
    readonly type: number;
    readonly windows: Int32Array;
    readonly layerGroup: Int32Array;
    readonly layerIndex: Int32Array;
  };
  readonly vocabSize: number;
  /** Products take their activations in the form of fewer bits that the weight's format allows. */
  readonly int8: boolean;
  readonly buffers: readonly NativeBuffer[];
  readonly tables: ReadonlyArray<{ readonly inverseFrequencies: Float64Array; readonly magnitude: number }>;
  readonly ops: readonly NativeOp[];
}

export interface NativeSequence {
  readonly slot: number;
  readonly tokenIds: Int32Array;
  readonly numPromptTokens: number;
  readonly sampling: {
    readonly temperature: number;
    readonly topK: number;
    readonly topP: number;
    readonly minP: number;
    readonly repetitionPenalty: number;
    readonly presencePenalty: number;
    readonly frequencyPenalty: number;
    readonly minTokens: number;
    readonly seed: bigint;
    /** -2 = none, -1 = the whole vocabulary. */
    readonly numLogprobs: number;
    readonly numPromptLogprobs: number;
    readonly biasIds: Int32Array;
    readonly biasValues: Float64Array;
    readonly allowedIds: Int32Array | null;
    /** Word i is badWords[badWordStarts[i] .. badWordStarts[i + 1]). */
    readonly badWords: Int32Array;
    readonly badWordStarts: Int32Array;
    readonly endTokens: Int32Array;
  };
}

export interface Addon {
  /**
   * `isas`: instruction sets that were compiled in and that this CPU runs, fastest first. `bf16AttentionIsas`: those of them whose attention
   * multiplies pairs of bf16 where the KV cache is bf16.
   */
  info(): { readonly isas: readonly string[]; readonly bf16AttentionIsas: readonly string[] };
  /** Thread i may use the CPUs cpus[cpuStarts[i] .. cpuStarts[i + 1]); without them the threads are not bound. */
  create(options: {
    readonly isa: string;
    readonly numThreads: number;
    readonly cpus?: Int32Array;
    readonly cpuStarts?: Int32Array;
  }): DeviceHandle;
  /** `rowForms`: for each of FORMATS the form of activations, as an index in ROW_FORMS, where float32 is not asked for. */
  deviceInfo(handle: DeviceHandle): {
    readonly isa: string;
    readonly numThreads: number;
    readonly weightBytes: number;
    readonly rowForms: readonly number[];
  };
  /** Equal for two devices exactly when one can use what the other has packed. */
  packedLayout(handle: DeviceHandle): string;
  /** Bytes that a matrix takes when packed. */
  packedBytes(
    handle: DeviceHandle,
    shape: { readonly format: number; readonly rows: number; readonly cols: number; readonly numParts: number },
  ): number;
  /** Header of a file of packed weights. Throws the reason why it has none that can be trusted. */
  readPackedHeader(options: { readonly path: string }): string;
  /** Before the first weight: the matrices that come from files are taken from the cache, in the order of loading. Rejects with the reason. */
  usePackedCache(handle: DeviceHandle, options: { readonly path: string; readonly header: string }): Promise<void>;
  /** After setPlan, once: runs beside the steps. */
  writePackedCache(
    handle: DeviceHandle,
    options: { readonly path: string; readonly header: string; readonly maxBytes: number },
  ): Promise<'written' | 'busy' | 'cancelled' | 'too_large'>;
  /** Bytes allocated on the process's heap now (mallinfo2); -1 where the C library does not tell. */
  heapBytes(): number;
  loadWeight(handle: DeviceHandle, weight: NativeWeight): Promise<void>;
  /** After the last weight: checks the plan and allocates what it needs but the KV pool. */
  setPlan(handle: DeviceHandle, plan: NativePlan): Promise<void>;
  allocateKv(handle: DeviceHandle, options: { readonly numBlocks: number }): void;
  /** These two take effect between the steps submitted before and after them. */
  addSequence(handle: DeviceHandle, sequence: NativeSequence): void;
  removeSequence(handle: DeviceHandle, options: { readonly slot: number }): void;
  /** Copies the batch before it returns. `stepSlot` is 0 or 1 and must be free. What every step passes is not looked up by name. */
  submitStep(
    handle: DeviceHandle,
    stepSlot: number,
    numSeqs: number,
    numTokens: number,
    tokenIds: Int32Array,
    tokenStart: Int32Array,
    numComputed: Int32Array,
    slot: Int32Array,
    logitRows: Uint8Array,
    samples: Uint8Array,
    blockTableStart: Int32Array,
    blockTables: Int32Array,
  ): Promise<void>;
  /**
   * The finished step of a slot. counts = [top entries, prompt rows, prompt top entries, then total, attention, linear, sampling, rows,
   * serial seconds]. False when the arrays of alternatives or of prompt rows are too short for that: then nothing but `counts` is filled.
   * `promptFields`, per row: seq, position, token, rank, number of alternatives.
   */
  readStep(
    handle: DeviceHandle,
    stepSlot: number,
    counts: Float64Array,
    sampledTokens: Int32Array,
    sampledLogprobs: Float32Array,
    sampledRanks: Int32Array,
    faults: Uint8Array,
    topStart: Int32Array,
    topTokens: Int32Array,
    topLogprobs: Float32Array,
    promptFields: Int32Array,
    promptLogprobs: Float32Array,
    promptTopTokens: Int32Array,
    promptTopLogprobs: Float32Array,
  ): boolean;
  logits(handle: DeviceHandle, options: { readonly tokenIds: Int32Array }): Promise<Float32Array>;
  /** Waits for what was submitted, then frees everything; the handle is dead from the call on. */
  dispose(handle: DeviceHandle): Promise<void>;
}

export interface AddonState {
  readonly addon: Addon | null;
  /** Why there is none. */
  readonly reason: string | null;
}

let state: AddonState | null = null;

/** Loads build/pagoda.node of this package, once. */
export function loadAddon(): AddonState {
  state ??= tryLoad();
  return state;
}

function tryLoad(): AddonState {
  const path = findAddon();
  if (!path) {
    return {
      addon: null,
      reason: 'build/pagoda.node was not built',
    };
  }
  try {
    return { addon: createRequire(import.meta.url)(path) as Addon, reason: null };
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { addon: null, reason: `the native kernels in ${path} cannot be loaded: ${text}` };
  }
}

/** The package's root is the nearest folder above this file that has a package.json, both from src/ and from dist/. */
function findAddon(): string | null {
  let folder = import.meta.dirname;
  while (!existsSync(join(folder, 'package.json'))) {
    if (dirname(folder) === folder) return null;
    folder = dirname(folder);
  }
  const path = join(folder, 'build', 'pagoda.node');
  return existsSync(path) ? path : null;
}
