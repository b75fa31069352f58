import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { SpeculationOptions } from '../../../src/core/speculation.ts';
import { PagodaError } from '../../../src/errors.ts';
import { nextToken } from './scripted-device.ts';
import { EventLog, expectedTokens, request, scriptedEngine } from './scripted-engine.ts';

const prompt = (length: number, salt = 0): number[] => Array.from({ length }, (_, i) => (i * 7 + salt * 13) % 1000);

describe('Engine', () => {
  it('gives every request its own tokens, whatever runs beside it', async () => {
    const log = new EventLog();
    const { engine, device } = scriptedEngine(log);
    engine.start();
    const requests = Array.from({ length: 20 }, (_, i) =>
      request(`r${i}`, prompt(1 + ((i * 17) % 90), i), { maxTokens: 1 + (i % 12) }),
    );
    engine.submit(requests);
    await log.ended(requests.map(({ id }) => id));
    for (const each of requests) {
      expect(log.tokens(each.id)).toEqual(expectedTokens(each));
      expect(log.ends.get(each.id)?.finish?.reason).toBe('length');
    }
    await engine.close(1);
    expect(engine.scheduler.stats()).toMatchObject({ numRunning: 0, numWaiting: 0, numBlocksUsed: 0 });
    expect([device.numResident, device.isDisposed]).toEqual([0, true]);
  });

  it('survives preemption: the same tokens, and one event per token', async () => {
    const log = new EventLog();
    const { engine } = scriptedEngine(log, { numBlocks: 20, maxModelLen: 64 });
    engine.start();
    const requests = Array.from({ length: 12 }, (_, i) => request(`r${i}`, prompt(10 + i, i), { maxTokens: 30 }));
    engine.submit(requests);
    await log.ended(requests.map(({ id }) => id));
    expect(engine.scheduler.stats().totalPreemptions).toBeGreaterThan(3);
    for (const each of requests) expect(log.tokens(each.id)).toEqual(expectedTokens(each));
    await engine.close(1);
  });

  it('drafts: the same tokens and logprobs in fewer steps, several in one event, a stop inside them cuts the rest', async () => {
    const vocabulary = 3;
    const requests = Array.from({ length: 6 }, (_, i) => {
      const each = request(`r${i}`, prompt(5 + i, i), { maxTokens: 30, logprobs: i % 2 === 0 ? 0 : null });
      // The 20th token, wherever in a run of drafts it comes.
      const stopTokenIds = i === 3 ? [expectedTokens(each, vocabulary)[19]!] : [];
      return { ...each, sampling: { ...each.sampling, stopTokenIds, minTokens: 20 } };
    });
    const run = async (speculation: SpeculationOptions | null) => {
      const log = new EventLog();
      const { engine, device } = scriptedEngine(log, { speculation }, { vocabulary });
      engine.start();
      engine.submit(requests);
      await log.ended(requests.map(({ id }) => id));
      await engine.close(1);
      engine.scheduler.checkIntegrity();
      const outputs = requests.map(({ id }) => {
        const events = log.events.get(id)!;
        return {
          tokens: log.tokens(id),
          logprobs: events.flatMap((event) => event.logprobs ?? []),
          finish: { ...log.ends.get(id)!.finish, timing: null },
        };
      });
      const longest = Math.max(...[...log.events.values()].flat().map((event) => event.tokenIds.length));
      return { outputs, longest, numSteps: device.numSteps, stats: engine.scheduler.stats() };
    };
    const plain = await run(null);
    const drafting = await run({ numDraftTokens: 4, minNgram: 1, maxNgram: 3, maxSeqs: 6 });
    expect(drafting.outputs).toEqual(plain.outputs);
    expect(plain.outputs[3]!.tokens.length).toBe(20);
    expect(drafting.longest).toBeGreaterThan(2);
    expect(drafting.numSteps).toBeLessThan(plain.numSteps);
    expect(drafting.stats.numBlocksUsed).toBe(0);
    // More sequences than the limit: no drafts, and steps overlap again.
    const crowded = await run({ numDraftTokens: 4, minNgram: 1, maxNgram: 3, maxSeqs: 2 });
    expect(crowded.outputs).toEqual(plain.outputs);
    expect(crowded.stats.speculation!.numDrafts).toBeLessThan(drafting.stats.speculation!.numDrafts / 2);
  });

  it('random requests and aborts: one end each, right tokens until then, nothing left behind', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.record({
            length: fc.integer({ min: 1, max: 50 }),
            maxTokens: fc.integer({ min: 1, max: 14 }),
            delay: fc.integer({ min: 0, max: 3 }),
            abortAfter: fc.option(fc.integer({ min: 0, max: 5 })),
            hasEos: fc.boolean(),
          }),
          { minLength: 1, maxLength: 14 },
        ),
        fc.record({
          numBlocks: fc.integer({ min: 17, max: 40 }),
          maxNumBatchedTokens: fc.integer({ min: 4, max: 40 }),
          useKvCache: fc.boolean(),
          speculates: fc.boolean(),
        }),
        async (cases, { speculates, ...options }) => {
          const log = new EventLog();
          const vocabulary = speculates ? 3 : undefined;
          const speculation =
            speculates && options.useKvCache ? { numDraftTokens: 3, minNgram: 1, maxNgram: 2, maxSeqs: 3 } : null;
          const { engine, device } = scriptedEngine(
            log,
            { ...options, maxNumSeqs: 4, maxModelLen: 64, speculation },
            vocabulary === undefined ? {} : { vocabulary },
          );
          engine.start();
          const requests = cases.map(({ length, maxTokens, hasEos }, i) => {
            const tokens = prompt(length, i % 3);
            return request(`r${i}`, tokens, {
              maxTokens,
              eosTokenIds: hasEos ? [nextToken([...tokens, nextToken(tokens, vocabulary)], vocabulary)] : [],
            });
          });
          for (const [i, each] of requests.entries()) {
            for (let turn = 0; turn < cases[i]!.delay; turn++) await sleep(0);
            engine.submit([each]);
            const { abortAfter } = cases[i]!;
            if (abortAfter !== null)
              void sleep(abortAfter).then(() => engine.abort([each.id, 'nobody'], i % 2 === 0 ? 'abort' : 'stop'));
          }
          await log.ended(requests.map(({ id }) => id));
          for (const each of requests) {
            const expected = expectedTokens(each, vocabulary);
            const got = log.tokens(each.id);
            expect(got).toEqual(expected.slice(0, got.length));
            const { reason } = log.ends.get(each.id)!.finish!;
            if (reason === 'length') expect(got.length).toBe(expected.length);
          }
          await engine.close(1);
          engine.scheduler.checkIntegrity();
          expect(engine.scheduler.stats().numBlocksUsed).toBe(0);
          expect(device.numResident).toBe(0);
          expect(log.downs).toEqual([]);
        },
      ),
      { numRuns: 60 },
    );
  });

  it('ends only the request whose numbers are broken', async () => {
    const log = new EventLog();
    const { engine } = scriptedEngine(log, {}, { faulty: (tokens) => tokens[0] === 13 && tokens.length > 6 });
    engine.start();
    const good = request('good', prompt(4, 0));
    const bad = request('bad', prompt(4, 1));
    engine.submit([good, bad]);
    await log.ended(['good', 'bad']);
    expect(log.tokens('good')).toEqual(expectedTokens(good));
    expect(log.tokens('bad')).toEqual(expectedTokens(bad).slice(0, 3 - 1 + 1));
    expect(log.ends.get('bad')?.finish).toMatchObject({ reason: 'error', message: expect.stringContaining('NaN') });
    expect(engine.isAlive).toBe(true);
    await engine.close(1);
  });

  it('a step that throws ends every open request with one error and takes no more', async () => {
    const log = new EventLog();
    const { engine } = scriptedEngine(
      log,
      {},
      {
        onStep: (step) => {
          if (step === 3) throw new Error('out of luck');
        },
      },
    );
    engine.start();
    engine.submit([
      request('a', prompt(20)),
      request('b', prompt(40, 1)),
      request('c', prompt(3, 2), { maxTokens: 1 }),
    ]);
    await log.ended(['a', 'b', 'c']);
    expect(log.downs).toEqual(['The engine failed: out of luck']);
    for (const id of ['a', 'b'])
      expect(log.ends.get(id)?.finish).toMatchObject({ reason: 'error', message: 'The engine failed: out of luck' });
    expect(engine.isAlive).toBe(false);
    expect(() => engine.submit([request('d', [1])])).toThrow(PagodaError);
    await engine.close(0);
  });

  it('collects prompt logprobs over chunks and preemptions, once, in order', async () => {
    const log = new EventLog();
    const { engine } = scriptedEngine(log, { numBlocks: 20, maxModelLen: 64, maxNumBatchedTokens: 9 });
    engine.start();
    const requests = Array.from({ length: 6 }, (_, i) =>
      request(`r${i}`, prompt(20, i), { maxTokens: 20, promptLogprobs: 0, logprobs: 0 }),
    );
    engine.submit(requests);
    await log.ended(requests.map(({ id }) => id));
    expect(engine.scheduler.stats().totalPreemptions).toBeGreaterThan(0);
    for (const { id, promptTokenIds } of requests) {
      const events = log.events.get(id)!;
      const withPrompt = events.filter((event) => event.promptLogprobs !== null);
      expect(withPrompt).toEqual([events[0]]);
      expect(events[0]!.promptLogprobs!.map((entry) => entry?.tokenId ?? null)).toEqual([
        null,
        ...promptTokenIds.slice(1),
      ]);
      expect(events[0]!.promptLogprobs!.map((entry) => entry?.logprob ?? null)).toEqual([
        null,
        ...promptTokenIds.slice(1).map((_, i) => -(i + 1)),
      ]);
      for (const event of events) expect(event.logprobs?.length).toBe(event.tokenIds.length);
    }
    await engine.close(1);
  });

  it('close lets requests finish, then aborts what is left', async () => {
    const log = new EventLog();
    const quick = scriptedEngine(log);
    quick.engine.start();
    const short = request('short', prompt(5), { maxTokens: 5 });
    quick.engine.submit([short]);
    await quick.engine.close(10);
    expect(log.tokens('short')).toEqual(expectedTokens(short));

    const other = new EventLog();
    const { engine } = scriptedEngine(other);
    engine.start();
    engine.submit([request('long', prompt(5), { maxTokens: 100 })]);
    await engine.close(0);
    expect(other.ends.get('long')?.finish?.reason).toBe('abort');
    expect(() => engine.submit([request('late', [1])])).toThrow('shutting down');
  });
});
