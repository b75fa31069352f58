// The paged KV cache. Values are kept as float32 after rounding them to the cache's number format, so that what is read is
// exactly what a 16-bit or int8 cache holds. Block 0 is the null block and never written.

import { PagodaError } from '../../errors.ts';
import type { KvDtype, KvLayout } from '../kv-layout.ts';

export class ReferenceKvCache {
  readonly #layout: KvLayout;
  readonly numBlocks: number;
  /** [block][layer in group][token in block][K heads, V heads][headDim] */
  readonly #values: Float32Array;
  readonly #rowFloats: number;

  constructor(layout: KvLayout, numBlocks: number) {
    this.#layout = layout;
    this.numBlocks = numBlocks;
    this.#rowFloats = 2 * layout.numKvHeads * layout.headDim;
    const numValues = numBlocks * layout.layersPerGroup * layout.blockSize * this.#rowFloats;
    try {
      this.#values = new Float32Array(numValues);
    } catch (cause) {
      throw new PagodaError(
        'out_of_memory',
        `The KV cache of ${numBlocks} blocks needs ${numValues * 4} bytes, which could not be had.`,
        { cause },
      );
    }
  }

  get values(): Float32Array {
    return this.#values;
  }

  /** Index in `values` of K of one token; V lies numKvHeads * headDim behind it. */
  offset(block: number, layer: number, tokenInBlock: number): number {
    const { layersPerGroup, blockSize, layerPlace } = this.#layout;
    return ((block * layersPerGroup + layerPlace[layer].index) * blockSize + tokenInBlock) * this.#rowFloats;
  }

  write(offset: number, k: Float32Array, v: Float32Array): void {
    const { headDim, dtype } = this.#layout;
    storeHeads(dtype, headDim, k, this.#values.subarray(offset, offset + k.length));
    storeHeads(dtype, headDim, v, this.#values.subarray(offset + k.length, offset + k.length + v.length));
  }
}

function storeHeads(dtype: KvDtype, headDim: number, from: Float32Array, to: Float32Array): void {
  switch (dtype) {
    case 'f32':
      to.set(from);
      return;
    case 'f16':
      for (let i = 0; i < from.length; i++) to[i] = roundToHalf(clampToHalf(from[i]));
      return;
    case 'bf16':
      for (let i = 0; i < from.length; i++) to[i] = roundToBfloat16(from[i]);
      return;
    case 'int8':
      for (let start = 0; start < from.length; start += headDim)
        storeInt8(from.subarray(start, start + headDim), to.subarray(start, start + headDim));
      return;
    default:
      dtype satisfies never;
  }
}

/** One float32 scale per head: max|x| / 127; values are rounded to the nearest step, ties to even. */
function storeInt8(from: Float32Array, to: Float32Array): void {
  let max = 0;
  for (const value of from) max = Math.max(max, Math.abs(value));
  const scale = Math.fround(max / 127);
  for (let i = 0; i < from.length; i++) {
    const steps = scale === 0 ? 0 : Math.max(-127, Math.min(127, roundToEven(from[i] / scale)));
    to[i] = steps * scale;
  }
}

function roundToEven(x: number): number {
  const down = Math.floor(x);
  const rest = x - down;
  if (rest !== 0.5) return rest < 0.5 ? down : down + 1;
  return down % 2 === 0 ? down : down + 1;
}

/** The largest half; a cache that holds infinity would turn a whole sequence into NaN. */
const MAX_HALF = 65504;

function clampToHalf(x: number): number {
  return Math.min(MAX_HALF, Math.max(-MAX_HALF, x));
}

const scratch = new DataView(new ArrayBuffer(4));

/** Nearest bfloat16, ties to even. */
export function roundToBfloat16(x: number): number {
  scratch.setFloat32(0, x);
  const bits = scratch.getUint32(0);
  if (Number.isNaN(x)) return Number.NaN;
  scratch.setUint32(0, (bits + 0x7fff + ((bits >>> 16) & 1)) & 0xffff0000);
  return scratch.getFloat32(0);
}

/** Nearest IEEE half, ties to even; beyond 65520 infinity. */
export function roundToHalf(x: number): number {
  const size = Math.abs(x);
  if (!(size < 65520)) return Number.isNaN(x) ? x : x * Number.POSITIVE_INFINITY;
  // Steps are 2^-10 of the power of two below, and 2^-24 among the subnormals.
  const step = 2 ** (Math.max(Math.floor(Math.log2(size || 2 ** -24)), -14) - 10);
  return roundToEven(x / step) * step;
}
