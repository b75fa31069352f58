// The random numbers of workloads: one fast generator per purpose, decided by a seed and a label, so that a change of the
// lengths does not change the arrivals. Not the generator of sampling (src/rng.ts), which counts outputs of one request.

import { randomBits } from '../rng.ts';

/** sfc32 (Chris Doty-Humphrey, PractRand): 128 bits of state, passes PractRand, quick on 32-bit integers. */
export class RandomSource {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;
  #spareNormal: number | null = null;

  constructor(seed: number, label: string) {
    let bits = BigInt(Math.trunc(seed)) & 0xffffffffffffffffn;
    for (const character of label) bits = randomBits(bits, character.codePointAt(0) ?? 0);
    const more = randomBits(bits, 0);
    this.#a = Number(bits & 0xffffffffn) | 0;
    this.#b = Number(bits >> 32n) | 0;
    this.#c = Number(more & 0xffffffffn) | 0;
    for (let i = 0; i < 12; i++) this.#next();
  }

  /** Uniform in (0, 1), never an end of it, so that logarithms are finite. */
  uniform(): number {
    const high = this.#next() >>> 5;
    const low = this.#next() >>> 6;
    return (high * 67108864 + low + 0.5) / 9007199254740992;
  }

  /** A whole number in [0, bound). */
  below(bound: number): number {
    return Math.floor(this.uniform() * bound);
  }

  exponential(mean: number): number {
    return -mean * Math.log(this.uniform());
  }

  /** Standard normal (Marsaglia's polar method). */
  normal(): number {
    if (this.#spareNormal !== null) {
      const spare = this.#spareNormal;
      this.#spareNormal = null;
      return spare;
    }
    for (;;) {
      const x = 2 * this.uniform() - 1;
      const y = 2 * this.uniform() - 1;
      const square = x * x + y * y;
      if (square >= 1 || square === 0) continue;
      const factor = Math.sqrt((-2 * Math.log(square)) / square);
      this.#spareNormal = y * factor;
      return x * factor;
    }
  }

  /** Gamma with mean shape * scale (Marsaglia and Tsang 2000). */
  gamma(shape: number, scale: number): number {
    if (shape < 1) return this.gamma(shape + 1, scale) * this.uniform() ** (1 / shape);
    const d = shape - 1 / 3;
    const c = 1 / Math.sqrt(9 * d);
    for (;;) {
      const x = this.normal();
      const v = (1 + c * x) ** 3;
      if (v > 0 && Math.log(this.uniform()) < 0.5 * x * x + d - d * v + d * Math.log(v)) return d * v * scale;
    }
  }

  #next(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return sum;
  }
}
