import { describe, expect, it } from 'vitest';
import { mix64, randomBits, randomUniform } from '../../src/rng.ts';

describe('random numbers of sampling', () => {
  it('is SplitMix64 for seed 0', () => {
    // Published first outputs of the generator for state 0.
    expect([0, 1, 2].map((i) => randomBits(0n, i))).toEqual([
      0xe220a8397b1dcdafn,
      0x6e789e6aa1b965f4n,
      0x06c45d188009454fn,
    ]);
  });

  it('takes seeds of the whole unsigned 64-bit range and keeps them apart', () => {
    const seeds = [0n, 1n, 2n, 0x7fffffffffffffffn, 0x8000000000000000n, 0xffffffffffffffffn, 0x9e3779b97f4a7c15n];
    const first = seeds.map((seed) => randomBits(seed, 0));
    expect(new Set(first).size).toBe(seeds.length);
    for (const bits of first) expect(bits >= 0n && bits < 1n << 64n).toBe(true);
    // A seed that differs by the step of the sequence does not replay its neighbour one output later.
    expect(randomBits(0x9e3779b97f4a7c15n, 0)).not.toBe(randomBits(0n, 1));
  });

  it('is uniform in [0, 1) to what 20,000 numbers can show', () => {
    const buckets = new Array<number>(10).fill(0);
    for (let i = 0; i < 20_000; i++) {
      const u = randomUniform(12345n, i);
      expect(u >= 0 && u < 1).toBe(true);
      buckets[Math.floor(u * 10)]++;
    }
    const chiSquare = buckets.reduce((sum, count) => sum + (count - 2000) ** 2 / 2000, 0);
    expect(chiSquare).toBeLessThan(27.9); // 0.1 % of the distribution with 9 degrees of freedom lies above
  });

  it('mixes as a bijection', () => {
    expect(new Set(Array.from({ length: 1000 }, (_, i) => mix64(BigInt(i)))).size).toBe(1000);
  });
});
