// Set G: how a watermark changes preemptions and throughput, against what vLLM measured (pull request 44594: Qwen2.5-7B on a GB200,
// 299,584 KV tokens, 450 prompts of 1,000 +- 20 % tokens, outputs of 5,000 +- 20 %, 128 at once, no prefix cache).

import { resolveDeployment } from '../plan/resolve-deployment.ts';
import { simulate } from '../sim/simulation.ts';
import { createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import { percent, type ValidationPart } from './validation-part.ts';

const MEASURED = [
  { watermark: 0, numPreemptions: 1065, tokensPerSecond: 11_582, bound: 0.15 },
  { watermark: 0.02, numPreemptions: 400, tokensPerSecond: 12_134, bound: 0.15 },
  { watermark: 0.05, numPreemptions: 187, tokensPerSecond: 12_167, bound: 0.3 },
  { watermark: 0.1, numPreemptions: 168, tokensPerSecond: 11_835, bound: 0.3 },
  { watermark: 0.15, numPreemptions: 168, tokensPerSecond: 11_635, bound: 0.3 },
];
const NUM_KV_TOKENS = 299_584;

export const validateWatermark: ValidationPart = {
  name: 'watermark',
  run({ gates, add }) {
    const rows = MEASURED.map((measured) => ({ ...measured, ...run(measured.watermark, 'priority') }));
    const own = run(0, 'fcfs');
    gates.note(
      `G without a watermark, victims with the least to compute again: ${own.simPreemptions} preemptions, ${own.numRecomputedTokens} tokens computed again (newest first: ${rows[0]!.numRecomputedTokens})`,
    );
    const relative = (value: number, first: number) => value / first;
    for (const row of rows) {
      const error = row.simPreemptions / row.numPreemptions - 1;
      gates.check(
        `G watermark ${row.watermark}, preemptions ${row.simPreemptions}, error`,
        percent(error),
        `within ${percent(row.bound, 0)} of ${row.numPreemptions}`,
        Math.abs(error) <= row.bound,
      );
      const measured = relative(row.tokensPerSecond, rows[0]!.tokensPerSecond);
      const simulated = relative(row.simTokensPerSecond, rows[0]!.simTokensPerSecond);
      gates.check(
        `G watermark ${row.watermark}, relative throughput`,
        simulated.toFixed(3),
        `within 0.03 of ${measured.toFixed(3)}`,
        Math.abs(simulated - measured) <= 0.03,
      );
    }
    // The measured counts fall, and the last two are equal.
    const counts = rows.map((row) => row.simPreemptions);
    const falls = counts.every((count, i) => i === 0 || count <= counts[i - 1]!);
    gates.check('G preemptions fall with the watermark', counts.join(' '), 'in the measured order', falls);
    add({
      title: 'Set G: watermark and preemptions (vLLM pull request 44594)',
      text: 'Qwen2.5-7B, 299,584 KV tokens, 450 prompts, 128 at once, no prefix cache. Counts hardly depend on the speed of the device.',
      header: [
        'watermark',
        'preemptions',
        'simulated',
        'relative throughput',
        'simulated',
        'recomputed tokens',
        'TTFT p50 s',
        'ITL p99 ms',
      ],
      rows: rows.map((row) => [
        String(row.watermark),
        String(row.numPreemptions),
        String(row.simPreemptions),
        relative(row.tokensPerSecond, rows[0]!.tokensPerSecond).toFixed(3),
        relative(row.simTokensPerSecond, rows[0]!.simTokensPerSecond).toFixed(3),
        String(row.numRecomputedTokens),
        row.ttftP50Seconds.toFixed(2),
        (1000 * row.itlP99Seconds).toFixed(1),
      ]),
    });
  },
};

/**
 * vLLM takes blocks from the newest request. So does our `priority` policy among equals; `fcfs` takes them from the one that has
 * least to compute again.
 */
function run(watermark: number, schedulingPolicy: 'fcfs' | 'priority') {
  const { deployment } = resolveDeployment({
    model: 'qwen2.5-7b',
    gpu: 'gb200',
    maxNumSeqs: 256,
    maxNumBatchedTokens: 8192,
    maxModelLen: 8192,
    enablePrefixCaching: false,
    numGpuBlocksOverride: NUM_KV_TOKENS / 16,
    watermark,
    schedulingPolicy,
  });
  const uniform = (min: number, max: number) => ({
    shape: { kind: 'uniform', min, max } as const,
    min: 1,
    max: 10_000,
  });
  const workload = createSyntheticWorkload({
    name: '1000/5000 +- 20 %',
    seed: 0,
    numRequests: 450,
    arrivals: null,
    closedLoop: { concurrency: 128, thinkSeconds: 0 },
    maxSeconds: null,
    prompt: uniform(800, 1200),
    output: uniform(4000, 6000),
    rankCorrelation: 0,
    prefix: { kind: 'none' },
  });
  const { summary, scheduler } = simulate(deployment, workload);
  return {
    simPreemptions: scheduler.numPreemptions,
    simTokensPerSecond: summary.outputTokensPerSecond,
    numRecomputedTokens: scheduler.numRecomputedTokens,
    ttftP50Seconds: summary.ttftSeconds.p50,
    itlP99Seconds: summary.itlSeconds.p99,
  };
}
