import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DeploymentRequest, draftDeployment } from '../../../../src/plan/resolve-deployment.ts';
import { fitEngineProfile } from '../../../../src/sim/cost/calibrate.ts';
import { ENGINE_PROFILES } from '../../../../src/sim/cost/engine-profile.ts';
import { RooflineCost } from '../../../../src/sim/cost/roofline-cost.ts';
import type { StepLoad } from '../../../../src/sim/step-cost.ts';

const costOf = (request: DeploymentRequest): RooflineCost => {
  const { cost } = draftDeployment(request).deployment;
  if (!(cost instanceof RooflineCost)) throw new Error('No GPU.');
  return cost;
};

const decode = (numDecodes: number, context = 500): StepLoad => ({
  numSequences: numDecodes,
  numTokens: numDecodes,
  numPrefillTokens: 0,
  numDecodes,
  decodeContextTokens: numDecodes * context,
  prefillPairs: 0,
});

const prefill = (numTokens: number): StepLoad => ({
  numSequences: 1,
  numTokens,
  numPrefillTokens: numTokens,
  numDecodes: 0,
  decodeContextTokens: 0,
  prefillPairs: (numTokens * (numTokens + 1)) / 2,
});

describe('the roofline cost', () => {
  it('never beats the hardware', () => {
    const bytes = 6_738_415_616 * 2;
    const a100 = costOf({ model: 'llama-7b', gpu: 'a100-80gb' });
    expect(a100.stepSeconds(decode(1))).toBeGreaterThan((bytes - 32_000 * 4096 * 2) / 2039e9);
    const flops = 2 * 6.6e9 * 2048;
    expect(a100.stepSeconds(prefill(2048))).toBeGreaterThan(flops / 312e12);
    expect(a100.stepSeconds(prefill(2048))).toBeLessThan(3 * (flops / 312e12));
  });

  it('grows with tokens and context', () => {
    const cost = costOf({ model: 'llama-3.1-8b', gpu: 'h100' });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 500 }), fc.integer({ min: 1, max: 50_000 }), (n, context) => {
        const at = cost.stepSeconds(decode(n, context));
        return cost.stepSeconds(decode(n + 1, context)) > at && cost.stepSeconds(decode(n, context + 1)) > at;
      }),
    );
  });

  it('adds up to what it explains', () => {
    for (const model of ['llama-3.1-70b', 'mixtral-8x7b', 'deepseek-v3', 'gemma-3-27b', 'gpt-oss-120b']) {
      const cost = costOf({ model, gpu: 'h200:8', tensorParallelSize: 8 });
      const load: StepLoad = {
        ...decode(8),
        numSequences: 9,
        numTokens: 520,
        numPrefillTokens: 512,
        prefillPairs: 131_328,
      };
      const parts = Object.values(cost.explain(load));
      expect(
        parts.reduce((a, b) => a + b, 0),
        model,
      ).toBeCloseTo(cost.stepSeconds(load), 9);
      expect(
        parts.every((seconds) => seconds >= 0 && Number.isFinite(seconds)),
        model,
      ).toBe(true);
    }
  });

  it('windows bound what a decode step reads', () => {
    const full = costOf({ model: 'mistral-7b', gpu: 'a100-80gb' });
    const windowed = costOf({ model: 'mistral-7b-v0.1', gpu: 'a100-80gb' });
    expect(windowed.stepSeconds(decode(8, 30_000))).toBeLessThan(full.stepSeconds(decode(8, 30_000)));
    expect(windowed.stepSeconds(decode(8, 4000))).toBe(full.stepSeconds(decode(8, 4000)));
  });

  it('tensor parallelism pays for its all-reduces, PCIe more than NVLink', () => {
    const share = (gpu: string) => {
      const parts = costOf({ model: 'llama-3.1-70b', gpu, tensorParallelSize: 4, weightDtype: 'fp8' }).explain(
        decode(64),
      );
      return parts.allReduceSeconds / Object.values(parts).reduce((a, b) => a + b, 0);
    };
    expect(share('h100:4')).toBeLessThan(0.2);
    expect(share('l40s:4')).toBeGreaterThan(0.4);
    const one = costOf({ model: 'llama-7b', gpu: 'a100-80gb' });
    expect(one.explain(decode(8)).allReduceSeconds).toBe(0);
  });

  it('eager steps have a floor, graphs do not', () => {
    const at = (enforceEager: boolean) =>
      costOf({ model: 'llama-3.2-1b', gpu: 'h100', enforceEager }).stepSeconds(decode(1));
    expect(at(true)).toBeGreaterThan(16 * 250e-6);
    expect(at(false)).toBeLessThan(at(true) / 2);
  });

  it('a pipeline divides the load of many sequences, not the latency of one', () => {
    const whole = costOf({ model: 'llama-3.1-70b', gpu: 'h100:4', tensorParallelSize: 4 });
    const staged = costOf({ model: 'llama-3.1-70b', gpu: 'h100:8', tensorParallelSize: 4, pipelineParallelSize: 2 });
    expect(staged.stepSeconds(decode(1))).toBeGreaterThan(whole.stepSeconds(decode(1)));
    expect(staged.stepSeconds(decode(256, 4000))).toBeLessThan(whole.stepSeconds(decode(256, 4000)));
  });
});

describe('calibration', () => {
  it('finds the constants that made the measurements', () => {
    const { stepSeconds: step, sequenceSeconds: sequence, requestSeconds: request } = ENGINE_PROFILES.vllm;
    const truth = { step: 1.3e-3, sequence: 42e-6, request: 25e-3 };
    const rows = [1, 4, 16, 64].map((numSequences) => ({
      numSequences,
      predictedTpotSeconds: 0.01 + step + sequence * numSequences,
      measuredTpotSeconds: 0.01 + truth.step + truth.sequence * numSequences,
      predictedTtftSeconds: 0.1 + request + step + sequence,
      measuredTtftSeconds: 0.1 + truth.request + truth.step + truth.sequence,
    }));
    const fitted = fitEngineProfile(ENGINE_PROFILES.vllm, rows);
    expect(fitted.stepSeconds).toBeCloseTo(truth.step, 9);
    expect(fitted.sequenceSeconds).toBeCloseTo(truth.sequence, 9);
    expect(fitted.requestSeconds).toBeCloseTo(truth.request, 9);
    // One batch size cannot tell the two apart: what is missing goes to the step.
    const single = fitEngineProfile(ENGINE_PROFILES.vllm, rows.slice(2, 3));
    expect(single.sequenceSeconds).toBe(sequence);
    expect(single.stepSeconds + 16 * sequence).toBeCloseTo(truth.step + 16 * truth.sequence, 9);
    expect(() => fitEngineProfile(ENGINE_PROFILES.vllm, [])).toThrow(/there is none/);
    // Faster than nothing is not possible.
    const faster = rows.map((row) => ({ ...row, measuredTpotSeconds: 0.005 }));
    expect(fitEngineProfile(ENGINE_PROFILES.vllm, faster)).toMatchObject({ stepSeconds: 0, sequenceSeconds: 0 });
  });
});
