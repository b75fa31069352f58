// Who wants to see more than the summary: a timeline, a check, a list of all requests. What is passed is only valid during the call.

import type { SchedulerStats } from '../core/scheduler-stats.ts';
import type { StepPlan } from '../core/step.ts';
import type { StepLoad } from './step-cost.ts';

export interface SimulatedStep {
  readonly replica: number;
  readonly startSeconds: number;
  readonly stepSeconds: number;
  readonly plan: StepPlan;
  readonly load: StepLoad;
  /** While the step runs. */
  readonly stats: SchedulerStats;
  /** Routed to the replica and not running. */
  readonly numWaiting: number;
}

export interface EndedRequest {
  readonly number: number;
  readonly replica: number;
  readonly arrivalSeconds: number;
  /** First time in a step; before that it waited. */
  readonly firstScheduledSeconds: number;
  readonly firstTokenSeconds: number;
  readonly endSeconds: number;
  readonly numPromptTokens: number;
  readonly numOutputTokens: number;
  readonly numCachedTokens: number;
  readonly numPreemptions: number;
}

export interface SimulationObserver {
  onStep(step: SimulatedStep): void;
  onRequestEnd(request: EndedRequest): void;
}
