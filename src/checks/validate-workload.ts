// The workload generator against the traces it stands for: lengths within 5 % at the median and the 95th percentile, burstiness
// within 30 % of the recorded index of dispersion; and the importers against counts known of the traces.

import { join } from 'node:path';
import { createSyntheticWorkload } from '../workload/synthetic-workload.ts';
import { openTrace } from '../workload/trace-workload.ts';
import { WORKLOAD_PRESETS, type WorkloadPresetName } from '../workload/workload-presets.ts';
import { type WorkloadStatistics, workloadStatistics } from '../workload/workload-statistics.ts';
import { percent, type ValidationPart } from './validation-part.ts';

const TRACES: ReadonlyArray<{
  readonly preset: WorkloadPresetName;
  readonly file: string;
  readonly numRequests: number;
  /** Of the recorded arrivals, windows of 1, 10 and 60 s; null = not reproduced by the preset. */
  readonly dispersion: readonly [number, number, number] | null;
  /** Of the blocks, with an unlimited cache. */
  readonly sharedShare: number | null;
}> = [
  {
    preset: 'azure-conv',
    file: 'AzureLLMInferenceTrace_conv.csv',
    numRequests: 19_366,
    dispersion: [1.4, 4, 20.6],
    sharedShare: null,
  },
  {
    preset: 'azure-code',
    file: 'AzureLLMInferenceTrace_code.csv',
    numRequests: 8819,
    dispersion: [13, 71, 161],
    sharedShare: null,
  },
  {
    preset: 'mooncake-conversation',
    file: 'mooncake_conversation_trace.jsonl',
    numRequests: 12_031,
    dispersion: null,
    sharedShare: 0.366,
  },
];
/** Long, so that the burstiness of a few bursts does not decide. */
const NUM_GENERATED = 200_000;

export const validateWorkload: ValidationPart = {
  name: 'workload',
  run({ gates, sharedRoot, add }) {
    const rows: string[][] = [];
    for (const { preset, file, numRequests, dispersion, sharedShare } of TRACES) {
      const trace = workloadStatistics(openTrace({ path: join(sharedRoot, 'data', file) }));
      const drawn = generate(preset);
      gates.equal(`${file}, requests`, trace.numRequests, numRequests);
      for (const key of ['promptTokens', 'outputTokens'] as const) {
        for (const part of ['p50', 'p95'] as const) {
          const error = drawn[key][part] / trace[key][part] - 1;
          gates.check(`${preset} ${key} ${part}, error`, percent(error), 'within 5 %', Math.abs(error) <= 0.05);
        }
      }
      if (dispersion !== null) {
        for (const [index, value] of dispersionOf(drawn).entries()) {
          const error = value / dispersion[index]! - 1;
          const name = `${preset} index of dispersion, ${[1, 10, 60][index]} s: ${value.toFixed(1)}, error`;
          gates.check(name, percent(error), `within 30 % of ${dispersion[index]}`, Math.abs(error) <= 0.3);
        }
      }
      if (sharedShare !== null && trace.sharedBlockShare !== null) {
        const name = `${file}, blocks seen before`;
        const isNear = Math.abs(trace.sharedBlockShare - sharedShare) <= 0.01;
        gates.check(name, percent(trace.sharedBlockShare), `within a point of ${percent(sharedShare)}`, isNear);
      }
      rows.push(rowOf(`${preset}, recorded`, trace), rowOf(`${preset}, drawn`, drawn));
    }
    add({
      title: 'Workload generator against recorded traces',
      text: 'Azure LLM inference traces of 2023 (CC-BY) and the Mooncake conversation trace; p50 / p95 of tokens, index of dispersion in windows of 1, 10 and 60 s.',
      header: ['workload', 'prompt', 'output', 'rank correlation', 'requests/s', 'index of dispersion'],
      rows,
    });
  },
};

function generate(name: WorkloadPresetName): WorkloadStatistics {
  const preset = WORKLOAD_PRESETS[name];
  return workloadStatistics(
    createSyntheticWorkload({
      name,
      seed: 0,
      numRequests: NUM_GENERATED,
      arrivals: preset.arrivals ?? { kind: 'poisson', requestsPerSecond: 1 },
      closedLoop: null,
      maxSeconds: null,
      prompt: preset.prompt,
      output: preset.output,
      rankCorrelation: preset.rankCorrelation,
      prefix: { kind: 'none' },
    }),
  );
}

function dispersionOf(statistics: WorkloadStatistics): number[] {
  const { indexOfDispersion1s, indexOfDispersion10s, indexOfDispersion60s } = statistics;
  return [indexOfDispersion1s ?? 0, indexOfDispersion10s ?? 0, indexOfDispersion60s ?? 0];
}

function rowOf(name: string, statistics: WorkloadStatistics): string[] {
  const { promptTokens, outputTokens, rankCorrelation, requestsPerSecond } = statistics;
  return [
    name,
    `${Math.round(promptTokens.p50)} / ${Math.round(promptTokens.p95)}`,
    `${Math.round(outputTokens.p50)} / ${Math.round(outputTokens.p95)}`,
    rankCorrelation.toFixed(2),
    requestsPerSecond?.toFixed(2) ?? '-',
    dispersionOf(statistics)
      .map((value) => value.toFixed(1))
      .join(' / '),
  ];
}
