import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ContentIndex, DIGEST_WORDS } from '../../../src/core/content-index.ts';

/** Few different first words, so that probes collide, wrap around and move up. */
function digestOf(first: number, rest: number): Int32Array {
  const words = new Int32Array(DIGEST_WORDS).fill(rest);
  words[0] = first;
  return words;
}

describe('ContentIndex', () => {
  it('agrees with a map on random insertions and removals', () => {
    const operation = fc.record({
      block: fc.integer({ min: 1, max: 15 }),
      group: fc.integer({ min: 0, max: 1 }),
      first: fc.constantFrom(-1, 30, 31, 5),
      rest: fc.integer({ min: 0, max: 3 }),
    });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 150 }), (operations) => {
        const index = new ContentIndex(16);
        const keyOfBlock = new Map<number, string>();
        const blockOfKey = new Map<string, number>();
        for (const { block, group, first, rest } of operations) {
          const key = `${group}/${first}/${rest}`;
          expect(index.find(group, digestOf(first, rest), 0)).toBe(blockOfKey.get(key) ?? 0);
          const filedUnder = keyOfBlock.get(block);
          if (filedUnder !== undefined) {
            index.remove(block);
            keyOfBlock.delete(block);
            blockOfKey.delete(filedUnder);
          } else if (!blockOfKey.has(key)) {
            index.insert(block, group, digestOf(first, rest), 0);
            keyOfBlock.set(block, key);
            blockOfKey.set(key, block);
          }
          expect(index.has(block)).toBe(keyOfBlock.has(block));
          expect(index.size).toBe(blockOfKey.size);
          expect(index.isConsistent()).toBe(true);
        }
      }),
      { numRuns: 300 },
    );
  });

  it('tells digests apart that differ in one word', () => {
    const index = new ContentIndex(4);
    index.insert(1, 0, digestOf(3, 3), 0);
    for (let word = 0; word < DIGEST_WORDS; word++) {
      const other = digestOf(3, 3);
      other[word] = 4;
      expect(index.find(0, other, 0)).toBe(0);
    }
    expect(index.find(0, digestOf(3, 3), 0)).toBe(1);
  });
});
