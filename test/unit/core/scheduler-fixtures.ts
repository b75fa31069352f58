// Short ways to make a scheduler, a request and a run for the tests of this folder.
import type { SequenceProgress } from '../../../src/core/progress.ts';
import type { GenerateRequest } from '../../../src/core/request.ts';
import { DEFAULT_SAMPLING, type SamplingParams } from '../../../src/core/sampling-params.ts';
import type { Scheduler } from '../../../src/core/scheduler.ts';
import type { SchedulerOptions } from '../../../src/core/scheduler-options.ts';
import type { StepPlan } from '../../../src/core/step.ts';

export function makeOptions(changes: Partial<SchedulerOptions> = {}): SchedulerOptions {
  return {
    maxNumSeqs: 8,
    maxNumBatchedTokens: 2048,
    chunkedPrefillSize: null,
    enableChunkedPrefill: true,
    enablePrefixCaching: true,
    policy: 'fcfs',
    watermark: 0,
    maxModelLen: 8192,
    kvAllocation: 'paged',
    useKvCache: true,
    blockSize: 16,
    numBlocks: 2000,
    groups: [{ window: 0 }],
    maxNumQueuedReqs: 100,
    cacheSecret: Uint8Array.of(1, 2, 3),
    speculation: null,
    ...changes,
  };
}

/** Token ids that no other `family` shares. */
export function tokensOf(family: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => family * 100_000 + i);
}

export function makeRequest(
  id: string,
  promptTokenIds: readonly number[],
  changes: Partial<SamplingParams> & Partial<Pick<GenerateRequest, 'priority' | 'cacheSalt'>> = {},
): GenerateRequest {
  const { priority = 0, cacheSalt = null, ...sampling } = changes;
  return {
    id,
    promptTokenIds,
    priority,
    cacheSalt,
    arrivalTime: 0,
    sampling: { ...DEFAULT_SAMPLING, maxTokens: 1000, ...sampling },
  };
}

/** Takes a plan whose every row samples `token`. */
export function complete(scheduler: Scheduler, plan: StepPlan, token = 7): readonly SequenceProgress[] {
  const progresses = scheduler.update(plan, new Int32Array(plan.scheduled.length).fill(token), null, plan.stepId);
  scheduler.checkIntegrity();
  return progresses;
}

/** One step in turn: plans it and takes it. */
export function step(scheduler: Scheduler, token = 7): StepPlan {
  const plan = scheduler.schedule(0);
  scheduler.checkIntegrity();
  complete(scheduler, plan, token);
  return plan;
}

/** What a plan gives to whom, as `id:numTokens`, an asterisk where it samples. */
export function rowsOf(plan: StepPlan): string[] {
  return plan.scheduled.map(({ sequence, numTokens, samples }) => `${sequence.id}:${numTokens}${samples ? '*' : ''}`);
}
