// One way to serve one model: what is planned, simulated and proposed. Resolved from flags; every number is final.

import type { StepCost } from './step-cost.ts';

export interface SchedulerFlags {
  readonly maxNumSeqs: number;
  readonly maxNumBatchedTokens: number;
  /** Most prompt tokens of one sequence in one step; null = the step's budget. */
  readonly chunkedPrefillSize: number | null;
  readonly enableChunkedPrefill: boolean;
  readonly enablePrefixCaching: boolean;
  readonly blockSize: number;
  readonly maxModelLen: number;
  /** Share of the pool kept free at admission. */
  readonly watermark: number;
  readonly schedulingPolicy: 'fcfs' | 'priority';
  readonly kvAllocation: 'paged' | 'static';
}

export interface Deployment {
  /** As a person would call it: `llama-7b on 4 x a100-80gb, TP 4`. */
  readonly name: string;
  readonly flags: SchedulerFlags;
  /** Usable KV blocks per replica (without the null block). */
  readonly numBlocks: number;
  /** One per KV group of the model; 0 = full attention. */
  readonly groupWindows: readonly number[];
  readonly numReplicas: number;
  readonly cost: StepCost;
  /** The engine plans a step while the one before runs: who arrives meanwhile waits for both. False when absent. */
  readonly plansAhead?: boolean;
}
