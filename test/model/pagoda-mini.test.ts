// The embedded model on the reference device against its goldens (float32 by another implementation), from both of its files.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Checkpoint } from '../../src/checkpoint/checkpoint.ts';
import { openGguf } from '../../src/checkpoint/gguf.ts';
import { openSafetensors } from '../../src/checkpoint/safetensors.ts';
import { createReferenceDevice } from '../../src/device/reference/reference-device.ts';
import { loadModel } from '../../src/model/load-model.ts';
import { DeviceDriver, GREEDY } from '../conformance/device-driver.ts';

interface Golden {
  readonly name: string;
  readonly prompt_ids: number[];
  readonly greedy_ids: number[];
  readonly close_calls: number[];
  readonly steps: Array<{ readonly top5: Array<[token: number, logprob: number]> }>;
}

const assets = join(import.meta.dirname, '..', '..', 'assets');
const goldens = (JSON.parse(readFileSync(join(assets, 'goldens.json'), 'utf8')) as { cases: Golden[] }).cases;
/** The goldens print five decimals. */
const TOLERANCE = 1e-4;

async function check(checkpoint: Checkpoint, cases: readonly Golden[], numSteps: number): Promise<void> {
  const model = loadModel(checkpoint);
  const device = createReferenceDevice(
    model,
    checkpoint,
    { dtype: 'f32', blockSize: 16 },
    { maxTokens: 2048, maxSeqs: 16, maxModelLen: 2048 },
  );
  const driver = new DeviceDriver(device, { numBlocks: 512, maxSeqs: 16 });
  const sequences = cases.map((golden) => driver.add(golden.prompt_ids, { ...GREEDY, logprobs: 5 }));
  await driver.generate(sequences, numSteps, 64);
  cases.forEach((golden, i) => {
    // After a close call another exact implementation may go another way.
    const comparable = Math.min(numSteps, golden.close_calls[0] ?? numSteps);
    expect(
      sequences[i].tokens.slice(golden.prompt_ids.length, golden.prompt_ids.length + comparable),
      golden.name,
    ).toEqual(golden.greedy_ids.slice(0, comparable));
    for (let step = 0; step < comparable; step++) {
      golden.steps[step].top5.forEach(([token, logprob], place) => {
        const found = sequences[i].tops[step].find(([each]) => each === token);
        expect(
          Math.abs((found?.[1] ?? Number.NaN) - logprob),
          `${golden.name} step ${step} place ${place}`,
        ).toBeLessThan(TOLERANCE);
      });
    }
  });
  await device.dispose();
  checkpoint.close();
}

describe('pagoda-mini', () => {
  it('model.safetensors, all goldens', async () => {
    expect(goldens.length).toBe(16);
    await check(openSafetensors(assets), goldens, 32);
  });

  it('F16 GGUF, some of them: the same values in the other layout', async () => {
    await check(openGguf(join(assets, 'pagoda-mini.F16.gguf')), goldens.slice(0, 4), 12);
  });
});
