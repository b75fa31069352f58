// Phi-3, 3.5 and 4-mini: Llama's program; files store q, k and v as one matrix, and gate and up as one (arXiv 2404.14219).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufDecoder, hfDecoder, slidingWindow } from './decoder-fields.ts';
import { modelConfig, uniformWindows } from './dimensions.ts';
import { LLAMA_NAMES, llamaProgram } from './llama.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { fusedQkv, ggufSpecs, hfSpecs, slice, type WeightName, type WeightSource } from './weight-specs.ts';

export const phi3: ModelFamily = {
  name: 'phi3',
  hfArchitectures: ['Phi3ForCausalLM'],
  hfModelTypes: ['phi3'],
  ggufArchitectures: ['phi3'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = llamaProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf'
      ? ggufSpecs(
          program,
          checkpoint,
          (name) => fusedQkv(checkpoint, config, name) ?? fusedGateUp(`blk.${name.layer}.ffn_up.weight`, config, name),
        )
      : hfSpecs(program, checkpoint, LLAMA_NAMES, (name) => hfFused(config, name));
  },
  program: llamaProgram,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'phi3',
    tieEmbeddings: false,
    keys: { defaultMaxPositions: 4096 },
    normEps: 1e-5,
  });
  return modelConfig({ ...fields, windows: uniformWindows(fields.numLayers, slidingWindow(reader, 0)) });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = ggufDecoder(checkpoint, { architecture: 'phi3', activation: 'silu' });
  return modelConfig({
    ...fields,
    windows: uniformWindows(
      fields.numLayers,
      reader.int('attention.sliding_window', { min: 0, max: 2 ** 31 - 1, fallback: 0 }),
    ),
  });
}

function hfFused(config: ModelConfig, name: WeightName): WeightSource | null {
  const { numHeads, numKvHeads, headDim } = config;
  const qkv = `model.layers.${name.layer}.self_attn.qkv_proj.weight`;
  if (name.part === 'attn_q') return slice(qkv, 0, numHeads * headDim);
  if (name.part === 'attn_k') return slice(qkv, numHeads * headDim, numKvHeads * headDim);
  if (name.part === 'attn_v') return slice(qkv, (numHeads + numKvHeads) * headDim, numKvHeads * headDim);
  return fusedGateUp(`model.layers.${name.layer}.mlp.gate_up_proj.weight`, config, name);
}

/** Rows of gate come first, then those of up. */
function fusedGateUp(tensor: string, { intermediateSize }: ModelConfig, { part }: WeightName): WeightSource | null {
  if (part === 'ffn_gate') return slice(tensor, 0, intermediateSize);
  if (part === 'ffn_up') return slice(tensor, intermediateSize, intermediateSize);
  return null;
}
