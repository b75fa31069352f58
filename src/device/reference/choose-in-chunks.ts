// The choice among all tokens, without a filter: the inverse of the cumulative sum, by chunks of ids. A chunk's weights are relative to its
// own largest value, so that a device can sum them while the logits are made, long before the largest of all is known; a few
// instructions of float32 suffice for one. Defined to the last bit: every operation on a weight is rounded to float32, none are fused.

import { exactExp } from './exact-exp.ts';

/** Ids of a chunk: 12 panels of 16 output rows. */
export const CHOICE_CHUNK = 192;
const LANES = 16;
/** Adding it rounds to an integer, ties to even: 1.5 * 2^23. */
const MAGIC = 12582912;
/** Smaller powers of two count as 0; their result would not be a normal float32. */
const MIN_POWER = -125;
/** ln(2)^i / i!, i = 6 ... 0: the Taylor series of 2^r in Horner's order, to 1.2e-7 where |r| <= 0.5. */
const COEFFICIENTS = Float32Array.of(
  0.00015403530393381606,
  0.0013333558146428443,
  0.009618129107628477,
  0.05550410866482158,
  0.2402265069591007,
  Math.LN2,
  1,
);

const lanes = new Float32Array(LANES);
const fround = Math.fround;

/** What a logit is multiplied with to be a power of two at this temperature. */
export function powerScale(temperature: number): number {
  return fround(Math.LOG2E / temperature);
}

/** 2^((x - max) * scale), x and max float32, x <= max. */
export function chunkWeight(x: number, max: number, scale: number): number {
  const power = fround(fround(x - max) * scale);
  if (!(power >= MIN_POWER)) return 0;
  const n = fround(fround(power + MAGIC) - MAGIC);
  const r = fround(power - n);
  let p = COEFFICIENTS[0];
  for (let i = 1; i < COEFFICIENTS.length; i++) p = fround(fround(p * r) + COEFFICIENTS[i]);
  return p * 2 ** n;
}

interface Chunk {
  readonly start: number;
  readonly end: number;
  readonly max: number;
  /** Of weights relative to `max`: 16 lanes, id modulo 16, joined in halves. */
  readonly sum: number;
}

function chunkAt(x: Float32Array, start: number, scale: number): Chunk {
  const end = Math.min(start + CHOICE_CHUNK, x.length);
  let max = Number.NEGATIVE_INFINITY;
  for (let i = start; i < end; i++) max = Math.max(max, x[i]);
  if (max === Number.NEGATIVE_INFINITY) return { start, end, max, sum: 0 };
  lanes.fill(0);
  for (let i = start; i < end; i++) lanes[(i - start) % LANES] += chunkWeight(x[i], max, scale);
  for (let width = LANES / 2; width >= 1; width /= 2) for (let l = 0; l < width; l++) lanes[l] += lanes[l + width];
  return { start, end, max, sum: lanes[0] };
}

/**
 * A token by its probability. `x`: values in float32, at least one of them above -infinity; u in [0, 1).
 *
 * A chunk's share is sum * factor, factor = exp((its max - max of all) / temperature), in double precision. target = u * (sum of the shares
 * from left to right). Chunks are skipped while the running total stays at or below the target; inside the chunk the weights, times the
 * factor, are added one by one, and the first token that lifts the running total above the target is chosen. Where rounding leaves none,
 * the last token with a weight is, of this chunk or of the last one with a share.
 */
export function chooseInChunks(x: Float32Array, temperature: number, u: number): number {
  const scale = powerScale(temperature);
  const chunks: Chunk[] = [];
  for (let start = 0; start < x.length; start += CHOICE_CHUNK) chunks.push(chunkAt(x, start, scale));
  const max = chunks.reduce((largest, chunk) => Math.max(largest, chunk.max), Number.NEGATIVE_INFINITY);
  const factors = chunks.map((chunk) => exactExp((chunk.max - max) / temperature));
  let total = 0;
  for (let c = 0; c < chunks.length; c++) total += chunks[c].sum * factors[c];
  const target = u * total;
  let running = 0;
  let last = 0;
  for (let c = 0; c < chunks.length; c++) {
    const share = chunks[c].sum * factors[c];
    if (running + share > target) return chooseInChunk(x, chunks[c], { scale, factor: factors[c], running, target });
    running += share;
    if (share > 0) last = c;
  }
  return chooseInChunk(x, chunks[last], { scale, factor: factors[last], running: 0, target: Number.POSITIVE_INFINITY });
}

function chooseInChunk(
  x: Float32Array,
  { start, end, max }: Chunk,
  { scale, factor, running, target }: { scale: number; factor: number; running: number; target: number },
): number {
  let last = start;
  let sum = running;
  for (let token = start; token < end; token++) {
    const weight = chunkWeight(x[token], max, scale) * factor;
    if (!(weight > 0)) continue;
    last = token;
    sum += weight;
    if (sum > target) return token;
  }
  return last;
}
