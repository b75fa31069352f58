// Rotary frequencies of every scaling variant, computed once per model in float64. The formulas are those of the papers as
// the reference implementations apply them (linear: arXiv 2306.15595; dynamic NTK; yarn: arXiv 2309.00071; llama3: the
// Llama 3.1 release; longrope: arXiv 2402.13753). Variants that depend on the length are fixed by maxModelLen, once.

import { PagodaError } from '../errors.ts';
import type { RopeScaling } from './model-config.ts';
import type { RopeTable } from './program.ts';

export const ROPE_KINDS = ['default', 'linear', 'dynamic', 'yarn', 'llama3', 'longrope'] as const;
export type RopeKind = (typeof ROPE_KINDS)[number];

export interface RopeOptions {
  readonly theta: number;
  readonly rotaryDim: number;
  readonly scaling: RopeScaling | null;
  readonly maxModelLen: number;
}

export function ropeTable({ theta, rotaryDim, scaling, maxModelLen }: RopeOptions): RopeTable {
  const plain = inverseFrequencies(theta, rotaryDim);
  if (!scaling) return { inverseFrequencies: plain, magnitude: 1 };
  const table = scaled(plain, { theta, rotaryDim, scaling, maxModelLen });
  const divisors = scaling.frequencyDivisors;
  if (!divisors) return table;
  if (divisors.length !== plain.length) {
    throw new PagodaError(
      'bad_model_file',
      `The rope frequency factors have ${divisors.length} values; ${plain.length} were expected.`,
    );
  }
  return { ...table, inverseFrequencies: table.inverseFrequencies.map((frequency, i) => frequency / divisors[i]) };
}

function inverseFrequencies(theta: number, rotaryDim: number): number[] {
  return Array.from({ length: rotaryDim / 2 }, (_, i) => theta ** ((-2 * i) / rotaryDim));
}

function scaled(plain: number[], options: RopeOptions & { scaling: RopeScaling }): RopeTable {
  const { scaling } = options;
  const kind = scaling.type as RopeKind;
  switch (kind) {
    case 'default':
      return { inverseFrequencies: plain, magnitude: 1 };
    case 'linear':
      return { inverseFrequencies: plain.map((frequency) => frequency / scaling.factor), magnitude: 1 };
    case 'dynamic':
      return dynamicNtk(options);
    case 'yarn':
      return yarn(plain, options);
    case 'llama3':
      return { inverseFrequencies: plain.map((frequency) => llama3Frequency(frequency, scaling)), magnitude: 1 };
    case 'longrope':
      return longrope(plain, options);
    default:
      kind satisfies never;
      throw unknownRopeKind(scaling.type);
  }
}

export function unknownRopeKind(kind: string): PagodaError {
  return new PagodaError('unsupported', `Rope scaling '${kind}' is not known. Known kinds: ${ROPE_KINDS.join(', ')}.`);
}

/** The base grows with the length beyond what the model was trained for; up to there nothing changes. */
function dynamicNtk({ theta, rotaryDim, scaling, maxModelLen }: RopeOptions & { scaling: RopeScaling }): RopeTable {
  const trained = required(scaling, 'originalContextLength', 'max_position_embeddings');
  const length = Math.max(maxModelLen, trained);
  const stretch = (scaling.factor * length) / trained - (scaling.factor - 1);
  return {
    inverseFrequencies: inverseFrequencies(theta * stretch ** (rotaryDim / (rotaryDim - 2)), rotaryDim),
    magnitude: 1,
  };
}

/** Fast dimensions keep their frequency, slow ones are interpolated, a linear ramp lies between. */
function yarn(plain: number[], { theta, rotaryDim, scaling }: RopeOptions & { scaling: RopeScaling }): RopeTable {
  const trained = required(scaling, 'originalContextLength', 'original_max_position_embeddings');
  const dimensionOf = (rotations: number) =>
    (rotaryDim * Math.log(trained / (rotations * 2 * Math.PI))) / (2 * Math.log(theta));
  let low = dimensionOf(scaling.betaFast ?? 32);
  let high = dimensionOf(scaling.betaSlow ?? 1);
  if (scaling.truncate) {
    low = Math.floor(low);
    high = Math.ceil(high);
  }
  low = Math.max(low, 0);
  high = Math.min(high, rotaryDim - 1);
  if (low === high) high += 0.001;
  const frequencies = plain.map((frequency, i) => {
    const interpolated = Math.min(1, Math.max(0, (i - low) / (high - low)));
    return (frequency / scaling.factor) * interpolated + frequency * (1 - interpolated);
  });
  return { inverseFrequencies: frequencies, magnitude: yarnMagnitude(scaling) };
}

function yarnMagnitude({ factor, attentionFactor, mscale, mscaleAllDim }: RopeScaling): number {
  if (attentionFactor !== null) return attentionFactor;
  const grown = (weight: number) => (factor <= 1 ? 1 : 0.1 * weight * Math.log(factor) + 1);
  return mscale && mscaleAllDim ? grown(mscale) / grown(mscaleAllDim) : grown(1);
}

/** Wave lengths below the original context stay, far above it are stretched by the factor, smooth between. */
function llama3Frequency(frequency: number, scaling: RopeScaling): number {
  const low = required(scaling, 'lowFreqFactor', 'low_freq_factor');
  const high = required(scaling, 'highFreqFactor', 'high_freq_factor');
  const trained = required(scaling, 'originalContextLength', 'original_max_position_embeddings');
  const waveLength = (2 * Math.PI) / frequency;
  if (waveLength < trained / high) return frequency;
  if (waveLength > trained / low) return frequency / scaling.factor;
  const smooth = (trained / waveLength - low) / (high - low);
  return ((1 - smooth) * frequency) / scaling.factor + smooth * frequency;
}

/** One list of divisors for short contexts and one for long; which one is fixed by maxModelLen. */
function longrope(plain: number[], { scaling, maxModelLen }: RopeOptions & { scaling: RopeScaling }): RopeTable {
  const trained = required(scaling, 'originalContextLength', 'original_max_position_embeddings');
  const [divisors, key] =
    maxModelLen > trained ? [scaling.longFactors, 'long_factor'] : [scaling.shortFactors, 'short_factor'];
  if (divisors?.length !== plain.length) {
    throw new PagodaError(
      'bad_model_file',
      `Rope scaling longrope: ${key} has ${divisors?.length ?? 0} values; ${plain.length} were expected.`,
    );
  }
  const { factor } = scaling;
  const magnitude = scaling.attentionFactor ?? (factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(trained)));
  return { inverseFrequencies: plain.map((frequency, i) => frequency / divisors[i]), magnitude };
}

function required(
  scaling: RopeScaling,
  field: 'originalContextLength' | 'lowFreqFactor' | 'highFreqFactor',
  key: string,
): number {
  const value = scaling[field];
  if (value === null) throw new PagodaError('bad_model_file', `Rope scaling ${scaling.type} needs ${key}.`);
  return value;
}
