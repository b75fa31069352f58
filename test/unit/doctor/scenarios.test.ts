// Simulated scenarios, each of which triggers exactly one rule; the change that the rule proposes improves the figure when the same
// load is simulated with it. A healthy one triggers none.

import { describe, expect, it } from 'vitest';
import { diagnose } from '../../../src/doctor/diagnose.ts';
import { observeSimulation, simulatedRun } from '../../../src/doctor/observe-simulation.ts';
import type { DeploymentChange } from '../../../src/doctor/rule.ts';
import { known, type Signals } from '../../../src/doctor/signals.ts';
import type { Deployment, SchedulerFlags } from '../../../src/sim/deployment.ts';
import type { RunSummary } from '../../../src/sim/run-summary.ts';
import { type SimulationResult, simulate } from '../../../src/sim/simulation.ts';
import type { StepCost, StepLoad } from '../../../src/sim/step-cost.ts';
import type { Workload, WorkloadRequest } from '../../../src/workload/workload.ts';

/** Step time in milliseconds, and of that the parts that a server's profile would show. */
interface CostParts {
  readonly fixed?: number;
  readonly perSequence?: number;
  readonly perPrefillToken?: number;
  readonly sampling?: number;
  readonly allReduce?: number;
  readonly launch?: number;
}

class PartCost implements StepCost {
  readonly requestOverheadSeconds = 0;
  readonly #parts: Required<CostParts>;
  readonly #sums = { whole: 0, sampling: 0, allReduce: 0, launch: 0 };

  constructor(parts: CostParts) {
    this.#parts = { fixed: 5, perSequence: 0.1, perPrefillToken: 0.02, sampling: 0, allReduce: 0, launch: 0, ...parts };
  }

  stepSeconds(load: StepLoad): number {
    const { fixed, perSequence, perPrefillToken, sampling, allReduce, launch } = this.#parts;
    const sampled = sampling * load.numSequences;
    const work = fixed + perSequence * load.numSequences + perPrefillToken * load.numPrefillTokens;
    const whole = work + sampled + allReduce + launch;
    this.#sums.whole += whole;
    this.#sums.sampling += sampled;
    this.#sums.allReduce += allReduce;
    this.#sums.launch += launch;
    return whole / 1000;
  }

  shares(): Signals {
    const { whole, sampling, allReduce, launch } = this.#sums;
    return known({ samplingShare: sampling / whole, allReduceShare: allReduce / whole, launchShare: launch / whole });
  }
}

const BASE: SchedulerFlags = {
  maxNumSeqs: 64,
  maxNumBatchedTokens: 2048,
  chunkedPrefillSize: null,
  enableChunkedPrefill: true,
  enablePrefixCaching: false,
  blockSize: 16,
  maxModelLen: 16384,
  watermark: 0,
  schedulingPolicy: 'fcfs',
  kvAllocation: 'paged',
};

interface Scenario {
  readonly flags?: Partial<SchedulerFlags>;
  readonly numBlocks?: number;
  readonly cost?: (change: DeploymentChange) => CostParts;
  readonly tensorParallelSize?: number;
  readonly load: (change: DeploymentChange) => { requests: WorkloadRequest[]; concurrency?: number };
  readonly figures?: (result: SimulationResult) => Signals;
}

interface Length {
  readonly prompt: number;
  readonly output: number;
}

/** At times that are neither regular nor in bursts: multiples of the golden ratio, a low-discrepancy sequence. */
function open(num: number, requestsPerSecond: number, length: (i: number) => Length): WorkloadRequest[] {
  return Array.from({ length: num }, (_, i) => ({
    arrivalSeconds: (i + 0.5 * ((i * 0.618034) % 1)) / requestsPerSecond,
    ...sized(length(i)),
  }));
}

const closed = (num: number, length: (i: number) => Length): WorkloadRequest[] =>
  Array.from({ length: num }, (_, i) => ({ arrivalSeconds: 0, ...sized(length(i)) }));

const sized = ({ prompt, output }: Length) => ({
  numPromptTokens: prompt,
  numOutputTokens: output,
  hashIds: null,
  sessionId: null,
  priority: 0,
});

function workloadOf(scenario: Scenario, change: DeploymentChange): Workload {
  const { requests, concurrency } = scenario.load(change);
  return {
    name: 'scenario',
    seed: 0,
    hashBlockTokens: 16,
    closedLoop: concurrency === undefined ? null : { concurrency, thinkSeconds: 0 },
    numRequests: requests.length,
    requests: () => requests,
  };
}

function run(scenario: Scenario, change: DeploymentChange) {
  const flags: SchedulerFlags = {
    ...BASE,
    ...scenario.flags,
    ...(change.maxNumSeqs === undefined ? {} : { maxNumSeqs: change.maxNumSeqs }),
    ...(change.maxNumBatchedTokens === undefined ? {} : { maxNumBatchedTokens: change.maxNumBatchedTokens }),
    ...(change.watermark === undefined ? {} : { watermark: change.watermark }),
    ...(change.maxModelLen === undefined ? {} : { maxModelLen: change.maxModelLen }),
  };
  const cost = new PartCost(scenario.cost?.(change) ?? {});
  const deployment: Deployment = {
    name: 'scenario',
    flags,
    numBlocks: (scenario.numBlocks ?? 8000) * (change.kvPoolFactor ?? 1),
    groupWindows: [0],
    numReplicas: change.numReplicas ?? 1,
    cost,
  };
  const firstTokens: Array<{ arrivalSeconds: number; ttftSeconds: number }> = [];
  const result = simulate(deployment, workloadOf(scenario, change), {
    observer: {
      onStep: () => undefined,
      onRequestEnd: ({ arrivalSeconds, firstTokenSeconds }) =>
        firstTokens.push({ arrivalSeconds, ttftSeconds: firstTokenSeconds - arrivalSeconds }),
    },
  });
  firstTokens.sort((a, b) => a.arrivalSeconds - b.arrivalSeconds);
  return { deployment, cost, result, firstTokens };
}

function diagnosisOf(scenario: Scenario) {
  const { deployment, cost, result, firstTokens } = run(scenario, {});
  const observation = observeSimulation(simulatedRun(result), {
    flags: deployment.flags,
    numBlocks: deployment.numBlocks,
    tensorParallelSize: scenario.tensorParallelSize ?? 1,
    firstTokens,
    figures: { ...cost.shares(), ...scenario.figures?.(result) },
  });
  return diagnose(observation, { resimulate: (change) => run(scenario, change).result.summary });
}

const steady = (i: number): Length => ({ prompt: 200 + ((i * 37) % 100), output: 48 + ((i * 13) % 32) });

type Measure = (summary: RunSummary) => number;
const ttft: Measure = (summary) => summary.ttftSeconds.p99;
const tpot: Measure = (summary) => summary.tpotSeconds.p99;
const itl: Measure = (summary) => summary.itlSeconds.p99;

const SCENARIOS: ReadonlyArray<readonly [string, Scenario, Measure]> = [
  [
    'R1',
    {
      // 50 requests fit, 100 users, 128 slots.
      flags: { maxNumSeqs: 128, watermark: 0.02 },
      numBlocks: 1700,
      load: () => ({ requests: closed(300, (i) => ({ prompt: 512, output: 48 + (i % 32) })), concurrency: 100 }),
    },
    ttft,
  ],
  [
    'R2',
    {
      // All 24 fit when they come and not when they have grown.
      numBlocks: 1197,
      flags: { maxNumBatchedTokens: 8192 },
      load: () => ({ requests: closed(24, () => ({ prompt: 64, output: 1000 })), concurrency: 24 }),
    },
    tpot,
  ],
  [
    'R3',
    {
      flags: { maxNumSeqs: 8 },
      load: () => ({ requests: closed(160, () => ({ prompt: 128, output: 64 })), concurrency: 40 }),
    },
    ttft,
  ],
  [
    'R4',
    {
      flags: { maxNumBatchedTokens: 512 },
      load: () => ({ requests: closed(120, () => ({ prompt: 2000, output: 4 })), concurrency: 20 }),
    },
    ttft,
  ],
  [
    'R5',
    {
      flags: { maxNumBatchedTokens: 8192 },
      numBlocks: 20_000,
      cost: () => ({ perPrefillToken: 0.06 }),
      load: () => ({ requests: open(60, 1.5, () => ({ prompt: 6000, output: 100 })) }),
    },
    itl,
  ],
  [
    'R8',
    {
      cost: ({ greedySampler }) => ({ fixed: 3, sampling: greedySampler === true ? 0 : 1 }),
      load: () => ({ requests: open(120, 4, steady) }),
    },
    itl,
  ],
  [
    'R9',
    {
      tensorParallelSize: 4,
      // A slow link: two GPUs less cost more compute and much less waiting.
      cost: ({ tensorParallelSize = 4 }) => ({
        fixed: 2 + 12 / tensorParallelSize,
        allReduce: tensorParallelSize === 4 ? 8 : 2,
      }),
      load: () => ({ requests: open(120, 4, steady) }),
    },
    itl,
  ],
  [
    'R10',
    {
      cost: ({ enforceEager }) => ({ launch: enforceEager === false ? 0 : 9 }),
      load: () => ({ requests: open(120, 4, steady) }),
    },
    itl,
  ],
  [
    'R12',
    {
      flags: { enablePrefixCaching: true },
      cost: () => ({ perPrefillToken: 0.1 }),
      // A line of its own in front of a long system prompt, or behind it.
      load: ({ sharedPrefixFirst }) => ({
        requests: open(120, 2, () => ({ prompt: 512, output: 16 })).map((request, i) => {
          const system = Array.from({ length: 24 }, (_, block) => block);
          const own = Array.from({ length: 8 }, (_, block) => 1000 + 8 * i + block);
          return { ...request, hashIds: sharedPrefixFirst === true ? [...system, ...own] : [...own, ...system] };
        }),
      }),
    },
    ttft,
  ],
  [
    'R17',
    {
      load: ({ maxTokens = 2048 }) => ({
        requests: open(150, 4, (i) => ({
          prompt: 100,
          output: Math.min(maxTokens, i % 10 === 7 ? 2048 : 40 + (i % 30)),
        })),
      }),
      figures: () => ({ lengthFinishShare: 0.1 }),
    },
    (summary) => summary.e2eSeconds.mean,
  ],
  [
    'R18',
    {
      // Slots full, memory at four fifths, and twice the load.
      flags: { maxNumSeqs: 32, maxModelLen: 4096 },
      numBlocks: 800,
      cost: () => ({ fixed: 50 }),
      load: ({ loadFactor = 1 }) => ({ requests: open(400, 9 * loadFactor, () => ({ prompt: 256, output: 128 })) }),
    },
    ttft,
  ],
  [
    'R22',
    {
      // 4,800 tokens of cache, requests of up to 16,384 allowed.
      numBlocks: 300,
      load: () => ({
        requests: open(60, 1, (i) => (i % 10 === 3 ? { prompt: 6000, output: 32 } : { prompt: 100, output: 32 })),
      }),
    },
    (summary) => summary.numFailed,
  ],
];

describe('simulated scenarios', () => {
  it.each(SCENARIOS)('%s alone, and its change helps', (rule, scenario, measure) => {
    const diagnosis = diagnosisOf(scenario);
    expect(diagnosis.findings.map((finding) => finding.rule)).toEqual([rule]);
    const predicted = diagnosis.findings[0]!.changes.flatMap((change) => change.predicted ?? []);
    expect(predicted.length).toBeGreaterThan(0);
    const best = Math.min(...predicted.map(({ after }) => measure(after)));
    expect(best).toBeLessThan(0.95 * measure(predicted[0]!.before));
  });

  it('healthy: none', () => {
    const diagnosis = diagnosisOf({ load: () => ({ requests: open(150, 3, steady) }) });
    expect(diagnosis.findings).toEqual([]);
    expect(diagnosis.consequences).toEqual([]);
    expect(diagnosis.maxTokens?.proposedTokens).toBe(80);
  });
});
