import { describe, expect, it } from 'vitest';
import { Scheduler } from '../../../src/core/scheduler.ts';
import type { StepPlan } from '../../../src/core/step.ts';
import { complete, makeOptions, makeRequest, rowsOf, step, tokensOf } from './scheduler-fixtures.ts';

describe('chunks', () => {
  it.each([
    { budget: 512, chunkSize: null, chunks: [...new Array(10).fill(511), 2] },
    { budget: 2048, chunkSize: null, chunks: [2047, 2047, 1018] },
    { budget: 8192, chunkSize: null, chunks: [5112] },
    { budget: 1024, chunkSize: 512, chunks: [...new Array(9).fill(512), 504] },
  ])(
    'of a prompt of 5112 tokens beside a decoder, budget $budget, chunk size $chunkSize',
    ({ budget, chunkSize, chunks }) => {
      const scheduler = new Scheduler(makeOptions({ maxNumBatchedTokens: budget, chunkedPrefillSize: chunkSize }));
      scheduler.add(makeRequest('decoder', [1, 2, 3]));
      step(scheduler);
      scheduler.add(makeRequest('long', tokensOf(1, 5112)));
      const seen: number[] = [];
      for (const chunk of chunks) {
        const plan = step(scheduler);
        seen.push(chunk);
        const isLast = seen.length === chunks.length;
        expect(rowsOf(plan)).toEqual(['decoder:1*', `long:${chunk}${isLast ? '*' : ''}`]);
        expect(plan.numPrefillTokens).toBe(chunk);
        expect(plan.numTokens).toBe(chunk + 1);
      }
      expect(rowsOf(step(scheduler))).toEqual(['decoder:1*', 'long:1*']);
    },
  );

  it('are shared by several prompts within one limit', () => {
    const scheduler = new Scheduler(makeOptions({ chunkedPrefillSize: 10 }));
    for (const family of [1, 2, 3]) scheduler.add(makeRequest(`p${family}`, tokensOf(family, 6)));
    expect(rowsOf(step(scheduler))).toEqual(['p1:6*', 'p2:4']);
    expect(rowsOf(step(scheduler))).toEqual(['p1:1*', 'p2:2*', 'p3:6*']);
  });

  it('are not made when chunked prefill is off: a prompt waits until it fits whole', () => {
    const scheduler = new Scheduler(makeOptions({ enableChunkedPrefill: false, maxNumBatchedTokens: 20 }));
    scheduler.add(makeRequest('a', tokensOf(1, 12)));
    scheduler.add(makeRequest('b', tokensOf(2, 12)));
    expect(rowsOf(step(scheduler))).toEqual(['a:12*']);
    expect(rowsOf(step(scheduler))).toEqual(['a:1*', 'b:12*']);
    expect(() => scheduler.add(makeRequest('c', tokensOf(3, 21)))).toThrow(
      /Chunked prefill is off.*20 tokens.*21 input tokens/,
    );
  });
});

describe('one step ahead', () => {
  it('counts a token in flight and never plans beyond a known end', () => {
    const scheduler = new Scheduler(makeOptions());
    const sequence = scheduler.add(makeRequest('a', [1, 2, 3], { maxTokens: 3 }));
    const first = scheduler.schedule(0);
    const second = scheduler.schedule(0);
    expect([rowsOf(first), rowsOf(second)]).toEqual([['a:3*'], ['a:1*']]);
    expect(second.scheduled[0]!.numComputed).toBe(3);
    expect(sequence.numPlaceholders).toBe(2);
    expect(() => scheduler.schedule(0)).toThrow(/in flight/);
    complete(scheduler, first);
    const third = scheduler.schedule(0);
    expect(rowsOf(third)).toEqual(['a:1*']);
    complete(scheduler, second);
    expect(rowsOf(scheduler.schedule(0))).toEqual([]); // its last token is in flight
    expect(complete(scheduler, third)[0]!.finishReason).toBe('length');
    expect(scheduler.hasWork).toBe(false);
  });

  it('ignores the ghost of a sequence that had ended, and gives its blocks back at once', () => {
    const scheduler = new Scheduler(makeOptions());
    scheduler.add(makeRequest('a', tokensOf(1, 31), { eosTokenIds: [7] }));
    const first = scheduler.schedule(0);
    const ghost = scheduler.schedule(0);
    expect(rowsOf(ghost)).toEqual(['a:1*']);
    expect(complete(scheduler, first, 7)[0]!.finishReason).toBe('stop');
    expect(scheduler.stats().numBlocksUsed).toBe(0);
    expect(complete(scheduler, ghost)).toEqual([]);
    // The ghost filled the second block, but nobody may find it: only the first was full of known tokens.
    scheduler.add(makeRequest('b', [...tokensOf(1, 31), 7, 1]));
    expect(step(scheduler).scheduled[0]!.numComputed).toBe(16);
  });

  it('gives a sequence preempted meanwhile its token of the step in flight', () => {
    const scheduler = new Scheduler(makeOptions({ numBlocks: 5, maxModelLen: 64, enablePrefixCaching: false }));
    scheduler.add(makeRequest('old', tokensOf(1, 31)));
    const young = scheduler.add(makeRequest('young', tokensOf(2, 31)));
    step(scheduler);
    const inFlight = scheduler.schedule(0); // both write position 31, the last of two blocks
    const next = scheduler.schedule(0); // both need a third block
    expect(rowsOf(next)).toEqual(['old:1*']);
    expect(next.preempted).toMatchObject([
      { neededBy: { id: 'old' }, sequence: { id: 'young' }, numBlocksFreed: 2, numTokensToRecompute: 32 },
    ]);
    expect(complete(scheduler, inFlight).map(({ sequence }) => sequence.id)).toEqual(['old', 'young']);
    expect([young.numTokens, young.numPlaceholders, young.status]).toEqual([33, 0, 'waiting']);
    complete(scheduler, next);
    expect(scheduler.abort('old', 'abort', 0)).not.toBeNull();
    expect(rowsOf(step(scheduler))).toEqual(['young:33*']);
    expect(young.numPreemptions).toBe(1);
    expect(scheduler.stats()).toMatchObject({ totalPreemptions: 1, totalRecomputedTokens: 32 });
  });

  it('refuses updates out of turn', () => {
    const scheduler = new Scheduler(makeOptions());
    scheduler.add(makeRequest('a', [1, 2, 3]));
    const first = scheduler.schedule(0);
    const second = scheduler.schedule(0);
    expect(() => complete(scheduler, second)).toThrow(/out of turn/);
    complete(scheduler, first);
    expect(() => complete(scheduler, first)).toThrow(/out of turn or twice/);
  });
});

describe('preemption', () => {
  it('takes the sequence with the least to recompute, never the oldest, and admits nobody in that step', () => {
    // 9 usable blocks: old 2, middle 4, late 3.
    const scheduler = new Scheduler(makeOptions({ numBlocks: 10, maxModelLen: 100, enablePrefixCaching: false }));
    scheduler.add(makeRequest('old', tokensOf(1, 32)));
    scheduler.add(makeRequest('middle', tokensOf(2, 60)));
    scheduler.add(makeRequest('late', tokensOf(3, 40)));
    scheduler.add(makeRequest('waits', tokensOf(4, 2)));
    step(scheduler);
    const plan = step(scheduler);
    expect(plan.preempted.map(({ sequence }) => sequence.id)).toEqual(['late']);
    expect(rowsOf(plan)).toEqual(['old:1*', 'middle:1*']);
    expect(plan.admitted).toEqual([]);
    // It is back at the head of the queue and keeps those behind it waiting until it fits.
    expect(step(scheduler).admitted).toEqual([]);
    scheduler.abort('middle', 'abort', 0);
    expect(step(scheduler).admitted.map(({ id }) => id)).toEqual(['late', 'waits']);
  });

  it('takes the worst priority first under that policy, even from this very step', () => {
    const scheduler = new Scheduler(
      makeOptions({ numBlocks: 7, maxModelLen: 96, policy: 'priority', enablePrefixCaching: false }),
    );
    scheduler.add(makeRequest('bulk', tokensOf(1, 17), { priority: 9 }));
    step(scheduler);
    scheduler.add(makeRequest('urgent', tokensOf(2, 32), { priority: -1 }));
    scheduler.add(makeRequest('normal', tokensOf(3, 30), { priority: 0 }));
    expect(step(scheduler).admitted.map(({ id }) => id)).toEqual(['urgent', 'normal']);
    const plan = step(scheduler); // `bulk` comes first and gets its token, `urgent` needs a block
    expect(plan.preempted.map(({ sequence, neededBy }) => `${sequence.id} for ${neededBy.id}`)).toEqual([
      'bulk for urgent',
    ]);
    expect(rowsOf(plan)).toEqual(['urgent:1*', 'normal:1*']);
    expect(plan.numTokens).toBe(2);
  });

  it('leaves the watermark free at admission while something runs', () => {
    const scheduler = new Scheduler(makeOptions({ numBlocks: 11, watermark: 0.2, maxModelLen: 160 }));
    scheduler.add(makeRequest('a', tokensOf(1, 64)));
    scheduler.add(makeRequest('b', tokensOf(2, 80)));
    expect(step(scheduler).admitted.map(({ id }) => id)).toEqual(['a']); // 4 + 5 + 2 of 10
    scheduler.abort('a', 'abort', 0);
    expect(step(scheduler).admitted.map(({ id }) => id)).toEqual(['b']);
  });
});

describe('prefix cache', () => {
  it('lets requests of one step share a prompt', () => {
    const scheduler = new Scheduler(makeOptions());
    scheduler.addAll([makeRequest('n0', tokensOf(1, 40)), makeRequest('n1', tokensOf(1, 40))]);
    const plan = step(scheduler);
    expect(rowsOf(plan)).toEqual(['n0:40*', 'n1:8*']);
    expect(scheduler.stats()).toMatchObject({ totalPrefixQueryTokens: 80, totalPrefixHitTokens: 32, numBlocksUsed: 4 });
    expect(plan.admitted[1]!.numCachedTokens).toBe(32);
  });

  it('is not read for prompt logprobs, and not used when off', () => {
    for (const [changes, sampling] of [
      [{}, { promptLogprobs: 0 }],
      [{ enablePrefixCaching: false }, {}],
      [{ useKvCache: false }, {}],
    ] as const) {
      const scheduler = new Scheduler(makeOptions(changes));
      scheduler.add(makeRequest('a', tokensOf(1, 40)));
      step(scheduler);
      scheduler.add(makeRequest('b', tokensOf(1, 40), sampling));
      expect(step(scheduler).scheduled[1]).toMatchObject({ numTokens: 40, numComputed: 0 });
    }
  });

  it('never offers what a faulty sequence computed, and can be emptied', () => {
    const scheduler = new Scheduler(makeOptions());
    scheduler.add(makeRequest('a', tokensOf(1, 40)));
    const plan = scheduler.schedule(0);
    expect(scheduler.update(plan, [5], [1], 0)).toMatchObject([
      { finishReason: 'error', numNewTokens: 0, planIndex: 0 },
    ]);
    scheduler.checkIntegrity();
    expect(scheduler.stats()).toMatchObject({ numBlocksUsed: 0, numBlocksCached: 0 });
    scheduler.add(makeRequest('b', tokensOf(1, 40), { maxTokens: 1 }));
    expect(rowsOf(step(scheduler))).toEqual(['b:40*']);
    expect(scheduler.stats().numBlocksCached).toBe(2);
    scheduler.resetPrefixCache();
    scheduler.checkIntegrity();
    expect(scheduler.stats().numBlocksCached).toBe(0);
  });
});

describe('comparison modes', () => {
  it('static reserves the whole length, so fewer run and most of it is empty', () => {
    const paged = new Scheduler(makeOptions({ numBlocks: 65, maxModelLen: 512 }));
    const reserved = new Scheduler(makeOptions({ numBlocks: 65, maxModelLen: 512, kvAllocation: 'static' }));
    for (const scheduler of [paged, reserved]) {
      for (let family = 0; family < 8; family++) scheduler.add(makeRequest(`r${family}`, tokensOf(family, 100)));
      step(scheduler);
    }
    expect(paged.stats().numRunning).toBe(8);
    expect(reserved.stats().numRunning).toBe(2);
    expect(paged.stats().kvWaste).toBeCloseTo(1 - 100 / 112);
    expect(reserved.stats().kvWaste).toBeCloseTo(1 - 100 / 512);
    for (let i = 0; i < 300; i++) step(reserved);
    expect(reserved.stats().totalPreemptions).toBe(0);
  });

  it('without a KV cache every step computes the whole sequence again', () => {
    const scheduler = new Scheduler(makeOptions({ useKvCache: false, chunkedPrefillSize: 4 }));
    scheduler.add(makeRequest('a', [1, 2, 3], { maxTokens: 3 }));
    // A plan is a buffer that the next but one takes again: what it says is read at once.
    const steps = Array.from({ length: 4 }, () => {
      const plan = step(scheduler);
      return [...rowsOf(plan), plan.scheduled[0]!.numComputed];
    });
    expect(steps).toEqual([
      ['a:3*', 0],
      ['a:4*', 0],
      ['a:4', 0],
      ['a:1*', 4],
    ]);
    expect(scheduler.hasWork).toBe(false);
  });
});

describe('ends', () => {
  const outcome = (sampling: Parameters<typeof makeRequest>[2], tokens: number[], maxModelLen = 100) => {
    const scheduler = new Scheduler(makeOptions({ maxModelLen, numBlocks: 20 }));
    scheduler.add(makeRequest('a', [1, 2], sampling));
    for (const [index, token] of tokens.entries()) {
      const [progress] = complete(scheduler, scheduler.schedule(0), token);
      if (progress!.finishReason !== null) return [index + 1, progress!.finishReason, progress!.stopTokenId];
    }
    return null;
  };

  it('follow the order: min_tokens, end of sequence, stop ids, length', () => {
    expect(outcome({ eosTokenIds: [9, 10] }, [5, 10])).toEqual([2, 'stop', null]);
    expect(outcome({ eosTokenIds: [9], stopTokenIds: [9, 5] }, [9])).toEqual([1, 'stop', null]);
    expect(outcome({ eosTokenIds: [9], stopTokenIds: [9], ignoreEos: true }, [9])).toEqual([1, 'stop', 9]);
    expect(outcome({ eosTokenIds: [9], ignoreEos: true, maxTokens: 2 }, [9, 9])).toEqual([2, 'length', null]);
    expect(outcome({ eosTokenIds: [9], stopTokenIds: [5], minTokens: 3 }, [9, 5, 5])).toEqual([3, 'stop', 5]);
    expect(outcome({ eosTokenIds: [9], maxTokens: 2 }, [4, 9])).toEqual([2, 'stop', null]);
    expect(outcome({ minTokens: 5 }, [4, 4, 4], 4)).toEqual([2, 'length', null]);
  });

  it('come exactly once, wherever an abort finds the request', () => {
    const scheduler = new Scheduler(makeOptions({ maxNumSeqs: 1 }));
    scheduler.add(makeRequest('runs', tokensOf(1, 20)));
    scheduler.add(makeRequest('waits', tokensOf(2, 20)));
    const plan = scheduler.schedule(3);
    expect(scheduler.abort('waits', 'abort', 4)).toMatchObject({
      finishReason: 'abort',
      planIndex: -1,
      numNewTokens: 0,
    });
    const ended = scheduler.abort('runs', 'stop', 5);
    expect(ended).toMatchObject({ finishReason: 'stop', sequence: { id: 'runs' } });
    expect(ended!.sequence.timing()).toEqual({
      arrivalTime: 0,
      firstScheduledTime: 3,
      firstTokenTime: null,
      finishTime: 5,
      numPreemptions: 0,
    });
    scheduler.checkIntegrity();
    expect(scheduler.abort('runs', 'abort', 6)).toBeNull();
    expect(complete(scheduler, plan)).toEqual([]);
    expect(scheduler.hasWork).toBe(false);
    expect(scheduler.stats()).toMatchObject({ numBlocksUsed: 0, numRunning: 0, numWaiting: 0, kvWaste: 0 });
  });

  it('treat a row without its token as a fault of that sequence alone', () => {
    const scheduler = new Scheduler(makeOptions());
    scheduler.addAll([makeRequest('a', tokensOf(1, 3)), makeRequest('b', tokensOf(2, 3))]);
    const progresses = scheduler.update(scheduler.schedule(0), [-1, 4], null, 0);
    expect(progresses.map(({ sequence, finishReason }) => [sequence.id, finishReason])).toEqual([
      ['a', 'error'],
      ['b', null],
    ]);
    scheduler.checkIntegrity();
  });
});

describe('the door', () => {
  const code = (code: string) => expect.objectContaining({ code });

  it('refuses what can never fit, with the numbers', () => {
    const scheduler = new Scheduler(makeOptions({ maxModelLen: 100, numBlocks: 5 }));
    expect(() => scheduler.add(makeRequest('a', tokensOf(1, 100), { maxTokens: 7 }))).toThrow(
      "This model's maximum context length is 100 tokens. However, you requested 7 output tokens and your prompt contains 100 input tokens, for a total of 107 tokens.",
    );
    // 64 positions hold 65 tokens, because the last one is never computed.
    expect(() => scheduler.add(makeRequest('a', tokensOf(1, 60), { maxTokens: 6 }))).toThrow(
      /has 4 blocks of 16 tokens, enough for 65 tokens.*60 input tokens.*66 tokens in 5 blocks/,
    );
    expect(() => scheduler.add(makeRequest('a', tokensOf(1, 60), { maxTokens: 6 }))).toThrow(
      code('context_length_exceeded'),
    );
    expect(() => scheduler.add(makeRequest('a', []))).toThrow(code('bad_request'));
    expect(scheduler.hasWork).toBe(false);
    scheduler.add(makeRequest('a', tokensOf(1, 60), { maxTokens: 5 }));
    for (let i = 0; i < 5; i++) step(scheduler);
    expect(scheduler.hasWork).toBe(false);
  });

  it('counts only windows for windowed groups', () => {
    const scheduler = new Scheduler(
      makeOptions({ maxModelLen: 4000, numBlocks: 30, maxNumBatchedTokens: 64, groups: [{ window: 128 }] }),
    );
    scheduler.add(makeRequest('a', tokensOf(1, 3000), { maxTokens: 3 }));
    while (scheduler.hasWork) step(scheduler);
    const full = new Scheduler(makeOptions({ maxModelLen: 4000, numBlocks: 30, maxNumBatchedTokens: 64 }));
    expect(() => full.add(makeRequest('a', tokensOf(1, 3000)))).toThrow(/29 blocks/);
  });

  it('refuses beyond the queue, all or none of those that belong together, and ids in use', () => {
    const scheduler = new Scheduler(makeOptions({ maxNumQueuedReqs: 2 }));
    scheduler.add(makeRequest('a', [1]));
    expect(() => scheduler.addAll([makeRequest('b', [1]), makeRequest('c', [1])])).toThrow(code('queue_full'));
    expect(() => scheduler.add(makeRequest('a', [1]))).toThrow(/already in progress/);
    scheduler.add(makeRequest('b', [1]));
    expect(scheduler.stats().numWaiting).toBe(2);
    scheduler.checkIntegrity();
  });

  it('refuses options that cannot work', () => {
    const make = (changes: Parameters<typeof makeOptions>[0]) => () => new Scheduler(makeOptions(changes));
    expect(make({ maxNumBatchedTokens: 7 })).toThrow(
      'max_num_batched_tokens (7) must be greater than or equal to max_num_seqs (8).',
    );
    expect(make({ watermark: 1 })).toThrow(/watermark/);
    expect(make({ blockSize: 0 })).toThrow(/block_size/);
    expect(make({ chunkedPrefillSize: 0 })).toThrow(/chunked_prefill_size/);
    expect(make({ numBlocks: 1 })).toThrow(/num_blocks/);
    expect(make({ groups: [] })).toThrow(code('bad_config'));
  });
});

describe('cold bursts of a shared prefix', () => {
  it.each([
    { chunkSize: 512, ahead: false },
    { chunkSize: 512, ahead: true },
    { chunkSize: 100, ahead: true },
    { chunkSize: null, ahead: true },
  ])('compute it once, chunk size $chunkSize, steps ahead $ahead, others beside and behind', ({ chunkSize, ahead }) => {
    const scheduler = new Scheduler(
      makeOptions({ maxNumSeqs: 64, chunkedPrefillSize: chunkSize, maxNumBatchedTokens: 2048 }),
    );
    const prefix = tokensOf(1, 1024);
    const burst = Array.from({ length: 32 }, (_, i) =>
      makeRequest(`burst${i}`, [...prefix, ...tokensOf(100 + i, 32)], { maxTokens: 8 }),
    );
    const before = makeRequest('before', tokensOf(2, 300), { maxTokens: 8 });
    const behind = makeRequest('behind', tokensOf(3, 200), { maxTokens: 8 });
    scheduler.addAll([before, ...burst, behind]);
    let numPromptTokens = 0;
    let numSteps = 0;
    let behindStep = -1;
    const inFlight: StepPlan[] = [];
    while (scheduler.hasWork) {
      const plan = scheduler.schedule(0);
      scheduler.checkIntegrity();
      numPromptTokens += plan.numPrefillTokens;
      numSteps++;
      if (plan.admitted.some(({ id }) => id === 'behind')) behindStep = numSteps;
      if (plan.scheduled.length > 0) inFlight.push(plan);
      if (inFlight.length > (ahead ? 1 : 0) || plan.scheduled.length === 0) complete(scheduler, inFlight.shift()!);
    }
    const least = 300 + 1024 + 32 * 32 + 200;
    expect(numPromptTokens).toBe(least);
    expect(scheduler.stats().totalPrefixHitTokens).toBe(31 * 1024);
    // Nobody waits longer than the tokens before it take.
    expect(behindStep).toBe(Math.ceil((least - 199) / (chunkSize ?? 2048)));
  });
});

describe('drafts', () => {
  const speculation = { numDraftTokens: 3, minNgram: 1, maxNgram: 2, maxSeqs: 2 };
  const counts = (scheduler: Scheduler) => scheduler.stats().speculation;

  it('lengthen a decode by what followed before, and give back what was wrong', () => {
    const scheduler = new Scheduler(makeOptions({ blockSize: 2, speculation }));
    const sequence = scheduler.add(makeRequest('a', [1, 2, 3, 4, 1]));
    scheduler.update(scheduler.schedule(0), [2], null, 0);
    const plan = scheduler.schedule(0);
    expect(rowsOf(plan)).toEqual(['a:4*']);
    expect(Array.from(sequence.draftTokenIds)).toEqual([3, 4, 1]);
    expect(scheduler.stats().numBlocksUsed).toBe(5);
    // Nothing more for it until the drafts are settled.
    expect(rowsOf(scheduler.schedule(0))).toEqual([]);
    scheduler.checkIntegrity();
    const [progress] = scheduler.update(plan, [3, 9, -1, -1], null, 0);
    expect([progress!.numNewTokens, progress!.firstRow]).toEqual([2, 0]);
    expect(Array.from(sequence.tokenIds.subarray(0, sequence.numTokens))).toEqual([1, 2, 3, 4, 1, 2, 3, 9]);
    expect([sequence.computedTokens, sequence.numPlaceholders, scheduler.stats().numBlocksUsed]).toEqual([7, 0, 4]);
    expect(counts(scheduler)).toEqual({ numDrafts: 1, numDraftTokens: 3, numAcceptedAt: [1, 0, 0] });
    scheduler.checkIntegrity();
    // No 9 before: an ordinary decode, at the right place.
    expect(scheduler.schedule(0).scheduled[0]).toMatchObject({ numComputed: 7, numTokens: 1, numDrafts: 0 });
  });

  it('end where the sequence ends: at a stop inside them, and at the last token', () => {
    const scheduler = new Scheduler(makeOptions({ speculation }));
    scheduler.add(makeRequest('a', [1, 2, 3, 1], { stopTokenIds: [3] }));
    scheduler.update(scheduler.schedule(0), [2], null, 0);
    const [progress] = scheduler.update(scheduler.schedule(0), [3, 1, 2, 5], null, 0);
    expect(progress).toMatchObject({ numNewTokens: 1, finishReason: 'stop', stopTokenId: 3 });
    expect(scheduler.stats().numBlocksUsed).toBe(0);
    const last = scheduler.add(makeRequest('b', [1, 2, 3, 1], { maxTokens: 3 }));
    scheduler.update(scheduler.schedule(0), [2], null, 0);
    const plan = scheduler.schedule(0);
    expect(rowsOf(plan)).toEqual(['b:2*']); // one draft and the token after it are all that is left
    expect(scheduler.update(plan, [3, 1], null, 0)[0]).toMatchObject({ numNewTokens: 2, finishReason: 'length' });
    expect(last.numOutputTokens).toBe(3);
    scheduler.checkIntegrity();
  });

  it('take nothing from anybody: neither budget nor blocks nor a step with many sequences', () => {
    const scheduler = new Scheduler(
      makeOptions({ speculation, numBlocks: 4, maxModelLen: 48, maxNumSeqs: 3, maxNumBatchedTokens: 12 }),
    );
    scheduler.add(makeRequest('a', [1, 2, 3, 4, 1]));
    scheduler.update(scheduler.schedule(0), [2], null, 0);
    scheduler.add(makeRequest('b', tokensOf(1, 9)));
    const second = scheduler.schedule(0);
    expect(rowsOf(second)).toEqual(['a:3*', 'b:9*']); // two tokens of the budget are left
    scheduler.update(second, [3, 4, 1, 6], null, 0);
    expect(scheduler.plansInTurn).toBe(true);
    scheduler.add(makeRequest('c', tokensOf(2, 4)));
    const third = scheduler.schedule(0);
    expect(rowsOf(third)).toEqual(['a:1*', 'b:1*', 'c:4*']);
    expect(scheduler.plansInTurn).toBe(false);
    // Without the last token there is nothing to continue.
    expect(rowsOf(scheduler.schedule(0))).toEqual(['a:1*', 'b:1*', 'c:1*']);
    scheduler.checkIntegrity();
  });

  it('keep what was sampled before a broken row', () => {
    const scheduler = new Scheduler(makeOptions({ speculation }));
    scheduler.add(makeRequest('a', [1, 2, 3, 1]));
    scheduler.update(scheduler.schedule(0), [2], null, 0);
    const [progress] = scheduler.update(scheduler.schedule(0), [3, -1, -1, -1], [1], 0);
    expect(progress).toMatchObject({ numNewTokens: 1, finishReason: 'error' });
    scheduler.checkIntegrity();
  });

  it('are refused without a KV cache', () => {
    expect(() => new Scheduler(makeOptions({ speculation, useKvCache: false }))).toThrow(/needs the KV cache/);
  });
});
