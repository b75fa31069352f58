// A device executes a model's program one step at a time. Two implementations: reference (plain TypeScript, the
// specification) and cpu (one Node-API addon). Both pass test/conformance.

import type { SamplingParams } from '../core/sampling-params.ts';
import type { ForwardBatch, StepResult } from './forward-batch.ts';
import type { KvLayout } from './kv-layout.ts';

export interface DeviceInfo {
  /** `reference` or `cpu`. */
  readonly name: string;
  /** amx | avx512 | avx2 | portable for cpu; `typescript` for reference. */
  readonly isa: string;
  readonly numThreads: number;
  /** int8 = quantized weights are multiplied with int8 activations; f32 = all arithmetic in float32. */
  readonly computeDtype: 'int8' | 'f32';
  /** Bytes the packed weights take in memory. */
  readonly weightBytes: number;
}

/** What the device must know about a sequence to sample for it. Preemption is completion: a resumed sequence is added anew. */
export interface SequenceInit {
  readonly slot: number;
  /** All tokens known now: prompt and, after a preemption, the outputs so far. */
  readonly tokenIds: ArrayLike<number>;
  /** How many of them are prompt (penalties tell prompt from output; the random stream is indexed by output position). */
  readonly numPromptTokens: number;
  readonly sampling: SamplingParams;
}

export interface Device {
  readonly info: DeviceInfo;
  readonly kv: KvLayout;
  /** Reserves the KV pool; block 0 is the null block. Called once, before the first step. */
  allocateKvCache(numBlocks: number): void;
  addSequence(init: SequenceInit): void;
  removeSequence(slot: number): void;
  /**
   * Runs one step. Steps are executed in the order of the calls, two at most are under way, and slots change between the steps
   * called before and after; the batch may be refilled when the promise settles.
   */
  step(batch: ForwardBatch): Promise<StepResult>;
  /** For checks and tests: logits [T, vocabulary] of a whole prompt run from an empty cache, outside any sequence. */
  logits(tokenIds: ArrayLike<number>): Promise<Float32Array>;
  dispose(): Promise<void>;
}

/** What every device needs at creation. */
export interface DeviceLimits {
  /** Most tokens in one step (max-num-batched-tokens). */
  readonly maxTokens: number;
  /** Most sequences in one step (max-num-seqs); slots are [0, maxSeqs). */
  readonly maxSeqs: number;
  readonly maxModelLen: number;
}
