// How attention layers share the block pool. Layers with the same window and the same KV shape are cut into groups of equal
// size; a block holds `blockSize` tokens of all layers of one group, so every block has the same bytes and one pool serves
// them all (vLLM's hybrid KV cache manager does the same). A model with one kind of layer has one group.

import { PagodaError } from '../errors.ts';
import type { Program } from '../model/program.ts';

export type KvDtype = 'f32' | 'f16' | 'bf16' | 'int8';

export interface KvGroup {
  /** 0 = full attention. */
  readonly window: number;
  /** Indexes into Program.kvLayers; at most `layersPerGroup`. */
  readonly layers: readonly number[];
}

export interface KvLayout {
  readonly groups: readonly KvGroup[];
  readonly layersPerGroup: number;
  /** For each Program.kvLayers entry: its group and its place inside the group. */
  readonly layerPlace: ReadonlyArray<{ readonly group: number; readonly index: number }>;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly dtype: KvDtype;
  readonly blockSize: number;
  /** Bytes of one layer's part of a block: [numKvHeads][K part, V part]. */
  readonly layerBytes: number;
  /** layerBytes * layersPerGroup. */
  readonly blockBytes: number;
  /** Bytes one token takes in all groups when nothing is freed by a window. */
  readonly bytesPerToken: number;
}

/** Bytes of K or V of one head of one token, scale included. int8 keeps one float32 scale per token, head and K/V. */
export function kvHeadBytes(dtype: KvDtype, headDim: number): number {
  switch (dtype) {
    case 'f32':
      return headDim * 4;
    case 'f16':
    case 'bf16':
      return headDim * 2;
    case 'int8':
      return headDim + 4;
  }
}

export function kvLayout(program: Program, dtype: KvDtype, blockSize: number): KvLayout {
  const first = program.kvLayers[0];
  if (!first) throw new PagodaError('unsupported', 'This model has no attention layers.');
  const { numKvHeads, headDim } = first;
  const byWindow = new Map<number, number[]>();
  program.kvLayers.forEach((layer, index) => {
    if (layer.numKvHeads !== numKvHeads || layer.headDim !== headDim) {
      throw new PagodaError('unsupported', 'Attention layers with different KV shapes are not supported.');
    }
    const same = byWindow.get(layer.window);
    if (same) same.push(index);
    else byWindow.set(layer.window, [index]);
  });
  const layersPerGroup = Math.min(...[...byWindow.values()].map((layers) => layers.length));
  const groups: KvGroup[] = [];
  const layerPlace: Array<{ group: number; index: number }> = new Array(program.kvLayers.length);
  for (const [window, layers] of byWindow) {
    for (let start = 0; start < layers.length; start += layersPerGroup) {
      const part = layers.slice(start, start + layersPerGroup);
      for (let i = 0; i < part.length; i++) layerPlace[part[i]!] = { group: groups.length, index: i };
      groups.push({ window, layers: part });
    }
  }
  const layerBytes = numKvHeads * 2 * blockSize * kvHeadBytes(dtype, headDim);
  const blockBytes = layerBytes * layersPerGroup;
  return {
    groups,
    layersPerGroup,
    layerPlace,
    numKvHeads,
    headDim,
    dtype,
    blockSize,
    layerBytes,
    blockBytes,
    bytesPerToken: (blockBytes / blockSize) * groups.length,
  };
}
