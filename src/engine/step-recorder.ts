// Makes the StepRecord of each step: differences of the scheduler's running totals, the plan's counts, the device's times.

import type { Scheduler, SchedulerStats } from '../core/scheduler.ts';
import type { StepPlan } from '../core/step.ts';
import type { StepTiming } from '../device/forward-batch.ts';
import type { PreemptionRecord, StepRecord } from '../trace/step-record.ts';

/** What belongs to a plan that will be reused by the time its step's result arrives. */
export interface PlanFacts {
  readonly stepId: number;
  readonly numPromptTokens: number;
  readonly preemptions: readonly PreemptionRecord[];
  readonly scheduleSeconds: number;
}

export function planFacts(plan: StepPlan, scheduleSeconds: number): PlanFacts {
  return {
    stepId: plan.stepId,
    numPromptTokens: plan.numPrefillTokens,
    preemptions: plan.preempted.map((each) => ({
      requestId: each.sequence.id,
      neededBy: each.neededBy.id,
      numBlocksFreed: each.numBlocksFreed,
      numTokensToRecompute: each.numTokensToRecompute,
    })),
    scheduleSeconds,
  };
}

export interface StepOutcome {
  readonly facts: PlanFacts;
  readonly time: number;
  readonly numGeneratedTokens: number;
  readonly stepSeconds: number;
  readonly updateSeconds: number;
  readonly device: StepTiming;
}

export class StepRecorder {
  readonly #scheduler: Scheduler;
  #last: SchedulerStats;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
    this.#last = scheduler.stats();
  }

  record({ facts, device, ...outcome }: StepOutcome): StepRecord {
    const stats = this.#scheduler.stats();
    const last = this.#last;
    this.#last = stats;
    return {
      stepId: facts.stepId,
      time: outcome.time,
      numRunning: stats.numRunning,
      numWaiting: stats.numWaiting,
      numPromptTokens: facts.numPromptTokens,
      numGeneratedTokens: outcome.numGeneratedTokens,
      numRecomputedTokens: stats.totalRecomputedTokens - last.totalRecomputedTokens,
      numPrefixQueryTokens: stats.totalPrefixQueryTokens - last.totalPrefixQueryTokens,
      numPrefixHitTokens: stats.totalPrefixHitTokens - last.totalPrefixHitTokens,
      preemptions: facts.preemptions,
      numBlocks: stats.numBlocks,
      numBlocksUsed: stats.numBlocksUsed,
      numBlocksCached: stats.numBlocksCached,
      kvWaste: stats.kvWaste,
      stepSeconds: outcome.stepSeconds,
      scheduleSeconds: facts.scheduleSeconds,
      deviceSeconds: device.totalSeconds,
      attentionSeconds: device.attentionSeconds,
      linearSeconds: device.linearSeconds,
      samplingSeconds: device.samplingSeconds,
      updateSeconds: outcome.updateSeconds,
    };
  }
}
