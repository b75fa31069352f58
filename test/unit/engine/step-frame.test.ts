import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { TokenEvent } from '../../../src/core/request.ts';
import { decodeStep, encodeStep } from '../../../src/engine/step-frame.ts';
import type { StepRecord } from '../../../src/trace/step-record.ts';

const record: StepRecord = {
  stepId: 7,
  time: 1.7e9 + 0.123456,
  numRunning: 2,
  numWaiting: 3,
  numPromptTokens: 4,
  numGeneratedTokens: 5,
  numRecomputedTokens: 6,
  numPrefixQueryTokens: 8,
  numPrefixHitTokens: 9,
  preemptions: [],
  speculation: null,
  numBlocks: 10,
  numBlocksUsed: 11,
  numBlocksCached: 12,
  kvWaste: 0.13,
  stepSeconds: 0.14,
  scheduleSeconds: 0.15,
  fillSeconds: 0.16,
  launchSeconds: 0.17,
  handoverSeconds: 0.18,
  deviceSeconds: 0.19,
  attentionSeconds: 0.2,
  linearSeconds: 0.21,
  rowsSeconds: 0.22,
  samplingSeconds: 0.23,
  serialSeconds: 0.24,
  updateSeconds: 0.25,
  deliverySeconds: 0.26,
};

const event = (id: string, tokenIds: number[], numCachedTokens = 0): TokenEvent => {
  return { id, tokenIds, logprobs: null, promptLogprobs: null, numCachedTokens, finish: null };
};
const timing = { arrivalTime: 0, firstScheduledTime: 0, firstTokenTime: 0, finishTime: 0, numPreemptions: 0 };

describe('step frames', () => {
  it('give back events in their order and every number of the record', () => {
    const ids = ['a', 'b', 'c', 'd'];
    const anyEvent = fc.record({
      id: fc.constantFrom(...ids),
      tokenIds: fc.array(fc.nat(300_000), { maxLength: 5 }),
      numCachedTokens: fc.nat(1_000_000),
    });
    const keyOf = new Map(ids.map((id, i) => [id, i === 3 ? Number.MAX_SAFE_INTEGER : i]));
    const idOf = (key: number) => ids.find((id) => keyOf.get(id) === key) ?? null;
    fc.assert(
      fc.property(fc.array(anyEvent), (drawn) => {
        const events = drawn.map((each) => event(each.id, each.tokenIds, each.numCachedTokens));
        const frame = encodeStep(events, record, keyOf)!;
        expect(decodeStep(frame, idOf)).toEqual({ events, record });
      }),
    );
  });

  it('leave out requests that nobody follows any more', () => {
    const keyOf = new Map([
      ['a', 1],
      ['b', 2],
    ]);
    const frame = encodeStep([event('a', [5, 6]), event('b', [7])], record, keyOf)!;
    expect(decodeStep(frame, (key) => (key === 2 ? 'b' : null)).events).toEqual([event('b', [7])]);
  });

  it('hold ordinary steps only', () => {
    const keyOf = new Map([['a', 1]]);
    const plain = event('a', [5]);
    const finish = { reason: 'stop', stopTokenId: null, message: null, timing } as const;
    const preemption = { requestId: 'a', neededBy: 'b', numBlocksFreed: 1, numTokensToRecompute: 1 };
    const speculation = { numDrafts: 1, numDraftTokens: 1, numAcceptedTokens: 1, numAcceptedAt: [1] };
    expect(encodeStep([plain, { ...plain, finish }], record, keyOf)).toBeNull();
    expect(encodeStep([{ ...plain, logprobs: [] }], record, keyOf)).toBeNull();
    expect(encodeStep([{ ...plain, promptLogprobs: [null] }], record, keyOf)).toBeNull();
    expect(encodeStep([event('unknown', [5])], record, keyOf)).toBeNull();
    expect(encodeStep([plain], { ...record, preemptions: [preemption] }, keyOf)).toBeNull();
    expect(encodeStep([plain], { ...record, speculation }, keyOf)).toBeNull();
  });
});
