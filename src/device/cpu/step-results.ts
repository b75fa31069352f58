// Results of steps in arrays that are made once and take turns: two sets, one per native step slot, so a result stays valid
// until the step after next is started. Only the lists of alternatives grow when someone asks for more.

import type { DeviceLimits } from '../device.ts';
import type { PromptRowLogprob, StepResult } from '../forward-batch.ts';
import type { Addon, DeviceHandle } from './addon.ts';

const TOP_PER_SEQ = 8;

interface StepArrays {
  readonly sampledTokens: Int32Array;
  readonly sampledLogprobs: Float32Array;
  readonly sampledRanks: Int32Array;
  readonly faults: Uint8Array;
  readonly topStart: Int32Array;
  topTokens: Int32Array;
  topLogprobs: Float32Array;
  promptFields: Int32Array;
  promptLogprobs: Float32Array;
  promptTopTokens: Int32Array;
  promptTopLogprobs: Float32Array;
}

export class StepResults {
  readonly #addon: Addon;
  readonly #handle: DeviceHandle;
  readonly #arrays: [StepArrays, StepArrays];
  readonly #counts = new Float64Array(9);

  constructor(addon: Addon, handle: DeviceHandle, limits: DeviceLimits) {
    this.#addon = addon;
    this.#handle = handle;
    this.#arrays = [newArrays(limits), newArrays(limits)];
  }

  /** False when there is not enough room; #counts is filled either way. */
  #fill(stepSlot: number, arrays: StepArrays): boolean {
    return this.#addon.readStep(
      this.#handle,
      stepSlot,
      this.#counts,
      arrays.sampledTokens,
      arrays.sampledLogprobs,
      arrays.sampledRanks,
      arrays.faults,
      arrays.topStart,
      arrays.topTokens,
      arrays.topLogprobs,
      arrays.promptFields,
      arrays.promptLogprobs,
      arrays.promptTopTokens,
      arrays.promptTopLogprobs,
    );
  }

  /** The finished step of a slot. */
  read(stepSlot: number): StepResult {
    const arrays = this.#arrays[stepSlot]!;
    const counts = this.#counts;
    if (!this.#fill(stepSlot, arrays)) {
      makeRoom(arrays, { numTop: counts[0]!, numPromptRows: counts[1]!, numPromptTop: counts[2]! });
      this.#fill(stepSlot, arrays);
    }
    const numPromptRows = counts[1]!;
    return {
      sampledTokens: arrays.sampledTokens,
      sampledLogprobs: arrays.sampledLogprobs,
      sampledRanks: arrays.sampledRanks,
      topStart: arrays.topStart,
      topTokens: arrays.topTokens,
      topLogprobs: arrays.topLogprobs,
      faults: arrays.faults,
      promptLogprobs: numPromptRows > 0 ? promptRows(arrays, numPromptRows) : [],
      timing: {
        totalSeconds: counts[3]!,
        attentionSeconds: counts[4]!,
        linearSeconds: counts[5]!,
        samplingSeconds: counts[6]!,
        rowsSeconds: counts[7]!,
        serialSeconds: counts[8]!,
      },
    };
  }
}

/** No sequence has more result rows than tokens. */
function newArrays({ maxTokens, maxSeqs }: DeviceLimits): StepArrays {
  return {
    sampledTokens: new Int32Array(maxTokens),
    sampledLogprobs: new Float32Array(maxTokens),
    sampledRanks: new Int32Array(maxTokens),
    faults: new Uint8Array(maxSeqs),
    topStart: new Int32Array(maxTokens + 1),
    topTokens: new Int32Array(maxSeqs * TOP_PER_SEQ),
    topLogprobs: new Float32Array(maxSeqs * TOP_PER_SEQ),
    promptFields: new Int32Array(0),
    promptLogprobs: new Float32Array(0),
    promptTopTokens: new Int32Array(0),
    promptTopLogprobs: new Float32Array(0),
  };
}

function makeRoom(
  arrays: StepArrays,
  { numTop, numPromptRows, numPromptTop }: { numTop: number; numPromptRows: number; numPromptTop: number },
): void {
  if (arrays.topTokens.length < numTop) {
    arrays.topTokens = new Int32Array(numTop * 2);
    arrays.topLogprobs = new Float32Array(numTop * 2);
  }
  if (arrays.promptLogprobs.length < numPromptRows) {
    arrays.promptFields = new Int32Array(numPromptRows * 5 * 2);
    arrays.promptLogprobs = new Float32Array(numPromptRows * 2);
  }
  if (arrays.promptTopTokens.length < numPromptTop) {
    arrays.promptTopTokens = new Int32Array(numPromptTop * 2);
    arrays.promptTopLogprobs = new Float32Array(numPromptTop * 2);
  }
}

/** Rank 0 marks a row whose logits were not finite: its sequence has a fault. */
function promptRows(arrays: StepArrays, numRows: number): PromptRowLogprob[] {
  const rows: PromptRowLogprob[] = [];
  let top = 0;
  for (let i = 0; i < numRows; i++) {
    const [seq, position, tokenId, rank, numTop] = arrays.promptFields.subarray(i * 5, i * 5 + 5) as unknown as [
      number,
      number,
      number,
      number,
      number,
    ];
    if (rank > 0) {
      rows.push({
        seq,
        position,
        tokenId,
        rank,
        logprob: arrays.promptLogprobs[i]!,
        topTokens: Array.from(arrays.promptTopTokens.subarray(top, top + numTop)),
        topLogprobs: Array.from(arrays.promptTopLogprobs.subarray(top, top + numTop)),
      });
    }
    top += numTop;
  }
  return rows;
}
