import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BlockPool } from '../../../src/core/block-pool.ts';
import { DIGEST_WORDS } from '../../../src/core/content-index.ts';

const digest = (content: number) => new Int32Array(DIGEST_WORDS).fill(content);

describe('BlockPool', () => {
  it('hands out every block but the null block, once', () => {
    const pool = new BlockPool(5);
    const blocks = [pool.allocate(), pool.allocate(), pool.allocate(), pool.allocate()];
    expect(blocks).toEqual([1, 2, 3, 4]);
    expect(pool.numFree).toBe(0);
    expect(() => pool.allocate()).toThrow(/empty/);
  });

  it('reuses unnamed blocks first, then the least recently used named ones', () => {
    const pool = new BlockPool(5);
    for (let i = 0; i < 4; i++) pool.allocate();
    for (const block of [1, 2, 3]) pool.file(block, 0, digest(block), 0);
    for (const block of [2, 1, 4, 3]) pool.release(block);
    expect(pool.numFreeCached).toBe(3);
    expect([pool.allocate(), pool.allocate(), pool.allocate(), pool.allocate()]).toEqual([4, 2, 1, 3]);
    expect(pool.find(0, digest(2), 0)).toBe(0);
    expect(pool.numFreeCached).toBe(0);
  });

  it('keeps a found block from being handed out', () => {
    const pool = new BlockPool(3);
    const block = pool.allocate();
    pool.file(block, 0, digest(9), 0);
    pool.release(block);
    expect(pool.find(0, digest(9), 0)).toBe(block);
    expect(pool.find(1, digest(9), 0)).toBe(0); // another group
    pool.retain(block);
    expect(pool.numFree).toBe(1);
    expect(pool.allocate()).not.toBe(block);
    pool.retain(block);
    expect(pool.release(block)).toBe(false);
    expect(pool.release(block)).toBe(true);
    expect(() => pool.release(block)).toThrow(/more often/);
  });

  it('agrees with a list and a map on random operations', () => {
    const operations = fc.array(fc.tuple(fc.integer({ min: 0, max: 4 }), fc.nat(), fc.integer({ min: 1, max: 6 })), {
      maxLength: 120,
    });
    fc.assert(
      fc.property(operations, (list) => {
        const pool = new BlockPool(8);
        // The model: free blocks from front to back, references, names.
        let free = [1, 2, 3, 4, 5, 6, 7];
        const references = new Map<number, number>();
        const names = new Map<number, number>();
        for (const [operation, choice, content] of list) {
          const used = [...references.keys()];
          const block = used[choice % Math.max(1, used.length)];
          if (operation === 0 && free.length > 0) {
            const next = free[0]!;
            expect(pool.allocate()).toBe(next);
            free = free.slice(1);
            names.delete(next);
            references.set(next, 1);
          } else if (operation === 1 && block !== undefined) {
            pool.release(block);
            const left = references.get(block)! - 1;
            if (left > 0) references.set(block, left);
            else {
              references.delete(block);
              free = names.has(block) ? [...free, block] : [block, ...free];
            }
          } else if (operation === 2 && block !== undefined) {
            pool.file(block, 0, digest(content), 0);
            if (!names.has(block) && ![...names.values()].includes(content)) names.set(block, content);
          } else if (operation === 3) {
            const found = [...names].find(([, name]) => name === content)?.[0] ?? 0;
            expect(pool.find(0, digest(content), 0)).toBe(found);
            if (found !== 0) {
              pool.retain(found);
              free = free.filter((each) => each !== found);
              references.set(found, (references.get(found) ?? 0) + 1);
            }
          } else if (operation === 4) {
            const any = 1 + (choice % 7);
            pool.forget(any);
            names.delete(any);
          }
          expect(pool.numFree).toBe(free.length);
          expect(pool.numFreeCached).toBe(free.filter((each) => names.has(each)).length);
          expect(pool.contents.isConsistent()).toBe(true);
        }
      }),
      { numRuns: 200 },
    );
  });
});
