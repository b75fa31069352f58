// What keeps a configuration from meeting its targets, or what would be first to: each finding has the evidence in numbers and the
// change that helps. Read from a run's summary; nothing here guesses.

import type { StepParts } from '../sim/cost/roofline-cost.ts';
import type { LatencyTargets } from '../sim/run-recorder.ts';
import type { Evaluation, TargetPercentile } from './evaluate.ts';

export type Cause =
  | 'memory'
  | 'kv-cache'
  | 'max-num-seqs'
  | 'step-budget'
  | 'prefill-compute'
  | 'prefill-interference'
  | 'weight-reads'
  | 'kv-reads'
  | 'all-reduce'
  | 'engine'
  | 'end-to-end'
  | 'nothing';

export interface Finding {
  readonly cause: Cause;
  readonly evidence: string;
  readonly change: string;
}

const ms = (seconds: number) => `${(seconds * 1e3).toFixed(seconds < 0.01 ? 2 : 1)} ms`;
const percent = (share: number) => `${(100 * share).toFixed(0)} %`;

export function findings(evaluation: Evaluation, targets: LatencyTargets, percentile: TargetPercentile): Finding[] {
  if (evaluation.problem !== null)
    return [
      { cause: 'memory', evidence: evaluation.problem, change: 'see the message: more memory or shorter requests' },
    ];
  const found: Finding[] = [];
  const { ttftSeconds, tpotSeconds, e2eSeconds } = evaluation.summary!;
  const misses = (value: number, target: number | null) => target !== null && value > target;
  if (misses(ttftSeconds[percentile], targets.ttftSeconds)) found.push(whyTtft(evaluation, targets, percentile));
  if (misses(tpotSeconds[percentile], targets.tpotSeconds)) found.push(whyTpot(evaluation, targets, percentile));
  if (misses(e2eSeconds[percentile], targets.e2eSeconds) && found.length === 0) {
    found.push({
      cause: 'end-to-end',
      evidence: `E2E ${percentile} ${ms(e2eSeconds[percentile])} of ${ms(targets.e2eSeconds!)}`,
      change: 'both parts are within their targets; shorter outputs, more tensor parallelism or more replicas',
    });
  }
  return found.length > 0 ? found : [whatIsNext(evaluation, targets, percentile)];
}

function whyTtft(
  { summary, scheduler, composition }: Evaluation,
  targets: LatencyTargets,
  p: TargetPercentile,
): Finding {
  const ttft = summary!.ttftSeconds[p];
  const queue = scheduler!.queueSeconds[p];
  const head = `TTFT ${p} ${ms(ttft)} of ${ms(targets.ttftSeconds!)}, ${ms(queue)} of it in the queue`;
  const { numStepsBoundByKv: kv, numStepsBoundBySeqs: seqs, numStepsBoundByTokens: tokens } = composition!;
  if (queue > 0.3 * ttft && kv >= Math.max(seqs, tokens) && kv > 0) {
    return {
      cause: 'kv-cache',
      evidence: `${head}; KV cache up to ${percent(scheduler!.maxKvUsage)} full, ${scheduler!.numPreemptions} preemptions, ${scheduler!.maxRunning} ran at once`,
      change:
        'more KV cache: higher tensor parallelism, --kv-cache-dtype fp8, --gpu-memory-utilization 0.95, another replica',
    };
  }
  if (queue > 0.3 * ttft && seqs > tokens) {
    return {
      cause: 'max-num-seqs',
      evidence: `${head}; ${scheduler!.maxRunning} ran at once, which is the limit, with the KV cache ${percent(scheduler!.maxKvUsage)} full`,
      change: 'raise --max-num-seqs',
    };
  }
  if (tokens > 0 && tokens >= seqs) {
    return {
      cause: 'step-budget',
      evidence: `${head}; in ${tokens} steps somebody waited because the step was full`,
      change: 'raise --max-num-batched-tokens (longer steps: TPOT rises), more tensor parallelism, another replica',
    };
  }
  return {
    cause: 'prefill-compute',
    evidence: `${head}; the rest is computing prompts`,
    change: 'more tensor parallelism, fp8 weights, prefix caching of what prompts share',
  };
}

function whyTpot(evaluation: Evaluation, targets: LatencyTargets, p: TargetPercentile): Finding {
  const { summary, decodeStep, scheduler } = evaluation;
  const tpot = summary!.tpotSeconds[p];
  const head = `TPOT ${p} ${ms(tpot)} of ${ms(targets.tpotSeconds!)}`;
  if (decodeStep === null) return { cause: 'engine', evidence: head, change: 'a smaller batch: lower --max-num-seqs' };
  const pure = total(decodeStep);
  if (pure <= targets.tpotSeconds!) {
    return {
      cause: 'prefill-interference',
      evidence: `${head}, but a step that only decodes ${Math.round(scheduler!.meanRunning)} sequences takes ${ms(pure)}: prompts in the same steps and preemptions (${scheduler!.numPreemptions}) take the rest`,
      change: 'lower --max-num-batched-tokens (shorter steps: TTFT rises), more replicas, or more tensor parallelism',
    };
  }
  return largestPart(
    decodeStep,
    `${head}; a decode step of ${Math.round(scheduler!.meanRunning)} sequences takes ${ms(pure)}`,
  );
}

export function total(parts: StepParts): number {
  return Object.values(parts).reduce((sum: number, seconds: number) => sum + seconds, 0);
}

function largestPart(parts: StepParts, head: string): Finding {
  const causes: ReadonlyArray<readonly [Cause, number, string, string]> = [
    [
      'weight-reads',
      parts.matrixSeconds + parts.expertSeconds + parts.logitsSeconds,
      'weights and matrix products',
      'more tensor parallelism, --quantization fp8, a GPU with more bandwidth',
    ],
    [
      'kv-reads',
      parts.decodeAttentionSeconds,
      'reading keys and values',
      '--kv-cache-dtype fp8, fewer sequences per replica, more tensor parallelism',
    ],
    [
      'all-reduce',
      parts.allReduceSeconds,
      'all-reduces between the GPUs',
      'lower tensor parallelism with more replicas, GPUs with NVLink',
    ],
    [
      'engine',
      parts.engineSeconds + parts.elementwiseSeconds + parts.launchSeconds + parts.pipelineSeconds,
      "the engine's own time and kernel launches",
      'CUDA graphs (no --enforce-eager), smaller batches, more replicas',
    ],
  ];
  const [cause, seconds, what, change] = causes.reduce((most, each) => (each[1] > most[1] ? each : most));
  return { cause, evidence: `${head}, ${ms(seconds)} of it ${what}`, change };
}

/** All targets are met: which one is nearest. */
function whatIsNext({ summary, scheduler }: Evaluation, targets: LatencyTargets, p: TargetPercentile): Finding {
  const shares: Array<readonly [string, number]> = [];
  const add = (name: string, value: number, target: number | null) => {
    if (target !== null) shares.push([`${name} at ${percent(value / target)} of its target`, value / target]);
  };
  add('TTFT', summary!.ttftSeconds[p], targets.ttftSeconds);
  add('TPOT', summary!.tpotSeconds[p], targets.tpotSeconds);
  add('E2E', summary!.e2eSeconds[p], targets.e2eSeconds);
  shares.push([`KV cache up to ${percent(scheduler!.maxKvUsage)} full`, scheduler!.maxKvUsage]);
  shares.sort((a, b) => b[1] - a[1]);
  return {
    cause: 'nothing',
    evidence: shares.map(([text]) => text).join(', '),
    change: shares[0]![1] > 0.9 ? 'little is left: the first of these binds next' : 'there is room for more load',
  };
}
