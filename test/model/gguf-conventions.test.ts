// Architectures for which no golden GGUF exists: the tiny Hugging Face models, rearranged in memory the way the format stores
// them (fused q/k/v, norms as 1 + w, stacked or single experts), must give the same golden tokens.

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { GgufValue } from '../../src/checkpoint/checkpoint.ts';
import { openSafetensors } from '../../src/checkpoint/safetensors.ts';
import { readWeight } from '../../src/checkpoint/weights.ts';
import { createReferenceDevice } from '../../src/device/reference/reference-device.ts';
import { type LoadedModel, loadModel } from '../../src/model/load-model.ts';
import { DeviceDriver } from '../conformance/device-driver.ts';
import { noShared, sharedPath } from '../shared-data.ts';
import { type MemoryTensor, memoryGguf } from '../unit/model/memory-checkpoint.ts';

interface Source {
  readonly model: LoadedModel;
  /** Every weight of the program as the device sees it, by canonical name: plain rows of q and k, norms as 1 + w. */
  readonly weights: Map<string, MemoryTensor>;
}

function load(name: string): Source {
  const checkpoint = openSafetensors(sharedPath('golden', 'tiny', name));
  const model = loadModel(checkpoint);
  const weights = new Map<string, MemoryTensor>();
  for (const spec of model.weights.values()) {
    const shape = spec.rows === 1 ? [spec.cols] : [spec.rows, spec.cols];
    weights.set(spec.name, { shape, values: readWeight(checkpoint, spec) });
  }
  checkpoint.close();
  return { model, weights };
}

/** The keys that every architecture has. */
function commonKeys(
  { model }: Source,
  architecture: string,
  extra: Record<string, GgufValue>,
): Record<string, GgufValue> {
  const { config } = model;
  const keys: Record<string, GgufValue> = {
    block_count: config.numLayers,
    context_length: config.contextLength,
    embedding_length: config.hiddenSize,
    feed_forward_length: config.intermediateSize,
    'attention.head_count': config.numHeads,
    'attention.head_count_kv': config.numKvHeads,
    'attention.key_length': config.headDim,
    'attention.value_length': config.headDim,
    'rope.dimension_count': config.rotaryDim,
    'rope.freq_base': config.ropeTheta,
    ...extra,
  };
  return {
    'general.architecture': architecture,
    ...Object.fromEntries(Object.entries(keys).map(([key, value]) => [`${architecture}.${key}`, value])),
  };
}

/** Joins weights of a layer under a new name, rows after rows. */
function fuse(source: Source, parts: readonly string[], fused: string): void {
  for (let layer = 0; layer < source.model.config.numLayers; layer++) {
    for (const kind of ['weight', 'bias']) {
      const names = parts.map((part) => `blk.${layer}.${part}.${kind}`);
      const pieces = names.map((name) => source.weights.get(name)).filter((piece) => piece !== undefined);
      if (pieces.length === 0) continue;
      const rows = pieces.reduce((sum, piece) => sum + piece.shape[0], 0);
      const values = Float32Array.from(pieces.flatMap((piece) => [...(piece.values as Float32Array)]));
      for (const name of names) source.weights.delete(name);
      source.weights.set(`blk.${layer}.${fused}.${kind}`, { shape: [rows, ...pieces[0].shape.slice(1)], values });
    }
  }
}

async function checkGolden(name: string, metadata: Record<string, GgufValue>, { weights }: Source): Promise<void> {
  const golden = JSON.parse(readFileSync(sharedPath('golden', 'tiny', name, 'golden.json'), 'utf8')) as {
    cases: Array<{ promptIds: number[]; outputIds: number[] }>;
  };
  const checkpoint = memoryGguf(metadata, Object.fromEntries(weights));
  const model = loadModel(checkpoint);
  expect(model.warnings).toEqual([]);
  const device = createReferenceDevice(
    model,
    checkpoint,
    { dtype: 'f32', blockSize: 16 },
    { maxTokens: 256, maxSeqs: 4, maxModelLen: 128 },
  );
  const driver = new DeviceDriver(device, { numBlocks: 64, maxSeqs: 4 });
  const sequences = golden.cases.map((each) => driver.add(each.promptIds));
  await driver.generate(sequences, 16);
  golden.cases.forEach((each, i) => {
    expect(sequences[i].tokens.slice(each.promptIds.length)).toEqual(each.outputIds);
  });
  await device.dispose();
}

describe.skipIf(noShared)('GGUF conventions', () => {
  it('gemma2: norms are 1 + w, layers alternate, caps and scale by key', async () => {
    const source = load('gemma2');
    const keys = {
      'attention.layer_norm_rms_epsilon': 1e-6,
      'attention.sliding_window': 8,
      attn_logit_softcapping: 5,
      final_logit_softcapping: 3,
    };
    // The format has no key for the query scale: it is the head's size, here 16 and not the model's 24. Put the rest into q.
    const factor = Math.sqrt(16 / 24);
    for (const [name, { values }] of source.weights)
      if (name.endsWith('attn_q.weight')) for (let i = 0; i < (values?.length ?? 0); i++) values![i]! *= factor;
    await checkGolden('gemma2', commonKeys(source, 'gemma2', keys), source);
  });

  it('phi2: one attn_qkv, or three', async () => {
    const source = load('phi');
    const keys = commonKeys(source, 'phi2', { 'attention.layer_norm_epsilon': 1e-5 });
    await checkGolden('phi', keys, source);
    fuse(source, ['attn_q', 'attn_k', 'attn_v'], 'attn_qkv');
    await checkGolden('phi', keys, source);
  });

  it('gptneox: q, k and v one after the other', async () => {
    const source = load('gpt-neox');
    fuse(source, ['attn_q', 'attn_k', 'attn_v'], 'attn_qkv');
    await checkGolden(
      'gpt-neox',
      commonKeys(source, 'gptneox', { 'attention.layer_norm_epsilon': 1e-5, use_parallel_residual: true }),
      source,
    );
  });

  it('qwen3moe: stacked experts, a dense first layer', async () => {
    const source = load('qwen3-moe');
    const { moe } = source.model.config;
    const keys = {
      'attention.layer_norm_rms_epsilon': 1e-6,
      expert_count: moe?.numExperts ?? 0,
      expert_used_count: moe?.topK ?? 0,
      expert_feed_forward_length: moe?.expertIntermediateSize ?? 0,
    };
    await checkGolden('qwen3-moe', commonKeys(source, 'qwen3moe', keys), source);
  });

  it('qwen2moe: experts as single tensors, as old files have them', async () => {
    const source = load('qwen2-moe');
    const { moe } = source.model.config;
    const numExperts = moe?.numExperts ?? 0;
    for (const [name, { shape, values }] of [...source.weights]) {
      const match = /^(blk\.\d+\.ffn_(?:gate|up|down))_exps\.weight$/.exec(name);
      if (!match || !values) continue;
      source.weights.delete(name);
      const size = values.length / numExperts;
      for (let expert = 0; expert < numExperts; expert++) {
        source.weights.set(`${match[1]}.${expert}.weight`, {
          shape: [shape[0] / numExperts, shape[1]],
          values: values.slice(expert * size, (expert + 1) * size),
        });
      }
    }
    const keys = {
      'attention.layer_norm_rms_epsilon': 1e-6,
      expert_count: numExperts,
      expert_used_count: moe?.topK ?? 0,
      expert_feed_forward_length: moe?.expertIntermediateSize ?? 0,
    };
    await checkGolden('qwen2-moe', commonKeys(source, 'qwen2moe', keys), source);
  });
});
