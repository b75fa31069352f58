// What one engine step did, as plain data: the server's metrics and log lines, the bench and the dashboard all read this.

export interface PreemptionRecord {
  readonly requestId: string;
  /** Why: the pool had no free block for `neededBy`. */
  readonly neededBy: string;
  readonly numBlocksFreed: number;
  readonly numTokensToRecompute: number;
}

export interface SpeculationRecord {
  /** Sequences that had drafts, and how many draft tokens those were. */
  readonly numDrafts: number;
  readonly numDraftTokens: number;
  readonly numAcceptedTokens: number;
  /** [num_speculative_tokens] how many of the accepted ones stood at each position of their draft. */
  readonly numAcceptedAt: readonly number[];
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
  /** What drafts came to in this step; null without speculation. */
  readonly speculation: SpeculationRecord | null;
  /** Usable blocks (without the null block), those held by sequences, and evictable cached ones. */
  readonly numBlocks: number;
  readonly numBlocksUsed: number;
  readonly numBlocksCached: number;
  /** Token slots in held blocks that hold no token, as a share of all slots in held blocks: the KV waste of promise P4. */
  readonly kvWaste: number;
  /**
   * Seconds from the result before (or from the launch, where the device had nothing to do) until JavaScript had this result, and
   * where the rest of a turn went. While the device runs a step, JavaScript updates and delivers the one before and schedules, fills
   * and launches the one after, which queues behind it. What the device does not hide of that shows in the handover.
   */
  readonly stepSeconds: number;
  /** What the scheduler decided, and the batch's arrays. */
  readonly scheduleSeconds: number;
  readonly fillSeconds: number;
  /** Slots changed hands and the step was submitted. */
  readonly launchSeconds: number;
  /** Of stepSeconds, what the device did not work: on the way to its threads and back. Right in the sum of steps: see Handover. */
  readonly handoverSeconds: number;
  readonly deviceSeconds: number;
  /** Of deviceSeconds. The rest is the time to wake the threads. */
  readonly attentionSeconds: number;
  readonly linearSeconds: number;
  readonly rowsSeconds: number;
  readonly samplingSeconds: number;
  /** One thread worked and the others waited. */
  readonly serialSeconds: number;
  /** The scheduler learned what was sampled, and events were made. */
  readonly updateSeconds: number;
  /** Events and record of the step before this one were given out (in `pagoda serve`: sent to the front). */
  readonly deliverySeconds: number;
}
