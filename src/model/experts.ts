// Mixture layers: their sizes in the config, the names of their weights in a program, and where files keep the experts, which
// may be one tensor each, one stacked tensor for all, or gate and up fused.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import type { ConfigReader } from './config-reader.ts';
import type { WeightNamer } from './layer-weights.ts';
import type { ModelConfig, MoeConfig } from './model-config.ts';
import type { MoeOp } from './program.ts';
import { slice, stacked, type WeightName, type WeightRefShape, type WeightSource } from './weight-specs.ts';

const MAX_EXPERTS = 4096;

export interface ExpertCounts {
  readonly numExperts: number;
  readonly topK: number;
}

export function expertCounts(
  reader: ConfigReader,
  keys: { experts: readonly string[]; topK: string; defaults?: ExpertCounts },
): ExpertCounts {
  const withDefault = (value: number | undefined) => (value === undefined ? {} : { fallback: value });
  const numExperts = reader.int(keys.experts, { min: 1, max: MAX_EXPERTS, ...withDefault(keys.defaults?.numExperts) });
  const topK = reader.int(keys.topK, { min: 1, max: MAX_EXPERTS, ...withDefault(keys.defaults?.topK) });
  if (topK > numExperts) reader.fail(keys.topK, `is ${topK}, but there are ${numExperts} experts`);
  return { numExperts, topK };
}

/** Layers that are mixtures by Qwen's two settings. */
export function qwenMoeLayers(reader: ConfigReader, numLayers: number): boolean[] {
  const dense = new Set(reader.numbers('mlp_only_layers') ?? []);
  const step = reader.int('decoder_sparse_step', { min: 1, fallback: 1 });
  return Array.from({ length: numLayers }, (_, layer) => !dense.has(layer) && (layer + 1) % step === 0);
}

export function ggufMoeLayers(checkpoint: Checkpoint, numLayers: number): boolean[] {
  return Array.from({ length: numLayers }, (_, layer) => checkpoint.tensors.has(`blk.${layer}.ffn_gate_inp.weight`));
}

/** Width of an expert: stated, or that of the stored tensor. */
export function ggufExpertSize(reader: ConfigReader, checkpoint: Checkpoint, kind: 'exps' | 'shexp'): number {
  const key = kind === 'exps' ? 'expert_feed_forward_length' : 'expert_shared_feed_forward_length';
  const stored = [...checkpoint.tensors.values()]
    .find(({ name }) => name.endsWith(`.ffn_down_${kind}.weight`))
    ?.shape.at(-1);
  return reader.int(key, { min: 1, max: 1 << 20, ...(stored === undefined ? {} : { fallback: stored }) });
}

/** The mixture of one layer as an op, its weights named as in GGUF. */
export function moeLayer(w: WeightNamer, config: ModelConfig, moe: MoeConfig): Omit<MoeOp, 'kind' | 'in' | 'out'> {
  const { hiddenSize } = config;
  const { numExperts, topK, expertIntermediateSize: expertCols, sharedIntermediateSize: sharedCols } = moe;
  return {
    router: w.matrix('ffn_gate_inp', numExperts, hiddenSize),
    gate: w.matrix('ffn_gate_exps', numExperts * expertCols, hiddenSize),
    up: w.matrix('ffn_up_exps', numExperts * expertCols, hiddenSize),
    down: w.matrix('ffn_down_exps', numExperts * hiddenSize, expertCols),
    numExperts,
    topK,
    expertCols,
    renormalise: moe.renormalise,
    activation: config.activation,
    shared:
      sharedCols === 0
        ? null
        : {
            gate: w.matrix('ffn_gate_shexp', sharedCols, hiddenSize),
            up: w.matrix('ffn_up_shexp', sharedCols, hiddenSize),
            down: w.matrix('ffn_down_shexp', hiddenSize, sharedCols),
            cols: sharedCols,
            gateWeight: w.vector('ffn_gate_inp_shexp', hiddenSize),
          },
  };
}

export interface HfExpertNames {
  /** Module of the mixture in a layer, e.g. `mlp`. */
  readonly block: string;
  readonly gate: string;
  readonly up: string;
  readonly down: string;
}

/** safetensors: one tensor per expert, or `experts.gate_up_proj` [experts, 2 * cols, hidden] and `experts.down_proj`. */
export function hfExperts(
  checkpoint: Checkpoint,
  config: ModelConfig,
  { layer, part }: WeightName,
  names: HfExpertNames,
): WeightSource | null {
  const { moe, hiddenSize } = config;
  if (!moe || layer === null) return null;
  const { numExperts, expertIntermediateSize: cols } = moe;
  const experts = `model.layers.${layer}.${names.block}.experts`;
  const [fused, fusedDown] = [`${experts}.gate_up_proj`, `${experts}.down_proj`];
  switch (part) {
    case 'ffn_gate_exps':
      return checkpoint.tensors.has(fused)
        ? fusedHalves(fused, numExperts, cols, 0)
        : stacked(numExperts, cols, (e) => `${experts}.${e}.${names.gate}.weight`);
    case 'ffn_up_exps':
      return checkpoint.tensors.has(fused)
        ? fusedHalves(fused, numExperts, cols, 1)
        : stacked(numExperts, cols, (e) => `${experts}.${e}.${names.up}.weight`);
    case 'ffn_down_exps':
      return checkpoint.tensors.has(fusedDown)
        ? slice(fusedDown, 0, numExperts * hiddenSize)
        : stacked(numExperts, hiddenSize, (e) => `${experts}.${e}.${names.down}.weight`);
    default:
      return null;
  }
}

/** GGUF: stacked tensors, or in old files one tensor per expert (`blk.0.ffn_gate.3.weight`). */
export function ggufExperts(
  checkpoint: Checkpoint,
  config: ModelConfig,
  { layer, part }: WeightName,
  ref: WeightRefShape,
): WeightSource | null {
  const match = /^ffn_(gate|up|down)_exps$/.exec(part);
  if (!match || !config.moe || layer === null || checkpoint.tensors.has(`blk.${layer}.${part}.weight`)) return null;
  const { numExperts } = config.moe;
  const fused = `blk.${layer}.ffn_gate_up_exps.weight`;
  if (match[1] !== 'down' && checkpoint.tensors.has(fused))
    return fusedHalves(fused, numExperts, ref.rows / numExperts, match[1] === 'gate' ? 0 : 1);
  return stacked(numExperts, ref.rows / numExperts, (expert) => `blk.${layer}.ffn_${match[1]}.${expert}.weight`);
}

/** Gate (half 0) or up (half 1) of every expert in a tensor [experts, 2 * cols, hidden]. */
function fusedHalves(tensor: string, numExperts: number, cols: number, half: 0 | 1): WeightSource {
  return {
    pieces: Array.from({ length: numExperts }, (_, expert) => ({
      tensor,
      rowStart: (2 * expert + half) * cols,
      numRows: cols,
    })),
  };
}
