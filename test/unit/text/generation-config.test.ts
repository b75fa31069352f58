import { describe, expect, it } from 'vitest';
import type { Checkpoint, GgufValue } from '../../../src/checkpoint/checkpoint.ts';
import { generationDefaults } from '../../../src/text/generation-config.ts';
import { ggufTokenizer } from '../../../src/text/gguf-tokenizer.ts';
import { createHfTokenizer } from '../../../src/text/hf-tokenizer.ts';
import { byteMetadata, byteTokenizerJson } from './small-vocabularies.ts';

const base = {
  source: 'test',
  files: [],
  tensors: new Map(),
  weightBytes: 0,
  warnings: [],
  readTensor: () => new Uint8Array(0),
  readBytes: () => undefined,
  close: () => {},
};

function folder(config: object, generationConfig: object | null): Checkpoint {
  return {
    ...base,
    format: 'safetensors',
    folder: '/nowhere',
    config: { ...config },
    generationConfig: generationConfig && { ...generationConfig },
  };
}

function hfDefaults(config: object, generation: object | null, mode: 'auto' | 'vllm' = 'auto') {
  const tokenizer = createHfTokenizer(byteTokenizerJson(), { eos_token: '<|im_end|>' });
  return generationDefaults(folder(config, generation), tokenizer, { generationConfig: mode });
}

function ggufEnds(extra: Record<string, GgufValue>): readonly number[] {
  const metadata = byteMetadata(extra);
  const checkpoint: Checkpoint = { ...base, format: 'gguf', metadata };
  return generationDefaults(checkpoint, ggufTokenizer(metadata), { generationConfig: 'auto' }).eosTokenIds;
}

describe('end ids of a folder', () => {
  it('are the union of the tokenizer and generation_config.json', () => {
    expect(hfDefaults({ eos_token_id: 2 }, { eos_token_id: [5, 6] }).eosTokenIds).toEqual([4, 5, 6]);
    expect(hfDefaults({ eos_token_id: 2 }, { eos_token_id: 5 }).eosTokenIds).toEqual([4, 5]);
    expect(hfDefaults({ eos_token_id: 2 }, {}).eosTokenIds).toEqual([4]);
  });

  it('come from config.json when there is no generation_config.json or it is left aside', () => {
    expect(hfDefaults({ eos_token_id: [2, 5] }, null).eosTokenIds).toEqual([2, 4, 5]);
    expect(hfDefaults({ eos_token_id: [2, 5] }, { eos_token_id: 6 }, 'vllm').eosTokenIds).toEqual([2, 4, 5]);
    expect(hfDefaults({}, null).eosTokenIds).toEqual([4]);
  });

  it('must be ids', () => {
    expect(() => hfDefaults({}, { eos_token_id: 'x' })).toThrow(/generation_config\.json: eos_token_id/);
    expect(() => hfDefaults({ eos_token_id: [-1] }, null)).toThrow(/config\.json: eos_token_id/);
  });
});

describe('end ids of a GGUF file', () => {
  it('are those it names and the control tokens that end a turn', () => {
    expect(ggufEnds({})).toEqual([2, 4, 5]);
    expect(ggufEnds({ 'tokenizer.ggml.eos_token_id': 10, 'tokenizer.ggml.eot_token_id': 11 })).toEqual([
      2, 4, 5, 10, 11,
    ]);
  });

  it('leave out text that only looks like one', () => {
    const tokens = ['<|im_end|>', '</s>', 'a'];
    expect(
      ggufEnds({
        'tokenizer.ggml.tokens': tokens,
        'tokenizer.ggml.token_type': [1, 3, 1],
        'tokenizer.ggml.merges': [],
      }),
    ).toEqual([1]);
  });

  it('know that <|end|> closes a message, not a turn, in the harmony format', () => {
    const ends = (tokens: string[]) =>
      ggufEnds({
        'tokenizer.ggml.tokens': tokens,
        'tokenizer.ggml.token_type': tokens.map(() => 3),
        'tokenizer.ggml.merges': [],
      });
    expect(ends(['<|end|>', 'x'])).toEqual([0]);
    expect(ends(['<|end|>', '<|return|>', '<|call|>'])).toEqual([1, 2]);
  });

  it('do not exist without a vocabulary', () => {
    const metadata = new Map<string, GgufValue>([
      ['tokenizer.ggml.model', 'no_vocab'],
      ['tokenizer.ggml.eos_token_id', 2],
    ]);
    const tokenizer = ggufTokenizer(metadata);
    expect(
      generationDefaults({ ...base, format: 'gguf', metadata }, tokenizer, { generationConfig: 'auto' }).eosTokenIds,
    ).toEqual([]);
  });
});

describe('sampling defaults', () => {
  const file = {
    do_sample: true,
    temperature: 0,
    top_k: 1,
    top_p: 0.9,
    min_p: null,
    repetition_penalty: 1.1,
    max_new_tokens: 64,
  };

  it('come from generation_config.json, by its names for the log', () => {
    const { sampling, fromFile } = hfDefaults({}, file);
    expect(sampling).toEqual({ temperature: 0, topK: 1, topP: 0.9, repetitionPenalty: 1.1, maxTokens: 64 });
    expect(fromFile).toEqual({ temperature: 0, top_k: 1, top_p: 0.9, repetition_penalty: 1.1, max_new_tokens: 64 });
  });

  it('do not when the file is left aside or wrong', () => {
    expect(hfDefaults({}, file, 'vllm')).toMatchObject({ sampling: {}, fromFile: {} });
    expect(() => hfDefaults({}, { temperature: 'hot' })).toThrow(/temperature must be a number/);
  });
});
