import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BuddyAllocator, type BuddyBlock } from '../../../src/sim/buddy-allocator.ts';
import { simulateReservation } from '../../../src/sim/reservation.ts';
import { fixedCost, request } from './simulation-fixtures.ts';

describe('buddy allocator', () => {
  it('hands out powers of two and merges them back', () => {
    const buddies = new BuddyAllocator(15_728, 2048);
    const blocks = Array.from({ length: 7 }, () => buddies.allocate(2048)!);
    expect(blocks.map((block) => block.offset)).toEqual([0, 2048, 4096, 6144, 8192, 10_240, 12_288]);
    expect(buddies.allocate(2048)).toBeNull();
    expect(buddies.allocate(1000)).toEqual({ offset: 14_336, numSlots: 1024 });
    for (const block of blocks) buddies.release(block);
    expect(buddies.allocate(2048)).toEqual({ offset: 0, numSlots: 2048 });
  });

  it('never overlaps, and is whole again when everything is back', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 300 }), { maxLength: 60 }), (sizes) => {
        const buddies = new BuddyAllocator(1000, 256);
        const held: BuddyBlock[] = [];
        for (const [index, size] of sizes.entries()) {
          if (index % 3 === 2 && held.length > 0) buddies.release(held.splice(index % held.length, 1)[0]!);
          if (size > 256) continue;
          const block = buddies.allocate(size);
          if (block === null) continue;
          expect(block.numSlots).toBeGreaterThanOrEqual(size);
          expect(block.offset % block.numSlots).toBe(0);
          for (const other of held)
            expect(block.offset + block.numSlots <= other.offset || other.offset + other.numSlots <= block.offset).toBe(
              true,
            );
          held.push(block);
        }
        for (const block of held) buddies.release(block);
        // 1000 = 3 * 256 + 232: three blocks of 256 again, and no fourth.
        expect([1, 2, 3].every(() => buddies.allocate(256) !== null)).toBe(true);
        expect(buddies.allocate(256)).toBeNull();
      }),
      { numRuns: 60 },
    );
  });
});

describe('reservation', () => {
  const options = { numSlots: 1024, maxModelLen: 256, endSeconds: 1e6, cost: fixedCost(1) };

  it('max: four at a time, the rest waits', () => {
    const requests = Array.from({ length: 8 }, () => request(0, 10, 20));
    const { meanRunning, numEnded, shares } = simulateReservation(requests, { ...options, policy: 'max' });
    expect(meanRunning).toBe(4);
    expect(numEnded).toBe(8);
    // 30 of 256 slots are ever used, so 226 are lost inside, and nothing outside.
    expect(shares.internal).toBeCloseTo((4 * 226) / 1024, 9);
    expect(shares.external).toBeCloseTo(0, 9);
    expect(shares.tokens + shares.reserved + shares.internal + shares.external).toBeCloseTo(1, 9);
  });

  it('oracle: nothing is lost inside, rounding is lost outside; pow2 lies between', () => {
    const requests = Array.from({ length: 60 }, () => request(0, 10, 20));
    const oracle = simulateReservation(requests, { ...options, policy: 'oracle' });
    expect(oracle.meanRunning).toBeGreaterThan(4);
    expect(oracle.shares.internal).toBe(0);
    const pow2 = simulateReservation(requests, { ...options, policy: 'pow2' });
    // 10 + 32 slots in a block of 64.
    expect(pow2.shares.internal).toBeCloseTo((16 * 12) / 1024, 9);
    expect(pow2.shares.external).toBeCloseTo((16 * 22) / 1024, 9);
  });
});
