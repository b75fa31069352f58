import { describe, expect, it } from 'vitest';
import { PagodaError } from '../../../src/errors.ts';
import { parseLengths } from '../../../src/workload/parse-lengths.ts';
import { createSyntheticWorkload, type SyntheticSpec } from '../../../src/workload/synthetic-workload.ts';
import { TimeHeap } from '../../../src/workload/time-heap.ts';
import { WORKLOAD_PRESETS } from '../../../src/workload/workload-presets.ts';
import { workloadStatistics } from '../../../src/workload/workload-statistics.ts';

const SPEC: SyntheticSpec = {
  name: 'test',
  seed: 1,
  numRequests: 200,
  arrivals: { kind: 'poisson', requestsPerSecond: 10 },
  closedLoop: null,
  maxSeconds: null,
  prompt: parseLengths('100-200', '--prompt'),
  output: parseLengths('exponential(50)', '--output'),
  rankCorrelation: 0,
  prefix: { kind: 'none' },
};
const requestsOf = (changes: Partial<SyntheticSpec>) => [
  ...createSyntheticWorkload({ ...SPEC, ...changes }).requests(),
];

describe('synthetic workload', () => {
  it('repeats exactly, pass after pass, and differs by seed', () => {
    const workload = createSyntheticWorkload(SPEC);
    const first = [...workload.requests()];
    expect(first).toHaveLength(200);
    expect([...workload.requests()]).toEqual(first);
    expect(requestsOf({ seed: 2 })).not.toEqual(first);
  });

  it('changes nothing else when one part changes', () => {
    const lengths = (changes: Partial<SyntheticSpec>) =>
      requestsOf(changes).map(({ numPromptTokens, numOutputTokens }) => [numPromptTokens, numOutputTokens]);
    expect(lengths({ arrivals: { kind: 'constant', requestsPerSecond: 3 } })).toEqual(lengths({}));
    const times = (changes: Partial<SyntheticSpec>) => requestsOf(changes).map(({ arrivalSeconds }) => arrivalSeconds);
    expect(times({ prompt: parseLengths('7', '--prompt') })).toEqual(times({}));
  });

  it('ends by number or by time', () => {
    const requests = requestsOf({ maxSeconds: 5, numRequests: 1_000_000 });
    expect(requests.at(-1)!.arrivalSeconds).toBeLessThanOrEqual(5);
    expect(requests.length).toBeGreaterThan(20);
    expect(createSyntheticWorkload({ ...SPEC, maxSeconds: 5 }).numRequests).toBeNull();
  });

  it('shares system prompts by blocks that are wholly inside them', () => {
    const requests = requestsOf({ prefix: { kind: 'shared', numTokens: 40, share: 1, numPrompts: 1 }, numRequests: 3 });
    for (const { numPromptTokens, hashIds } of requests) {
      expect(numPromptTokens).toBeGreaterThanOrEqual(140);
      expect(hashIds).toHaveLength(Math.ceil(numPromptTokens / 16));
      expect(hashIds!.slice(0, 2)).toEqual(requests[0]!.hashIds!.slice(0, 2));
    }
    const all = requests.flatMap(({ hashIds }) => hashIds!.slice(2));
    expect(new Set(all).size).toBe(all.length);
  });

  it('shares with a share of the prompts, among several', () => {
    const requests = requestsOf({
      prefix: { kind: 'shared', numTokens: 32, share: 0.5, numPrompts: 4 },
      numRequests: 2000,
    });
    const firsts = new Map<number, number>();
    for (const { hashIds } of requests) firsts.set(hashIds![0]!, (firsts.get(hashIds![0]!) ?? 0) + 1);
    const shared = [...firsts.values()].filter((count) => count > 1);
    expect(shared).toHaveLength(4);
    expect(Math.abs(shared.reduce((sum, count) => sum + count, 0) / 2000 - 0.5)).toBeLessThan(0.05);
  });

  it('conversations repeat what was said, in order, block by block', () => {
    for (const closedLoop of [null, { concurrency: 3, thinkSeconds: 0 }]) {
      const requests = requestsOf({
        arrivals: closedLoop === null ? SPEC.arrivals : null,
        closedLoop,
        prefix: {
          kind: 'multi-turn',
          turns: parseLengths('4', '--turns'),
          thinkSeconds: 2,
          numSharedTokens: 64,
          maxTokens: 100_000,
        },
      });
      const bySession = new Map<number, typeof requests>();
      for (const request of requests)
        bySession.set(request.sessionId!, [...(bySession.get(request.sessionId!) ?? []), request]);
      for (const turns of bySession.values()) {
        for (let i = 1; i < turns.length; i++) {
          const before = turns[i - 1]!;
          const turn = turns[i]!;
          expect(turn.numPromptTokens).toBeGreaterThan(before.numPromptTokens + before.numOutputTokens);
          expect(turn.hashIds!.slice(0, before.hashIds!.length)).toEqual(before.hashIds);
          if (closedLoop === null) expect(turn.arrivalSeconds).toBeCloseTo(before.arrivalSeconds + 2, 9);
        }
      }
      const lengths = [...bySession.values()].map((turns) => turns.length);
      expect(Math.max(...lengths)).toBe(4);
      const times = requests.map(({ arrivalSeconds }) => arrivalSeconds);
      expect(times).toEqual([...times].sort((a, b) => a - b));
      expect(new Set(requests.map(({ hashIds }) => hashIds!.slice(0, 4).join())).size).toBe(1);
    }
  });

  it('a conversation ends before it grows too long', () => {
    const requests = requestsOf({
      prefix: {
        kind: 'multi-turn',
        turns: parseLengths('50', '--turns'),
        thinkSeconds: 0,
        numSharedTokens: 0,
        maxTokens: 1000,
      },
    });
    const longest = Math.max(...requests.map((each) => each.numPromptTokens + each.numOutputTokens));
    expect(longest).toBeGreaterThan(500);
    expect(longest).toBeLessThan(2000);
  });

  it.each([
    [{ numRequests: 0 }, /--num-requests/],
    [{ rankCorrelation: 2 }, /--length-correlation/],
    [{ maxSeconds: -1 }, /--duration/],
    [{ arrivals: null, closedLoop: { concurrency: 0, thinkSeconds: 0 } }, /--concurrency/],
    [{ arrivals: null, closedLoop: { concurrency: 2, thinkSeconds: -1 } }, /--think-time/],
    [{ prefix: { kind: 'shared', numTokens: 0, share: 1, numPrompts: 1 } }, /--prefix/],
  ] satisfies ReadonlyArray<[Partial<SyntheticSpec>, RegExp]>)('refuses %j', (changes, expected) => {
    expect(() => createSyntheticWorkload({ ...SPEC, ...changes })).toThrow(PagodaError);
    expect(() => createSyntheticWorkload({ ...SPEC, ...changes })).toThrow(expected);
  });

  it('every preset can be drawn from, near its medians', () => {
    for (const [name, preset] of Object.entries(WORKLOAD_PRESETS)) {
      const { prompt, output, rankCorrelation } = preset;
      const statistics = workloadStatistics(
        createSyntheticWorkload({ ...SPEC, name, numRequests: 5000, prompt, output, rankCorrelation }),
      );
      expect(statistics.promptTokens.p50, name).toBeGreaterThan(50);
      expect(Math.abs(statistics.rankCorrelation - rankCorrelation), name).toBeLessThan(0.06);
    }
    const conv = WORKLOAD_PRESETS['azure-conv'];
    const { promptTokens, outputTokens } = workloadStatistics(
      createSyntheticWorkload({ ...SPEC, numRequests: 20_000, prompt: conv.prompt, output: conv.output }),
    );
    expect(Math.abs(promptTokens.p50 / 1020 - 1)).toBeLessThan(0.05);
    expect(Math.abs(promptTokens.p95 / 4083 - 1)).toBeLessThan(0.05);
    expect(Math.abs(outputTokens.p95 / 451 - 1)).toBeLessThan(0.05);
  });
});

describe('time heap', () => {
  it('gives back by time, equal times in order of arrival', () => {
    const heap = new TimeHeap<string>();
    const times = [5, 1, 3, 1, 5, 2, 1, 4, 3];
    times.forEach((time, i) => {
      heap.push(time, `${time}-${i}`);
    });
    const taken: string[] = [];
    while (heap.size > 0) taken.push(heap.pop());
    expect(taken).toEqual(['1-1', '1-3', '1-6', '2-5', '3-2', '3-8', '4-7', '5-0', '5-4']);
    expect(heap.nextTime).toBe(Number.POSITIVE_INFINITY);
    expect(() => heap.pop()).toThrow(RangeError);
  });
});
