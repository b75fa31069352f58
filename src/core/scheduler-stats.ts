// What the scheduler counts.

import type { SpeculationCounts } from './speculation.ts';

/** Counts; the `total` ones only grow, so that the difference of two readings says what happened in between. */
export interface SchedulerStats {
  readonly numRunning: number;
  readonly numWaiting: number;
  /** Usable blocks (without the null block), those held by sequences, and free ones whose content can still be found. */
  readonly numBlocks: number;
  readonly numBlocksUsed: number;
  readonly numBlocksCached: number;
  /** Token slots in held blocks that hold no token, as a share of all slots in held blocks. */
  readonly kvWaste: number;
  /** Tokens looked up in the prefix cache at admissions, and tokens found there. */
  readonly totalPrefixQueryTokens: number;
  readonly totalPrefixHitTokens: number;
  /** Tokens scheduled that had been computed before and were lost to a preemption. */
  readonly totalRecomputedTokens: number;
  readonly totalPreemptions: number;
  /** null = off. */
  readonly speculation: SpeculationCounts | null;
}
