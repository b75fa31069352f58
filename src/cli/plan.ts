// `pagoda plan`: reads the question from flags, prints the answer. Exit code 1 when the target cannot be met or the given
// configuration cannot start.

import type { Command } from 'commander';
import { PagodaError } from '../errors.ts';
import type { TargetPercentile } from '../plan/evaluate.ts';
import { defaultNumWorkers } from '../plan/evaluate-all.ts';
import { type PlanInput, type PlanResult, plan } from '../plan/plan.ts';
import { lengthFigures, sampleOf, type WorkloadSample } from '../plan/workload-sample.ts';
import type { LatencyTargets } from '../sim/run-recorder.ts';
import { choiceValue, countValue, secondsValue } from './bench-values.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { deploymentRequestOf } from './deployment-flags.ts';
import type { PlanFlags } from './plan-flags.ts';
import { planJson } from './plan-json.ts';
import { planReport } from './plan-report.ts';
import { workloadOf } from './workload-flags.ts';

const PERCENTILES: readonly TargetPercentile[] = ['mean', 'p50', 'p90', 'p95', 'p99'];
const LEAST_REQUESTS = 64;
const MOST_REQUESTS = 256;
/** Rounds of a closed loop: the first one meets an empty server. */
const REQUESTS_PER_USER = 4;
const MOST_CLOSED_REQUESTS = 4096;

export async function planCommand(
  command: Command,
  model: string | undefined,
  flags: PlanFlags,
  io: CliIo,
): Promise<void> {
  const input = planInput(command, model, flags);
  const numWorkers = flags.workers === undefined ? defaultNumWorkers() : countValue('workers', flags.workers, 1);
  const isTerminal = io.stderr.isTTY === true && flags.json !== true;
  const result = await plan(input, {
    numWorkers,
    onDone: (numDone) => {
      if (isTerminal) io.stderr.write(`\r${numDone} configurations tried `);
    },
  });
  if (isTerminal) io.stderr.write('\r\u001b[K');
  io.stdout.write(
    flags.json === true ? `${JSON.stringify(planJson(result, input), null, 2)}\n` : planReport(result, input),
  );
  if (isRefused(result)) throw new CliExit(1);
}

/** Without targets, what cannot start is refused; with targets, what no configuration meets. */
export function isRefused({ isMet, problem }: PlanResult): boolean {
  return isMet === null ? problem !== null : !isMet;
}

function planInput(command: Command, model: string | undefined, flags: PlanFlags): PlanInput {
  const request = deploymentRequestOf(command, model);
  const hasLoad = [flags.rate, flags.arrival, flags.concurrency, flags.workload, flags.trace].some(
    (text) => text !== undefined,
  );
  const time = (name: 'ttft' | 'tpot' | 'e2e') => {
    const text = flags[name];
    return text === undefined ? null : secondsValue(name, text);
  };
  const targets: LatencyTargets = { ttftSeconds: time('ttft'), tpotSeconds: time('tpot'), e2eSeconds: time('e2e') };
  const hasTargets = Object.values(targets).some((target) => target !== null);
  requireWhatIsNeeded(flags, { hasLoad, hasTargets, hasGpu: (request.gpu ?? request.calibration ?? null) !== null });
  const percentile = flags.percentile === undefined ? 'p99' : choiceValue('percentile', flags.percentile, PERCENTILES);
  const sample = sampleFor(flags, hasLoad);
  return {
    request,
    sample,
    hasLoad,
    targets,
    percentile,
    wantsMaxRate: flags.maxRate === true,
    wantsPareto: flags.pareto === true,
    wantsFragmentation: flags.fragmentation === true,
  };
}

interface Given {
  readonly hasLoad: boolean;
  readonly hasTargets: boolean;
  readonly hasGpu: boolean;
}

/** A flag that would do nothing is refused. */
function requireWhatIsNeeded(flags: PlanFlags, { hasLoad, hasTargets, hasGpu }: Given): void {
  const need = (option: string, what: string, example: string): never => {
    throw new PagodaError('bad_config', `${option} needs ${what}, like ${example}.`, { param: option });
  };
  const target = (['ttft', 'tpot', 'e2e'] as const).find((name) => flags[name] !== undefined);
  if (target !== undefined && !hasLoad) need(`--${target}`, 'a load', '--concurrency 50 or --rate 5');
  if (target !== undefined && !hasGpu) need(`--${target}`, 'hardware', '--gpu a100-80gb:4');
  if (flags.percentile !== undefined && !hasTargets) need('--percentile', 'a target', '--ttft 1.5s');
  if (flags.pareto === true && !hasTargets) need('--pareto', 'a target', '--ttft 1.5s');
  if (flags.fragmentation === true && !(hasLoad && hasGpu))
    need('--fragmentation', 'a load and hardware', '--concurrency 50 --gpu a100-80gb');
  if (flags.maxRate !== true) return;
  if (!hasTargets) need('--max-rate', 'a target', '--ttft 1.5s');
  if (flags.concurrency !== undefined || flags.rate === 'inf')
    need('--max-rate', 'arrivals whose rate can change', '--rate 1 or --trace FILE');
}

/** A few hundred requests say enough; lengths alone are worth a sample, too. */
function sampleFor(flags: PlanFlags, hasLoad: boolean): WorkloadSample | null {
  const hasLengths = flags.prompt !== undefined || flags.output !== undefined;
  if (!hasLoad && !hasLengths) return null;
  const load = hasLoad ? flags : { ...flags, concurrency: '1' };
  const workload = workloadOf(load);
  const users = workload.closedLoop?.concurrency ?? 0;
  const own = users === 0 ? MOST_REQUESTS : Math.min(MOST_CLOSED_REQUESTS, REQUESTS_PER_USER * users);
  const most =
    flags.numRequests === undefined ? Math.max(LEAST_REQUESTS, own) : countValue('num-requests', flags.numRequests, 1);
  const sample = sampleOf(workload, most);
  if (lengthFigures(sample).maxTokens > Number.MAX_SAFE_INTEGER / 2)
    throw new PagodaError('bad_config', '--prompt and --output are larger than any sequence.', { param: '--prompt' });
  return sample;
}
