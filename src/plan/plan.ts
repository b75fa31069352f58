// The whole plan: ledger and capacity by arithmetic, a run of the given configuration, what binds, the cheapest configurations
// that meet the targets, and what would have to change when none does.

import { type LatencyTargets, NO_TARGETS } from '../sim/run-recorder.ts';
import { type Finding, findings } from './binding.ts';
import { type CapacityRow, capacityRows } from './capacity.ts';
import { type CommandLines, commandLines } from './command-lines.ts';
import type { Evaluation, TargetPercentile } from './evaluate.ts';
import type { EvaluateAllOptions } from './evaluate-all.ts';
import { type FragmentationRow, fragmentation } from './fragmentation.ts';
import { evaluateTask } from './max-rate.ts';
import { paretoFront } from './pareto.ts';
import { type DeploymentRequest, draftDeployment, fitProblem, type ResolvedDeployment } from './resolve-deployment.ts';
import { leastTpotOn, nearestOf, type SearchInput, search, searchOn } from './search.ts';
import { type LengthFigures, lengthFigures, type WorkloadSample } from './workload-sample.ts';

export interface PlanInput {
  readonly request: DeploymentRequest;
  /** Null = no load was given: arithmetic only. */
  readonly sample: WorkloadSample | null;
  /** Only lengths are known, not how requests come: no run. */
  readonly hasLoad: boolean;
  readonly targets: LatencyTargets;
  readonly percentile: TargetPercentile;
  readonly wantsMaxRate: boolean;
  readonly wantsPareto: boolean;
  readonly wantsFragmentation: boolean;
}

export interface PlanResult {
  readonly resolved: ResolvedDeployment;
  /** Why the given configuration cannot start. */
  readonly problem: string | null;
  readonly lengths: LengthFigures | null;
  readonly capacity: readonly CapacityRow[] | null;
  /** Of the given configuration; null without GPU or load. */
  readonly evaluation: Evaluation | null;
  readonly binding: readonly Finding[];
  readonly searched: readonly Evaluation[];
  readonly cheapest: readonly Evaluation[];
  readonly pareto: readonly Evaluation[];
  /** Empty unless asked for. */
  readonly fragmentation: readonly FragmentationRow[];
  /** Null without targets. */
  readonly isMet: boolean | null;
  /** Not empty when the targets cannot be met. */
  readonly changes: readonly string[];
  readonly commands: CommandLines;
}

export async function plan(input: PlanInput, options: EvaluateAllOptions): Promise<PlanResult> {
  const { request, sample, targets, percentile } = input;
  const resolved = draftDeployment(request);
  const problem = fitProblem(resolved)?.message ?? null;
  const hasTargets = targets !== NO_TARGETS && Object.values(targets).some((target) => target !== null);
  const canRun = sample !== null && input.hasLoad && resolved.hasTimes;
  const findsRate = input.wantsMaxRate;
  const evaluation =
    canRun && problem === null
      ? evaluateTask({ request, sample, targets, percentile, findsRate, requestsPerSecond: null })
      : null;
  const triesAll = input.wantsPareto || findsRate;
  const searchInput: SearchInput | null =
    canRun && hasTargets ? { resolved, request, sample, targets, percentile, triesAll, findsRate } : null;
  const found = searchInput === null ? null : await search(searchInput, options);
  const own = evaluation?.isMet === true ? [evaluation] : [];
  const cheapest = [...(found?.cheapest ?? [])];
  const isMet = !canRun || !hasTargets ? null : own.length > 0 || cheapest.length > 0;
  const searched = found?.evaluations ?? [];
  const tried = evaluation === null ? searched : [...searched, evaluation];
  const best = cheapest[0] ?? null;
  const shown = best === null || best.numGpus >= (own[0]?.numGpus ?? Number.POSITIVE_INFINITY) ? own[0] : best;
  return {
    resolved,
    problem,
    lengths: sample === null ? null : lengthFigures(sample),
    capacity: capacityRows(resolved, sample === null ? null : lengthFigures(sample)),
    evaluation,
    binding: evaluation === null ? [] : findings(evaluation, targets, percentile),
    searched,
    cheapest,
    pareto: input.wantsPareto ? paretoFront([...searched, ...own].filter(isServed)) : [],
    fragmentation: input.wantsFragmentation && canRun && problem === null ? fragmentation(resolved, sample) : [],
    isMet,
    changes: isMet === false && searchInput !== null ? await changesThatHelp(searchInput, tried, options) : [],
    commands: commandsOf(shown?.request ?? request),
  };
}

function commandsOf(request: DeploymentRequest): CommandLines {
  return commandLines(draftDeployment(request), request);
}

const isServed = ({ summary }: Evaluation): boolean => summary !== null;

/** More GPUs, then smaller numbers; when nothing helps, how near it comes. */
async function changesThatHelp(
  input: SearchInput,
  searched: readonly Evaluation[],
  options: EvaluateAllOptions,
): Promise<string[]> {
  const changes: string[] = [];
  const tried: Evaluation[] = [...searched];
  const { tpotSeconds: tpotTarget } = input.targets;
  const { resolved, request } = input;
  for (const factor of [2, 4]) {
    const more = await searchOn(input, resolved.numGpus * factor, options);
    tried.push(...more);
    const best = more.find(({ isMet }) => isMet);
    if (best === undefined) continue;
    changes.push(`${best.numGpus} GPUs instead of ${resolved.numGpus}: ${best.name} meets it.`);
    break;
  }
  if (resolved.weightDtype === 'bf16') {
    const smaller: SearchInput = { ...input, request: { ...request, weightDtype: 'fp8', kvCacheDtype: 'fp8' } };
    const best = (await searchOn(smaller, resolved.numGpus, options)).find(({ isMet }) => isMet);
    if (best !== undefined)
      changes.push(`--quantization fp8 --kv-cache-dtype fp8 on ${best.numGpus} GPUs: ${best.name} meets it.`);
  }
  const least = leastTpotOn(input, resolved.numGpus * 4);
  if (changes.length === 0 && tpotTarget !== null && least > tpotTarget && Number.isFinite(least)) {
    changes.push(
      `A step that only decodes takes ${(1e3 * least).toFixed(1)} ms even on ${resolved.numGpus * 4} GPUs: raise --tpot, use faster GPUs, smaller weights or a smaller model.`,
    );
  }
  const nearest = nearestOf(tried, input);
  if (changes.length === 0 && nearest?.summary) {
    const { ttftSeconds, tpotSeconds } = nearest.summary;
    const p = input.percentile;
    changes.push(
      `Nothing tried meets it. Nearest is ${nearest.name} with TTFT ${p} ${ttftSeconds[p].toFixed(2)} s and TPOT ${p} ${(1e3 * tpotSeconds[p]).toFixed(1)} ms: accept that, send less load, or use faster GPUs.`,
    );
  }
  if (changes.length === 0) changes.push('No configuration on these GPUs can even start: use GPUs with more memory.');
  return changes;
}
