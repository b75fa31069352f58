import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { type Calibration, calibrationText, readCalibration } from '../../../src/plan/calibration-file.ts';
import { resolveDeployment } from '../../../src/plan/resolve-deployment.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-calibration-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const save = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};

const device: Calibration = {
  kind: 'device',
  device: 'cpu, 4 threads',
  prices: { stepSeconds: 1e-3, sequenceSeconds: 0, tokenSeconds: 1e-4, decodeKeySeconds: 0, prefillPairSeconds: 0 },
  requestSeconds: 0.004,
  numBlocks: 500,
  blockSize: 16,
  maxNumSeqs: 8,
  maxNumBatchedTokens: 512,
  maxModelLen: 1024,
};
const engine: Calibration = {
  kind: 'engine',
  engine: { name: 'mine', stepSeconds: 2e-3, sequenceSeconds: 1e-5, logitSeconds: 0, requestSeconds: 0.02 },
};

describe('a calibration file', () => {
  it.each([device, engine])('is read back as it was written ($kind)', (calibration) => {
    expect(readCalibration(save(`${calibration.kind}.json`, calibrationText(calibration, { note: 'x' })))).toEqual(
      calibration,
    );
  });

  it('a measured device takes the place of GPUs, with its own pool and limits; flags win', () => {
    const path = save('device.json', calibrationText(device, {}));
    const { deployment, hasTimes } = resolveDeployment({ model: 'smollm2-135m', calibration: path });
    expect(hasTimes).toBe(true);
    expect(deployment).toMatchObject({ numBlocks: 500, numReplicas: 1 });
    expect(deployment.flags).toMatchObject({ maxNumSeqs: 8, maxNumBatchedTokens: 512, maxModelLen: 1024 });
    const load = {
      numSequences: 4,
      numTokens: 4,
      numPrefillTokens: 0,
      numDecodes: 4,
      decodeContextTokens: 100,
      prefillPairs: 0,
    };
    expect(deployment.cost.stepSeconds(load)).toBeCloseTo(1.4e-3, 12);
    expect(
      resolveDeployment({ model: 'smollm2-135m', calibration: path, maxNumSeqs: 2 }).deployment.flags.maxNumSeqs,
    ).toBe(2);
    expect(() => resolveDeployment({ model: 'smollm2-135m', calibration: path, gpu: 'h100' })).toThrow(
      /leave --gpu out/,
    );
  });

  it("an engine's constants change the time of a step by what they say", () => {
    const path = save('engine.json', calibrationText(engine, {}));
    const load = {
      numSequences: 4,
      numTokens: 4,
      numPrefillTokens: 0,
      numDecodes: 4,
      decodeContextTokens: 100,
      prefillPairs: 0,
    };
    const at = (calibration: string | null) =>
      resolveDeployment({ model: 'llama-7b', gpu: 'a100-80gb', calibration }).deployment.cost.stepSeconds(load);
    expect(at(path) - at(null)).toBeCloseTo(2e-3 - 0.36e-3 + 4 * (1e-5 - 13e-6), 12);
  });

  it.each([
    ['nothing there', join(folder, 'none.json'), /no such file/],
    ['no JSON', save('bad.json', '{'), /is not JSON/],
    ['another format', save('other.json', '{"format":"x"}'), /format is not/],
    [
      'a missing price',
      save('part.json', '{"format":"pagoda-calibration-1","kind":"device","step_seconds":1}'),
      /sequence_seconds/,
    ],
    [
      'a free device',
      save(
        'free.json',
        calibrationText({ ...device, prices: { ...device.prices, stepSeconds: 0, tokenSeconds: 0 } }, {}),
      ),
      /no time/,
    ],
  ])('refuses %s', (_, path, message) => {
    expect(() => readCalibration(path)).toThrow(message);
  });
});
