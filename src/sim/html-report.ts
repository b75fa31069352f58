// One self-contained page about one or several simulated configurations: figures in tables, charts as inline SVG, no script, no
// font, no network.

import type { Distribution } from '../workload/streaming-distribution.ts';
import type { LatencyTargets } from './run-recorder.ts';
import type { SimulationResult } from './simulation.ts';
import type { NamedResult } from './simulation-json.ts';
import { type ChartLine, type ChartOptions, escapeHtml, svgChart } from './svg-chart.ts';

export interface HtmlOptions {
  readonly targets: LatencyTargets;
  readonly notes: readonly string[];
}

export function htmlReport(results: readonly NamedResult[], { targets, notes }: HtmlOptions): string {
  const workload = results[0]?.result.workload ?? '';
  return [
    '<!doctype html>',
    '<html lang="en"><head><meta charset="utf-8"><title>Pagoda simulation</title>',
    `<style>${STYLE}</style></head><body>`,
    '<h1>Simulation</h1>',
    `<p>Workload: ${escapeHtml(workload)}, seed ${results[0]?.result.seed ?? 0}. The scheduler is the one that serves; the times of its steps come from a cost model.</p>`,
    list(results.map(({ label, result }) => `${label}: ${result.deployment}`)),
    list(notes),
    table('Latency', results, latencyRows()),
    table('Throughput and scheduler', results, figureRows(targets)),
    '<h2>Latency by share of requests</h2>',
    grid(latencyCharts(results, targets)),
    '<h2>Over time</h2>',
    grid(seriesCharts(results)),
    '<h2>The workload as it was</h2>',
    table('', results.slice(0, 1), workloadRows()),
    ...results.flatMap(({ label, result }) =>
      result.firstRefusal === null ? [] : [`<p>${escapeHtml(`${label}: first refusal: ${result.firstRefusal}`)}</p>`],
    ),
    '</body></html>\n',
  ].join('\n');
}

const STYLE = `
body{font:15px/1.5 system-ui,sans-serif;color:#1a1a1a;background:#fff;max-width:1180px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}caption{text-align:left;font-weight:600;padding:.4em 0}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1em}
svg{width:100%;height:auto;border:1px solid #e5e5e5;border-radius:4px}
svg text{font:11px system-ui,sans-serif;fill:#444}svg .title{font-size:13px;font-weight:600;fill:#1a1a1a}
svg .y{text-anchor:end}svg .x{text-anchor:middle}svg .grid{stroke:#eee}svg .target{stroke:#999;stroke-dasharray:4 3}
`;

type Row = readonly [name: string, value: (result: SimulationResult) => string];

function table(caption: string, results: readonly NamedResult[], rows: readonly Row[]): string {
  const head = ['', ...results.map(({ label }) => label)].map((cell) => `<th>${escapeHtml(cell)}</th>`).join('');
  const body = rows.map(([name, value]) => {
    const cells = results.map(({ result }) => `<td>${escapeHtml(value(result))}</td>`).join('');
    return `<tr><td>${escapeHtml(name)}</td>${cells}</tr>`;
  });
  const title = caption === '' ? '' : `<caption>${escapeHtml(caption)}</caption>`;
  return `<table>${title}<thead><tr>${head}</tr></thead><tbody>${body.join('\n')}</tbody></table>`;
}

const list = (items: readonly string[]): string =>
  items.length === 0 ? '' : `<ul>${items.map((item) => `<li>${escapeHtml(item)}</li>`).join('')}</ul>`;

const grid = (charts: readonly string[]): string => `<div class="charts">${charts.join('\n')}</div>`;

function latencyRows(): Row[] {
  const kinds: ReadonlyArray<readonly [string, (result: SimulationResult) => Distribution]> = [
    ['TTFT', ({ summary }) => summary.ttftSeconds],
    ['TPOT', ({ summary }) => summary.tpotSeconds],
    ['ITL', ({ summary }) => summary.itlSeconds],
    ['E2E', ({ summary }) => summary.e2eSeconds],
    ['queue', ({ scheduler }) => scheduler.queueSeconds],
  ];
  return kinds.flatMap(([name, pick]) =>
    (['mean', 'p50', 'p90', 'p99'] as const).map(
      (part): Row => [`${name} ${part}`, (result) => time(pick(result)[part])],
    ),
  );
}

function figureRows({ ttftSeconds, tpotSeconds, e2eSeconds }: LatencyTargets): Row[] {
  const hasTargets = ttftSeconds !== null || tpotSeconds !== null || e2eSeconds !== null;
  const rows: Row[] = [
    ['completed', ({ summary }) => count(summary.numCompleted)],
    ['refused', ({ summary }) => count(summary.numFailed)],
    ['duration', ({ summary }) => time(summary.durationSeconds)],
    ['requests per second', ({ summary }) => summary.requestsPerSecond.toFixed(2)],
    ['output tokens per second', ({ summary }) => count(Math.round(summary.outputTokensPerSecond))],
    ['steps', ({ scheduler }) => count(scheduler.numSteps)],
    ['mean step', ({ composition }) => time(composition.meanStepSeconds)],
    ['running, mean', ({ scheduler }) => scheduler.meanRunning.toFixed(1)],
    ['waiting, most', ({ scheduler }) => count(scheduler.maxWaiting)],
    ['KV cache in use, mean', ({ scheduler }) => percent(scheduler.meanKvUsage)],
    ['KV cache wasted', ({ scheduler }) => percent(scheduler.meanKvWaste)],
    ['prefix cache hits', ({ scheduler }) => percent(scheduler.prefixHitShare)],
    ['preemptions', ({ scheduler }) => count(scheduler.numPreemptions)],
    ['tokens computed again', ({ scheduler }) => count(scheduler.numRecomputedTokens)],
    ['steps bound by sequences', ({ composition }) => count(composition.numStepsBoundBySeqs)],
    ['steps bound by tokens', ({ composition }) => count(composition.numStepsBoundByTokens)],
    ['steps bound by KV', ({ composition }) => count(composition.numStepsBoundByKv)],
    ['device busy', ({ composition }) => percent(composition.busyShare)],
  ];
  if (hasTargets) rows.push(['met every target', ({ summary }) => percent(summary.goodput ?? 0)]);
  return rows;
}

function workloadRows(): Row[] {
  const lengths = ({ mean, p50, p95 }: Distribution) =>
    [mean, p50, p95].map((each) => count(Math.round(each))).join(' / ');
  const dispersion = (value: number | null) => (value === null ? '-' : value.toFixed(1));
  return [
    ['requests', ({ realised }) => count(realised.numRequests)],
    ['prompt tokens, mean / p50 / p95', ({ realised }) => lengths(realised.promptTokens)],
    ['output tokens, mean / p50 / p95', ({ realised }) => lengths(realised.outputTokens)],
    ['rank correlation', ({ realised }) => realised.rankCorrelation.toFixed(2)],
    ['requests per second', ({ realised }) => (realised.requestsPerSecond ?? 0).toFixed(2)],
    ['index of dispersion, 10 s', ({ realised }) => dispersion(realised.indexOfDispersion10s)],
  ];
}

function latencyCharts(results: readonly NamedResult[], targets: LatencyTargets): string[] {
  const kinds = [
    ['Time to first token', 'ttftSeconds', targets.ttftSeconds],
    ['Time per output token', 'tpotSeconds', targets.tpotSeconds],
    ['Time between tokens', 'itlSeconds', null],
    ['Whole request', 'e2eSeconds', targets.e2eSeconds],
  ] as const;
  return kinds.map(([title, key, target]) =>
    svgChart({
      title,
      xLabel: 'percentile',
      lines: results.map(({ label, result }) => ({
        name: label,
        points: result.curves[key].map((value, i): [number, number] => [i, value]),
      })),
      formatX: (value) => value.toFixed(0),
      formatY: time,
      target: target === null ? null : { y: target, name: `target ${time(target)}` },
    }),
  );
}

function seriesCharts(results: readonly NamedResult[]): string[] {
  const kinds: ReadonlyArray<readonly [string, keyof SimulationResult['series'][number], (value: number) => string]> = [
    ['Running requests per replica', 'numRunning', short],
    ['Waiting requests per replica', 'numWaiting', short],
    ['KV cache in use', 'kvUsage', percent],
    ['Prompt tokens per second', 'prefillTokensPerSecond', short],
    ['Generated tokens per second', 'decodeTokensPerSecond', short],
    ['Preemptions per second', 'preemptionsPerSecond', short],
    ['Seconds of a step', 'stepSeconds', time],
  ];
  return kinds.map(([title, key, formatY]) => {
    const lines = results.map(
      ({ label, result }): ChartLine => ({
        name: label,
        points: result.series.map((point): [number, number] => [point.seconds + point.windowSeconds / 2, point[key]]),
      }),
    );
    const options: ChartOptions = { title, xLabel: 'seconds', lines, formatX: short, formatY };
    return svgChart(options);
  });
}

const count = (value: number): string => value.toLocaleString('en-US');
const percent = (share: number): string => `${(100 * share).toFixed(1)}%`;

function short(value: number): string {
  if (value >= 10_000) return `${(value / 1000).toFixed(0)}k`;
  return value >= 10 || value === 0 ? value.toFixed(0) : value.toFixed(2);
}

function time(seconds: number): string {
  if (seconds === 0) return '0';
  return seconds < 1 ? `${(1000 * seconds).toPrecision(3)} ms` : `${seconds.toPrecision(4)} s`;
}
