// Reads rope settings in every spelling that files have: classic config.json (`rope_theta`, `rope_scaling` with `type` or
// `rope_type`), the newer `rope_parameters`, and GGUF metadata with its factor tensors.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import type { ConfigReader } from './config-reader.ts';
import type { RopeScaling } from './model-config.ts';
import { ROPE_KINDS, unknownRopeKind } from './rope.ts';

export interface RopeConfig {
  readonly theta: number;
  readonly scaling: RopeScaling | null;
  /** Share of the head that rotates; 1 = all of it. */
  readonly partialFactor: number;
  /** Longest sequence with the scaling applied. */
  readonly contextLength: number;
}

export interface RopeDefaults {
  readonly theta: number;
  readonly partialFactor?: number;
  /** max_position_embeddings of the file. */
  readonly maxPositions: number;
}

const NO_SCALING: RopeScaling = {
  type: 'default',
  factor: 1,
  originalContextLength: null,
  lowFreqFactor: null,
  highFreqFactor: null,
  betaFast: null,
  betaSlow: null,
  attentionFactor: null,
  mscale: null,
  mscaleAllDim: null,
  truncate: true,
  shortFactors: null,
  longFactors: null,
  frequencyDivisors: null,
};

/** Rope of a config.json. `parameters` overrides where the rope_parameters object is looked up (Gemma 3 has one per layer type). */
export function hfRope(
  reader: ConfigReader,
  defaults: RopeDefaults,
  parameters = reader.object('rope_parameters'),
): RopeConfig {
  const theta =
    parameters?.optionalNumber('rope_theta', 1e-9) ??
    reader.number(['rope_theta', 'rotary_emb_base'], { min: 1e-9, fallback: defaults.theta });
  const partialFactor =
    parameters?.optionalNumber('partial_rotary_factor', 0) ??
    reader.number(['partial_rotary_factor', 'rotary_pct'], { min: 0, max: 1, fallback: defaults.partialFactor ?? 1 });
  const maxPositions = defaults.maxPositions;
  const scaling = readScaling(parameters ?? reader.object('rope_scaling'), reader, maxPositions);
  return { theta, scaling, partialFactor, contextLength: scaledLength(scaling, maxPositions) };
}

/** What the scaling makes of max_position_embeddings (vLLM's rule, but `dynamic` grows only when a longer length is asked for). */
function scaledLength(scaling: RopeScaling | null, maxPositions: number): number {
  if (scaling?.type === 'linear') return Math.floor(maxPositions * scaling.factor);
  if (scaling?.type === 'yarn') return Math.floor((scaling.originalContextLength ?? maxPositions) * scaling.factor);
  return maxPositions;
}

function readScaling(fields: ConfigReader | null, reader: ConfigReader, maxPositions: number): RopeScaling | null {
  if (!fields) return null;
  const kind = scalingKind(fields);
  if (kind === 'default') return null;
  const original =
    (fields.optionalNumber('original_max_position_embeddings', 1) ??
      reader.optionalNumber('original_max_position_embeddings', 1)) ||
    null;
  const trained = kind === 'dynamic' ? maxPositions : (original ?? (kind === 'yarn' ? maxPositions : null));
  return {
    ...NO_SCALING,
    type: kind,
    factor: scalingFactor(fields, kind, { original, maxPositions }),
    originalContextLength: trained,
    lowFreqFactor: fields.optionalNumber('low_freq_factor', 0),
    highFreqFactor: fields.optionalNumber('high_freq_factor', 0),
    betaFast: fields.optionalNumber('beta_fast', 0),
    betaSlow: fields.optionalNumber('beta_slow', 0),
    attentionFactor: fields.optionalNumber('attention_factor', 0),
    mscale: fields.optionalNumber('mscale', 0),
    mscaleAllDim: fields.optionalNumber('mscale_all_dim', 0),
    truncate: fields.boolean('truncate', true),
    shortFactors: fields.numbers('short_factor'),
    longFactors: fields.numbers('long_factor'),
  };
}

/** `type` is the old name of `rope_type`; when both stand, the new one counts. */
function scalingKind(fields: ConfigReader): string {
  const kind = fields.string('rope_type') ?? fields.string('type');
  if (kind === 'su') return 'longrope';
  if (kind === null) {
    if (fields.has('factor')) fields.fail('rope_type', `is missing; known kinds: ${ROPE_KINDS.join(', ')}`);
    return 'default';
  }
  if (!(ROPE_KINDS as readonly string[]).includes(kind)) throw unknownRopeKind(kind);
  return kind;
}

function scalingFactor(
  fields: ConfigReader,
  kind: string,
  lengths: { original: number | null; maxPositions: number },
): number {
  const implied = lengths.original === null ? null : lengths.maxPositions / lengths.original;
  if (kind === 'longrope' && implied !== null) return implied;
  if (!fields.has('factor') && implied !== null && kind === 'yarn') return implied;
  return fields.number('factor', { min: 1e-6 });
}

/** Rope of GGUF metadata; factor tensors are read here because they are settings, not weights. */
export function ggufRope(reader: ConfigReader, checkpoint: Checkpoint, contextLength: number): RopeConfig {
  const theta = reader.number('rope.freq_base', { min: 1e-9, fallback: 10000 });
  const frequencyDivisors = factorTensor(checkpoint, 'rope_freqs.weight');
  const longFactors = factorTensor(checkpoint, 'rope_factors_long.weight');
  const shortFactors = factorTensor(checkpoint, 'rope_factors_short.weight');
  const original = reader.optionalNumber('rope.scaling.original_context_length', 0) || null;
  const stored = reader.string('rope.scaling.type') ?? (reader.has('rope.scale_linear') ? 'linear' : 'none');
  const kind = longFactors || shortFactors ? 'longrope' : stored === 'none' ? 'default' : stored;
  if (!(ROPE_KINDS as readonly string[]).includes(kind)) throw unknownRopeKind(kind);
  if (kind === 'default' && !frequencyDivisors) return { theta, scaling: null, partialFactor: 1, contextLength };
  const trained = original ?? contextLength;
  const scaling: RopeScaling = {
    ...NO_SCALING,
    type: kind,
    factor:
      kind === 'longrope'
        ? contextLength / trained
        : reader.number(['rope.scaling.factor', 'rope.scale_linear'], { min: 1e-6, fallback: 1 }),
    originalContextLength: trained,
    betaFast: reader.optionalNumber('rope.scaling.yarn_beta_fast', 0),
    betaSlow: reader.optionalNumber('rope.scaling.yarn_beta_slow', 0),
    attentionFactor: reader.optionalNumber('rope.scaling.attn_factor', 0),
    longFactors,
    shortFactors,
    frequencyDivisors,
  };
  return {
    theta,
    scaling: scaling.type === 'yarn' ? withYarnMagnitude(scaling) : scaling,
    partialFactor: 1,
    contextLength,
  };
}

/** In GGUF attn_factor multiplies yarn's own magnitude; in config.json attention_factor replaces it. */
function withYarnMagnitude(scaling: RopeScaling): RopeScaling {
  if (scaling.attentionFactor === null) return scaling;
  return {
    ...scaling,
    attentionFactor: scaling.attentionFactor * (scaling.factor > 1 ? 1 + 0.1 * Math.log(scaling.factor) : 1),
  };
}

function factorTensor(checkpoint: Checkpoint, name: string): number[] | null {
  const tensor = checkpoint.tensors.get(name);
  if (!tensor) return null;
  if (tensor.type !== 'F32' || tensor.shape.length !== 1) {
    throw new PagodaError(
      'bad_model_file',
      `${checkpoint.source}: tensor ${name} must be a float32 vector, not ${tensor.type} [${tensor.shape.join(', ')}].`,
    );
  }
  const bytes = checkpoint.readTensor(tensor);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Array.from({ length: tensor.shape[0] }, (_, i) => {
    const value = view.getFloat32(4 * i, true);
    if (!(value > 0 && Number.isFinite(value)))
      throw new PagodaError('bad_model_file', `${checkpoint.source}: tensor ${name} holds ${value}.`);
    return value;
  });
}
