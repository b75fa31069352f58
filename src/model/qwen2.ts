// Qwen 2 and 2.5: Llama's program with biases on q, k and v; some layers may have a sliding window (arXiv 2407.10671).

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import type { ConfigReader } from './config-reader.ts';
import { ggufDecoder, hfDecoder, listedWindows, slidingWindow } from './decoder-fields.ts';
import { modelConfig, uniformWindows } from './dimensions.ts';
import { LLAMA_NAMES, llamaProgram } from './llama.ts';
import type { ModelConfig } from './model-config.ts';
import type { ModelFamily } from './model-family.ts';
import { ggufSpecs, hfSpecs } from './weight-specs.ts';

export const qwen2: ModelFamily = {
  name: 'qwen2',
  hfArchitectures: ['Qwen2ForCausalLM'],
  hfModelTypes: ['qwen2'],
  ggufArchitectures: ['qwen2'],
  config: (checkpoint) => (checkpoint.format === 'gguf' ? ggufConfig(checkpoint) : hfConfig(checkpoint)),
  weights(config, checkpoint) {
    const program = llamaProgram(config, { maxModelLen: config.contextLength });
    return checkpoint.format === 'gguf' ? ggufSpecs(program, checkpoint) : hfSpecs(program, checkpoint, LLAMA_NAMES);
  },
  program: llamaProgram,
};

function hfConfig(checkpoint: Checkpoint): ModelConfig {
  const { reader, fields } = hfDecoder(checkpoint, {
    architecture: 'qwen2',
    tieEmbeddings: false,
    keys: { defaultMaxPositions: 32768 },
  });
  return modelConfig({ ...fields, windows: qwenWindows(reader, fields.numLayers), attentionBias: true });
}

function ggufConfig(checkpoint: Checkpoint): ModelConfig {
  const { fields } = ggufDecoder(checkpoint, { architecture: 'qwen2', activation: 'silu' });
  return modelConfig({ ...fields, attentionBias: checkpoint.tensors.has('blk.0.attn_q.bias') });
}

/** A window counts only with `use_sliding_window`, and from layer `max_window_layers` on. */
export function qwenWindows(reader: ConfigReader, numLayers: number): number[] {
  const window = reader.boolean('use_sliding_window', false) ? slidingWindow(reader, 4096) : 0;
  if (window === 0) return uniformWindows(numLayers, 0);
  const listed = listedWindows(reader, numLayers, window);
  if (listed) return listed;
  const firstLayer = reader.int('max_window_layers', { min: 0, fallback: 28 });
  return Array.from({ length: numLayers }, (_, layer) => (layer >= firstLayer ? window : 0));
}
