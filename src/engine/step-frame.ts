// The message of an ordinary step, numbers only: every event is tokens and nothing else, and nothing was preempted or drafted. Most steps
// are so, and as objects they would cost both processes more than all else that they do for a step. A frame is
//
//     [the numbers of the record | key, numCachedTokens, numTokens, token ids… of each event]
//
// Keys stand for request ids: whoever submits requests numbers them. The record's fields are written out one by one: a loop over their
// names would look each of them up anew.

import type { TokenEvent } from '../core/request.ts';
import type { StepRecord } from '../trace/step-record.ts';

export type StepFrame = Float64Array;

const NUMBERS_PER_RECORD = 26;
const NUMBERS_PER_EVENT = 3;

/** Null when something is not ordinary, or an event's request has no key: then the objects themselves have to be sent. */
export function encodeStep(
  events: readonly TokenEvent[],
  record: StepRecord,
  keyOf: ReadonlyMap<string, number>,
): StepFrame | null {
  if (record.preemptions.length > 0 || record.speculation !== null) return null;
  let length = NUMBERS_PER_RECORD;
  for (const event of events) {
    if (event.finish !== null || event.logprobs !== null || event.promptLogprobs !== null) return null;
    if (!keyOf.has(event.id)) return null;
    length += NUMBERS_PER_EVENT + event.tokenIds.length;
  }
  const frame = new Float64Array(length);
  writeRecord(record, frame);
  let at = NUMBERS_PER_RECORD;
  for (const { id, numCachedTokens, tokenIds } of events) {
    frame[at++] = keyOf.get(id)!;
    frame[at++] = numCachedTokens;
    frame[at++] = tokenIds.length;
    for (const tokenId of tokenIds) frame[at++] = tokenId;
  }
  return frame;
}

/** `idOf`: null for a request that nobody follows any more; its events are left out. */
export function decodeStep(
  frame: StepFrame,
  idOf: (key: number) => string | null,
): { readonly events: TokenEvent[]; readonly record: StepRecord } {
  const record = readRecord(frame);
  let at = NUMBERS_PER_RECORD;
  const events: TokenEvent[] = [];
  while (at < frame.length) {
    const id = idOf(frame[at]!);
    const numCachedTokens = frame[at + 1]!;
    const numTokens = frame[at + 2]!;
    at += NUMBERS_PER_EVENT;
    const tokenIds: number[] = [];
    for (let i = 0; i < numTokens; i++) tokenIds.push(frame[at++]!);
    if (id !== null) events.push({ id, tokenIds, logprobs: null, promptLogprobs: null, numCachedTokens, finish: null });
  }
  return { events, record };
}

function writeRecord(record: StepRecord, frame: StepFrame): void {
  frame[0] = record.stepId;
  frame[1] = record.time;
  frame[2] = record.numRunning;
  frame[3] = record.numWaiting;
  frame[4] = record.numPromptTokens;
  frame[5] = record.numGeneratedTokens;
  frame[6] = record.numRecomputedTokens;
  frame[7] = record.numPrefixQueryTokens;
  frame[8] = record.numPrefixHitTokens;
  frame[9] = record.numBlocks;
  frame[10] = record.numBlocksUsed;
  frame[11] = record.numBlocksCached;
  frame[12] = record.kvWaste;
  frame[13] = record.stepSeconds;
  frame[14] = record.scheduleSeconds;
  frame[15] = record.fillSeconds;
  frame[16] = record.launchSeconds;
  frame[17] = record.handoverSeconds;
  frame[18] = record.deviceSeconds;
  frame[19] = record.attentionSeconds;
  frame[20] = record.linearSeconds;
  frame[21] = record.rowsSeconds;
  frame[22] = record.samplingSeconds;
  frame[23] = record.serialSeconds;
  frame[24] = record.updateSeconds;
  frame[25] = record.deliverySeconds;
}

function readRecord(frame: StepFrame): StepRecord {
  return {
    stepId: frame[0]!,
    time: frame[1]!,
    numRunning: frame[2]!,
    numWaiting: frame[3]!,
    numPromptTokens: frame[4]!,
    numGeneratedTokens: frame[5]!,
    numRecomputedTokens: frame[6]!,
    numPrefixQueryTokens: frame[7]!,
    numPrefixHitTokens: frame[8]!,
    numBlocks: frame[9]!,
    numBlocksUsed: frame[10]!,
    numBlocksCached: frame[11]!,
    kvWaste: frame[12]!,
    stepSeconds: frame[13]!,
    scheduleSeconds: frame[14]!,
    fillSeconds: frame[15]!,
    launchSeconds: frame[16]!,
    handoverSeconds: frame[17]!,
    deviceSeconds: frame[18]!,
    attentionSeconds: frame[19]!,
    linearSeconds: frame[20]!,
    rowsSeconds: frame[21]!,
    samplingSeconds: frame[22]!,
    serialSeconds: frame[23]!,
    updateSeconds: frame[24]!,
    deliverySeconds: frame[25]!,
    preemptions: [],
    speculation: null,
  };
}
