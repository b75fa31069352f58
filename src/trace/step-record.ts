// What one engine step did, as plain data: the server's metrics and log lines, the bench and the dashboard all read this.

export interface PreemptionRecord {
  readonly requestId: string;
  /** Why: the pool had no free block for `neededBy`. */
  readonly neededBy: string;
  readonly numBlocksFreed: number;
  readonly numTokensToRecompute: number;
}

export interface StepRecord {
  readonly stepId: number;
  /** Seconds on the engine's clock when the step's result arrived. */
  readonly time: number;
  /** State after the step. */
  readonly numRunning: number;
  readonly numWaiting: number;
  /** Prompt tokens computed in the step (recomputed ones included), and tokens sampled. */
  readonly numPromptTokens: number;
  readonly numGeneratedTokens: number;
  /** Tokens in the step that had been computed before and were lost to a preemption. */
  readonly numRecomputedTokens: number;
  /** Prefix cache look-ups in this step, in tokens. */
  readonly numPrefixQueryTokens: number;
  readonly numPrefixHitTokens: number;
  readonly preemptions: readonly PreemptionRecord[];
  /** Usable blocks (without the null block), those held by sequences, and evictable cached ones. */
  readonly numBlocks: number;
  readonly numBlocksUsed: number;
  readonly numBlocksCached: number;
  /** Token slots in held blocks that hold no token, as a share of all slots in held blocks: the KV waste of promise P4. */
  readonly kvWaste: number;
  /** Seconds: whole step, and where it went. */
  readonly stepSeconds: number;
  readonly scheduleSeconds: number;
  readonly deviceSeconds: number;
  readonly attentionSeconds: number;
  readonly linearSeconds: number;
  readonly samplingSeconds: number;
  readonly updateSeconds: number;
}
