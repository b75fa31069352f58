// One step's work as flat typed arrays, filled in place every step: capacity is fixed at start, nothing is allocated per step.
// S sequences, T tokens, G block tables per sequence (one per KV group, see kv-layout.ts).

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
  /** [S] LogitRows: `last` samples from the last row; `all` also reports prompt logprobs for the rows; `none` fills the cache only. */
  readonly logitRows: Uint8Array;
  /** [S] 1 = sample a token from the last row. */
  readonly samples: Uint8Array;
  /** Block ids. Table g of sequence s starts at blockTableStart[s * G + g]; entry j covers positions [j * blockSize, (j + 1) * blockSize). Entries before a window may be 0, the null block. */
  readonly blockTables: Int32Array;
  /** [S * G + 1] */
  readonly blockTableStart: Int32Array;
}

/** Results of one step; arrays belong to the device and are valid until the step after next is started. */
export interface StepResult {
  /** [S] sampled token, -1 where the sequence did not sample. */
  readonly sampledTokens: Int32Array;
  /** [S] logprob of the sampled token in the raw distribution; only where logprobs were asked for. */
  readonly sampledLogprobs: Float32Array;
  /** [S] rank of the sampled token, 1 = best; only where logprobs were asked for. */
  readonly sampledRanks: Int32Array;
  /** Best alternatives of the sampled rows, best first: those of sequence s are [topStart[s], topStart[s + 1]). */
  readonly topStart: Int32Array;
  readonly topTokens: Int32Array;
  readonly topLogprobs: Float32Array;
  /** [S] 1 = NaN or infinity in this sequence's logits: the sequence must end in an error. */
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
