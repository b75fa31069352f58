// One request on its way: its tokens, how far its KV has been computed, and the blocks it holds. All counts are "as scheduled":
// a plan that was made counts as done, because steps run strictly in the order of their plans.
// computedTokens <= numTokens + numPlaceholders always; drafts count nowhere before they are accepted. Only the scheduler and the KV manager write here; others read.

import { BlockHashes } from './block-hash.ts';
import type { GenerateRequest, RequestTiming } from './request.ts';

/** A preempted sequence is `waiting` again. */
export type SequenceStatus = 'waiting' | 'running' | 'finished';

/** Tokens reserved beyond the prompt at the start; the array doubles when they are used up. */
const INITIAL_OUTPUT_CAPACITY = 64;

export interface SequenceOptions {
  /** Position in the order of arrival, counted by the scheduler. */
  readonly order: number;
  /** The sequence ends when it has this many tokens (prompt + outputs). */
  readonly maxTotalTokens: number;
  /** Number of KV groups, hence of block tables. */
  readonly numGroups: number;
}

export class Sequence {
  readonly request: GenerateRequest;
  readonly id: string;
  readonly order: number;
  readonly numPromptTokens: number;
  readonly maxTotalTokens: number;

  status: SequenceStatus = 'waiting';
  /** [>= numTokens] prompt, then outputs; only the first `numTokens` are meaningful. */
  tokenIds: Int32Array;
  /** Tokens known to JavaScript. */
  numTokens: number;
  /** Tokens sampled by steps in flight: the device knows them, JavaScript does not yet. */
  numPlaceholders = 0;
  /** Guesses at the tokens after the known ones, in a step in flight; which of them are right is known after it. */
  draftTokenIds = new Int32Array(0);
  numDrafts = 0;
  /** Tokens whose KV is in the cache once every plan made so far has run. */
  computedTokens = 0;

  /**
   * The device's slot, [0, maxNumSeqs); -1 while waiting. A finished sequence keeps the number (and its tables) for a step
   * in flight that still has a row of it, although both already belong to whoever comes next.
   */
  slot = -1;
  /** [numGroups][>= numTableBlocks] block ids; entry j covers positions [j * blockSize, (j + 1) * blockSize). 0 = out of the window. */
  readonly blockTables: Int32Array[];
  /** Entries in each table (the same in all groups). */
  numTableBlocks = 0;
  /** Positions the tables cover: numTableBlocks * blockSize. */
  capacityTokens = 0;
  /** Of the leading full blocks of known tokens; extended when needed, survive preemption. */
  readonly blockHashes = new BlockHashes();
  /** When this many tokens are known and computed, the next block can be offered to the prefix cache. */
  nextHashTokens = 0;

  /** Prompt tokens taken from the prefix cache at the first admission. */
  numCachedTokens = 0;
  numPreemptions = 0;
  /** Most tokens that had been computed when a preemption took them away: below it, computing is recomputing. */
  numLostTokens = 0;
  firstScheduledTime: number | null = null;
  firstTokenTime: number | null = null;
  finishTime: number | null = null;
  /** Place in the waiting queue's heap; -1 outside. */
  waitingIndex = -1;

  constructor(request: GenerateRequest, options: SequenceOptions) {
    this.request = request;
    this.id = request.id;
    this.order = options.order;
    this.numPromptTokens = request.promptTokenIds.length;
    this.maxTotalTokens = options.maxTotalTokens;
    this.numTokens = this.numPromptTokens;
    this.tokenIds = new Int32Array(Math.min(options.maxTotalTokens, this.numPromptTokens + INITIAL_OUTPUT_CAPACITY));
    this.tokenIds.set(request.promptTokenIds);
    this.blockTables = Array.from({ length: options.numGroups }, () => new Int32Array(0));
  }

  /** Whether a block that has not been offered to the prefix cache is full of tokens that are known, and computed by the plans made so far. */
  get hasFullBlock(): boolean {
    return this.nextHashTokens <= this.numTokens && this.nextHashTokens <= this.computedTokens;
  }

  get numOutputTokens(): number {
    return this.numTokens - this.numPromptTokens;
  }

  /** Takes over a sampled token. */
  appendSampled(tokenId: number): void {
    if (this.numTokens === this.tokenIds.length) {
      const larger = new Int32Array(Math.min(this.maxTotalTokens, 2 * this.numTokens));
      larger.set(this.tokenIds);
      this.tokenIds = larger;
    }
    this.tokenIds[this.numTokens] = tokenId;
    this.numTokens++;
  }

  /** Times of a finished sequence, seconds on the clock that `now` comes from. */
  timing(): RequestTiming {
    return {
      arrivalTime: this.request.arrivalTime,
      firstScheduledTime: this.firstScheduledTime,
      firstTokenTime: this.firstTokenTime,
      finishTime: this.finishTime ?? this.request.arrivalTime,
      numPreemptions: this.numPreemptions,
    };
  }
}
