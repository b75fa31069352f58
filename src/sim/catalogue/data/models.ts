// Published config.json fields of well-known models, only those that sizes and costs depend on. Source of each: the config.json
// of the model's own repository on the Hugging Face hub, or the paper's table of sizes.

import type { WeightDtype } from '../model-shape.ts';

export interface CatalogueEntry {
  /** Lower case, without the organisation: `llama-3.1-8b`. */
  readonly name: string;
  /** Further names of the same sizes. */
  readonly aliases?: readonly string[];
  readonly config: Readonly<Record<string, unknown>>;
  /** As published; bf16 when not said. */
  readonly weightDtype?: WeightDtype;
}

type Sizes = readonly [hidden: number, layers: number, heads: number, kvHeads: number, mlp: number, vocabulary: number];

function decoder(architecture: string, modelType: string, sizes: Sizes, more: Readonly<Record<string, unknown>> = {}) {
  const [hidden, layers, heads, kvHeads, mlp, vocabulary] = sizes;
  return {
    architectures: [architecture],
    model_type: modelType,
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    intermediate_size: mlp,
    vocab_size: vocabulary,
    tie_word_embeddings: false,
    ...more,
  };
}

const context = (tokens: number) => ({ max_position_embeddings: tokens });
const TIED = { tie_word_embeddings: true };
const llama = (sizes: Sizes, tokens: number, more = {}) =>
  decoder('LlamaForCausalLM', 'llama', sizes, { ...context(tokens), ...more });
const qwen2 = (sizes: Sizes, tokens: number, more = {}) =>
  decoder('Qwen2ForCausalLM', 'qwen2', sizes, { ...context(tokens), ...more });
const qwen3 = (sizes: Sizes, more = {}) =>
  decoder('Qwen3ForCausalLM', 'qwen3', sizes, { ...context(40960), head_dim: 128, ...more });
const qwen3Moe = (sizes: Sizes, expertSize: number, tokens: number) =>
  decoder('Qwen3MoeForCausalLM', 'qwen3_moe', sizes, {
    ...context(tokens),
    head_dim: 128,
    num_experts: 128,
    num_experts_per_tok: 8,
    moe_intermediate_size: expertSize,
  });
const mistral = (sizes: Sizes, tokens: number, more = {}) =>
  decoder('MistralForCausalLM', 'mistral', sizes, { ...context(tokens), sliding_window: null, ...more });
const mixtral = (sizes: Sizes, tokens: number) =>
  decoder('MixtralForCausalLM', 'mixtral', sizes, {
    ...context(tokens),
    sliding_window: null,
    num_local_experts: 8,
    num_experts_per_tok: 2,
  });
const gemma2 = (sizes: Sizes, headDim: number) =>
  decoder('Gemma2ForCausalLM', 'gemma2', sizes, {
    ...context(8192),
    ...TIED,
    head_dim: headDim,
    sliding_window: 4096,
  });
const gemma3 = (sizes: Sizes, headDim: number, tokens = 131072, window = 1024) =>
  decoder('Gemma3ForCausalLM', 'gemma3_text', sizes, {
    ...context(tokens),
    ...TIED,
    head_dim: headDim,
    sliding_window: window,
    sliding_window_pattern: 6,
  });
const phi3 = (sizes: Sizes, tokens: number, more = {}) =>
  decoder('Phi3ForCausalLM', 'phi3', sizes, { ...context(tokens), sliding_window: null, ...more });

function opt(hidden: number, layers: number, heads: number) {
  return {
    architectures: ['OPTForCausalLM'],
    model_type: 'opt',
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    ffn_dim: 4 * hidden,
    vocab_size: 50272,
    max_position_embeddings: 2048,
    word_embed_proj_dim: hidden,
    activation_function: 'relu',
    do_layer_norm_before: true,
    tie_word_embeddings: true,
  };
}

function falcon(hidden: number, layers: number, heads: number, kvHeads: number | null) {
  return {
    architectures: ['FalconForCausalLM'],
    model_type: 'falcon',
    hidden_size: hidden,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    head_dim: 64,
    vocab_size: 65024,
    max_position_embeddings: 2048,
    ...(kvHeads === null
      ? { multi_query: true, new_decoder_architecture: false }
      : { num_kv_heads: kvHeads, new_decoder_architecture: true }),
  };
}

function gptOss(layers: number, numExperts: number) {
  return decoder('GptOssForCausalLM', 'gpt_oss', [2880, layers, 64, 8, 2880, 201088], {
    ...context(131072),
    head_dim: 64,
    sliding_window: 128,
    layer_types: Array.from({ length: layers }, (_, i) => (i % 2 === 0 ? 'sliding_attention' : 'full_attention')),
    num_local_experts: numExperts,
    num_experts_per_tok: 4,
  });
}

const DEEPSEEK_V3 = decoder('DeepseekV3ForCausalLM', 'deepseek_v3', [7168, 61, 128, 128, 18432, 129280], {
  ...context(163840),
  q_lora_rank: 1536,
  kv_lora_rank: 512,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  v_head_dim: 128,
  n_routed_experts: 256,
  n_shared_experts: 1,
  num_experts_per_tok: 8,
  moe_intermediate_size: 2048,
  first_k_dense_replace: 3,
});

const DEEPSEEK_V2_LITE = decoder('DeepseekV2ForCausalLM', 'deepseek_v2', [2048, 27, 16, 16, 10944, 102400], {
  ...context(163840),
  q_lora_rank: null,
  kv_lora_rank: 512,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  v_head_dim: 128,
  n_routed_experts: 64,
  n_shared_experts: 2,
  num_experts_per_tok: 6,
  moe_intermediate_size: 1408,
  first_k_dense_replace: 1,
});

const LLAMA_ENTRIES: readonly CatalogueEntry[] = [
  {
    name: 'llama-7b',
    aliases: ['llama-1-7b', 'vicuna-7b-v1.1'],
    config: llama([4096, 32, 32, 32, 11008, 32000], 2048),
  },
  { name: 'llama-13b', aliases: ['llama-1-13b'], config: llama([5120, 40, 40, 40, 13824, 32000], 2048) },
  { name: 'llama-30b', aliases: ['llama-33b'], config: llama([6656, 60, 52, 52, 17920, 32000], 2048) },
  { name: 'llama-65b', config: llama([8192, 80, 64, 64, 22016, 32000], 2048) },
  { name: 'llama-2-7b', aliases: ['vicuna-7b'], config: llama([4096, 32, 32, 32, 11008, 32000], 4096) },
  { name: 'llama-2-13b', aliases: ['vicuna-13b'], config: llama([5120, 40, 40, 40, 13824, 32000], 4096) },
  { name: 'llama-2-70b', config: llama([8192, 80, 64, 8, 28672, 32000], 4096) },
  { name: 'llama-3-8b', config: llama([4096, 32, 32, 8, 14336, 128256], 8192) },
  { name: 'llama-3-70b', config: llama([8192, 80, 64, 8, 28672, 128256], 8192) },
  { name: 'llama-3.1-8b', config: llama([4096, 32, 32, 8, 14336, 128256], 131072) },
  { name: 'llama-3.1-70b', aliases: ['llama-3.3-70b'], config: llama([8192, 80, 64, 8, 28672, 128256], 131072) },
  { name: 'llama-3.1-405b', config: llama([16384, 126, 128, 8, 53248, 128256], 131072) },
  { name: 'llama-3.2-1b', config: llama([2048, 16, 32, 8, 8192, 128256], 131072, { head_dim: 64, ...TIED }) },
  { name: 'llama-3.2-3b', config: llama([3072, 28, 24, 8, 8192, 128256], 131072, { head_dim: 128, ...TIED }) },
  { name: 'yi-6b', config: llama([4096, 32, 32, 4, 11008, 64000], 4096) },
  { name: 'yi-34b', config: llama([7168, 60, 56, 8, 20480, 64000], 4096) },
  { name: 'yi-34b-200k', config: llama([7168, 60, 56, 8, 20480, 64000], 200000) },
  { name: 'smollm2-135m', config: llama([576, 30, 9, 3, 1536, 49152], 8192, TIED) },
  { name: 'smollm2-1.7b', config: llama([2048, 24, 32, 32, 8192, 49152], 8192, TIED) },
];

const QWEN_ENTRIES: readonly CatalogueEntry[] = [
  { name: 'qwen2-0.5b', aliases: ['qwen2.5-0.5b'], config: qwen2([896, 24, 14, 2, 4864, 151936], 32768, TIED) },
  { name: 'qwen2-1.5b', aliases: ['qwen2.5-1.5b'], config: qwen2([1536, 28, 12, 2, 8960, 151936], 32768, TIED) },
  {
    name: 'qwen2-7b',
    aliases: ['qwen2.5-7b', 'qwen2.5-coder-7b'],
    config: qwen2([3584, 28, 28, 4, 18944, 152064], 32768),
  },
  { name: 'qwen2-72b', aliases: ['qwen2.5-72b'], config: qwen2([8192, 80, 64, 8, 29568, 152064], 32768) },
  { name: 'qwen2.5-3b', config: qwen2([2048, 36, 16, 2, 11008, 151936], 32768, TIED) },
  { name: 'qwen2.5-14b', config: qwen2([5120, 48, 40, 8, 13824, 152064], 32768) },
  { name: 'qwen2.5-32b', aliases: ['qwen2.5-coder-32b'], config: qwen2([5120, 64, 40, 8, 27648, 152064], 32768) },
  { name: 'qwq-32b', config: qwen2([5120, 64, 40, 8, 27648, 152064], 40960) },
  { name: 'deepseek-r1-distill-qwen-14b', config: qwen2([5120, 48, 40, 8, 13824, 152064], 131072) },
  { name: 'qwen3-0.6b', config: qwen3([1024, 28, 16, 8, 3072, 151936], TIED) },
  { name: 'qwen3-1.7b', config: qwen3([2048, 28, 16, 8, 6144, 151936], TIED) },
  { name: 'qwen3-4b', config: qwen3([2560, 36, 32, 8, 9728, 151936], TIED) },
  { name: 'qwen3-8b', config: qwen3([4096, 36, 32, 8, 12288, 151936]) },
  { name: 'qwen3-14b', config: qwen3([5120, 40, 40, 8, 17408, 151936]) },
  { name: 'qwen3-32b', config: qwen3([5120, 64, 64, 8, 25600, 151936]) },
  { name: 'qwen3-30b-a3b', config: qwen3Moe([2048, 48, 32, 4, 6144, 151936], 768, 40960) },
  { name: 'qwen3-235b-a22b', config: qwen3Moe([4096, 94, 64, 4, 12288, 151936], 1536, 40960) },
];

const OTHER_ENTRIES: readonly CatalogueEntry[] = [
  { name: 'mistral-7b', aliases: ['mistral-7b-v0.2'], config: mistral([4096, 32, 32, 8, 14336, 32000], 32768) },
  { name: 'mistral-7b-v0.1', config: mistral([4096, 32, 32, 8, 14336, 32000], 32768, { sliding_window: 4096 }) },
  { name: 'mistral-7b-v0.3', config: mistral([4096, 32, 32, 8, 14336, 32768], 32768) },
  {
    name: 'mistral-nemo-12b',
    aliases: ['mistral-nemo-2407', 'mistral-nemo-base-2407'],
    config: mistral([5120, 40, 32, 8, 14336, 131072], 131072, { head_dim: 128 }),
  },
  { name: 'mistral-small-24b', config: mistral([5120, 40, 32, 8, 32768, 131072], 32768, { head_dim: 128 }) },
  { name: 'mistral-large-123b', config: mistral([12288, 88, 96, 8, 28672, 32768], 131072) },
  { name: 'mixtral-8x7b', aliases: ['mixtral-8x7b-v0.1'], config: mixtral([4096, 32, 32, 8, 14336, 32000], 32768) },
  { name: 'mixtral-8x22b', aliases: ['mixtral-8x22b-v0.1'], config: mixtral([6144, 56, 48, 8, 16384, 32000], 65536) },
  { name: 'opt-125m', config: opt(768, 12, 12) },
  { name: 'opt-1.3b', config: opt(2048, 24, 32) },
  { name: 'opt-6.7b', config: opt(4096, 32, 32) },
  { name: 'opt-13b', config: opt(5120, 40, 40) },
  { name: 'opt-30b', config: opt(7168, 48, 56) },
  { name: 'opt-66b', config: opt(9216, 64, 72) },
  { name: 'opt-175b', config: opt(12288, 96, 96) },
  { name: 'gemma-2-2b', config: gemma2([2304, 26, 8, 4, 9216, 256000], 256) },
  { name: 'gemma-2-9b', config: gemma2([3584, 42, 16, 8, 14336, 256000], 256) },
  { name: 'gemma-2-27b', config: gemma2([4608, 46, 32, 16, 36864, 256000], 128) },
  { name: 'gemma-3-1b', config: gemma3([1152, 26, 4, 1, 6912, 262144], 256, 32768, 512) },
  { name: 'gemma-3-4b', config: gemma3([2560, 34, 8, 4, 10240, 262208], 256) },
  { name: 'gemma-3-12b', config: gemma3([3840, 48, 16, 8, 15360, 262208], 256) },
  { name: 'gemma-3-27b', config: gemma3([5376, 62, 32, 16, 21504, 262208], 128) },
  {
    name: 'phi-3-mini-4k',
    aliases: ['phi-3-mini'],
    config: phi3([3072, 32, 32, 32, 8192, 32064], 4096, { sliding_window: 2047 }),
  },
  { name: 'phi-3-mini-128k', aliases: ['phi-3.5-mini'], config: phi3([3072, 32, 32, 32, 8192, 32064], 131072) },
  {
    name: 'phi-3-medium-4k',
    aliases: ['phi-3-medium'],
    config: phi3([5120, 40, 40, 10, 17920, 32064], 4096, { sliding_window: 2047 }),
  },
  { name: 'phi-4', aliases: ['phi-4-14b'], config: phi3([5120, 40, 40, 10, 17920, 100352], 16384) },
  { name: 'phi-4-mini', config: phi3([3072, 32, 24, 8, 8192, 200064], 131072, TIED) },
  { name: 'gpt-oss-20b', config: gptOss(24, 32), weightDtype: 'mxfp4' },
  { name: 'gpt-oss-120b', config: gptOss(36, 128), weightDtype: 'mxfp4' },
  { name: 'deepseek-v3', aliases: ['deepseek-r1', 'deepseek-v3-0324'], config: DEEPSEEK_V3, weightDtype: 'fp8' },
  { name: 'deepseek-v2-lite', config: DEEPSEEK_V2_LITE },
  { name: 'falcon-7b', config: falcon(4544, 32, 71, null) },
  { name: 'falcon-40b', config: falcon(8192, 60, 128, 8) },
  { name: 'falcon-180b', config: falcon(14848, 80, 232, 8) },
];

export const MODELS: readonly CatalogueEntry[] = [...LLAMA_ENTRIES, ...QWEN_ENTRIES, ...OTHER_ENTRIES];
