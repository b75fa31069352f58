// The cpu device as a citizen: clear errors, order of steps, two devices at once, dispose; and its sampler against the reference
// sampler, token for token, on the very same logits.

import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openGguf } from '../../../../src/checkpoint/gguf.ts';
import { DEFAULT_SAMPLING, type SamplingParams } from '../../../../src/core/sampling-params.ts';
import { cpuIsas, createCpuDevice, isCpuDeviceAvailable } from '../../../../src/device/cpu/cpu-device.ts';
import type { Device } from '../../../../src/device/device.ts';
import { SamplerScratch, sampleToken } from '../../../../src/device/reference/sample.ts';
import { TokenHistory } from '../../../../src/device/reference/token-history.ts';
import { loadModel } from '../../../../src/model/load-model.ts';
import { DeviceDriver, GREEDY } from '../../../conformance/device-driver.ts';

const file = join(import.meta.dirname, '../../../../assets/pagoda-mini.Q8_0.gguf');
const LIMITS = { maxTokens: 64, maxSeqs: 8, maxModelLen: 256 };
const KV = { dtype: 'f16', blockSize: 16 } as const;

async function newDevice(
  options: { isa?: string; numThreads?: number; computeDtype?: 'int8' | 'f32' } = {},
): Promise<Device> {
  const checkpoint = openGguf(file);
  try {
    return await createCpuDevice(loadModel(checkpoint, { maxModelLen: LIMITS.maxModelLen }), checkpoint, KV, LIMITS, {
      numThreads: 2,
      ...options,
    });
  } finally {
    checkpoint.close();
  }
}

describe.skipIf(!isCpuDeviceAvailable().available)('cpu device', () => {
  let device: Device;
  let driver: DeviceDriver;
  beforeAll(async () => {
    device = await newDevice();
    driver = new DeviceDriver(device, { numBlocks: 80, maxSeqs: LIMITS.maxSeqs });
  });
  afterAll(() => device.dispose());

  it('names the instruction sets when asked for one that is not there', async () => {
    await expect(newDevice({ isa: 'sse9' })).rejects.toMatchObject({
      code: 'bad_config',
      message: expect.stringContaining('portable'),
    });
    expect(cpuIsas().at(-1)).toBe('portable');
  });

  it('refuses impossible batches and stays usable', async () => {
    const sequence = driver.add([1, 2, 3]);
    const good = driver.batch([{ sequence, numTokens: 3 }]);
    const bad = (change: object) =>
      expect(device.step({ ...good, ...change })).rejects.toMatchObject({ code: 'internal' });
    await bad({ numTokens: 2 });
    await bad({ numSeqs: 2 });
    await bad({ tokenIds: Int32Array.of(1, 2, 1_000_000) });
    await bad({ slot: Int32Array.of(99) });
    await bad({ numComputed: Int32Array.of(254) });
    await bad({ numComputed: Int32Array.of(-1) });
    await bad({ blockTables: Int32Array.of(100_000) });
    await bad({ blockTableStart: Int32Array.of(0, 0) });
    await bad({ tokenIds: new Float32Array(3) as unknown as Int32Array });
    await expect(
      device.step({ ...good, slot: Int32Array.of((sequence.slot + 1) % LIMITS.maxSeqs) }),
    ).rejects.toMatchObject({ code: 'device_fault' });
    expect(() => device.addSequence({ slot: 0, tokenIds: [], numPromptTokens: 0, sampling: GREEDY })).toThrow();
    expect(() =>
      device.addSequence({
        slot: 0,
        tokenIds: [1],
        numPromptTokens: 1,
        sampling: { ...GREEDY, logitBias: [[1e6, 1]] },
      }),
    ).toThrow();
    const result = await device.step(good);
    expect(result.sampledTokens[0]).toBeGreaterThanOrEqual(0);
    driver.remove(sequence);
  });

  it('gives the same tokens on two devices at once, with one thread and with three', async () => {
    const outputs: number[][] = [];
    for (const numThreads of [1, 3]) {
      const other = await newDevice({ numThreads });
      const otherDriver = new DeviceDriver(other, { numBlocks: 80, maxSeqs: LIMITS.maxSeqs });
      const sequence = otherDriver.add([5, 6, 7, 8]);
      const here = driver.add([5, 6, 7, 8]);
      await Promise.all([otherDriver.generate([sequence], 20), driver.generate([here], 20, 3)]);
      driver.remove(here);
      expect(sequence.tokens).toEqual(here.tokens);
      outputs.push(sequence.tokens);
      await other.dispose();
    }
    expect(outputs[0]).toEqual(outputs[1]);
  });

  it('runs steps in the order of the calls, each fed by the one before', async () => {
    const ahead = driver.add([9, 10, 11]);
    const alone = driver.add([9, 10, 11]);
    await driver.generate([alone], 6);
    const results: number[] = [];
    const pending = [0, 1, 2, 3, 4, 5].map((i) => {
      const numTokens = i === 0 ? 3 : 1;
      const batch = driver.batch([{ sequence: ahead, numTokens }]);
      batch.samples[0] = 1;
      batch.logitRows[0] = 1;
      if (i > 0) batch.tokenIds[0] = -1;
      ahead.numComputed += numTokens;
      return device.step(batch).then((result) => results.push(result.sampledTokens[0]));
    });
    await Promise.all(pending);
    expect(results).toEqual(alone.tokens.slice(3));
    driver.remove(ahead);
    driver.remove(alone);
  });

  it('ends what is running when disposed, and refuses everything after', async () => {
    const other = await newDevice();
    const otherDriver = new DeviceDriver(other, { numBlocks: 20, maxSeqs: 2 });
    const step = otherDriver.step([{ sequence: otherDriver.add([1, 2, 3]), numTokens: 3 }]);
    const disposed = [other.dispose(), other.dispose()];
    await Promise.allSettled([step, ...disposed]);
    await expect(disposed[1]).resolves.toBeUndefined();
    await expect(other.logits([1])).rejects.toMatchObject({ code: 'internal' });
  });

  it('samples the token that the reference samples from the same logits', async () => {
    const { vocabSize } = loadModel(openGguf(file)).program;
    const scratch = new SamplerScratch(vocabSize);
    const token = fc.nat(vocabSize - 1);
    const maybe = <T>(value: fc.Arbitrary<T>, otherwise: T) => fc.oneof(fc.constant(otherwise), value);
    const params: fc.Arbitrary<SamplingParams> = fc
      .record({
        temperature: fc.oneof(fc.constant(0), fc.constant(1), fc.double({ min: 0.01, max: 3, noNaN: true })),
        topK: maybe(fc.integer({ min: 1, max: 60 }), 0),
        topP: maybe(fc.double({ min: 0.01, max: 1, noNaN: true }), 1),
        minP: maybe(fc.double({ min: 0, max: 1, noNaN: true }), 0),
        repetitionPenalty: maybe(fc.double({ min: 0.5, max: 2, noNaN: true }), 1),
        presencePenalty: maybe(fc.double({ min: -2, max: 2, noNaN: true }), 0),
        frequencyPenalty: maybe(fc.double({ min: -2, max: 2, noNaN: true }), 0),
        logitBias: fc.array(fc.tuple(token, fc.double({ min: -150, max: 150, noNaN: true })), { maxLength: 4 }),
        allowedTokenIds: maybe(fc.array(token, { maxLength: 6 }), null as unknown as number[]),
        badWords: fc.array(fc.array(token, { minLength: 1, maxLength: 2 }), { maxLength: 4 }),
        minTokens: fc.nat(4),
        eosTokenIds: fc.array(token, { maxLength: 2 }),
        stopTokenIds: fc.array(token, { maxLength: 2 }),
        seed: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }),
      })
      .map((some) => ({ ...DEFAULT_SAMPLING, ...some }));
    const tokens = fc.array(token, { minLength: 1, maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(tokens, fc.nat(6), params, async (ids, numOutputs, sampling) => {
        const numPrompt = Math.max(1, ids.length - numOutputs);
        const logits = (await device.logits(ids)).slice(-vocabSize);
        const sequence = driver.add(ids, sampling, numPrompt);
        await driver.step([{ sequence, numTokens: ids.length }]);
        driver.remove(sequence);
        const history = new TokenHistory(ids, numPrompt, sampling);
        expect(sequence.tokens.at(-1)).toBe(sampleToken(logits, sampling, history, scratch));
      }),
      { numRuns: 150 },
    );
  });
});
