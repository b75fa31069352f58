import { appendFileSync } from 'node:fs';
import { it } from 'vitest';
import { resolveDeployment } from '../../../src/plan/resolve-deployment.ts';
import { simulate } from '../../../src/sim/simulation.ts';
import { createSyntheticWorkload } from '../../../src/workload/synthetic-workload.ts';
it('g', () => {
  for (const watermark of [0, 0.02]) {
    const { deployment } = resolveDeployment({ model: 'qwen2.5-7b', gpu: 'gb200', maxNumSeqs: 256, maxNumBatchedTokens: 8192, maxModelLen: 8192, enablePrefixCaching: false, numGpuBlocksOverride: 18724, watermark, schedulingPolicy: 'priority' });
    const u = (min: number, max: number) => ({ shape: { kind: 'uniform', min, max } as const, min: 1, max: 10_000 });
    const w = createSyntheticWorkload({ name: 'x', seed: 0, numRequests: 450, arrivals: null, closedLoop: { concurrency: 128, thinkSeconds: 0 }, maxSeconds: null, prompt: u(800, 1200), output: u(4000, 6000), rankCorrelation: 0, prefix: { kind: 'none' } });
    const { scheduler, summary } = simulate(deployment, w);
    appendFileSync('/tmp/gates2.log', `${watermark} ${scheduler.numPreemptions} ${scheduler.numRecomputedTokens} ${summary.outputTokensPerSecond} ${scheduler.numSteps}\n`);
  }
});
