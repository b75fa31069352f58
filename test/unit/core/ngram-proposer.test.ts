import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NgramProposer } from '../../../src/core/ngram-proposer.ts';

function propose(tokens: readonly number[], options: { k: number; min: number; max: number }, limit = 1000): number[] {
  const { k, min, max } = options;
  const proposer = new NgramProposer({ numDraftTokens: k, minNgram: min, maxNgram: max });
  const drafts = new Int32Array(k).fill(-1);
  // What lies behind the known tokens must not matter.
  const count = proposer.propose(Int32Array.from([...tokens, ...tokens]), tokens.length, limit, drafts);
  return Array.from(drafts.subarray(0, count));
}

/** Every n-gram length from the longest, every place from the front. */
function proposeSlowly(tokens: readonly number[], { k, min, max }: { k: number; min: number; max: number }): number[] {
  for (let n = Math.min(max, tokens.length - 1); n >= min; n--) {
    const suffix = tokens.slice(-n).join();
    for (let start = 0; start + n < tokens.length; start++) {
      if (tokens.slice(start, start + n).join() === suffix) return tokens.slice(start + n, start + n + k);
    }
  }
  return [];
}

describe('NgramProposer', () => {
  it('continues as after the longest n-gram that stood before', () => {
    expect(propose([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], { k: 2, min: 2, max: 2 })).toEqual([4, 1]);
    expect(propose([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], { k: 3, min: 1, max: 3 })).toEqual([4, 1, 2]);
    // Three tokens match only at the second place, so the first one, where two do, is not taken.
    expect(propose([9, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], { k: 1, min: 2, max: 3 })).toEqual([8]);
    expect(propose([9, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], { k: 1, min: 2, max: 2 })).toEqual([7]);
  });

  it('proposes nothing without a match, with too short a text, or beyond the limit', () => {
    expect(propose([1, 2, 3, 4], { k: 3, min: 1, max: 3 })).toEqual([]);
    expect(propose([1], { k: 3, min: 1, max: 3 })).toEqual([]);
    expect(propose([1, 2, 3, 1, 2], { k: 3, min: 3, max: 5 })).toEqual([]);
    expect(propose([1, 2, 3, 1, 2], { k: 3, min: 2, max: 5 }, 2)).toEqual([3, 1]);
    expect(propose([1, 2, 3, 1, 2], { k: 3, min: 2, max: 5 }, 0)).toEqual([]);
    expect(propose([1, 2, 3, 1, 2], { k: 3, min: 2, max: 5 }, -1)).toEqual([]);
  });

  it('follows a repetition that overlaps itself', () => {
    expect(propose([5, 5, 5, 5], { k: 3, min: 1, max: 2 })).toEqual([5, 5]);
    expect(propose([1, 2, 1, 2, 1, 2, 1], { k: 4, min: 1, max: 3 })).toEqual([2, 1, 2, 1]);
  });

  it('agrees with trying every n-gram at every place, also when it is used again', () => {
    const shape = fc.record({
      k: fc.integer({ min: 1, max: 5 }),
      min: fc.integer({ min: 1, max: 4 }),
      extra: fc.nat(4),
    });
    const texts = fc.array(fc.array(fc.nat(2), { maxLength: 40 }), { minLength: 4, maxLength: 8 });
    let numFound = 0;
    fc.assert(
      fc.property(shape, texts, ({ k, min, extra }, all) => {
        const options = { k, min, max: min + extra };
        const proposer = new NgramProposer({ numDraftTokens: k, minNgram: min, maxNgram: min + extra });
        const drafts = new Int32Array(k);
        for (const tokens of all) {
          const count = proposer.propose(Int32Array.from(tokens), tokens.length, 1000, drafts);
          expect(Array.from(drafts.subarray(0, count))).toEqual(proposeSlowly(tokens, options));
          if (count > 0) numFound++;
        }
      }),
      { numRuns: 300 },
    );
    expect(numFound).toBeGreaterThan(200);
  });
});
