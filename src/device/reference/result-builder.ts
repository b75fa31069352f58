// From logits to a StepResult: samples, log-probabilities, prompt log-probabilities, faults. Two sets of arrays take turns, so
// that a result stays valid until the step after next is started.

import type { DeviceLimits } from '../device.ts';
import type { PromptRowLogprob, StepResult } from '../forward-batch.ts';
import { bestTokens, logSumExp, type RankedToken, rankOf } from './logprobs.ts';
import { SamplerScratch, sampleToken } from './sample.ts';
import type { SequenceSlot } from './sequence-slot.ts';

/** One row of logits and what it is for. */
export interface LogitRow {
  /** Index of the sequence in the batch. */
  readonly seq: number;
  /** Index of the token in the step. */
  readonly token: number;
  /** Of that token in its sequence. */
  readonly position: number;
  readonly samples: boolean;
  /** The next token of the sequence in the step, -1 = none: sampling goes on only while it is what was sampled. */
  readonly draft: number;
  /** Report the log-probability of the next prompt token, where there is one. */
  readonly reports: boolean;
}

interface ResultArrays {
  readonly sampledTokens: Int32Array;
  readonly sampledLogprobs: Float32Array;
  readonly sampledRanks: Int32Array;
  readonly topStart: Int32Array;
  readonly faults: Uint8Array;
}

export class ResultBuilder {
  readonly #vocabSize: number;
  readonly #scratch: SamplerScratch;
  readonly #arrays: [ResultArrays, ResultArrays];
  #turn = 0;

  constructor(limits: DeviceLimits, vocabSize: number) {
    this.#vocabSize = vocabSize;
    this.#scratch = new SamplerScratch(vocabSize);
    this.#arrays = [newArrays(limits), newArrays(limits)];
  }

  /** `slots` and `numRows` (result rows) are those of the batch's sequences; what they sample is appended to their history. */
  build(
    rows: readonly LogitRow[],
    logits: Float32Array,
    { slots, numRows }: { slots: readonly SequenceSlot[]; numRows: readonly number[] },
  ): Omit<StepResult, 'timing'> {
    const arrays = this.#arrays[this.#turn];
    this.#turn = 1 - this.#turn;
    arrays.sampledTokens.fill(-1);
    arrays.sampledLogprobs.fill(0);
    arrays.sampledRanks.fill(0);
    arrays.faults.fill(0);
    const top: RankedToken[][] = [];
    /** Where the sequence's next sample goes; -1 when the draft was not it. */
    const nextRows: number[] = [];
    for (const count of numRows) {
      nextRows.push(top.length);
      for (let i = 0; i < count; i++) top.push([]);
    }
    const promptLogprobs: PromptRowLogprob[] = [];
    rows.forEach((row, index) => {
      const values = logits.subarray(index * this.#vocabSize, (index + 1) * this.#vocabSize);
      const slot = slots[row.seq];
      if (row.samples && nextRows[row.seq] < 0) return;
      if (!values.every(Number.isFinite)) {
        arrays.faults[row.seq] = 1;
        if (row.samples) nextRows[row.seq] = -1;
        return;
      }
      if (row.reports) this.#reportPrompt(row, values, slot, promptLogprobs);
      if (!row.samples) return;
      const at = nextRows[row.seq];
      top[at] = this.#sample(at, values, slot, arrays);
      nextRows[row.seq] = arrays.sampledTokens[at] === row.draft ? at + 1 : -1;
    });
    for (let at = 0; at < top.length; at++) arrays.topStart[at + 1] = arrays.topStart[at] + top[at].length;
    const flat = top.flat();
    return {
      ...arrays,
      topTokens: Int32Array.from(flat, (token) => token.tokenId),
      topLogprobs: Float32Array.from(flat, (token) => token.logprob),
      promptLogprobs,
    };
  }

  #sample(at: number, values: Float32Array, slot: SequenceSlot, arrays: ResultArrays): RankedToken[] {
    const token = sampleToken(values, slot.sampling, slot.history, this.#scratch);
    slot.history.push(token);
    arrays.sampledTokens[at] = token;
    if (slot.sampling.logprobs === null) return [];
    const lse = logSumExp(values, this.#scratch.weights);
    arrays.sampledLogprobs[at] = values[token] - lse;
    arrays.sampledRanks[at] = rankOf(values, token);
    return bestTokens(values, slot.sampling.logprobs, lse);
  }

  #reportPrompt(row: LogitRow, values: Float32Array, slot: SequenceSlot, reports: PromptRowLogprob[]): void {
    const position = row.position + 1;
    if (slot.sampling.promptLogprobs === null || position >= slot.history.numPrompt) return;
    const tokenId = slot.history.at(position);
    const lse = logSumExp(values, this.#scratch.weights);
    const best = bestTokens(values, slot.sampling.promptLogprobs, lse);
    reports.push({
      seq: row.seq,
      position,
      tokenId,
      logprob: Math.fround(values[tokenId] - lse),
      rank: rankOf(values, tokenId),
      topTokens: best.map((token) => token.tokenId),
      topLogprobs: best.map((token) => token.logprob),
    });
  }
}

/** No sequence has more result rows than tokens. */
function newArrays({ maxTokens, maxSeqs }: DeviceLimits): ResultArrays {
  return {
    sampledTokens: new Int32Array(maxTokens),
    sampledLogprobs: new Float32Array(maxTokens),
    sampledRanks: new Int32Array(maxTokens),
    topStart: new Int32Array(maxTokens + 1),
    faults: new Uint8Array(maxSeqs),
  };
}
