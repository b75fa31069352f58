// One step's work as flat typed arrays, filled in place every step: capacity is fixed at start, nothing is allocated per step.
// S sequences, T tokens, G block tables per sequence (one per KV group, see kv-layout.ts), R result rows.

/** What a sequence wants from the output layer. */
export const LogitRows = { none: 0, last: 1, all: 2 } as const;

export interface ForwardBatch {
  /** S */
  numSeqs: number;
  /** T */
  numTokens: number;
  /** [T] ids; -1 = the token this sequence sampled last (known to the device, perhaps not yet to JavaScript). */
  readonly tokenIds: Int32Array;
  /** [S + 1] tokens of sequence s are [tokenStart[s], tokenStart[s + 1]). */
  readonly tokenStart: Int32Array;
  /** [S] tokens already in the KV cache; position of token i of sequence s is numComputed[s] + i. */
  readonly numComputed: Int32Array;
  /** [S] the device's slot of the sequence (addSequence). */
  readonly slot: Int32Array;
  /** [S] LogitRows: `last` = the rows that are sampled from; `all` also reports prompt logprobs for the rows; `none` fills the cache only. */
  readonly logitRows: Uint8Array;
  /**
   * [S] how many of the sequence's last rows are sampled from, 0 to 255. With n > 1 its last n - 1 tokens are drafts, and the
   * rows are sampled in order, each as if the tokens before it were all there is, until a sample is not the next draft. What
   * the drafts after that one wrote into the cache is garbage that the next step overwrites.
   */
  readonly samples: Uint8Array;
  /** Block ids. Table g of sequence s starts at blockTableStart[s * G + g]; entry j covers positions [j * blockSize, (j + 1) * blockSize). Entries before a window may be 0, the null block. */
  readonly blockTables: Int32Array;
  /** [S * G + 1] */
  readonly blockTableStart: Int32Array;
}

/**
 * Results of one step; arrays belong to the device and are valid until the step after next is started. Each sequence has
 * max(1, samples) result rows, in the order of the batch: R in all. Without drafts row s belongs to sequence s.
 */
export interface StepResult {
  /** [R] sampled token, -1 where none was sampled. */
  readonly sampledTokens: Int32Array;
  /** [R] logprob of the sampled token in the raw distribution; only where logprobs were asked for. */
  readonly sampledLogprobs: Float32Array;
  /** [R] rank of the sampled token, 1 = best; only where logprobs were asked for. */
  readonly sampledRanks: Int32Array;
  /** [R + 1] best alternatives of the sampled rows, best first: those of row r are [topStart[r], topStart[r + 1]). */
  readonly topStart: Int32Array;
  readonly topTokens: Int32Array;
  readonly topLogprobs: Float32Array;
  /** [S] 1 = NaN or infinity in this sequence's logits: the sequence must end in an error, after what it sampled before. */
  readonly faults: Uint8Array;
  /** For sequences with promptLogprobs: one entry per row of this step that predicts a known next prompt token. */
  readonly promptLogprobs: readonly PromptRowLogprob[];
  /** Where the step's time went, seconds. */
  readonly timing: StepTiming;
}

export interface PromptRowLogprob {
  /** Index of the sequence in the batch. */
  readonly seq: number;
  /** Position of the predicted token (row position + 1). */
  readonly position: number;
  readonly tokenId: number;
  readonly logprob: number;
  readonly rank: number;
  readonly topTokens: readonly number[];
  readonly topLogprobs: readonly number[];
}

export interface StepTiming {
  readonly totalSeconds: number;
  readonly attentionSeconds: number;
  readonly linearSeconds: number;
  readonly samplingSeconds: number;
  /** Row by row: norms, rope, activations, KV writes. */
  readonly rowsSeconds: number;
  /** One thread works and the others wait. */
  readonly serialSeconds: number;
}
