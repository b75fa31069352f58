// Results of steps in arrays that are made once and take turns: two sets, one per native step slot, so a result stays valid
// until the step after next is started. Only the lists of alternatives grow when someone asks for more.

import type { DeviceLimits } from '../device.ts';
import type { PromptRowLogprob, StepResult } from '../forward-batch.ts';
import type { Addon, DeviceHandle, NativeStepArrays } from './addon.ts';

const TOP_PER_SEQ = 8;

export class StepResults {
  readonly #addon: Addon;
  readonly #handle: DeviceHandle;
  readonly #arrays: [NativeStepArrays, NativeStepArrays];
  readonly #counts = new Float64Array(9);

  constructor(addon: Addon, handle: DeviceHandle, limits: DeviceLimits) {
    this.#addon = addon;
    this.#handle = handle;
    this.#arrays = [newArrays(limits), newArrays(limits)];
  }

  /** The finished step of a slot. */
  read(stepSlot: number): StepResult {
    const arrays = this.#arrays[stepSlot]!;
    this.#addon.stepCounts(this.#handle, stepSlot, { values: this.#counts });
    const counts = this.#counts;
    const numTop = counts[0]!;
    const numPromptRows = counts[1]!;
    const numPromptTop = counts[2]!;
    makeRoom(arrays, { numTop, numPromptRows, numPromptTop });
    this.#addon.readStep(this.#handle, stepSlot, arrays);
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
function newArrays({ maxTokens, maxSeqs }: DeviceLimits): NativeStepArrays {
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
  arrays: NativeStepArrays,
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
function promptRows(arrays: NativeStepArrays, numRows: number): PromptRowLogprob[] {
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
