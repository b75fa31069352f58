// The dimensions of a model, whatever file they came from. Families fill it from a Hugging Face config.json or GGUF metadata.

import type { Activation, RopeStyle } from './program.ts';

/** Raw rope scaling as found in the file; model/rope.ts turns it into a RopeTable. */
export interface RopeScaling {
  /** default | linear | dynamic | yarn | llama3 | longrope */
  readonly type: string;
  readonly factor: number;
  readonly originalContextLength: number | null;
  readonly lowFreqFactor: number | null;
  readonly highFreqFactor: number | null;
  readonly betaFast: number | null;
  readonly betaSlow: number | null;
  readonly attentionFactor: number | null;
  readonly mscale: number | null;
  readonly mscaleAllDim: number | null;
  /** yarn: round the limits of the ramp to whole dimensions (the default everywhere but in a few models). */
  readonly truncate: boolean;
  readonly shortFactors: readonly number[] | null;
  readonly longFactors: readonly number[] | null;
  /** GGUF rope_freqs.weight: divide inverse frequency i by this. */
  readonly frequencyDivisors: readonly number[] | null;
}

export interface MoeConfig {
  readonly numExperts: number;
  readonly topK: number;
  readonly expertIntermediateSize: number;
  readonly sharedIntermediateSize: number;
  readonly renormalise: boolean;
  /** Which layers are mixtures; the others have a dense MLP. */
  readonly isMoeLayer: readonly boolean[];
}

export interface ModelConfig {
  /** Family name: llama, mistral, qwen2, ... */
  readonly architecture: string;
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly intermediateSize: number;
  readonly vocabSize: number;
  /** Longest sequence the model was made for, scaling included. */
  readonly contextLength: number;
  readonly normEps: number;
  readonly activation: Activation;
  readonly tieEmbeddings: boolean;
  readonly ropeTheta: number;
  /** Second base for sliding layers (Gemma 3); equals ropeTheta elsewhere. */
  readonly localRopeTheta: number;
  readonly ropeScaling: RopeScaling | null;
  readonly ropeStyle: RopeStyle;
  readonly rotaryDim: number;
  /** Window per layer; 0 = global. */
  readonly windows: readonly number[];
  readonly attentionScale: number;
  readonly attentionSoftcap: number;
  readonly finalSoftcap: number;
  readonly embeddingScale: number;
  readonly attentionBias: boolean;
  readonly outputBias: boolean;
  readonly mlpBias: boolean;
  readonly moe: MoeConfig | null;
  /** GPT-NeoX: attention and MLP both read the layer's input. */
  readonly parallelResidual: boolean;
}
