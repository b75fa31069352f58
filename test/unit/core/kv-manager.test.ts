import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KvManager } from '../../../src/core/kv-manager.ts';
import { Sequence } from '../../../src/core/sequence.ts';
import { makeRequest, tokensOf } from './scheduler-fixtures.ts';

function makeManager(
  windows: number[],
  options: { blockSize?: number; numBlocks?: number; maxTokensPerStep?: number } = {},
): KvManager {
  return new KvManager({
    blockSize: options.blockSize ?? 4,
    numBlocks: options.numBlocks ?? 200,
    groups: windows.map((window) => ({ window })),
    enablePrefixCaching: true,
    cacheSecret: Uint8Array.of(1),
    keepsAll: false,
    maxTokensPerStep: options.maxTokensPerStep ?? 64,
  });
}

function makeSequence(kv: KvManager, tokens: number[], salt: string | null = null): Sequence {
  const request = makeRequest('request', tokens, { cacheSalt: salt });
  const sequence = new Sequence(request, {
    order: 0,
    maxTotalTokens: tokens.length + 100,
    numGroups: kv.windows.length,
  });
  kv.register(sequence);
  return sequence;
}

/** Computes a sequence's prompt in chunks, as the scheduler would. */
function compute(kv: KvManager, sequence: Sequence, chunk: number): void {
  kv.adoptPrefix(sequence, 0);
  while (sequence.computedTokens < sequence.numTokens) {
    const end = Math.min(sequence.numTokens, sequence.computedTokens + chunk);
    if (!kv.grow(sequence, end)) throw new Error('does not fit');
    sequence.computedTokens = end;
    kv.fileFullBlocks(sequence);
  }
}

describe('KvManager', () => {
  it('finds the full blocks of a finished sequence, never all tokens, and never under another salt', () => {
    const kv = makeManager([0]);
    const first = makeSequence(kv, tokensOf(1, 18));
    compute(kv, first, 18);
    kv.release(first);
    expect(kv.findPrefix(makeSequence(kv, tokensOf(1, 40)))).toBe(16);
    expect(kv.findPrefix(makeSequence(kv, tokensOf(1, 16)))).toBe(12);
    expect(kv.findPrefix(makeSequence(kv, [...tokensOf(1, 6), 5, 5, 5, 5]))).toBe(4);
    expect(kv.findPrefix(makeSequence(kv, tokensOf(1, 40), 'salt'))).toBe(0);
  });

  it('shares blocks that are found and counts what they cost', () => {
    const kv = makeManager([0]);
    const first = makeSequence(kv, tokensOf(1, 16));
    compute(kv, first, 16);
    const second = makeSequence(kv, tokensOf(1, 20));
    expect(kv.findPrefix(second)).toBe(16);
    expect(kv.blocksToAdmit(second, 16, 20)).toBe(1);
    kv.adoptPrefix(second, 16);
    expect(Array.from(second.blockTables[0]!.subarray(0, 4))).toEqual(Array.from(first.blockTables[0]!.subarray(0, 4)));
    kv.release(first);
    expect(kv.pool.numUsed).toBe(4);
    expect(kv.release(second)).toBe(4);
    // Nobody holds the four now: taking them takes them from the free ones.
    expect(kv.blocksToAdmit(makeSequence(kv, tokensOf(1, 20)), 0, 20)).toBe(5);
    const third = makeSequence(kv, tokensOf(1, 20));
    expect(kv.blocksToAdmit(third, kv.findPrefix(third), 20)).toBe(5);
  });

  it('keeps only the window and the chunk of a windowed group', () => {
    const kv = makeManager([6], { maxTokensPerStep: 8 });
    const sequence = makeSequence(kv, tokensOf(1, 64));
    let mostUsed = 0;
    kv.adoptPrefix(sequence, 0);
    while (sequence.computedTokens < 64) {
      expect(kv.grow(sequence, sequence.computedTokens + 8)).toBe(true);
      mostUsed = Math.max(mostUsed, kv.pool.numUsed);
      sequence.computedTokens += 8;
    }
    // 5 tokens before the chunk and the 8 of the chunk: from block border to block border 2 + 2 blocks of 4.
    expect(mostUsed).toBe(4);
    expect(kv.peakBlocks(64)).toBe(4);
    expect(Array.from(sequence.blockTables[0]!.subarray(0, 12))).toEqual(new Array(12).fill(0));
  });

  it('allocates nothing when not everything fits', () => {
    const kv = makeManager([0, 0], { numBlocks: 6 });
    const sequence = makeSequence(kv, tokensOf(1, 12));
    expect(kv.grow(sequence, 12)).toBe(false);
    expect(kv.pool.numFree).toBe(5);
    expect(kv.grow(sequence, 8)).toBe(true);
    expect(kv.pool.numFree).toBe(1);
  });

  it('forgets all that was filed for a sequence, also after its release', () => {
    const kv = makeManager([0, 5]);
    const sequence = makeSequence(kv, tokensOf(1, 20));
    compute(kv, sequence, 20);
    kv.release(sequence);
    expect(kv.findPrefix(makeSequence(kv, tokensOf(1, 20)))).toBe(16);
    kv.forgetContents(sequence);
    expect(kv.pool.contents.size).toBe(0);
    expect(kv.pool.numFreeCached).toBe(0);
  });

  it('never needs more blocks at once than peakBlocks says', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 20 }), { minLength: 1, maxLength: 3 }),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 1, max: 60 }),
        fc.infiniteStream(fc.integer({ min: 1, max: 12 })),
        (windows, blockSize, maxTokensPerStep, numTokens, chunks) => {
          const kv = makeManager(windows, { blockSize, maxTokensPerStep, numBlocks: 1000 });
          const sequence = makeSequence(kv, tokensOf(1, numTokens));
          kv.adoptPrefix(sequence, 0);
          for (const chunk of chunks) {
            const end = Math.min(numTokens, sequence.computedTokens + Math.min(chunk, maxTokensPerStep));
            kv.grow(sequence, end);
            expect(kv.pool.numUsed).toBeLessThanOrEqual(kv.peakBlocks(numTokens));
            sequence.computedTokens = end;
            if (end === numTokens) break;
          }
        },
      ),
      { numRuns: 200 },
    );
  });

  it('finds the longest prefix that trying every length finds', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 13 }), { minLength: 1, maxLength: 3 }),
        fc.array(fc.nat(40), { maxLength: 12 }),
        fc.integer({ min: 1, max: 44 }),
        (windows, forgotten, numTokens) => {
          const kv = makeManager(windows);
          const first = makeSequence(kv, tokensOf(1, 44));
          compute(kv, first, 5);
          // Some of the blocks were handed out again in between.
          for (const block of forgotten) kv.pool.forget(block);
          const second = makeSequence(kv, tokensOf(1, numTokens));
          const found = kv.findPrefix(second);
          const { words } = first.blockHashes;
          const isUsable = (numBlocks: number) =>
            windows.every((window, group) => {
              for (let index = 0; index < numBlocks; index++) {
                const isVisible = window === 0 || (index + 1) * 4 > numBlocks * 4 - window + 1;
                if (isVisible && kv.pool.find(group, words, first.blockHashes.offsetOf(index)) === 0) return false;
              }
              return true;
            });
          let longest = Math.floor((numTokens - 1) / 4);
          while (longest > 0 && !isUsable(longest)) longest--;
          expect(found).toBe(longest * 4);
        },
      ),
      { numRuns: 300 },
    );
  });
});
