// One batch, start to end, against vLLM's own latency benchmark (set D): 8 requests of 32 + 128 tokens at once.

import { resolveDeployment } from '../plan/resolve-deployment.ts';
import { simulate } from '../sim/simulation.ts';
import { parseLengths } from '../workload/parse-lengths.ts';
import { createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import { percent, type ValidationPart } from './validation-part.ts';

const MEASURED = [
  { model: 'llama-3.1-8b', gpu: 'h100', tp: 1, seconds: 0.9975 },
  { model: 'llama-3.1-8b', gpu: 'h200', tp: 1, seconds: 0.8334 },
  { model: 'llama-3-70b', gpu: 'h100', tp: 4, seconds: 2.444 },
  { model: 'llama-3-70b', gpu: 'h200', tp: 4, seconds: 2.0775 },
] as const;

export const validateLatency: ValidationPart = {
  name: 'latency',
  run({ gates, add }) {
    const rows = MEASURED.map(({ model, gpu, tp, seconds }) => {
      const { deployment } = resolveDeployment({
        model,
        gpu: `${gpu}:${tp}`,
        tensorParallelSize: tp,
        maxModelLen: 2048,
        enablePrefixCaching: false,
        engineProfile: 'vllm-sync',
      });
      const { summary } = simulate(deployment, batchOfEight());
      // The benchmark calls the engine, no server.
      const simulated = summary.durationSeconds - deployment.cost.requestOverheadSeconds;
      const error = simulated / seconds - 1;
      gates.atMost(`D ${model} ${gpu} TP ${tp}, error`, Math.round(Math.abs(error) * 1e4) / 1e4, 0.12);
      return [model, gpu, String(tp), seconds.toFixed(3), simulated.toFixed(3), percent(error)];
    });
    add({
      title: 'Set D: one batch of 8, 32 prompt and 128 output tokens (vLLM CI, benchmark_latency)',
      text: 'Synchronous scheduling, 16-bit weights. Seconds for the whole batch.',
      header: ['Model', 'GPU', 'TP', 'measured', 'simulated', 'error'],
      rows,
    });
  },
};

function batchOfEight() {
  return createSyntheticWorkload({
    name: '32/128 x 8',
    seed: 0,
    numRequests: 8,
    arrivals: null,
    closedLoop: { concurrency: 8, thinkSeconds: 0 },
    maxSeconds: null,
    prompt: parseLengths('32', '--prompt'),
    output: parseLengths('128', '--output'),
    rankCorrelation: 0,
    prefix: { kind: 'none' },
  });
}
