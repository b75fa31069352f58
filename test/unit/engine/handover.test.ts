// The handover of steps that follow each other, whose results are seen late by random times.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Handover } from '../../../src/engine/handover.ts';

const seconds = (max: number) => fc.double({ min: 0, max, noNaN: true });

describe('Handover', () => {
  it('is in the sum what the device waited, however late results are seen', () => {
    const step = fc.record({ device: seconds(0.02), wait: seconds(0.002), late: seconds(0.01) });
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 50 }), (steps) => {
        const handover = new Handover();
        let end = 0;
        let seen = 0;
        let sum = 0;
        let waited = 0;
        for (const { device, wait, late } of steps) {
          end += wait + device;
          const now = Math.max(seen, end + late);
          const each = handover.seconds(now - seen, device, seen === 0);
          expect(each).toBeGreaterThanOrEqual(0);
          sum += each;
          waited += wait;
          seen = now;
        }
        // Off by how late the last results were seen, never by more with more steps.
        expect(sum).toBeGreaterThanOrEqual(waited - 1e-9);
        expect(sum).toBeLessThanOrEqual(waited + 0.01 + 1e-9);
      }),
    );
  });

  it('does not hold what was too short against a step that the device was idle before', () => {
    const handover = new Handover();
    expect(handover.seconds(0.009, 0.01, true)).toBe(0);
    expect(handover.seconds(0.011, 0.01, true)).toBeCloseTo(0.001, 12);
    expect(handover.seconds(0.009, 0.01, false)).toBe(0);
    expect(handover.seconds(0.011, 0.01, false)).toBeCloseTo(0, 12);
  });
});
