// Small deployments and workloads for tests of the simulator: costs that can be worked out by hand.
import type { Deployment, SchedulerFlags } from '../../../src/sim/deployment.ts';
import type { EndedRequest, SimulatedStep, SimulationObserver } from '../../../src/sim/simulation-observer.ts';
import type { StepCost } from '../../../src/sim/step-cost.ts';
import type { Workload, WorkloadRequest } from '../../../src/workload/workload.ts';

/** Every step takes as long as any other. */
export const fixedCost = (stepSeconds: number, requestOverheadSeconds = 0): StepCost => ({
  stepSeconds: () => stepSeconds,
  requestOverheadSeconds,
});

export function deploymentOf(
  flags: Partial<SchedulerFlags> = {},
  rest: Partial<Omit<Deployment, 'flags'>> = {},
): Deployment {
  return {
    name: 'test',
    flags: {
      maxNumSeqs: 16,
      maxNumBatchedTokens: 256,
      chunkedPrefillSize: null,
      enableChunkedPrefill: true,
      enablePrefixCaching: false,
      blockSize: 16,
      maxModelLen: 8192,
      watermark: 0,
      schedulingPolicy: 'fcfs',
      kvAllocation: 'paged',
      ...flags,
    },
    numBlocks: 4096,
    groupWindows: [0],
    numReplicas: 1,
    cost: fixedCost(0.01),
    ...rest,
  };
}

export const request = (
  arrivalSeconds: number,
  numPromptTokens: number,
  numOutputTokens: number,
  rest: Partial<WorkloadRequest> = {},
): WorkloadRequest => ({
  arrivalSeconds,
  numPromptTokens,
  numOutputTokens,
  hashIds: null,
  sessionId: null,
  priority: 0,
  ...rest,
});

export const workloadOf = (requests: readonly WorkloadRequest[], rest: Partial<Workload> = {}): Workload => ({
  name: 'test',
  seed: 0,
  hashBlockTokens: 16,
  closedLoop: null,
  numRequests: requests.length,
  requests: () => requests,
  ...rest,
});

/** Keeps what a test looks at, as plain numbers. */
export class Witness implements SimulationObserver {
  readonly steps: Array<{
    replica: number;
    startSeconds: number;
    stepSeconds: number;
    numPrefillTokens: number;
    numDecodes: number;
    decodeContextTokens: number;
    prefillPairs: number;
    numPreempted: number;
    tokensOf: Map<string, number>;
  }> = [];
  readonly ended: EndedRequest[] = [];

  onStep({ replica, startSeconds, stepSeconds, load, plan }: SimulatedStep): void {
    this.steps.push({
      replica,
      startSeconds,
      stepSeconds,
      numPrefillTokens: load.numPrefillTokens,
      numDecodes: load.numDecodes,
      decodeContextTokens: load.decodeContextTokens,
      prefillPairs: load.prefillPairs,
      numPreempted: plan.preempted.length,
      tokensOf: new Map(plan.scheduled.map(({ sequence, numTokens }) => [sequence.id, numTokens])),
    });
  }

  onRequestEnd(ended: EndedRequest): void {
    this.ended.push(ended);
  }
}
