import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { simulate } from '../../../src/sim/simulation.ts';
import { createSyntheticWorkload } from '../../../src/workload/synthetic-workload.ts';
import { deploymentOf, fixedCost, request, Witness, workloadOf } from './simulation-fixtures.ts';

const fixed = (tokens: number) => ({ shape: { kind: 'fixed', tokens }, min: 1, max: 1e6 }) as const;

describe('one request', () => {
  it('takes a step per chunk and a step per further token', () => {
    const witness = new Witness();
    const deployment = deploymentOf({ maxNumBatchedTokens: 256 });
    const result = simulate(deployment, workloadOf([request(2, 600, 5)]), { observer: witness });
    expect(witness.steps.map((step) => step.numPrefillTokens)).toEqual([256, 256, 88, 0, 0, 0, 0]);
    expect(witness.steps.map((step) => step.numDecodes)).toEqual([0, 0, 0, 1, 1, 1, 1]);
    expect(witness.steps[3]!.decodeContextTokens).toBe(601);
    expect(witness.steps[0]!.prefillPairs).toBe((256 * 257) / 2);
    expect(witness.steps[1]!.prefillPairs).toBe((512 * 513) / 2 - (256 * 257) / 2);
    expect(result.summary.ttftSeconds.mean).toBeCloseTo(0.03, 9);
    expect(result.summary.tpotSeconds.mean).toBeCloseTo(0.01, 9);
    expect(result.summary.e2eSeconds.max).toBeCloseTo(0.07, 9);
    expect(result.summary.durationSeconds).toBeCloseTo(2.07, 9);
    expect(result.summary).toMatchObject({ numCompleted: 1, numFailed: 0, numPromptTokens: 600, numOutputTokens: 5 });
    expect(result.scheduler).toMatchObject({ numSteps: 7, numPreemptions: 0, maxRunning: 1, numMixedSteps: 0 });
    expect(result.scheduler.queueSeconds.max).toBe(0);
  });

  it('pays the overhead once, before the first step, and it is not queueing', () => {
    const deployment = deploymentOf({}, { cost: fixedCost(0.01, 0.5) });
    const { summary, scheduler } = simulate(deployment, workloadOf([request(0, 16, 2)]));
    expect(summary.ttftSeconds.mean).toBeCloseTo(0.51, 9);
    expect(summary.e2eSeconds.mean).toBeCloseTo(0.52, 9);
    expect(scheduler.queueSeconds.max).toBeCloseTo(0, 9);
  });
});

describe('an engine that plans ahead', () => {
  it('lets who arrives during a step wait for that one and for the planned one', () => {
    // Steps of 10 ms; the second request arrives in the third step, whose successor is planned already.
    const requests = [request(0, 16, 10), request(0.025, 16, 1)];
    const inTurn = simulate(deploymentOf(), workloadOf(requests));
    const ahead = simulate(deploymentOf({}, { plansAhead: true }), workloadOf(requests));
    expect(inTurn.summary.ttftSeconds.max).toBeCloseTo(0.015, 9);
    expect(ahead.summary.ttftSeconds.max).toBeCloseTo(0.025, 9);
    // Nobody is there to plan with: an idle engine begins at once.
    const later = simulate(deploymentOf({}, { plansAhead: true }), workloadOf([request(0, 16, 2), request(1, 16, 1)]));
    expect(later.summary.ttftSeconds.max).toBeCloseTo(0.01, 9);
    // And one that has just run dry does, too.
    const dry = simulate(
      deploymentOf({}, { plansAhead: true }),
      workloadOf([request(0, 16, 1), request(0.005, 16, 1)]),
    );
    expect(dry.summary.ttftSeconds.max).toBeCloseTo(0.015, 9);
  });
});

describe('a full house', () => {
  it('queues what exceeds max-num-seqs, and says what bound the steps', () => {
    const requests = [request(0, 16, 10), request(0, 16, 10), request(0, 16, 10)];
    const { summary, scheduler, composition } = simulate(deploymentOf({ maxNumSeqs: 1 }), workloadOf(requests));
    expect(scheduler.queueSeconds.max).toBeCloseTo(0.2, 9);
    expect(scheduler).toMatchObject({ numSteps: 30, maxRunning: 1, maxWaiting: 2 });
    expect(summary.durationSeconds).toBeCloseTo(0.3, 9);
    expect(composition.numStepsBoundBySeqs).toBe(20);
    expect(composition.busyShare).toBeCloseTo(1, 9);
  });

  it('preempts when the pool runs out, and everything still ends', () => {
    const requests = Array.from({ length: 8 }, () => request(0, 100, 200));
    const result = simulate(deploymentOf({ maxModelLen: 400 }, { numBlocks: 60 }), workloadOf(requests));
    expect(result.summary).toMatchObject({ numCompleted: 8, numOutputTokens: 1600 });
    expect(result.scheduler.numPreemptions).toBeGreaterThan(0);
    expect(result.scheduler.numRecomputedTokens).toBeGreaterThan(0);
    expect(result.scheduler.maxKvUsage).toBe(1);
    expect(result.composition.numStepsBoundByKv).toBeGreaterThan(0);
  });

  it('refuses what can never fit, says why, and serves the rest', () => {
    const result = simulate(deploymentOf({ maxModelLen: 64 }), workloadOf([request(0, 100, 4), request(0, 10, 4)]));
    expect(result.summary).toMatchObject({ numCompleted: 1, numFailed: 1 });
    expect(result.firstRefusal).toMatch(/maximum context length is 64/);
  });

  it('keeps a long queue out of the scheduler without changing the order', () => {
    const requests = Array.from({ length: 500 }, (_, i) => request(0, 10 + (i % 7), 3));
    const witness = new Witness();
    simulate(deploymentOf({ maxNumSeqs: 4 }), workloadOf(requests), { observer: witness });
    const starts = [...witness.ended].sort((a, b) => a.number - b.number).map((ended) => ended.firstScheduledSeconds);
    expect(starts).toEqual([...starts].sort((a, b) => a - b));
    expect(witness.ended).toHaveLength(500);
  });
});

describe('closed loop', () => {
  it('keeps as many requests going as there are users, and thinks between', () => {
    const requests = Array.from({ length: 6 }, () => request(0, 16, 10));
    const workload = workloadOf(requests, { closedLoop: { concurrency: 2, thinkSeconds: 1 } });
    const witness = new Witness();
    const { summary, scheduler } = simulate(deploymentOf(), workload, { observer: witness });
    expect(scheduler.maxRunning).toBe(2);
    expect(witness.ended.map((ended) => ended.arrivalSeconds.toFixed(2))).toEqual([
      '0.00',
      '0.00',
      '1.10',
      '1.10',
      '2.20',
      '2.20',
    ]);
    expect(summary.durationSeconds).toBeCloseTo(2.3, 9);
  });

  it('sends a turn after the answer to the one before it', () => {
    const turn = (index: number) => request(0, 16 * (index + 1), 8, { sessionId: 7 });
    const workload = workloadOf([turn(0), turn(1), turn(2)]);
    const witness = new Witness();
    simulate(deploymentOf(), workload, { observer: witness });
    const [first, second, third] = witness.ended;
    expect(second!.arrivalSeconds).toBe(first!.endSeconds);
    expect(third!.arrivalSeconds).toBe(second!.endSeconds);
  });
});

describe('prefixes', () => {
  it('finds shared blocks in the real cache, and only those', () => {
    const ids = [1, 2, 3, 4];
    const requests = [
      request(0, 64, 2, { hashIds: ids }),
      request(1, 64, 2, { hashIds: ids }),
      request(2, 64, 2, { hashIds: [1, 2, 9, 10] }),
      request(3, 64, 2, { hashIds: [5, 2, 3, 4] }),
      request(4, 64, 2),
    ];
    const witness = new Witness();
    const { realised } = simulate(deploymentOf({ enablePrefixCaching: true }), workloadOf(requests), {
      observer: witness,
    });
    // One token at least is computed, so the last block is not taken.
    expect(witness.ended.map((ended) => ended.numCachedTokens)).toEqual([0, 48, 32, 0, 0]);
    expect(realised.sharedBlockShare).toBeCloseTo(9 / 16, 9);
  });

  it("finds an answer again in the conversation's next prompt", () => {
    const requests = [
      request(0, 32, 33, { hashIds: [10, 11], sessionId: 1 }),
      request(0, 96, 2, { hashIds: [10, 11, 12, 13, 14, 15], sessionId: 1 }),
    ];
    const witness = new Witness();
    simulate(deploymentOf({ enablePrefixCaching: true }), workloadOf(requests), { observer: witness });
    // 32 of the prompt and 32 computed ones of the answer; its last token was never computed.
    expect(witness.ended[1]!.numCachedTokens).toBe(64);
  });
});

describe('replicas', () => {
  const requests = Array.from({ length: 40 }, (_, i) =>
    request(0.001 * i, 32, 4, { hashIds: [i % 2 === 0 ? 100 : 200, 1000 + i] }),
  );

  it.each(['round-robin', 'least-loaded'] as const)('shares evenly by %s', (routing) => {
    const witness = new Witness();
    simulate(deploymentOf({}, { numReplicas: 2 }), workloadOf(requests), { routing, observer: witness });
    expect(witness.ended.filter((ended) => ended.replica === 0)).toHaveLength(20);
  });

  it('sends equal prefixes to the same replica, and so finds more of them', () => {
    const deployment = deploymentOf({ enablePrefixCaching: true, maxNumSeqs: 64 }, { numReplicas: 2 });
    const witness = new Witness();
    const alternating = requests.map((each, i) => ({ ...each, hashIds: [i % 4 < 2 ? 100 : 200, 1000 + i] }));
    const aware = simulate(deployment, workloadOf(alternating), { routing: 'prefix-aware', observer: witness });
    const blind = simulate(deployment, workloadOf(alternating), { routing: 'round-robin' });
    expect(aware.scheduler.prefixHitShare).toBeGreaterThan(blind.scheduler.prefixHitShare);
    const replicaOf = new Map(witness.ended.map((ended) => [ended.number, ended.replica]));
    expect(new Set(alternating.map((each, i) => `${each.hashIds[0]} ${replicaOf.get(i)}`)).size).toBe(2);
  });
});

describe('any workload', () => {
  it('ends every request, counts every token, and repeats exactly', () => {
    fc.assert(
      fc.property(
        fc.record({
          seed: fc.integer({ min: 0, max: 1e6 }),
          maxNumSeqs: fc.integer({ min: 1, max: 12 }),
          numBlocks: fc.integer({ min: 30, max: 90 }),
          numReplicas: fc.integer({ min: 1, max: 3 }),
          enablePrefixCaching: fc.boolean(),
          isClosed: fc.boolean(),
          isTalk: fc.boolean(),
        }),
        (given) => {
          const workload = createSyntheticWorkload({
            name: 'any',
            seed: given.seed,
            numRequests: 40,
            arrivals: given.isClosed ? null : { kind: 'gamma', requestsPerSecond: 50, burstiness: 0.4 },
            closedLoop: given.isClosed ? { concurrency: 5, thinkSeconds: 0.01 } : null,
            maxSeconds: null,
            prompt: { shape: { kind: 'uniform', min: 1, max: 120 }, min: 1, max: 120 },
            output: { shape: { kind: 'exponential', mean: 20 }, min: 1, max: 60 },
            rankCorrelation: 0.3,
            prefix: given.isTalk
              ? { kind: 'multi-turn', turns: fixed(3), thinkSeconds: 0.02, numSharedTokens: 20, maxTokens: 300 }
              : { kind: 'shared', numTokens: 40, share: 0.5, numPrompts: 2 },
          });
          const deployment = deploymentOf(
            { maxNumSeqs: given.maxNumSeqs, enablePrefixCaching: given.enablePrefixCaching, maxModelLen: 480 },
            { numBlocks: given.numBlocks, numReplicas: given.numReplicas },
          );
          const witness = new Witness();
          const result = simulate(deployment, workload, { observer: witness });
          const { summary, scheduler, realised } = result;
          expect(summary.numCompleted + summary.numFailed).toBe(40);
          expect(witness.ended).toHaveLength(summary.numCompleted);
          expect(summary.numOutputTokens).toBe(witness.ended.reduce((sum, ended) => sum + ended.numOutputTokens, 0));
          const numComputed = witness.steps.reduce((sum, step) => sum + step.numPrefillTokens + step.numDecodes, 0);
          const numNeeded = witness.ended.reduce(
            (sum, ended) => sum + ended.numPromptTokens + ended.numOutputTokens - 1 - ended.numCachedTokens,
            0,
          );
          expect(numComputed).toBeGreaterThanOrEqual(numNeeded);
          if (scheduler.numPreemptions === 0) expect(numComputed).toBe(numNeeded);
          expect(realised.numRequests).toBe(40);
          expect(simulate(deployment, workload)).toEqual(result);
        },
      ),
      { numRuns: 40 },
    );
  });
});
