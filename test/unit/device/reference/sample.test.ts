// The sampler against the golden distributions (float64, numpy) and against stupid versions of its parts.

import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { DEFAULT_SAMPLING, type SamplingParams } from '../../../../src/core/sampling-params.ts';
import { chooseInChunks } from '../../../../src/device/reference/choose-in-chunks.ts';
import { chunkedSum, exactExp } from '../../../../src/device/reference/exact-exp.ts';
import { bestTokens, logSumExp, rankOf } from '../../../../src/device/reference/logprobs.ts';
import {
  adjustLogits,
  argmax,
  choose,
  filter,
  SamplerScratch,
  sampleToken,
} from '../../../../src/device/reference/sample.ts';
import { TokenHistory } from '../../../../src/device/reference/token-history.ts';
import { noShared, sharedPath } from '../../../shared-data.ts';

interface GoldenCase {
  readonly vector: string;
  readonly params: Record<string, number> & { logit_bias?: Record<string, number> };
  readonly promptIds: number[];
  readonly outputIds: number[];
  readonly numKept: number;
  readonly keptIds: number[];
  readonly probs: number[];
  readonly boundaryGap?: number;
  readonly tieAtTopP?: boolean;
}

function paramsOf({ params }: GoldenCase): SamplingParams {
  return {
    ...DEFAULT_SAMPLING,
    temperature: params.temperature ?? 1,
    topK: Math.max(0, params.top_k ?? 0),
    topP: params.top_p ?? 1,
    minP: params.min_p ?? 0,
    repetitionPenalty: params.repetition_penalty ?? 1,
    presencePenalty: params.presence_penalty ?? 0,
    frequencyPenalty: params.frequency_penalty ?? 0,
    logitBias: Object.entries(params.logit_bias ?? {}).map(([token, bias]) => [Number(token), bias] as const),
  };
}

/** What is kept, by falling probability, ties to the lower id. */
function distribution(
  logits: Float32Array,
  sampling: SamplingParams,
  history: TokenHistory,
): Array<[id: number, probability: number]> {
  const scratch = new SamplerScratch(logits.length);
  adjustLogits(logits, sampling, history, scratch.x);
  const best = argmax(scratch.x);
  if (sampling.temperature < 1e-5) return [[best, 1]];
  filter(scratch, sampling, scratch.x[best]);
  const total = chunkedSum(scratch.weights);
  const kept: Array<[number, number]> = [];
  scratch.x.forEach((x, id) => {
    if (x > Number.NEGATIVE_INFINITY) kept.push([id, scratch.weights[id] / total]);
  });
  return kept.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

describe.skipIf(noShared)('golden distributions', () => {
  it('all 396 cases', () => {
    const golden = JSON.parse(readFileSync(sharedPath('golden', 'sampling', 'sampling.json'), 'utf8')) as {
      vectors: Array<{ name: string; length: number; offset: number }>;
      cases: GoldenCase[];
    };
    const bytes = readFileSync(sharedPath('golden', 'sampling', 'logits.f32'));
    const vectors = new Map(
      golden.vectors.map(({ name, length, offset }) => [
        name,
        new Float32Array(bytes.buffer.slice(bytes.byteOffset + offset, bytes.byteOffset + offset + 4 * length)),
      ]),
    );
    let numLoose = 0;
    for (const each of golden.cases) {
      const logits = vectors.get(each.vector) as Float32Array;
      const sampling = paramsOf(each);
      const history = new TokenHistory([...each.promptIds, ...each.outputIds], each.promptIds.length, sampling);
      const found = distribution(logits, sampling, history);
      const label = `${each.vector} ${JSON.stringify(each.params)}`;
      // On the limit itself one rounding decides; the best token stays in any case.
      if ((each.boundaryGap ?? 1) < 1e-6) {
        numLoose++;
        expect(Math.abs(found.length - each.numKept), label).toBeLessThanOrEqual(1);
        expect(found.length, label).toBeGreaterThan(0);
        continue;
      }
      expect(found.length, label).toBe(each.numKept);
      if (!each.tieAtTopP) expect(idsByProbability(found, each), label).toEqual(each.keptIds);
      each.probs.forEach((wanted, i) => {
        expect(Math.abs(found[i][1] - wanted), `${label} token ${i}`).toBeLessThanOrEqual(1e-5 * wanted + 1e-300);
      });
    }
    expect(golden.cases.length).toBe(396);
    expect(numLoose).toBe(18);
  });
});

/** Our ids in golden order: probabilities that both sides hold equal may come in either order. */
function idsByProbability(found: Array<[number, number]>, golden: GoldenCase): number[] {
  const ids = found.slice(0, golden.keptIds.length).map(([id]) => id);
  const same = (i: number, j: number) => Math.abs(found[i][1] - found[j][1]) <= 1e-12 * found[i][1];
  return ids.map((id, i) => {
    const wanted = golden.keptIds[i];
    const place = found.findIndex(([other]) => other === wanted);
    return place >= 0 && same(i, place) ? wanted : id;
  });
}

const LOGITS = Float32Array.of(1, 3, 2, 3, -1, 0.5);

function sample(overrides: Partial<SamplingParams>, tokens: number[] = [5], numPrompt = 1, logits = LOGITS): number {
  const sampling = { ...DEFAULT_SAMPLING, ...overrides };
  return sampleToken(
    logits,
    sampling,
    new TokenHistory(tokens, numPrompt, sampling),
    new SamplerScratch(logits.length),
  );
}

describe('masks and choices', () => {
  const greedy = { temperature: 0 };

  it('takes the lowest id of equal logits when greedy', () => {
    expect(sample(greedy)).toBe(1);
  });

  it('keeps to allowed tokens', () => {
    expect(sample({ ...greedy, allowedTokenIds: [4, 0, 5] })).toBe(0);
  });

  it('forbids the end of a bad word only after its beginning in the output', () => {
    const badWords = [[2, 0, 1]];
    expect(sample({ ...greedy, badWords }, [5, 2, 0], 1)).toBe(3);
    expect(sample({ ...greedy, badWords }, [5, 2, 0], 2)).toBe(1); // the 2 belongs to the prompt
    expect(sample({ ...greedy, badWords: [[1]] })).toBe(3);
  });

  it('masks end and stop tokens until min tokens were generated, also when eos is ignored', () => {
    const stops = { ...greedy, eosTokenIds: [1], stopTokenIds: [3], minTokens: 2, ignoreEos: true };
    expect(sample(stops, [5, 0], 1)).toBe(2);
    expect(sample(stops, [5, 0, 0], 1)).toBe(1);
  });

  it('clamps biases and adds repeated ones', () => {
    expect(sample({ ...greedy, logitBias: [[4, 1e9]] })).toBe(4);
    expect(
      sample({
        ...greedy,
        logitBias: [
          [4, 2],
          [4, 2.5],
        ],
      }),
    ).toBe(4);
  });

  it('penalises prompt tokens for repetition and output tokens for presence', () => {
    expect(sample({ ...greedy, repetitionPenalty: 2 }, [1, 3], 2)).toBe(2);
    expect(sample({ ...greedy, presencePenalty: 2 }, [1, 3], 2)).toBe(1);
    expect(sample({ ...greedy, presencePenalty: 2 }, [1, 3, 1, 3], 2)).toBe(2);
    expect(sample({ ...greedy, frequencyPenalty: 0.6 }, [5, 1, 1, 3], 1)).toBe(3);
  });

  it('never ends in NaN when masks leave nothing: best allowed token', () => {
    expect(sample({ ...greedy, allowedTokenIds: [2], eosTokenIds: [2], minTokens: 5 })).toBe(2);
    expect(sample({ temperature: 1, badWords: [[0], [1], [2], [3], [4], [5]] })).toBe(1);
  });

  it('draws the same for the same seed and place, and not always the same', () => {
    const draws = Array.from({ length: 200 }, (_, i) => sample({ seed: BigInt(i) }));
    expect(draws).toEqual(Array.from({ length: 200 }, (_, i) => sample({ seed: BigInt(i) })));
    expect(new Set(draws).size).toBeGreaterThan(3);
  });

  it('draws with the right frequencies', () => {
    const counts = new Array<number>(LOGITS.length).fill(0);
    const numDraws = 6000;
    for (let i = 0; i < numDraws; i++) counts[sample({ seed: 7n }, new Array<number>(i + 1).fill(0), 1)]++;
    const total = LOGITS.reduce((sum, x) => sum + Math.exp(x), 0);
    const chiSquare = counts.reduce((sum, count, i) => {
      const expected = (numDraws * Math.exp(LOGITS[i])) / total;
      return sum + (count - expected) ** 2 / expected;
    }, 0);
    expect(chiSquare).toBeLessThan(20.5); // 0.1 % with 5 degrees of freedom
  });
});

describe('parts of the sampler against stupid versions', () => {
  it('chooseInChunks', () => {
    const value = fc.oneof(
      { weight: 20, arbitrary: fc.float({ min: -30, max: 30, noNaN: true }) },
      { weight: 1, arbitrary: fc.constant(Number.NEGATIVE_INFINITY) },
    );
    fc.assert(
      fc.property(
        fc.array(value, { minLength: 1, maxLength: 1000, size: 'max' }),
        fc.double({ min: 0.01, max: 10, noNaN: true }),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (values, temperature, u) => {
          const max = Math.max(...values);
          fc.pre(max > Number.NEGATIVE_INFINITY);
          const weights = values.map((x) => Math.exp((x - max) / temperature));
          const total = weights.reduce((sum, weight) => sum + weight, 0);
          const chosen = chooseInChunks(Float32Array.from(values), temperature, u);
          const below = weights.slice(0, chosen).reduce((sum, weight) => sum + weight, 0) / total;
          expect(weights[chosen]).toBeGreaterThan(0);
          expect(u).toBeGreaterThan(below - 1e-5);
          expect(u).toBeLessThan(below + weights[chosen] / total + 1e-5);
        },
      ),
      { numRuns: 300 },
    );
  });

  it('exactExp', () => {
    fc.assert(
      fc.property(fc.double({ min: -700, max: 0, noNaN: true }), (x) => {
        expect(Math.abs(exactExp(x) - Math.exp(x))).toBeLessThanOrEqual(2e-14 * Math.exp(x));
      }),
    );
    expect([exactExp(0), exactExp(Number.NEGATIVE_INFINITY), exactExp(-1e9)]).toEqual([1, 0, 0]);
  });

  it('choose is the inverse of the cumulative sum', () => {
    const weights = fc.array(fc.oneof(fc.constant(0), fc.double({ min: 1e-6, max: 1, noNaN: true })), {
      minLength: 1,
      maxLength: 700,
    });
    fc.assert(
      fc.property(weights, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (list, u) => {
        if (list.every((weight) => weight === 0)) return;
        const chosen = choose(Float64Array.from(list), u);
        const total = list.reduce((sum, weight) => sum + weight, 0);
        const before = list.slice(0, chosen).reduce((sum, weight) => sum + weight, 0);
        expect(list[chosen]).toBeGreaterThan(0);
        expect(before).toBeLessThanOrEqual(u * total + 1e-9);
        expect(before + list[chosen]).toBeGreaterThanOrEqual(u * total - 1e-9);
      }),
    );
  });

  it('top_k and top_p keep what sorting keeps', () => {
    const values = fc.array(fc.integer({ min: -20, max: 20 }), { minLength: 1, maxLength: 400 });
    fc.assert(
      fc.property(
        values,
        fc.integer({ min: 0, max: 50 }),
        fc.double({ min: 0.05, max: 1, noNaN: true }),
        (list, topK, topP) => {
          const logits = Float32Array.from(list, (value) => value / 4);
          const sampling = { ...DEFAULT_SAMPLING, topK, topP };
          const found = distribution(logits, sampling, new TokenHistory([0], 1, sampling)).map(([id]) => id);
          expect(found.sort((a, b) => a - b)).toEqual(keptBySorting(logits, topK, topP));
        },
      ),
    );
  });

  it('ranks and best tokens', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: -9, max: 9 }), { minLength: 1, maxLength: 200 }),
        fc.integer({ min: -1, max: 40 }),
        (list, count) => {
          const logits = Float32Array.from(list);
          const lse = logSumExp(logits, new Float64Array(logits.length));
          const order = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || a - b);
          const best = bestTokens(logits, count, lse);
          expect(best.map((token) => token.tokenId)).toEqual(count < 0 ? order : order.slice(0, count));
          expect(Math.abs(lse - Math.log(list.reduce((sum, x) => sum + Math.exp(x), 0)))).toBeLessThan(1e-12 * 100);
          expect(rankOf(logits, order[0])).toBe(1);
          for (const token of order)
            expect(rankOf(logits, token)).toBe(1 + list.filter((x) => x > logits[token]).length);
        },
      ),
    );
  });
});

function keptBySorting(logits: Float32Array, topK: number, topP: number): number[] {
  let ids = [...logits.keys()].sort((a, b) => logits[b] - logits[a] || b - a);
  if (topK > 0 && topK < ids.length) ids = ids.filter((id) => logits[id] >= logits[ids[topK - 1]]);
  if (topP === 1) return ids.sort((a, b) => a - b);
  const weights = ids.map((id) => Math.exp(logits[id] - logits[ids[0]]));
  const goal = topP * weights.reduce((sum, weight) => sum + weight, 0);
  let above = 0;
  const kept = ids.filter((_, i) => {
    const stays = above < goal;
    above += weights[i];
    return stays;
  });
  return kept.sort((a, b) => a - b);
}
