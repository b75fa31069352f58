import { describe, expect, it } from 'vitest';
import { fitLinearPrices, LinearStepCost, type MeasuredStep } from '../../../../src/sim/cost/linear-step-cost.ts';

const truth = {
  stepSeconds: 2e-3,
  sequenceSeconds: 1e-4,
  tokenSeconds: 5e-5,
  decodeKeySeconds: 2e-8,
  prefillPairSeconds: 3e-9,
};

function steps(noise: (i: number) => number): MeasuredStep[] {
  const cost = new LinearStepCost(truth, 0);
  const loads = [
    ...[16, 64, 256, 512].map((n) => ({
      numSequences: 1,
      numTokens: n,
      numPrefillTokens: n,
      numDecodes: 0,
      decodeContextTokens: 0,
      prefillPairs: (n * (n + 1)) / 2,
    })),
    ...[1, 2, 4, 8, 16].flatMap((b) =>
      [20, 500].map((context) => ({
        numSequences: b,
        numTokens: b,
        numPrefillTokens: 0,
        numDecodes: b,
        decodeContextTokens: b * context,
        prefillPairs: 0,
      })),
    ),
  ];
  return loads.map((load, i) => ({ load, seconds: cost.stepSeconds(load) * noise(i) }));
}

describe('prices of a measured device', () => {
  it('are found exactly when the measurements are exact', () => {
    const { prices, meanError } = fitLinearPrices(steps(() => 1));
    for (const key of Object.keys(truth) as Array<keyof typeof truth>)
      expect(prices[key] / truth[key]).toBeCloseTo(1, 5);
    expect(meanError).toBeLessThan(1e-6);
  });

  it('are never negative, and predict noisy measurements within the noise', () => {
    const { prices, meanError } = fitLinearPrices(steps((i) => 1 + 0.05 * Math.sin(7 * i)));
    expect(Object.values(prices).every((price) => price >= 0)).toBe(true);
    expect(meanError).toBeLessThan(0.05);
  });

  it('need enough measurements', () => {
    expect(() => fitLinearPrices(steps(() => 1).slice(0, 4))).toThrow(/at least 5 measured steps/);
  });
});
