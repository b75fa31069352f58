// The message of an ordinary step, numbers only: every event is tokens and nothing else, and nothing was preempted or drafted. Most steps
// are so, and as objects they would cost both processes more than all else that they do for a step. A frame is
//
//     [the record's numbers in the order of RECORD_FIELDS | key, numCachedTokens, numTokens, token ids… of each event]
//
// Keys stand for request ids: whoever submits requests numbers them.

import type { TokenEvent } from '../core/request.ts';
import type { StepRecord } from '../trace/step-record.ts';

export type StepFrame = Float64Array;

type RecordField = Exclude<keyof StepRecord, 'preemptions' | 'speculation'>;

/** One entry per number of a StepRecord: a missing one would not compile. */
const RECORD = {
  stepId: 0,
  time: 0,
  numRunning: 0,
  numWaiting: 0,
  numPromptTokens: 0,
  numGeneratedTokens: 0,
  numRecomputedTokens: 0,
  numPrefixQueryTokens: 0,
  numPrefixHitTokens: 0,
  numBlocks: 0,
  numBlocksUsed: 0,
  numBlocksCached: 0,
  kvWaste: 0,
  stepSeconds: 0,
  scheduleSeconds: 0,
  fillSeconds: 0,
  launchSeconds: 0,
  handoverSeconds: 0,
  deviceSeconds: 0,
  attentionSeconds: 0,
  linearSeconds: 0,
  rowsSeconds: 0,
  samplingSeconds: 0,
  serialSeconds: 0,
  updateSeconds: 0,
  deliverySeconds: 0,
} satisfies Record<RecordField, number>;
const RECORD_FIELDS = Object.keys(RECORD) as RecordField[];
const NUMBERS_PER_EVENT = 3;

/** Null when something is not ordinary, or an event's request has no key: then the objects themselves have to be sent. */
export function encodeStep(
  events: readonly TokenEvent[],
  record: StepRecord,
  keyOf: ReadonlyMap<string, number>,
): StepFrame | null {
  if (record.preemptions.length > 0 || record.speculation !== null) return null;
  let length = RECORD_FIELDS.length;
  for (const event of events) {
    if (event.finish !== null || event.logprobs !== null || event.promptLogprobs !== null) return null;
    if (!keyOf.has(event.id)) return null;
    length += NUMBERS_PER_EVENT + event.tokenIds.length;
  }
  const frame = new Float64Array(length);
  let at = 0;
  for (const field of RECORD_FIELDS) frame[at++] = record[field];
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
  const record = { ...RECORD, preemptions: [], speculation: null };
  let at = 0;
  for (const field of RECORD_FIELDS) record[field] = frame[at++]!;
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
