// The scheduler against a device that remembers who wrote what, and against a stupid generator, on random seeds.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { SchedulerOptions } from '../../../src/core/scheduler-options.ts';
import { emptyTally, SchedulerDriver } from '../../oracle/scheduler-driver.ts';

const NUM_SCENARIOS = 160;
const NUM_OPERATIONS = 220;

/** Pools around one or two requests of full length, so that blocks are scarce. */
const scenario = fc
  .record({
    maxNumSeqs: fc.integer({ min: 1, max: 9 }),
    extraBatchedTokens: fc.integer({ min: 0, max: 40 }),
    chunkedPrefillSize: fc.option(fc.integer({ min: 1, max: 16 }), { nil: null }),
    enableChunkedPrefill: fc.integer({ min: 0, max: 4 }).map((draw) => draw > 0),
    enablePrefixCaching: fc.integer({ min: 0, max: 4 }).map((draw) => draw > 0),
    policy: fc.constantFrom('fcfs' as const, 'priority' as const),
    watermark: fc.constantFrom(0, 0, 0, 0.05, 0.2),
    maxModelLen: fc.integer({ min: 16, max: 56 }),
    kvAllocation: fc.integer({ min: 0, max: 7 }).map((draw) => (draw > 0 ? ('paged' as const) : ('static' as const))),
    useKvCache: fc.integer({ min: 0, max: 7 }).map((draw) => draw > 0),
    blockSize: fc.constantFrom(1, 2, 3, 4, 8),
    windows: fc.constantFrom([0], [0], [0], [5], [1], [0, 6], [7, 0], [0, 3, 0], [4, 9], [2, 11, 0]),
    poolFactor: fc.double({ min: 0.8, max: 2.2, noNaN: true }),
    maxNumQueuedReqs: fc.integer({ min: 1, max: 30 }),
    speculation: fc.option(
      fc
        .record({
          numDraftTokens: fc.integer({ min: 1, max: 6 }),
          minNgram: fc.integer({ min: 1, max: 2 }),
          extraNgram: fc.integer({ min: 0, max: 2 }),
          maxSeqs: fc.integer({ min: 1, max: 9 }),
        })
        .map(({ extraNgram, ...rest }) => ({ ...rest, maxNgram: rest.minNgram + extraNgram })),
      { nil: null },
    ),
  })
  .map(
    ({ extraBatchedTokens, windows, poolFactor, ...rest }): SchedulerOptions => ({
      ...rest,
      maxNumBatchedTokens: rest.maxNumSeqs + extraBatchedTokens,
      groups: windows.map((window) => ({ window })),
      numBlocks: 2 + Math.ceil(poolFactor * windows.length * Math.ceil(rest.maxModelLen / rest.blockSize)),
      cacheSecret: Uint8Array.of(1, 2, 3),
      speculation: rest.useKvCache ? rest.speculation : null,
    }),
  );

describe('random operations', () => {
  it('give every request what it would get alone, whatever happens around it', () => {
    const tally = emptyTally();
    fc.assert(
      fc.property(scenario, fc.integer(), (options, seed) => {
        new SchedulerDriver(options, seed, tally).run(NUM_OPERATIONS);
      }),
      { numRuns: NUM_SCENARIOS },
    );
    // The run has to have seen what it is about.
    expect(tally.numSteps).toBeGreaterThan(10_000);
    expect(tally.numFinished).toBeGreaterThan(1000);
    expect(tally.numPreemptions).toBeGreaterThan(300);
    expect(tally.numGhosts).toBeGreaterThan(300);
    expect(tally.numHitTokens).toBeGreaterThan(3000);
    expect(tally.numRecomputedTokens).toBeGreaterThan(300);
    expect(tally.numFaults).toBeGreaterThan(20);
    expect(tally.numAborted).toBeGreaterThan(200);
    expect(tally.numRefused).toBeGreaterThan(200);
    expect(tally.numDraftTokens).toBeGreaterThan(3000);
    expect(tally.numAcceptedTokens).toBeGreaterThan(300);
  });
});
