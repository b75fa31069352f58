// Rope tables against formulas written out again, and every spelling of the settings.

import { describe, expect, it } from 'vitest';
import { ConfigReader } from '../../../src/model/config-reader.ts';
import { ropeTable } from '../../../src/model/rope.ts';
import { hfRope } from '../../../src/model/rope-config.ts';

const MAX_POSITIONS = 4096;

function read(config: Record<string, unknown>, maxPositions = MAX_POSITIONS) {
  return hfRope(new ConfigReader('config.json', (key) => config[key]), { theta: 10000, maxPositions });
}

function tableOf(config: Record<string, unknown>, rotaryDim = 64, maxModelLen = MAX_POSITIONS) {
  const { theta, scaling } = read(config);
  return ropeTable({ theta, rotaryDim, scaling, maxModelLen });
}

const plain = Array.from({ length: 32 }, (_, i) => 10000 ** (-i / 32));

function expectFrequencies(found: readonly number[], wanted: readonly number[]): void {
  expect(found.length).toBe(wanted.length);
  found.forEach((value, i) => {
    expect(Math.abs(value / wanted[i] - 1)).toBeLessThan(1e-12);
  });
}

describe('rope tables', () => {
  it('plain, default and linear', () => {
    expectFrequencies(tableOf({}).inverseFrequencies, plain);
    expectFrequencies(tableOf({ rope_scaling: null }).inverseFrequencies, plain);
    expectFrequencies(tableOf({ rope_scaling: { rope_type: 'default' } }).inverseFrequencies, plain);
    expectFrequencies(
      tableOf({ rope_theta: 500000 }).inverseFrequencies,
      Array.from({ length: 32 }, (_, i) => 500000 ** (-i / 32)),
    );
    expectFrequencies(
      tableOf({ rope_scaling: { type: 'linear', factor: 4 } }).inverseFrequencies,
      plain.map((f) => f / 4),
    );
  });

  it('dynamic changes nothing up to max_position_embeddings, and the base beyond', () => {
    const config = { rope_scaling: { type: 'dynamic', factor: 2 } };
    expectFrequencies(tableOf(config).inverseFrequencies, plain);
    expectFrequencies(tableOf(config, 64, 100).inverseFrequencies, plain);
    const base = 10000 * ((2 * 8192) / 4096 - 1) ** (64 / 62);
    expectFrequencies(
      tableOf(config, 64, 8192).inverseFrequencies,
      Array.from({ length: 32 }, (_, i) => base ** (-i / 32)),
    );
  });

  it('llama3 keeps short waves, stretches long ones, and blends between', () => {
    const scaling = {
      rope_type: 'llama3',
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 1024,
    };
    const { inverseFrequencies } = tableOf({ rope_scaling: scaling });
    const wanted = plain.map((f) => {
      const wave = (2 * Math.PI) / f;
      const smooth = Math.min(1, Math.max(0, (1024 / wave - 1) / 3));
      return (1 - smooth) * (f / 8) + smooth * f;
    });
    expectFrequencies(inverseFrequencies, wanted);
    expect(
      new Set(wanted.map((f, i) => (f === plain[i] ? 'same' : f * 8 === plain[i] ? 'stretched' : 'between'))).size,
    ).toBe(3);
  });

  it('yarn keeps fast dimensions, interpolates slow ones and raises the magnitude', () => {
    const scaling = { rope_type: 'yarn', factor: 16, original_max_position_embeddings: 4096 };
    const { inverseFrequencies, magnitude } = tableOf({ rope_scaling: scaling });
    expect(inverseFrequencies[0]).toBe(1);
    expectFrequencies([inverseFrequencies[31]], [plain[31] / 16]);
    expect(Math.abs(magnitude - (0.1 * Math.log(16) + 1))).toBeLessThan(1e-15);
    expect(tableOf({ rope_scaling: { ...scaling, attention_factor: 1.5 } }).magnitude).toBe(1.5);
    const deepseek = tableOf({ rope_scaling: { ...scaling, mscale: 0.8, mscale_all_dim: 0.8 } });
    expect(deepseek.magnitude).toBe(1);
  });

  it('longrope takes the short or the long list by the length it is made for', () => {
    const short = Array.from({ length: 32 }, (_, i) => 1 + i / 100);
    const long = Array.from({ length: 32 }, (_, i) => 2 + i);
    const config = {
      original_max_position_embeddings: 1024,
      rope_scaling: { type: 'su', short_factor: short, long_factor: long },
    };
    expectFrequencies(
      tableOf(config, 64, 1024).inverseFrequencies,
      plain.map((f, i) => f / short[i]),
    );
    expectFrequencies(
      tableOf(config, 64, 1025).inverseFrequencies,
      plain.map((f, i) => f / long[i]),
    );
    const magnitude = Math.sqrt(1 + Math.log(4) / Math.log(1024));
    expect(tableOf(config, 64, 1024).magnitude).toBe(magnitude);
    expect(() =>
      tableOf({ ...config, rope_scaling: { type: 'longrope', short_factor: [1], long_factor: long } }, 64, 10),
    ).toThrow('short_factor');
  });
});

describe('spellings of the settings', () => {
  const llama3 = { factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 64 };

  it('type is the old name of rope_type, which wins when both stand', () => {
    const wanted = read({ rope_scaling: { ...llama3, rope_type: 'llama3' } });
    expect(read({ rope_scaling: { ...llama3, type: 'llama3' } })).toEqual(wanted);
    expect(read({ rope_scaling: { ...llama3, rope_type: 'llama3', type: 'yarn' } })).toEqual(wanted);
    expect(read({ rope_parameters: { ...llama3, rope_type: 'llama3', rope_theta: 10000 } })).toEqual(wanted);
  });

  it('rope_parameters holds theta and the rotating share', () => {
    const found = read({
      rope_parameters: { rope_type: 'default', rope_theta: 7, partial_rotary_factor: 0.5 },
      rope_theta: 9,
    });
    expect(found).toEqual({ theta: 7, partialFactor: 0.5, scaling: null, contextLength: MAX_POSITIONS });
    expect(read({ rotary_emb_base: 11, rotary_pct: 0.25 })).toEqual({
      theta: 11,
      partialFactor: 0.25,
      scaling: null,
      contextLength: MAX_POSITIONS,
    });
  });

  it('yarn without the original length takes max_position_embeddings; the model is then factor times as long', () => {
    const found = read({ rope_scaling: { type: 'yarn', factor: 4 } }, 64);
    expect(found.scaling?.originalContextLength).toBe(64);
    expect(found.contextLength).toBe(256);
    expect(
      read({ rope_scaling: { type: 'yarn', factor: 4, original_max_position_embeddings: 64 } }, 256).contextLength,
    ).toBe(256);
    expect(read({ rope_scaling: { type: 'dynamic', factor: 4 } }, 64).contextLength).toBe(64);
  });

  it('refuses an unknown kind by its name and lists the known ones', () => {
    const unknown = () => read({ rope_scaling: { ...llama3, rope_type: 'llama3-plus' } });
    expect(unknown).toThrow('llama3-plus');
    expect(unknown).toThrow('default, linear, dynamic, yarn, llama3, longrope');
  });

  it('names what is missing or wrong', () => {
    expect(() => read({ rope_scaling: { factor: 2 } })).toThrow('rope_type');
    expect(() => read({ rope_scaling: { type: 'linear' } })).toThrow('factor');
    expect(() => read({ rope_scaling: { type: 'linear', factor: 'x' } })).toThrow('factor');
    expect(() => read({ rope_scaling: [] })).toThrow('rope_scaling');
    expect(() => tableOf({ rope_scaling: { rope_type: 'llama3', factor: 8 } })).toThrow('low_freq_factor');
    expect(() => read({ rope_theta: Number.NaN })).toThrow('rope_theta');
  });
});
