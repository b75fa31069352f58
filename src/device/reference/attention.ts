// Causal attention over the paged cache, token by token and head by head: scores of all visible keys in order of position,
// softmax, weighted sum in the same order. Nothing depends on the other tokens of the step.

import type { Matrix } from './elementwise.ts';
import type { ReferenceKvCache } from './kv-cache.ts';

/** Where the tokens of a step stand, and in which blocks their sequence's past lies. */
export interface TokenPlaces {
  readonly positions: Int32Array;
  /** Block of position p of token t in a layer's group: the sequence's table, entry p / blockSize. */
  blockOf(token: number, group: number, position: number): number;
  readonly blockSize: number;
}

export interface AttentionShape {
  readonly layer: number;
  readonly group: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly window: number;
  readonly scale: number;
  readonly softcap: number;
}

export function kvWrite(
  k: Matrix,
  v: Matrix,
  { layer, group }: { layer: number; group: number },
  places: TokenPlaces,
  cache: ReferenceKvCache,
): void {
  for (let t = 0; t < k.numRows; t++) {
    const position = places.positions[t];
    const offset = cache.offset(places.blockOf(t, group, position), layer, position % places.blockSize);
    cache.write(offset, k.data.subarray(t * k.cols, (t + 1) * k.cols), v.data.subarray(t * v.cols, (t + 1) * v.cols));
  }
}

export function attention(
  q: Matrix,
  out: Matrix,
  shape: AttentionShape,
  places: TokenPlaces,
  cache: ReferenceKvCache,
): void {
  const { headDim, numKvHeads, numHeads } = shape;
  const headsPerKv = numHeads / numKvHeads;
  const values = cache.values;
  for (let t = 0; t < q.numRows; t++) {
    const position = places.positions[t];
    const first = shape.window > 0 ? Math.max(0, position - shape.window + 1) : 0;
    const keys = keyOffsets(t, first, position, { shape, places, cache });
    const scores = new Float64Array(keys.length);
    for (let head = 0; head < numHeads; head++) {
      const kHead = Math.floor(head / headsPerKv) * headDim;
      const vHead = numKvHeads * headDim + kHead;
      const qStart = t * q.cols + head * headDim;
      softmaxScores(scores, keys, (key) => {
        let dot = 0;
        for (let i = 0; i < headDim; i++) dot += q.data[qStart + i] * values[key + kHead + i];
        const score = dot * shape.scale;
        return shape.softcap > 0 ? shape.softcap * Math.tanh(score / shape.softcap) : score;
      });
      const sum = new Float64Array(headDim);
      for (let j = 0; j < keys.length; j++) {
        const weight = scores[j];
        const vStart = keys[j] + vHead;
        for (let i = 0; i < headDim; i++) sum[i] += weight * values[vStart + i];
      }
      out.data.set(sum, t * out.cols + head * headDim);
    }
  }
}

/** Cache offsets of the visible keys, in order of position. */
function keyOffsets(
  token: number,
  first: number,
  last: number,
  { shape, places, cache }: { shape: AttentionShape; places: TokenPlaces; cache: ReferenceKvCache },
): Float64Array {
  const offsets = new Float64Array(last - first + 1);
  for (let position = first; position <= last; position++) {
    const block = places.blockOf(token, shape.group, position);
    offsets[position - first] = cache.offset(block, shape.layer, position % places.blockSize);
  }
  return offsets;
}

function softmaxScores(scores: Float64Array, keys: Float64Array, score: (key: number) => number): void {
  let max = Number.NEGATIVE_INFINITY;
  for (let j = 0; j < keys.length; j++) {
    scores[j] = score(keys[j]);
    if (scores[j] > max) max = scores[j];
  }
  let total = 0;
  for (let j = 0; j < keys.length; j++) {
    scores[j] = Math.exp(scores[j] - max);
    total += scores[j];
  }
  for (let j = 0; j < keys.length; j++) scores[j] /= total;
}
