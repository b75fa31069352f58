import { describe, expect, it } from 'vitest';
import { PagodaError } from '../../../../src/errors.ts';
import { MODELS } from '../../../../src/sim/catalogue/data/models.ts';
import { findModel, shapeOfConfig } from '../../../../src/sim/catalogue/find-model.ts';
import { stageLayers } from '../../../../src/sim/catalogue/model-shape.ts';
import { editDistance, nearestNames } from '../../../../src/sim/catalogue/nearest-name.ts';
import { shapeFromConfig } from '../../../../src/sim/catalogue/shape-from-config.ts';

const refusal = (work: () => unknown): PagodaError => {
  try {
    work();
  } catch (error) {
    if (error instanceof PagodaError) return error;
    throw error;
  }
  throw new Error('Nothing was thrown.');
};

describe('the model catalogue', () => {
  // Parameter counts as published: exact ones from the hub's safetensors metadata.
  const published: ReadonlyArray<readonly [name: string, parameters: number]> = [
    ['llama-7b', 6_738_415_616],
    ['llama-2-70b', 68_976_648_192],
    ['llama-3.1-8b', 8_030_261_248],
    ['llama-3.1-70b', 70_553_706_496],
    ['llama-3.2-1b', 1_235_814_400],
    ['qwen2.5-7b', 7_615_616_512],
    ['qwen3-0.6b', 596_049_920],
    ['qwen3-30b-a3b', 30_532_122_624],
    ['mistral-7b-v0.1', 7_241_732_096],
    ['mixtral-8x7b', 46_702_792_704],
    ['gemma-2-9b', 9_241_705_984],
    ['phi-4', 14_659_507_200],
  ];
  it.each(published)('%s has its published number of parameters', (name, parameters) => {
    expect(findModel(name).shape.numParameters).toBe(parameters);
  });

  // Sizes that are only dimensions here: biases and small norms are left out.
  const rounded: ReadonlyArray<readonly [name: string, billions: number]> = [
    ['deepseek-v3', 671],
    ['gpt-oss-120b', 116.8],
    ['gpt-oss-20b', 20.9],
    ['falcon-40b', 41.3],
    ['falcon-180b', 179.5],
    ['opt-13b', 12.85],
    ['opt-175b', 175],
  ];
  it.each(rounded)('%s has %f billion parameters within 1 %', (name, billions) => {
    expect(Math.abs(findModel(name).shape.numParameters / 1e9 / billions - 1)).toBeLessThan(0.01);
  });

  it('reads every entry, and names are unique', () => {
    const names = MODELS.flatMap(({ name, aliases = [] }) => [name, ...aliases]);
    expect(new Set(names).size).toBe(names.length);
    for (const { name } of MODELS) {
      const { shape } = findModel(name);
      expect(shape.numActiveParameters, name).toBeLessThanOrEqual(shape.numParameters);
      expect(shape.numActiveParameters, name).toBeGreaterThan(0);
      const attending = shape.attentions.reduce((sum, { numLayers }) => sum + numLayers, 0);
      expect(attending, name).toBe(shape.numLayers);
    }
  });

  it('dimensions and program agree where both can be read', () => {
    for (const name of ['llama-3.1-70b', 'qwen2.5-7b', 'mistral-7b']) {
      const entry = MODELS.find((each) => [each.name, ...(each.aliases ?? [])].includes(name))!;
      const fromProgram = shapeOfConfig(entry.config, { name, weightDtype: 'bf16' });
      const fromDimensions = shapeFromConfig(entry.config, { name, weightDtype: 'bf16' });
      expect(fromProgram.source).toBe('program');
      expect(fromDimensions.attentions).toEqual(fromProgram.shape.attentions);
      const key = (each: object) => JSON.stringify(each, Object.keys(each).sort());
      expect(fromDimensions.products.map(key).sort()).toEqual(fromProgram.shape.products.map(key).sort());
    }
  });

  it('takes organisation, chat suffix and quantization off a name', () => {
    expect(findModel('meta-llama/Llama-3.1-8B-Instruct').shape.name).toBe('llama-3.1-8b');
    expect(findModel('meta-llama/Llama-2-7b-chat-hf').shape.name).toBe('llama-2-7b');
    expect(findModel('Qwen/Qwen3-32B-FP8').shape).toMatchObject({ name: 'qwen3-32b', weightDtype: 'fp8' });
    expect(findModel('mistralai/Mistral-7B-Instruct-v0.1').shape.attentions[0]?.window).toBe(4096);
  });

  it('names the nearest models when one is not known', () => {
    const error = refusal(() => findModel('lama-7b'));
    expect(error.code).toBe('bad_config');
    expect(error.param).toBe('--model');
    expect(error.message).toContain('llama-7b');
    expect(refusal(() => findModel('')).code).toBe('bad_config');
  });
});

describe('nearest names', () => {
  it('counts edits', () => {
    expect(editDistance('kitten', 'sitting')).toBe(3);
    expect(editDistance('', 'abc')).toBe(3);
    expect(nearestNames('h10', ['a100', 'h100', 'h200'])[0]).toBe('h100');
  });
});

describe('pipeline stages', () => {
  it('deals layers out as vLLM does', () => {
    expect(stageLayers(80, 4)).toEqual([20, 20, 20, 20]);
    expect(stageLayers(61, 4)).toEqual([15, 15, 16, 15]);
    expect(stageLayers(62, 4)).toEqual([15, 16, 16, 15]);
    for (let n = 1; n <= 6; n++) expect(stageLayers(61, n).reduce((a, b) => a + b)).toBe(61);
  });
});
