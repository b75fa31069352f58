// What loading refuses and by which name, what it takes for absent keys, and what it says about tensors nobody uses.

import { describe, expect, it } from 'vitest';
import { PagodaError } from '../../../src/errors.ts';
import { loadModel } from '../../../src/model/load-model.ts';
import { type MemoryTensors, memoryGguf, memoryHf } from './memory-checkpoint.ts';

const HIDDEN = 32;
const INNER = 48;
const VOCAB = 40;

/** The least that a Llama config.json must say. */
const HF = {
  architectures: ['LlamaForCausalLM'],
  hidden_size: HIDDEN,
  intermediate_size: INNER,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  vocab_size: VOCAB,
};

function hfTensors(numKvHeads = 4, headDim = 8): MemoryTensors {
  const tensors: Record<string, { shape: number[] }> = {
    'model.embed_tokens.weight': { shape: [VOCAB, HIDDEN] },
    'model.norm.weight': { shape: [HIDDEN] },
    'lm_head.weight': { shape: [VOCAB, HIDDEN] },
  };
  for (const layer of [0, 1]) {
    const name = (part: string) => `model.layers.${layer}.${part}.weight`;
    tensors[name('input_layernorm')] = { shape: [HIDDEN] };
    tensors[name('post_attention_layernorm')] = { shape: [HIDDEN] };
    tensors[name('self_attn.q_proj')] = { shape: [4 * headDim, HIDDEN] };
    tensors[name('self_attn.k_proj')] = { shape: [numKvHeads * headDim, HIDDEN] };
    tensors[name('self_attn.v_proj')] = { shape: [numKvHeads * headDim, HIDDEN] };
    tensors[name('self_attn.o_proj')] = { shape: [HIDDEN, 4 * headDim] };
    tensors[name('mlp.gate_proj')] = { shape: [INNER, HIDDEN] };
    tensors[name('mlp.up_proj')] = { shape: [INNER, HIDDEN] };
    tensors[name('mlp.down_proj')] = { shape: [HIDDEN, INNER] };
  }
  return tensors;
}

const GGUF = {
  'general.architecture': 'llama',
  'llama.block_count': 2,
  'llama.context_length': 64,
  'llama.embedding_length': HIDDEN,
  'llama.feed_forward_length': INNER,
  'llama.attention.head_count': 4,
  'llama.attention.head_count_kv': 2,
  'llama.attention.layer_norm_rms_epsilon': 1e-5,
};

function ggufTensors(): MemoryTensors {
  const tensors: Record<string, { shape: number[] }> = {
    'token_embd.weight': { shape: [VOCAB, HIDDEN] },
    'output_norm.weight': { shape: [HIDDEN] },
  };
  for (const layer of [0, 1]) {
    const name = (part: string) => `blk.${layer}.${part}.weight`;
    tensors[name('attn_norm')] = { shape: [HIDDEN] };
    tensors[name('ffn_norm')] = { shape: [HIDDEN] };
    tensors[name('attn_q')] = { shape: [HIDDEN, HIDDEN] };
    tensors[name('attn_k')] = { shape: [16, HIDDEN] };
    tensors[name('attn_v')] = { shape: [16, HIDDEN] };
    tensors[name('attn_output')] = { shape: [HIDDEN, HIDDEN] };
    tensors[name('ffn_gate')] = { shape: [INNER, HIDDEN] };
    tensors[name('ffn_up')] = { shape: [INNER, HIDDEN] };
    tensors[name('ffn_down')] = { shape: [HIDDEN, INNER] };
  }
  return tensors;
}

function refusal(load: () => unknown): PagodaError {
  try {
    load();
  } catch (error) {
    if (error instanceof PagodaError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('absent and null keys of config.json', () => {
  it('take the defaults', () => {
    const { config, warnings } = loadModel(memoryHf(HF, hfTensors()));
    expect(warnings).toEqual([]);
    expect([
      config.headDim,
      config.numKvHeads,
      config.normEps,
      config.ropeTheta,
      config.tieEmbeddings,
      config.activation,
      config.contextLength,
    ]).toEqual([8, 4, 1e-6, 10000, false, 'silu', 2048]);
    const nulls = {
      head_dim: null,
      num_key_value_heads: null,
      rms_norm_eps: null,
      rope_theta: null,
      rope_scaling: null,
      tie_word_embeddings: null,
      hidden_act: null,
      attention_bias: null,
    };
    expect(loadModel(memoryHf({ ...HF, ...nulls }, hfTensors())).config).toEqual(config);
  });

  it('model_type decides when architectures is absent', () => {
    const { architectures: _, ...rest } = HF;
    expect(loadModel(memoryHf({ ...rest, model_type: 'llama' }, hfTensors())).family.name).toBe('llama');
    expect(refusal(() => loadModel(memoryHf(rest, hfTensors()))).message).toContain('model_type');
    expect(
      refusal(() => loadModel(memoryHf({ ...HF, architectures: ['MambaForCausalLM'] }, hfTensors()))).message,
    ).toContain('MambaForCausalLM');
  });

  it('Mistral has a window unless the file says null', () => {
    const mistral = { ...HF, architectures: ['MistralForCausalLM'], model_type: 'mistral' };
    expect(loadModel(memoryHf(mistral, hfTensors())).config.windows).toEqual([4096, 4096]);
    expect(loadModel(memoryHf({ ...mistral, sliding_window: null }, hfTensors())).config.windows).toEqual([0, 0]);
    expect(loadModel(memoryHf({ ...mistral, sliding_window: 7 }, hfTensors())).config.windows).toEqual([7, 7]);
  });
});

describe('impossible sizes are refused by the name of their key', () => {
  const bad: ReadonlyArray<readonly [key: string, value: unknown]> = [
    ['num_hidden_layers', 0],
    ['num_hidden_layers', -1],
    ['num_hidden_layers', 513],
    ['num_hidden_layers', 2 ** 31],
    ['num_hidden_layers', '2'],
    ['num_hidden_layers', 2.5],
    ['num_hidden_layers', null],
    ['num_attention_heads', 0],
    ['num_attention_heads', 5],
    ['num_key_value_heads', 0],
    ['num_key_value_heads', 8],
    ['num_key_value_heads', 3],
    ['head_dim', 0],
    ['head_dim', 7],
    ['rms_norm_eps', Number.NaN],
    ['rms_norm_eps', -1],
    ['vocab_size', 0],
    ['vocab_size', 2 ** 40],
    ['intermediate_size', 0],
    ['hidden_size', 0],
    ['hidden_size', [1]],
    ['max_position_embeddings', 0],
    ['tie_word_embeddings', 'yes'],
    ['rope_theta', 0],
  ];
  it.each(bad)('config.json %s = %s', (key, value) => {
    const error = refusal(() => loadModel(memoryHf({ ...HF, [key]: value }, hfTensors())));
    expect(error.code).toBe('bad_model_file');
    expect(error.message).toContain(key === 'num_attention_heads' && value === 5 ? 'hidden_size' : key);
  });

  const badGguf: ReadonlyArray<readonly [key: string, value: number | string]> = [
    ['llama.block_count', 0],
    ['llama.block_count', -1],
    ['llama.block_count', 513],
    ['llama.block_count', 2 ** 31],
    ['llama.block_count', '2'],
    ['llama.attention.head_count', 0],
    ['llama.attention.head_count_kv', 0],
    ['llama.attention.head_count_kv', 8],
    ['llama.attention.head_count_kv', 3],
    ['llama.embedding_length', 33],
    ['llama.rope.dimension_count', 7],
    ['llama.rope.dimension_count', 10],
    ['llama.attention.layer_norm_rms_epsilon', Number.NaN],
    ['llama.vocab_size', 0],
    ['llama.context_length', 0],
    ['llama.feed_forward_length', 0],
    ['llama.attention.key_length', 0],
  ];
  it.each(badGguf)('GGUF %s = %s', (key, value) => {
    const error = refusal(() => loadModel(memoryGguf({ ...GGUF, [key]: value }, ggufTensors())));
    expect(error.code).toBe('bad_model_file');
    expect(error.message).toContain(key);
  });

  it('GGUF counts stored as floats', () => {
    const error = refusal(() => loadModel(memoryGguf(GGUF, ggufTensors(), { 'llama.block_count': 'f32' })));
    expect(error.message).toContain('llama.block_count');
  });

  it('GGUF missing keys', () => {
    for (const key of [
      'llama.block_count',
      'llama.embedding_length',
      'llama.attention.head_count',
      'llama.attention.layer_norm_rms_epsilon',
      'llama.context_length',
    ]) {
      const { [key as keyof typeof GGUF]: _, ...rest } = GGUF;
      expect(refusal(() => loadModel(memoryGguf(rest, ggufTensors()))).message).toContain(key);
    }
    expect(
      refusal(() => loadModel(memoryGguf({ ...GGUF, 'general.architecture': 'rwkv6' }, ggufTensors()))).message,
    ).toContain('rwkv6');
  });
});

describe('tensors', () => {
  it('a GGUF file without an output matrix ties it', () => {
    expect(loadModel(memoryGguf(GGUF, ggufTensors())).config.tieEmbeddings).toBe(true);
    expect(
      loadModel(memoryGguf(GGUF, { ...ggufTensors(), 'output.weight': { shape: [VOCAB, HIDDEN] } })).config
        .tieEmbeddings,
    ).toBe(false);
  });

  it('missing ones are named', () => {
    const { 'lm_head.weight': _, ...rest } = hfTensors();
    const error = refusal(() => loadModel(memoryHf(HF, rest)));
    expect([error.code, error.message.includes('lm_head.weight')]).toEqual(['bad_model_file', true]);
  });

  it.each([
    [[HIDDEN, INNER + 1]],
    [[INNER, HIDDEN]],
    [[HIDDEN - 1, INNER]],
    [[HIDDEN * INNER]],
    [[1, HIDDEN, INNER + 2]],
  ])('of the wrong shape %s are named with both shapes', (shape) => {
    const error = refusal(() =>
      loadModel(memoryHf(HF, { ...hfTensors(), 'model.layers.1.mlp.down_proj.weight': { shape } })),
    );
    expect(error.code).toBe('bad_model_file');
    expect(error.message).toContain('model.layers.1.mlp.down_proj.weight');
    expect(error.message).toContain(`[${shape.join(', ')}]`);
    expect(error.message).toContain(`[${HIDDEN}, ${INNER}]`);
  });

  it('norms of the wrong length are named', () => {
    const error = refusal(() =>
      loadModel(memoryHf(HF, { ...hfTensors(), 'model.norm.weight': { shape: [HIDDEN + 1] } })),
    );
    expect(error.message).toContain(`model.norm.weight is [${HIDDEN + 1}]; [${HIDDEN}]`);
  });

  it('unused ones are named, quantization hints first; known leftovers are not', () => {
    const extra = {
      'model.layers.0.self_attn.rotary_emb.inv_freq': { shape: [4] },
      'model.layers.0.self_attn.q_proj.weight_scale': { shape: [32] },
      'model.layers.0.unheard_of.weight': { shape: [1] },
    };
    const { warnings } = loadModel(memoryHf(HF, { ...hfTensors(), ...extra }));
    expect(warnings.length).toBe(2);
    expect(warnings[0]).toContain('q_proj.weight_scale');
    expect(warnings[1]).toContain('unheard_of');
    expect(warnings.join()).not.toContain('inv_freq');
    // A stored copy of tied embeddings is no news.
    expect(loadModel(memoryHf({ ...HF, tie_word_embeddings: true }, hfTensors())).warnings).toEqual([]);
  });

  it('a quantization_config is refused by its method', () => {
    const error = refusal(() =>
      loadModel(memoryHf({ ...HF, quantization_config: { quant_method: 'awq' } }, hfTensors())),
    );
    expect([error.code, error.message.includes('awq')]).toEqual(['unsupported', true]);
  });
});
