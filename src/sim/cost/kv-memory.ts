// Bytes of the KV cache: per token, per block, per request, and the formula in words. Attention layers that look back equally
// far share blocks, as in device/kv-layout.ts, so one pool serves models that mix windows.

import { kvHeadBytes } from '../../device/kv-layout.ts';
import { type AttentionShape, kvShare, type ModelShape, stageLayers } from '../catalogue/model-shape.ts';

/** int8 is Pagoda's (a float32 scale per head), q8_0 llama.cpp's (a 16-bit scale per 32 values), fp8 has no scales per token. */
export type KvCacheDtype = 'f32' | 'bf16' | 'fp8' | 'int8' | 'q8_0';

export const KV_DTYPES: readonly KvCacheDtype[] = ['f32', 'bf16', 'fp8', 'int8', 'q8_0'];

export interface KvOptions {
  readonly kvDtype: KvCacheDtype;
  readonly tensorParallelSize: number;
}

/** K or V of one head of one token. */
export function kvVectorBytes(dtype: KvCacheDtype, numValues: number): number {
  switch (dtype) {
    case 'f32':
    case 'int8':
      return kvHeadBytes(dtype, numValues);
    case 'bf16':
      return 2 * numValues;
    case 'fp8':
      return numValues;
    case 'q8_0':
      return 34 * Math.ceil(numValues / 32);
  }
}

/** One layer, one token, one GPU. */
export function kvBytesPerLayer(attention: AttentionShape, { kvDtype, tensorParallelSize }: KvOptions): number {
  const { latent, numKvHeads, headDim, valueDim } = attention;
  // The compressed vector is needed whole for every head: tensor parallelism copies it.
  if (latent !== null) return kvVectorBytes(kvDtype, latent.rank + latent.ropeDim);
  const heads = numKvHeads * kvShare(numKvHeads, tensorParallelSize);
  return heads * (kvVectorBytes(kvDtype, headDim) + kvVectorBytes(kvDtype, valueDim));
}

/** All layers, one token, one GPU of a pipeline of one stage, while no window frees anything. */
export function kvBytesPerToken(shape: ModelShape, options: KvOptions): number {
  return shape.attentions.reduce((sum, each) => sum + each.numLayers * kvBytesPerLayer(each, options), 0);
}

/** Exact bytes that `numTokens` of one sequence keep on one GPU: windowed layers keep their window only. */
export function kvBytesOfSequence(shape: ModelShape, numTokens: number, options: KvOptions): number {
  return shape.attentions.reduce((sum, each) => {
    const kept = each.window > 0 ? Math.min(each.window, numTokens) : numTokens;
    return sum + each.numLayers * kvBytesPerLayer(each, options) * kept;
  }, 0);
}

export interface KvGroups {
  /** One per group; 0 = full attention. */
  readonly windows: readonly number[];
  readonly layersPerGroup: number;
  /** Of one block of one group on one GPU. */
  readonly blockBytes: number;
}

/** How the layers of the stage with the most layers share blocks. */
export function kvGroups(
  shape: ModelShape,
  options: KvOptions & { readonly blockSize: number; readonly pipelineParallelSize: number },
): KvGroups {
  const stage = Math.max(...stageLayers(shape.numLayers, options.pipelineParallelSize)) / shape.numLayers;
  const kinds = shape.attentions.map((each) => ({ ...each, numLayers: Math.ceil(each.numLayers * stage) }));
  const layersPerGroup = Math.min(...kinds.map(({ numLayers }) => numLayers));
  const windows = kinds.flatMap(({ window, numLayers }) =>
    new Array<number>(Math.ceil(numLayers / layersPerGroup)).fill(window),
  );
  const layerBytes = Math.max(...kinds.map((each) => kvBytesPerLayer(each, options)));
  return { windows, layersPerGroup, blockBytes: layerBytes * layersPerGroup * options.blockSize };
}

/** Blocks that a sequence of `numTokens` holds in all groups; a window may straddle one block more than it fills. */
export function blocksOfSequence(numTokens: number, windows: readonly number[], blockSize: number): number {
  const all = Math.ceil(numTokens / blockSize);
  return windows.reduce(
    (sum, window) => sum + (window > 0 ? Math.min(all, Math.ceil(window / blockSize) + 1) : all),
    0,
  );
}

/** Longest sequence that the pool holds alone, a multiple of the block size; Infinity when windows cap what it needs. */
export function longestSequence(numBlocks: number, windows: readonly number[], blockSize: number): number {
  const fits = (blocks: number) => blocksOfSequence(blocks * blockSize, windows, blockSize) <= numBlocks;
  if (!windows.includes(0) && fits(Math.ceil(Math.max(...windows) / blockSize) + 1)) return Number.POSITIVE_INFINITY;
  let low = 0;
  let high = numBlocks;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low * blockSize;
}

/** `2 (K and V) x 32 layers x 32 KV heads x 128 per head x 2 bytes = 524,288 bytes`, one line per kind of layer. */
export function kvFormula(shape: ModelShape, options: KvOptions): string[] {
  return shape.attentions.map((each) => {
    const bytes = (each.numLayers * kvBytesPerLayer(each, options)).toLocaleString('en-US');
    const window = each.window > 0 ? `, at most ${each.window.toLocaleString('en-US')} tokens each` : '';
    if (each.latent !== null) {
      const { rank, ropeDim } = each.latent;
      return `${each.numLayers} layers x (${rank} latent + ${ropeDim} rotary) x ${valueBytesText(options.kvDtype)} = ${bytes} bytes on every GPU`;
    }
    const tp = options.tensorParallelSize;
    const heads = tp === 1 ? `${each.numKvHeads} KV heads` : headsText(each.numKvHeads, tp);
    return `2 (K and V) x ${each.numLayers} layers x ${heads} x ${each.headDim} per head x ${valueBytesText(options.kvDtype)} = ${bytes} bytes${window}`;
  });
}

function headsText(numKvHeads: number, tp: number): string {
  return numKvHeads >= tp ? `${numKvHeads} / ${tp} KV heads` : `1 KV head (${numKvHeads} on ${tp} GPUs)`;
}

function valueBytesText(dtype: KvCacheDtype): string {
  const texts: Readonly<Record<KvCacheDtype, string>> = {
    f32: '4 bytes',
    bf16: '2 bytes',
    fp8: '1 byte',
    int8: '1 byte (+ 4 per head)',
    q8_0: '34/32 bytes',
  };
  return texts[dtype];
}
