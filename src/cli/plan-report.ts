// The plan as text: the ledger as a subtraction, the KV formula filled in, how many fit, the run against the targets, what binds,
// the cheapest configurations, commands to paste.

import { total } from '../plan/binding.ts';
import type { Evaluation } from '../plan/evaluate.ts';
import type { PlanInput, PlanResult } from '../plan/plan.ts';
import { kvBytesPerToken, kvFormula } from '../sim/cost/kv-memory.ts';
import { totalWeightBytes } from '../sim/cost/memory-ledger.ts';
import type { StepParts } from '../sim/cost/roofline-cost.ts';
import type { Distribution } from '../workload/streaming-distribution.ts';
import { countText, table } from './table.ts';

const MOST_ROWS = 5;

export function planReport(result: PlanResult, input: PlanInput): string {
  return [
    headLines(result),
    ledgerLines(result),
    kvLines(result),
    capacityLines(result),
    fragmentationLines(result),
    runLines(result, input),
    searchLines(result),
    commandLinesText(result),
  ]
    .filter((lines) => lines.length > 0)
    .map((lines) => `${lines.join('\n')}\n`)
    .join('\n');
}

const gib = (bytes: number) => `${(bytes / 2 ** 30).toFixed(2)} GiB`;
const seconds = (value: number) => (value < 1 ? `${(value * 1e3).toFixed(1)} ms` : `${value.toFixed(2)} s`);
const column = (text: string) => text.padStart(12);

function headLines({ resolved, problem }: PlanResult): string[] {
  const { found, deployment, weightDtype, notes } = resolved;
  const { shape } = found;
  const bytes = totalWeightBytes(shape, weightDtype);
  const active = shape.experts.length === 0 ? '' : `, ${countText(shape.numActiveParameters)} of them active per token`;
  return [
    `${deployment.name} (${shape.architecture}, from ${found.source})`,
    `${countText(shape.numParameters)} parameters${active}; ${weightDtype} weights ${(bytes / 1e9).toFixed(2)} GB = ${gib(bytes)}${roundFigure(shape.name, weightDtype)}`,
    ...notes.map((note) => `note: ${note}`),
    ...(problem === null ? [] : [`DOES NOT START: ${problem}`]),
  ];
}

/** The figure people carry in their heads: nominal billions times bytes. */
function roundFigure(name: string, weightDtype: string): string {
  const billions = /(?:^|-)(\d+(?:\.\d+)?)b(?:-|$)/.exec(name)?.[1];
  const sizes: Readonly<Record<string, number | undefined>> = { bf16: 2, fp8: 1, int8: 1, f32: 4 };
  const bytes = sizes[weightDtype];
  if (billions === undefined || bytes === undefined) return '';
  return ` (by the name: ${billions}e9 x ${bytes} bytes = ${Number(billions) * bytes} GB)`;
}

function ledgerLines({ resolved }: PlanResult): string[] {
  const { ledger, deployment, tensorParallelSize, pipelineParallelSize } = resolved;
  if (ledger.totalBytes === null) {
    if (ledger.kvPoolBytes === null) return [];
    return ['Memory per GPU', `  ${'KV pool (given)'.padEnd(46)}${column(gib(ledger.kvPoolBytes))}`];
  }
  const share = tensorParallelSize * pipelineParallelSize;
  const row = (sign: string, label: string, bytes: number) => `  ${sign} ${label.padEnd(44)}${column(gib(bytes))}`;
  const lines = [
    `Memory per GPU${pipelineParallelSize > 1 ? ` (stage ${ledger.stage + 1}, the tightest)` : ''}`,
    row(' ', `total, as a process sees it`, ledger.totalBytes),
    row('-', `kept free (--gpu-memory-utilization ${ledger.utilization})`, ledger.reservedBytes!),
    row('-', `weights${share > 1 ? ` (1/${share} of the model)` : ''}`, ledger.weightBytes),
    row('-', `activations of ${countText(deployment.flags.maxNumBatchedTokens)} tokens`, ledger.activationBytes),
    row('-', 'communication buffers', ledger.communicationBytes),
    row('-', 'CUDA context and libraries', ledger.runtimeBytes),
    row('-', 'CUDA graphs', ledger.graphBytes),
  ];
  const label = ledger.isPoolGiven ? 'KV pool (given; the subtraction does not count)' : 'KV pool';
  return [...lines, row('=', label, ledger.kvPoolBytes!)];
}

function kvLines({ resolved }: PlanResult): string[] {
  const { found, kvDtype, tensorParallelSize, ledger, deployment } = resolved;
  const options = { kvDtype, tensorParallelSize };
  const perToken = kvBytesPerToken(found.shape, options);
  const lines = [
    `KV cache: ${countText(perToken)} bytes per token${tensorParallelSize > 1 ? ' and GPU' : ''} (${kvDtype})`,
    ...kvFormula(found.shape, options).map((line) => `  ${line}`),
  ];
  if (ledger.numBlocks === null) return lines;
  const { blockSize, maxModelLen } = deployment.flags;
  const groups = ledger.groupWindows.length;
  return [
    ...lines,
    `  ${countText(ledger.numBlocks)} blocks of ${blockSize} tokens (${countText(ledger.blockBytes)} bytes each${groups > 1 ? `, ${groups} groups of layers` : ''}) = ${countText(ledger.kvTokens!)} tokens per replica`,
    `  Maximum concurrency for ${countText(maxModelLen)} tokens per request: ${(ledger.kvTokens! / maxModelLen).toFixed(2)}x`,
  ];
}

function capacityLines({ capacity, resolved }: PlanResult): string[] {
  if (capacity === null) return [];
  const { numReplicas, flags } = resolved.deployment;
  const rows = capacity.map(({ label, numTokens, blockSize, numRequests }) => [
    `  ${label}`,
    countText(Math.round(numTokens)),
    String(blockSize),
    countText(numRequests),
  ]);
  const limit = countText(flags.maxNumSeqs * numReplicas);
  return [
    `Requests that fit at once${numReplicas > 1 ? ` (${numReplicas} replicas together)` : ''}`,
    table(['  by', 'tokens', 'block', 'requests'], rows).trimEnd(),
    `  --max-num-seqs lets ${limit} run${flags.kvAllocation === 'static' ? '; --kv-allocation static reserves the full length' : ''}`,
  ];
}

function fragmentationLines({ fragmentation }: PlanResult): string[] {
  if (fragmentation.length === 0) return [];
  const names = { max: 'full length', pow2: 'output to a power of 2', oracle: 'exact length', paged: 'paged' };
  const share = (value: number) => `${(100 * value).toFixed(1)} %`;
  const rows = fragmentation.map(({ policy, shares, meanRunning }) => [
    `  ${names[policy]}`,
    ...[shares.tokens, shares.reserved, shares.internal, shares.external].map(share),
    meanRunning.toFixed(2),
  ]);
  return [
    'Shares of KV memory per replica while requests wait (paged: of the blocks that are held)',
    table(['  reserves', 'tokens', 'for later', 'internal', 'external', 'batch'], rows).trimEnd(),
  ];
}

function runLines({ evaluation, binding, resolved }: PlanResult, input: PlanInput): string[] {
  if (evaluation?.summary == null) {
    return evaluation?.problem == null ? [] : [`The load cannot be served: ${evaluation.problem}`];
  }
  const { summary, scheduler, decodeStep, maxRequestsPerSecond } = evaluation;
  const { targets, percentile } = input;
  const row = (name: string, d: Distribution, target: number | null) => [
    `  ${name}`,
    ...[d.mean, d.p50, d.p90, d.p99].map(seconds),
    target === null ? '' : `${percentile} <= ${seconds(target)}: ${d[percentile] <= target ? 'met' : 'MISSED'}`,
  ];
  const rate =
    maxRequestsPerSecond === null ? '' : ` at the highest rate, ${maxRequestsPerSecond.toFixed(2)} requests/s`;
  return [
    `Predicted with these flags${rate}: ${input.sample!.name}, ${input.sample!.requests.length} requests on the real scheduler`,
    table(
      ['  ', 'mean', 'p50', 'p90', 'p99', 'target'],
      [
        row('TTFT', summary.ttftSeconds, targets.ttftSeconds),
        row('TPOT', summary.tpotSeconds, targets.tpotSeconds),
        row('E2E', summary.e2eSeconds, targets.e2eSeconds),
      ],
    ).trimEnd(),
    `  ${summary.outputTokensPerSecond.toFixed(0)} output tokens/s, ${summary.requestsPerSecond.toFixed(2)} requests/s on ${evaluation.numGpus} GPUs of ${resolved.numGpus}`,
    `  ${scheduler!.maxRunning} at most ran at once per replica, KV cache up to ${(100 * scheduler!.maxKvUsage).toFixed(0)} % full, ${scheduler!.numPreemptions} preemptions`,
    ...(decodeStep === null ? [] : [`  a decode step: ${stepText(decodeStep)}`]),
    ...binding.map(
      ({ cause, evidence, change }) =>
        `  ${cause === 'nothing' ? 'headroom' : `binds: ${cause}`}: ${evidence}. ${change}.`,
    ),
  ];
}

function stepText(parts: StepParts): string {
  const names: ReadonlyArray<readonly [keyof StepParts, string]> = [
    ['matrixSeconds', 'matrices'],
    ['expertSeconds', 'experts'],
    ['decodeAttentionSeconds', 'keys and values'],
    ['elementwiseSeconds', 'element-wise'],
    ['allReduceSeconds', 'all-reduce'],
    ['logitsSeconds', 'logits'],
    ['launchSeconds', 'launches'],
    ['pipelineSeconds', 'pipeline'],
    ['engineSeconds', 'engine'],
  ];
  const shown = names
    .filter(([key]) => parts[key] > 0)
    .map(([key, name]) => `${name} ${(1e3 * parts[key]).toFixed(2)}`);
  return `${seconds(total(parts))} = ${shown.join(' + ')} ms`;
}

function searchLines({ isMet, cheapest, searched, pareto, changes }: PlanResult): string[] {
  if (isMet === null) return [];
  if (!isMet) {
    return [
      `THE TARGET CANNOT BE MET (${searched.length} configurations tried). What would have to change:`,
      ...changes.map((change) => `  - ${change}`),
    ];
  }
  const lines = [`Cheapest configurations that meet the target (${searched.length} tried)`];
  if (cheapest.length > 0) lines.push(evaluationTable(cheapest.slice(0, MOST_ROWS)));
  else lines.push('  only the given one');
  if (pareto.length > 0)
    lines.push('', 'Pareto front (throughput per GPU against speed per user)', evaluationTable(pareto));
  return lines;
}

function evaluationTable(evaluations: readonly Evaluation[]): string {
  const hasRate = evaluations.some(({ maxRequestsPerSecond }) => maxRequestsPerSecond !== null);
  const rows = evaluations.map((each) => {
    const { summary, request } = each;
    return [
      `  ${each.numGpus}`,
      String(request.tensorParallelSize ?? 1),
      String(each.numGpus / (request.tensorParallelSize ?? 1) / (request.pipelineParallelSize ?? 1)),
      seconds(summary?.ttftSeconds.p99 ?? 0),
      seconds(summary?.tpotSeconds.p99 ?? 0),
      each.tokensPerSecondPerGpu.toFixed(0),
      each.tokensPerSecondPerUser.toFixed(1),
      ...(hasRate ? [(each.maxRequestsPerSecond ?? 0).toFixed(2)] : []),
      flagsText(each),
    ];
  });
  const header = ['  GPUs', 'TP', 'replicas', 'TTFT p99', 'TPOT p99', 'tok/s/GPU', 'tok/s/user'];
  return table([...header, ...(hasRate ? ['max req/s'] : []), 'flags'], rows).trimEnd();
}

function flagsText({ request }: Evaluation): string {
  return [
    `--max-num-seqs ${request.maxNumSeqs ?? 'default'}`,
    `--max-num-batched-tokens ${request.maxNumBatchedTokens ?? 'default'}`,
    ...(request.gpuMemoryUtilization ? [`--gpu-memory-utilization ${request.gpuMemoryUtilization}`] : []),
    ...(request.kvCacheDtype ? [`--kv-cache-dtype ${request.kvCacheDtype}`] : []),
  ].join(' ');
}

function commandLinesText({ commands, isMet }: PlanResult): string[] {
  if (isMet === false) return [];
  return ['To paste', `  ${commands.vllm}`, `  ${commands.pagoda}`, ...commands.notes.map((note) => `  note: ${note}`)];
}
