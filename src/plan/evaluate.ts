// One configuration against a workload and its targets: does it start, and what does a run on the real scheduler and the modelled
// device say. Plain data in and out, so that it can run in a worker thread.

import { PagodaError } from '../errors.ts';
import { RooflineCost, type StepParts } from '../sim/cost/roofline-cost.ts';
import type { LatencyTargets, StepComposition } from '../sim/run-recorder.ts';
import type { RunSummary, SchedulerSummary } from '../sim/run-summary.ts';
import { simulate } from '../sim/simulation.ts';
import type { StepLoad } from '../sim/step-cost.ts';
import type { Distribution } from '../workload/streaming-distribution.ts';
import { type DeploymentRequest, draftDeployment, fitProblem, type ResolvedDeployment } from './resolve-deployment.ts';
import { lengthFigures, type WorkloadSample, workloadOfSample } from './workload-sample.ts';

export type TargetPercentile = 'mean' | 'p50' | 'p90' | 'p95' | 'p99';

export interface EvaluationTask {
  readonly request: DeploymentRequest;
  readonly sample: WorkloadSample;
  /** Null = as the sample has it. */
  readonly requestsPerSecond: number | null;
  readonly targets: LatencyTargets;
  readonly percentile: TargetPercentile;
  /** Looks for the highest rate that meets the targets (max-rate.ts) instead of replaying the sample's own. */
  readonly findsRate: boolean;
}

export interface Evaluation {
  readonly request: DeploymentRequest;
  readonly name: string;
  readonly numGpus: number;
  /** Why it cannot start or serve; then the rest is null. */
  readonly problem: string | null;
  readonly summary: RunSummary | null;
  readonly scheduler: SchedulerSummary | null;
  readonly composition: StepComposition | null;
  /** A decode step in the middle of the run, by cause. */
  readonly decodeStep: StepParts | null;
  readonly isMet: boolean;
  /** Per GPU in use. */
  readonly tokensPerSecondPerGpu: number;
  /** 1 / median time per token. */
  readonly tokensPerSecondPerUser: number;
  /** Requests per second at which the targets are just met; null when that was not looked for. */
  readonly maxRequestsPerSecond: number | null;
}

/** Throws only on a wrong request; what does not fit is a `problem`. */
export function evaluate(task: EvaluationTask): Evaluation {
  const resolved = draftDeployment(task.request);
  const { deployment, tensorParallelSize, pipelineParallelSize } = resolved;
  const numGpus = tensorParallelSize * pipelineParallelSize * deployment.numReplicas;
  const base = { request: task.request, name: deployment.name, numGpus };
  const problem = fitProblem(resolved);
  if (problem !== null) return { ...base, ...NOTHING, problem: problem.message };
  const result = simulate(deployment, workloadOfSample(task.sample, task.requestsPerSecond), { targets: task.targets });
  const { summary, scheduler, composition } = result;
  if (summary.numFailed > 0 || summary.numCompleted === 0) {
    return { ...base, ...NOTHING, problem: `${summary.numFailed} requests are refused: ${result.firstRefusal ?? ''}` };
  }
  return {
    ...base,
    problem: null,
    summary,
    scheduler,
    composition,
    decodeStep: explainDecodeStep(resolved, scheduler, task.sample),
    isMet: meetsTargets(summary, task.targets, task.percentile),
    tokensPerSecondPerGpu: summary.outputTokensPerSecond / numGpus,
    tokensPerSecondPerUser: summary.tpotSeconds.p50 > 0 ? 1 / summary.tpotSeconds.p50 : 0,
    maxRequestsPerSecond: null,
  };
}

const NOTHING = {
  summary: null,
  scheduler: null,
  composition: null,
  decodeStep: null,
  isMet: false,
  tokensPerSecondPerGpu: 0,
  tokensPerSecondPerUser: 0,
  maxRequestsPerSecond: null,
} as const;

export function meetsTargets(summary: RunSummary, targets: LatencyTargets, percentile: TargetPercentile): boolean {
  const meets = (distribution: Distribution, target: number | null) =>
    target === null || distribution[percentile] <= target;
  return (
    meets(summary.ttftSeconds, targets.ttftSeconds) &&
    meets(summary.tpotSeconds, targets.tpotSeconds) &&
    meets(summary.e2eSeconds, targets.e2eSeconds)
  );
}

/** A step in which so many sequences get one token each, at the context that requests have half-way. */
export function decodeLoad(numSequences: number, sample: WorkloadSample): StepLoad {
  const { meanPromptTokens, meanOutputTokens } = lengthFigures(sample);
  const context = meanPromptTokens + meanOutputTokens / 2;
  return {
    numSequences,
    numTokens: numSequences,
    numPrefillTokens: 0,
    numDecodes: numSequences,
    decodeContextTokens: numSequences * context,
    prefillPairs: 0,
  };
}

/** Least time per token of any schedule: all users in decode-only steps, dealt out to the replicas. 0 for open loops. */
export function leastTpotSeconds(resolved: ResolvedDeployment, sample: WorkloadSample): number {
  if (sample.closedLoop === null) return 0;
  const { deployment, ledger } = resolved;
  if ((ledger.numBlocks ?? 0) < 1) return 0;
  const most = Math.min(
    Math.floor(sample.closedLoop.concurrency / deployment.numReplicas),
    deployment.flags.maxNumSeqs,
    Math.floor((ledger.numBlocks! * deployment.flags.blockSize) / lengthFigures(sample).meanTokens),
  );
  // Users that think or wait make batches smaller: half of them is safe to assume.
  return deployment.cost.stepSeconds(decodeLoad(Math.max(1, most / 2), sample));
}

function explainDecodeStep(
  { deployment }: ResolvedDeployment,
  scheduler: SchedulerSummary,
  sample: WorkloadSample,
): StepParts | null {
  const numSequences = Math.max(1, Math.round(scheduler.meanRunning));
  return deployment.cost instanceof RooflineCost ? deployment.cost.explain(decodeLoad(numSequences, sample)) : null;
}

/** For tasks that were put together wrongly: names no flag of the user's. */
export function requireTargets(targets: LatencyTargets): void {
  if (targets.ttftSeconds !== null || targets.tpotSeconds !== null || targets.e2eSeconds !== null) return;
  throw new PagodaError('bad_config', 'A search needs a target: --ttft 1.5s, --tpot 50ms or --e2e 10s.', {
    param: '--ttft',
  });
}
