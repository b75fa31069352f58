// The tiny models of every architecture against their goldens (made by transformers in float32), on the reference device:
// both spellings of config.json, and the GGUF twins. 16 greedy tokens of three prompts, and two rows of logits.

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Checkpoint } from '../../src/checkpoint/checkpoint.ts';
import { openGguf } from '../../src/checkpoint/gguf.ts';
import { openSafetensors } from '../../src/checkpoint/safetensors.ts';
import { createReferenceDevice } from '../../src/device/reference/reference-device.ts';
import { loadModel } from '../../src/model/load-model.ts';
import { DeviceDriver } from '../conformance/device-driver.ts';
import { noShared, sharedPath } from '../shared-data.ts';

interface GoldenCase {
  readonly promptIds: number[];
  readonly outputIds: number[];
  readonly lastPromptLogits: number[];
  readonly lastStepLogits: number[];
}

/** float32 in two implementations; measured 2e-5. */
const TOLERANCE = 1e-4;

async function checkAgainstGolden(checkpoint: Checkpoint, name: string): Promise<void> {
  const golden = JSON.parse(readFileSync(sharedPath('golden', 'tiny', name, 'golden.json'), 'utf8')) as {
    cases: GoldenCase[];
  };
  const model = loadModel(checkpoint);
  expect(model.warnings).toEqual([]);
  const maxModelLen = model.config.contextLength;
  const device = createReferenceDevice(
    model,
    checkpoint,
    { dtype: 'f32', blockSize: 16 },
    { maxTokens: 256, maxSeqs: 4, maxModelLen },
  );
  const driver = new DeviceDriver(device, { numBlocks: 64, maxSeqs: 4 });
  const sequences = golden.cases.map((each) => driver.add(each.promptIds));
  await driver.generate(sequences, 16);
  for (const [i, each] of golden.cases.entries()) {
    expect(sequences[i].tokens.slice(each.promptIds.length)).toEqual(each.outputIds);
    const logits = await device.logits([...each.promptIds, ...each.outputIds.slice(0, -1)]);
    const row = (index: number) =>
      logits.subarray(index * model.config.vocabSize, (index + 1) * model.config.vocabSize);
    expectClose(row(each.promptIds.length - 1), each.lastPromptLogits);
    expectClose(row(each.promptIds.length + 14), each.lastStepLogits);
  }
  await device.dispose();
}

function expectClose(found: Float32Array, wanted: number[]): void {
  expect(found.length).toBe(wanted.length);
  const worst = wanted.reduce((max, value, i) => Math.max(max, Math.abs(value - found[i])), 0);
  expect(worst).toBeLessThan(TOLERANCE);
}

describe.skipIf(noShared)('tiny models against their goldens', () => {
  const folder = noShared ? '' : sharedPath('golden', 'tiny');
  const names = noShared ? [] : readdirSync(folder).filter((name) => !name.includes('.'));
  const ggufNames = noShared
    ? []
    : readdirSync(sharedPath('golden', 'tiny-gguf')).filter((name) => name.endsWith('.gguf'));
  let scratch = '';
  beforeAll(() => {
    scratch = mkdtempSync(join(tmpdir(), 'pagoda-tiny-'));
  });
  afterAll(() => rmSync(scratch, { recursive: true, force: true }));

  it('has all of them', () => {
    expect(names.length).toBe(18);
    expect(ggufNames.length).toBe(11);
  });

  it.each(names)('%s, config.json', async (name) => {
    const checkpoint = openSafetensors(join(folder, name));
    await checkAgainstGolden(checkpoint, name);
    checkpoint.close();
  });

  it.each(names)('%s, classic config.json', async (name) => {
    const copy = join(scratch, name);
    cpSync(join(folder, name, 'model.safetensors'), join(copy, 'model.safetensors'));
    cpSync(join(folder, name, 'config-classic.json'), join(copy, 'config.json'));
    const checkpoint = openSafetensors(copy);
    await checkAgainstGolden(checkpoint, name);
    checkpoint.close();
  });

  it.each(ggufNames)('%s', async (file) => {
    const checkpoint = openGguf(sharedPath('golden', 'tiny-gguf', file));
    await checkAgainstGolden(checkpoint, file.replace(/\.gguf$/, ''));
    checkpoint.close();
  });
});
