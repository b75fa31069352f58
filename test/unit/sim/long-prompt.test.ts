// Case S01 of the reference cases: one long prompt beside a decoding sequence. The stall is a number of steps that follows from the
// step budget, and the decoder gets its token in each of them.
import { describe, expect, it } from 'vitest';
import type { SchedulerFlags } from '../../../src/sim/deployment.ts';
import { simulate } from '../../../src/sim/simulation.ts';
import { openTrace } from '../../../src/workload/trace-workload.ts';
import type { Workload } from '../../../src/workload/workload.ts';
import { noShared, sharedPath } from '../../shared-data.ts';
import { deploymentOf, fixedCost, request, Witness, workloadOf } from './simulation-fixtures.ts';

const CASES: ReadonlyArray<{ flags: Partial<SchedulerFlags>; numSteps: number; mostPrefill: number }> = [
  { flags: { maxNumBatchedTokens: 512 }, numSteps: 11, mostPrefill: 511 },
  { flags: { maxNumBatchedTokens: 2048 }, numSteps: 3, mostPrefill: 2047 },
  { flags: { maxNumBatchedTokens: 8192 }, numSteps: 1, mostPrefill: 5112 },
  { flags: { maxNumBatchedTokens: 1024, chunkedPrefillSize: 512 }, numSteps: 10, mostPrefill: 512 },
];

const BY_HAND = workloadOf([request(0, 16, 600), request(0.5, 5112, 2)]);

function stallOf(flags: Partial<SchedulerFlags>, workload: Workload = BY_HAND) {
  const witness = new Witness();
  const deployment = deploymentOf({ ...flags, enablePrefixCaching: true }, { cost: fixedCost(0.01) });
  simulate(deployment, workload, { observer: witness });
  const steps = witness.steps.filter((step) => step.startSeconds >= 0.5 && step.numPrefillTokens > 0);
  return {
    numSteps: steps.length,
    mostPrefill: Math.max(...steps.map((step) => step.numPrefillTokens)),
    decoderTokens: steps.map((step) => step.tokensOf.get('0')),
  };
}

describe('a long prompt beside a decoder', () => {
  it.each(CASES)('$flags: $numSteps steps', ({ flags, numSteps, mostPrefill }) => {
    const expected = { numSteps, mostPrefill, decoderTokens: new Array<number>(numSteps).fill(1) };
    expect(stallOf(flags)).toEqual(expected);
  });

  describe.skipIf(noShared)('from the trace file', () => {
    it.each(CASES)('$flags: $numSteps steps', ({ flags, numSteps }) => {
      const workload = openTrace({ path: sharedPath('cases', 'gen', 'open', 'S01.csv') });
      const stall = stallOf(flags, workload);
      expect(stall.numSteps).toBe(numSteps);
      expect(stall.decoderTokens).toEqual(new Array<number>(numSteps).fill(1));
    });
  });
});
