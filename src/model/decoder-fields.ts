// The fields that all decoder families read alike; each family adds what is its own.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { type ConfigReader, ggufReader, hfReader } from './config-reader.ts';
import {
  type ConfigFields,
  ggufDimensions,
  ggufRotaryDim,
  type HfDimensionKeys,
  hfDimensions,
  rotaryDim,
} from './dimensions.ts';
import type { Activation, RopeStyle } from './program.ts';
import { ggufRope, hfRope } from './rope-config.ts';

export interface DecoderFields {
  readonly reader: ConfigReader;
  readonly fields: ConfigFields;
}

export interface HfDefaults {
  readonly architecture: string;
  readonly tieEmbeddings: boolean;
  readonly keys?: HfDimensionKeys;
  readonly theta?: number;
  readonly partialFactor?: number;
  /** Default rms_norm_eps. */
  readonly normEps?: number;
  readonly normEpsKeys?: readonly string[];
  readonly activationKeys?: readonly string[];
  readonly activation?: Activation;
}

export function hfDecoder(checkpoint: Checkpoint, defaults: HfDefaults): DecoderFields {
  const reader = hfReader(checkpoint);
  const dimensions = hfDimensions(reader, defaults.keys);
  const rope = hfRope(reader, {
    theta: defaults.theta ?? 10000,
    maxPositions: dimensions.maxPositions,
    ...(defaults.partialFactor === undefined ? {} : { partialFactor: defaults.partialFactor }),
  });
  const fields: ConfigFields = {
    ...dimensions,
    architecture: defaults.architecture,
    contextLength: rope.contextLength,
    normEps: reader.number(defaults.normEpsKeys ?? ['rms_norm_eps'], {
      min: 0,
      max: 1,
      fallback: defaults.normEps ?? 1e-6,
    }),
    activation: reader.activation(defaults.activationKeys ?? ['hidden_act'], defaults.activation ?? 'silu'),
    tieEmbeddings: reader.boolean('tie_word_embeddings', defaults.tieEmbeddings),
    ropeTheta: rope.theta,
    ropeScaling: rope.scaling,
    rotaryDim: rotaryDim(reader, {
      headDim: dimensions.headDim,
      partialFactor: rope.partialFactor,
      key: reader.has('head_dim') ? 'head_dim' : 'hidden_size',
    }),
  };
  return { reader, fields };
}

export interface GgufDefaults {
  readonly architecture: string;
  readonly activation: Activation;
  readonly ropeStyle?: RopeStyle;
  /** Default: the RMS norm's. */
  readonly normEpsKey?: string;
}

export function ggufDecoder(checkpoint: Checkpoint, defaults: GgufDefaults): DecoderFields {
  const reader = ggufReader(checkpoint);
  const dimensions = ggufDimensions(reader, checkpoint);
  const rope = ggufRope(reader, checkpoint, dimensions.maxPositions);
  const fields: ConfigFields = {
    ...dimensions,
    architecture: defaults.architecture,
    contextLength: rope.contextLength,
    normEps: reader.number(defaults.normEpsKey ?? 'attention.layer_norm_rms_epsilon', { min: 0, max: 1 }),
    activation: defaults.activation,
    // A GGUF file says it by leaving the output matrix out.
    tieEmbeddings: !checkpoint.tensors.has('output.weight'),
    ropeTheta: rope.theta,
    ropeScaling: rope.scaling,
    ropeStyle: defaults.ropeStyle ?? 'half',
    rotaryDim: ggufRotaryDim(reader, dimensions.headDim),
  };
  return { reader, fields };
}

/** Windows of models that list the kind of each layer (`layer_types`); null when the config has no such list. */
export function listedWindows(reader: ConfigReader, numLayers: number, window: number): number[] | null {
  const kinds = reader.strings('layer_types');
  if (!kinds) return null;
  if (kinds.length !== numLayers) reader.fail('layer_types', `has ${kinds.length} entries for ${numLayers} layers`);
  return kinds.map((kind) => {
    if (kind === 'full_attention') return 0;
    if (kind !== 'sliding_attention')
      reader.fail('layer_types', `holds '${kind}'; known: full_attention, sliding_attention`);
    return window;
  });
}

/** `sliding_window`: null and 0 mean none; an absent key means the family's default. */
export function slidingWindow(reader: ConfigReader, whenAbsent: number): number {
  const stored = reader.raw('sliding_window');
  if (stored === undefined) return whenAbsent;
  return stored === null ? 0 : reader.int('sliding_window', { min: 0, max: 2 ** 31 - 1 });
}
