// Makes the StepRecord of each step: differences of the scheduler's running totals, the plan's counts, the device's times.

import type { Scheduler } from '../core/scheduler.ts';
import type { SchedulerStats } from '../core/scheduler-stats.ts';
import type { SpeculationCounts } from '../core/speculation.ts';
import type { StepPlan } from '../core/step.ts';
import type { StepTiming } from '../device/forward-batch.ts';
import type { PreemptionRecord, SpeculationRecord, StepRecord } from '../trace/step-record.ts';
import { Handover } from './handover.ts';

const NO_PREEMPTIONS: readonly PreemptionRecord[] = [];

/** What belongs to a plan that will be reused by the time its step's result arrives. */
export interface PlanFacts {
  readonly stepId: number;
  readonly numPromptTokens: number;
  readonly preemptions: readonly PreemptionRecord[];
  readonly scheduleSeconds: number;
  readonly fillSeconds: number;
}

export function planFacts(
  plan: StepPlan,
  { scheduleSeconds, fillSeconds }: { scheduleSeconds: number; fillSeconds: number },
): PlanFacts {
  return {
    stepId: plan.stepId,
    numPromptTokens: plan.numPrefillTokens,
    preemptions:
      plan.preempted.length === 0
        ? NO_PREEMPTIONS
        : plan.preempted.map((each) => ({
            requestId: each.sequence.id,
            neededBy: each.neededBy.id,
            numBlocksFreed: each.numBlocksFreed,
            numTokensToRecompute: each.numTokensToRecompute,
          })),
    scheduleSeconds,
    fillSeconds,
  };
}

export interface StepOutcome {
  readonly facts: PlanFacts;
  readonly time: number;
  readonly numGeneratedTokens: number;
  readonly stepSeconds: number;
  /** The device had nothing to do when the step was launched. */
  readonly startsIdle: boolean;
  readonly launchSeconds: number;
  readonly updateSeconds: number;
  readonly deliverySeconds: number;
  readonly device: StepTiming;
}

export class StepRecorder {
  readonly #scheduler: Scheduler;
  readonly #handover = new Handover();
  #last: SchedulerStats;

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler;
    this.#last = scheduler.stats();
  }

  record(outcome: StepOutcome): StepRecord {
    const { facts, device } = outcome;
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
      speculation: difference(last.speculation, stats.speculation),
      numBlocks: stats.numBlocks,
      numBlocksUsed: stats.numBlocksUsed,
      numBlocksCached: stats.numBlocksCached,
      kvWaste: stats.kvWaste,
      stepSeconds: outcome.stepSeconds,
      scheduleSeconds: facts.scheduleSeconds,
      fillSeconds: facts.fillSeconds,
      launchSeconds: outcome.launchSeconds,
      handoverSeconds: this.#handover.seconds(outcome.stepSeconds, device.totalSeconds, outcome.startsIdle),
      deviceSeconds: device.totalSeconds,
      attentionSeconds: device.attentionSeconds,
      linearSeconds: device.linearSeconds,
      rowsSeconds: device.rowsSeconds,
      samplingSeconds: device.samplingSeconds,
      serialSeconds: device.serialSeconds,
      updateSeconds: outcome.updateSeconds,
      deliverySeconds: outcome.deliverySeconds,
    };
  }
}

function difference(before: SpeculationCounts | null, after: SpeculationCounts | null): SpeculationRecord | null {
  if (before === null || after === null) return null;
  const numAcceptedAt = after.numAcceptedAt.map((count, i) => count - before.numAcceptedAt[i]!);
  return {
    numDrafts: after.numDrafts - before.numDrafts,
    numDraftTokens: after.numDraftTokens - before.numDraftTokens,
    numAcceptedTokens: numAcceptedAt.reduce((sum, count) => sum + count, 0),
    numAcceptedAt,
  };
}
