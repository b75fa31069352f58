// The random numbers of sampling: a counter-based generator, so that the number for output i of a request depends on its seed
// and on i alone, whatever happened in between. Devices in other languages implement the same integers bit for bit.

const MASK = (1n << 64n) - 1n;
const GOLDEN_GAMMA = 0x9e3779b97f4a7c15n;

/** SplitMix64's output function (Steele, Lea, Flood 2014; variant 13 of Stafford's mixers). */
export function mix64(value: bigint): bigint {
  let z = value & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** 64 random bits for output `index` (from 0): mix64(mix64(seed) + (index + 1) * golden gamma), all modulo 2^64. */
export function randomBits(seed: bigint, index: number): bigint {
  return mix64(mix64(seed) + BigInt(index + 1) * GOLDEN_GAMMA);
}

/** Uniform in [0, 1): the upper 53 of those bits times 2^-53. Exact in double precision. */
export function randomUniform(seed: bigint, index: number): number {
  return Number(randomBits(seed, index) >> 11n) * 2 ** -53;
}
