// The scripted model's tensors under their GGUF names.

import type { WriterTensor } from '../unit/checkpoint/gguf-writer.ts';

export { type WriterKey, writeGguf } from '../unit/checkpoint/gguf-writer.ts';

export const ggmlTypeF32 = 0;

const NAMES: Readonly<Record<string, string>> = {
  'model.embed_tokens': 'token_embd',
  lm_head: 'output',
  'model.norm': 'output_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
};

export function tensorsOf(
  weights: ReadonlyMap<string, { readonly shape: readonly number[]; readonly values: Float32Array }>,
  ggmlType: number,
): WriterTensor[] {
  return [...weights].map(([name, { shape, values }]) => {
    const stem = name.replace(/\.weight$/, '').replace(/^model\.layers\.0\./, '');
    const prefix = name.startsWith('model.layers.0.') ? 'blk.0.' : '';
    return {
      name: `${prefix}${NAMES[stem]}.weight`,
      dims: [...shape].reverse(),
      ggmlType,
      data: new Uint8Array(values.buffer),
    };
  });
}
