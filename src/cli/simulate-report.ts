// The result of `pagoda simulate` as a table: one column per configuration, what a load test would report above, what only a
// simulator knows below.

import type { LatencyTargets } from '../sim/run-recorder.ts';
import type { NamedResult } from '../sim/simulation-json.ts';
import type { Distribution } from '../workload/streaming-distribution.ts';
import { countText, displayWidth, pad } from './table.ts';

export interface ReportOptions {
  readonly targets: LatencyTargets;
  readonly notes: readonly string[];
}

type Row = readonly [name: string, value: (result: NamedResult['result']) => string];

export function simulationReport(results: readonly NamedResult[], { targets, notes }: ReportOptions): string {
  const lines: string[] = [];
  lines.push(`Workload: ${results[0]!.result.workload} (seed ${results[0]!.result.seed})`);
  for (const { label, result } of results) {
    lines.push(results.length === 1 ? `Deployment: ${result.deployment}` : `${label}: ${result.deployment}`);
  }
  for (const note of notes) lines.push(`note: ${note}`);
  const labels = results.map(({ label }, index) =>
    results.length === 1 ? '' : label.length > 28 ? `--compare #${index}` : label,
  );
  for (const section of sectionsOf(targets)) {
    lines.push('', ...sectionLines(section, labels, results));
  }
  for (const { label, result } of results) {
    if (result.firstRefusal !== null)
      lines.push('', `${label}: ${result.summary.numFailed} requests were refused. The first: ${result.firstRefusal}`);
  }
  return `${lines.join('\n')}\n`;
}

interface Section {
  readonly title: string;
  readonly rows: readonly Row[];
}

function sectionLines({ title, rows }: Section, labels: readonly string[], results: readonly NamedResult[]): string[] {
  const cells = rows.map(([name, value]) => [`  ${name}`, ...results.map(({ result }) => value(result))]);
  const table = [[title, ...labels], ...cells];
  const widths = table[0]!.map((_, column) => Math.max(...table.map((row) => displayWidth(row[column] ?? ''))));
  return table.map((row) =>
    row
      .map((cell, column) => alignCell(cell, widths[column]!, column))
      .join('  ')
      .trimEnd(),
  );
}

/** Names to the left, figures to the right. */
function alignCell(cell: string, width: number, column: number): string {
  return column === 0 ? pad(cell, Math.max(width, 36)) : ' '.repeat(Math.max(0, width - displayWidth(cell))) + cell;
}

function sectionsOf(targets: LatencyTargets): Section[] {
  return [
    {
      title: 'As a load test would report it',
      rows: [
        [
          'completed / refused requests',
          ({ summary }) => `${countText(summary.numCompleted)} / ${countText(summary.numFailed)}`,
        ],
        ['duration', ({ summary }) => timeText(summary.durationSeconds)],
        ['requests per second', ({ summary }) => summary.requestsPerSecond.toFixed(2)],
        ['output tokens per second', ({ summary }) => figure(summary.outputTokensPerSecond)],
        ['total tokens per second', ({ summary }) => figure(summary.totalTokensPerSecond)],
        ...latencyRows('TTFT', ({ summary }) => summary.ttftSeconds),
        ...latencyRows('TPOT', ({ summary }) => summary.tpotSeconds),
        ...latencyRows('ITL', ({ summary }) => summary.itlSeconds),
        ...latencyRows('E2E', ({ summary }) => summary.e2eSeconds),
        ...goodputRows(targets),
      ],
    },
    {
      title: 'What only the scheduler knows',
      rows: [
        ['steps', ({ scheduler }) => countText(scheduler.numSteps)],
        [
          '  prefill only / mixed / decode only',
          ({ composition: c }) =>
            `${countText(c.numPrefillOnlySteps)} / ${countText(c.numMixedSteps)} / ${countText(c.numDecodeOnlySteps)}`,
        ],
        [
          '  seconds, mean / longest',
          ({ composition: c }) => `${timeText(c.meanStepSeconds)} / ${timeText(c.maxStepSeconds)}`,
        ],
        [
          '  prefill + decode tokens, mean',
          ({ scheduler: s }) => `${s.meanPrefillTokens.toFixed(1)} + ${s.meanDecodeTokens.toFixed(1)}`,
        ],
        ['running, mean / most', ({ scheduler: s }) => `${s.meanRunning.toFixed(1)} / ${s.maxRunning}`],
        ['waiting, most', ({ scheduler }) => countText(scheduler.maxWaiting)],
        [
          'queue time, mean / p99',
          ({ scheduler: s }) => `${timeText(s.queueSeconds.mean)} / ${timeText(s.queueSeconds.p99)}`,
        ],
        [
          'steps bound by seqs / tokens / KV',
          ({ composition: c }) =>
            `${countText(c.numStepsBoundBySeqs)} / ${countText(c.numStepsBoundByTokens)} / ${countText(c.numStepsBoundByKv)}`,
        ],
        ['KV cache in use, mean / most', ({ scheduler: s }) => `${percent(s.meanKvUsage)} / ${percent(s.maxKvUsage)}`],
        ['KV cache wasted', ({ scheduler }) => percent(scheduler.meanKvWaste)],
        ['prefix cache hits', ({ scheduler }) => percent(scheduler.prefixHitShare)],
        ['preemptions', ({ scheduler }) => countText(scheduler.numPreemptions)],
        ['tokens computed again', ({ scheduler }) => countText(scheduler.numRecomputedTokens)],
        ['device busy', ({ composition }) => percent(composition.busyShare)],
      ],
    },
    {
      title: 'The workload as it was',
      rows: [
        ['prompt tokens, mean / p50 / p95', ({ realised: r }) => lengthText(r.promptTokens)],
        ['output tokens, mean / p50 / p95', ({ realised: r }) => lengthText(r.outputTokens)],
        ['rank correlation', ({ realised: r }) => r.rankCorrelation.toFixed(2)],
        [
          'requests per second',
          ({ realised: r }) => (r.requestsPerSecond === null ? 'all at once' : r.requestsPerSecond.toFixed(2)),
        ],
        [
          'index of dispersion, 1 / 10 / 60 s',
          ({ realised: r }) =>
            [r.indexOfDispersion1s, r.indexOfDispersion10s, r.indexOfDispersion60s]
              .map((value) => (value === null ? '-' : value.toFixed(1)))
              .join(' / '),
        ],
        [
          'blocks seen before',
          ({ realised: r }) => (r.sharedBlockShare === null ? 'nothing shared' : percent(r.sharedBlockShare)),
        ],
      ],
    },
  ];
}

function latencyRows(name: string, pick: (result: NamedResult['result']) => Distribution): Row[] {
  return [
    [`${name} mean`, (result) => timeText(pick(result).mean)],
    [
      `${name} p50 / p90 / p99`,
      (result) => [pick(result).p50, pick(result).p90, pick(result).p99].map(timeText).join(' / '),
    ],
  ];
}

function goodputRows({ ttftSeconds, tpotSeconds, e2eSeconds }: LatencyTargets): Row[] {
  const parts = [
    ttftSeconds === null ? [] : [`TTFT ${timeText(ttftSeconds)}`],
    tpotSeconds === null ? [] : [`TPOT ${timeText(tpotSeconds)}`],
    e2eSeconds === null ? [] : [`E2E ${timeText(e2eSeconds)}`],
  ].flat();
  if (parts.length === 0) return [];
  return [[`met ${parts.join(', ')}`, ({ summary }) => (summary.goodput === null ? '-' : percent(summary.goodput))]];
}

function lengthText({ mean, p50, p95 }: Distribution): string {
  return [mean, p50, p95].map((value) => countText(Math.round(value))).join(' / ');
}

export function timeText(seconds: number): string {
  if (seconds === 0) return '0';
  if (seconds < 0.001) return `${(1e6 * seconds).toFixed(0)} us`;
  if (seconds < 1) return `${(1000 * seconds).toFixed(seconds < 0.1 ? 1 : 0)} ms`;
  return seconds < 100 ? `${seconds.toFixed(2)} s` : `${seconds.toFixed(0)} s`;
}

const figure = (value: number): string => (value < 100 ? value.toFixed(1) : countText(Math.round(value)));
const percent = (share: number): string => `${(100 * share).toFixed(1)}%`;
