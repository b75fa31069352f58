// The cheapest configurations that meet the targets: GPU counts from one upwards, on each every layout, and on the layouts that
// miss the flags that can help. Stops at the first count that works, or tries everything for a Pareto front.

import type { LatencyTargets } from '../sim/run-recorder.ts';
import { gpuCounts, layouts, variantsOf } from './candidates.ts';
import {
  type Evaluation,
  type EvaluationTask,
  leastTpotSeconds,
  requireTargets,
  type TargetPercentile,
} from './evaluate.ts';
import { type EvaluateAllOptions, evaluateAll } from './evaluate-all.ts';
import { type DeploymentRequest, draftDeployment, fitProblem, type ResolvedDeployment } from './resolve-deployment.ts';
import type { WorkloadSample } from './workload-sample.ts';

export interface SearchInput {
  readonly resolved: ResolvedDeployment;
  readonly request: DeploymentRequest;
  readonly sample: WorkloadSample;
  readonly targets: LatencyTargets;
  readonly percentile: TargetPercentile;
  /** Go on after the first count that meets the targets. */
  readonly triesAll: boolean;
  /** Rates each configuration by the highest rate it can take. */
  readonly findsRate: boolean;
}

export interface SearchResult {
  /** In the order in which they were tried. */
  readonly evaluations: readonly Evaluation[];
  /** Fewest GPUs first, then most throughput per GPU; by rate per GPU when rates were looked for. */
  readonly cheapest: readonly Evaluation[];
}

export async function search(input: SearchInput, options: EvaluateAllOptions): Promise<SearchResult> {
  requireTargets(input.targets);
  const evaluations: Evaluation[] = [];
  for (const numGpus of gpuCounts(input.resolved.numGpus)) {
    evaluations.push(...(await searchOn(input, numGpus, options)));
    if (!input.triesAll && evaluations.some(({ isMet }) => isMet)) break;
  }
  return { evaluations, cheapest: cheapestOf(evaluations) };
}

/** One number of GPUs: first every layout, then variants of those that start but miss. */
export async function searchOn(
  input: SearchInput,
  numGpus: number,
  options: EvaluateAllOptions,
): Promise<Evaluation[]> {
  const { resolved, request, sample } = input;
  if (resolved.gpu === null) return [];
  const all = layouts({ request, shape: resolved.found.shape, gpu: resolved.gpu, numGpus, sample });
  const hopeful = all.filter((layout) => isHopeful(layout, input));
  const first = await evaluateAll(
    hopeful.map((each) => taskOf(input, each)),
    options,
  );
  if (first.some(({ isMet }) => isMet) && !input.triesAll) return first;
  const variants = hopeful.flatMap((layout, i) => (first[i]!.isMet ? [] : variantsOf(layout, request)));
  const second = await evaluateAll(
    variants.map((each) => taskOf(input, each)),
    options,
  );
  return [...first, ...second];
}

export function cheapestOf(evaluations: readonly Evaluation[]): Evaluation[] {
  return evaluations
    .filter(({ isMet }) => isMet)
    .sort(
      (a, b) =>
        ratePerGpu(b) - ratePerGpu(a) || a.numGpus - b.numGpus || b.tokensPerSecondPerGpu - a.tokensPerSecondPerGpu,
    );
}

/** 0 for all when no rate was looked for: then the number of GPUs decides. */
const ratePerGpu = ({ maxRequestsPerSecond, numGpus }: Evaluation) => (maxRequestsPerSecond ?? 0) / numGpus;

/** What comes nearest: the smallest of the largest overruns. */
export function nearestOf(evaluations: readonly Evaluation[], input: SearchInput): Evaluation | null {
  const overrun = ({ summary }: Evaluation) => {
    if (summary === null) return Number.POSITIVE_INFINITY;
    const { ttftSeconds, tpotSeconds, e2eSeconds } = input.targets;
    const share = (value: number, target: number | null) => (target === null ? 0 : value / target);
    return Math.max(
      share(summary.ttftSeconds[input.percentile], ttftSeconds),
      share(summary.tpotSeconds[input.percentile], tpotSeconds),
      share(summary.e2eSeconds[input.percentile], e2eSeconds),
    );
  };
  const served = evaluations.filter(({ summary }) => summary !== null);
  if (served.length === 0) return null;
  return served.reduce((best, each) => (overrun(each) < overrun(best) ? each : best));
}

export function taskOf(input: SearchInput, request: DeploymentRequest): EvaluationTask {
  const { sample, targets, percentile, findsRate } = input;
  return { request, sample, targets, percentile, findsRate, requestsPerSecond: null };
}

/** Of all layouts on exactly so many GPUs that start; Infinity when none does. */
export function leastTpotOn(input: SearchInput, numGpus: number): number {
  const { resolved, request, sample } = input;
  if (resolved.gpu === null) return Number.POSITIVE_INFINITY;
  const all = layouts({ request, shape: resolved.found.shape, gpu: resolved.gpu, numGpus, sample });
  const starting = all.map(draftDeployment).filter((each) => fitProblem(each) === null);
  return Math.min(...starting.map((each) => leastTpotSeconds(each, sample)), Number.POSITIVE_INFINITY);
}

/** A layout whose pure decode step is too slow already is not worth a run. */
function isHopeful(layout: DeploymentRequest, { targets, sample }: SearchInput): boolean {
  if (targets.tpotSeconds === null) return true;
  return leastTpotSeconds(draftDeployment(layout), sample) <= targets.tpotSeconds;
}
