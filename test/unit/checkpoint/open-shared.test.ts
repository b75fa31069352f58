// The reference models open, and their stored values come out right.
import { existsSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { metadataArray, metadataNumber, metadataString } from '../../../src/checkpoint/gguf-metadata.ts';
import { openModel } from '../../../src/checkpoint/resolve-model.ts';
import { readWeight } from '../../../src/checkpoint/weights.ts';
import { noShared, sharedPath } from '../../shared-data.ts';

describe('pagoda-mini', () => {
  it('opens by name', () => {
    const checkpoint = openModel('pagoda-mini');
    if (checkpoint.format !== 'gguf') throw new Error('not a GGUF');
    expect(metadataString(checkpoint.metadata, 'general.architecture')).toBe('llama');
    const numTokens = metadataArray(checkpoint.metadata, 'tokenizer.ggml.tokens', 'string').length;
    const embedding = checkpoint.tensors.get('token_embd.weight')!;
    expect(embedding.shape).toEqual([
      numTokens,
      metadataNumber(checkpoint.metadata, 'llama.embedding_length', { integer: true }),
    ]);
    expect(checkpoint.readTensor(embedding).length).toBe(embedding.numBytes);
    checkpoint.close();
    expect(() => checkpoint.readTensor(embedding)).toThrow(/closed/);
  });
});

describe.skipIf(noShared)('reference models', () => {
  it('the same tiny model from safetensors and GGUF has the same values', () => {
    let compared = 0;
    for (const name of readdirSync(sharedPath('golden', 'tiny'))) {
      const ggufPath = sharedPath('golden', 'tiny-gguf', `${name}.gguf`);
      if (!existsSync(ggufPath)) continue;
      const folder = openModel(sharedPath('golden', 'tiny', name));
      const gguf = openModel(ggufPath);
      const pairs = [
        ['model.embed_tokens.weight', 'token_embd.weight'],
        ['model.layers.1.self_attn.v_proj.weight', 'blk.1.attn_v.weight'],
        ['model.layers.0.mlp.down_proj.weight', 'blk.0.ffn_down.weight'],
      ] as const;
      for (const [hf, gg] of pairs) {
        const tensor = folder.tensors.get(hf);
        if (!tensor || !gguf.tensors.has(gg)) continue;
        const [rows, cols] = tensor.shape as [number, number];
        const read = (checkpoint: typeof folder, stored: string) =>
          readWeight(checkpoint, { name: 'w', rows, cols, pieces: [{ tensor: stored, rowStart: 0, numRows: rows }] });
        expect(Buffer.from(read(folder, hf).buffer).equals(Buffer.from(read(gguf, gg).buffer)), `${name} ${hf}`).toBe(
          true,
        );
        compared++;
      }
      folder.close();
      gguf.close();
    }
    expect(compared).toBeGreaterThan(20);
  });

  it('SmolLM2 opens with all its tensors', () => {
    const checkpoint = openModel(sharedPath('models', 'smollm2-135m-instruct', 'SmolLM2-135M-Instruct.Q4_1.gguf'));
    const types = new Map<string, number>();
    for (const { type } of checkpoint.tensors.values()) types.set(type, (types.get(type) ?? 0) + 1);
    expect(Object.fromEntries(types)).toEqual({ F32: 61, Q4_1: 210, Q8_0: 1 });
    checkpoint.close();
  });

  it('vocabulary files open without tensors', () => {
    for (const name of ['gpt-2', 'llama-spm', 'deepseek-llm']) {
      const checkpoint = openModel(sharedPath('vocab', `ggml-vocab-${name}.gguf`));
      expect(checkpoint.tensors.size).toBe(0);
      checkpoint.close();
    }
  });
});
