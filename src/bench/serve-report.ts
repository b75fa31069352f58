// The report of `bench serve` on a terminal: vLLM's lines in vLLM's places, so that scripts that read them work; below it what a
// reader must know before believing them.

import { goodRate, type PercentileMetric, type ServeFacts, type ServeRun, valuesOf } from './serve-result.ts';
import { mean, percentile, sorted } from './statistics.ts';

const WIDTH = 50;
const TITLES: Readonly<Record<PercentileMetric, readonly [string, string]>> = {
  ttft: ['TTFT', 'Time to First Token'],
  tpot: ['TPOT', 'Time per Output Token (excl. 1st token)'],
  itl: ['ITL', 'Inter-token Latency'],
  e2el: ['E2EL', 'End-to-end Latency'],
  client_queue_time: ['Client queue time', 'Client-side Queueing'],
};

export function serveReport(facts: ServeFacts, run: ServeRun): string {
  const { metrics } = run;
  const { summary } = metrics;
  const lines = [
    centered(' Serving Benchmark Result ', '='),
    count('Successful requests:', summary.numCompleted),
    count('Failed requests:', summary.numFailed - metrics.numCut),
    ...(metrics.numCut > 0 ? [count('Cut streams:', metrics.numCut)] : []),
    ...(facts.maxConcurrency === null ? [] : [count('Maximum request concurrency:', facts.maxConcurrency)]),
    ...(facts.requestRate !== null && Number.isFinite(facts.requestRate)
      ? [figure('Request rate configured (RPS):', facts.requestRate)]
      : []),
    figure('Benchmark duration (s):', summary.durationSeconds),
    count('Total input tokens:', summary.numPromptTokens),
    count('Total generated tokens:', summary.numOutputTokens),
    figure('Request throughput (req/s):', summary.requestsPerSecond),
    ...(summary.goodput === null ? [] : [figure('Request goodput (req/s):', goodRate(summary.goodput, run))]),
    figure('Output token throughput (tok/s):', summary.outputTokensPerSecond),
    figure('Peak output token throughput (tok/s):', metrics.maxOutputTokensPerSecond),
    figure('Peak concurrent requests:', metrics.maxConcurrentRequests),
    figure('Total token throughput (tok/s):', summary.totalTokensPerSecond),
    ...facts.percentileMetrics.flatMap((name) => section(name, facts, run)),
    '='.repeat(WIDTH),
    ...notes(facts, run),
  ];
  return `${lines.join('\n')}\n`;
}

function section(name: PercentileMetric, facts: ServeFacts, run: ServeRun): string[] {
  const [short, long] = TITLES[name];
  const values = sorted(valuesOf(name, run.metrics));
  return [
    centered(long, '-'),
    figure(`Mean ${short} (ms):`, mean(values) * 1000),
    figure(`Median ${short} (ms):`, percentile(values, 50) * 1000),
    ...facts.metricPercentiles.map((percent) =>
      figure(`P${percent} ${short} (ms):`, percentile(values, percent) * 1000),
    ),
  ];
}

function notes(facts: ServeFacts, run: ServeRun): string[] {
  const { metrics, lag, verdict } = run;
  const ms = (seconds: number): string => (seconds * 1000).toFixed(2);
  const lines = [
    `Client: sent ${ms(verdict.scheduleErrorP99Seconds)} ms late (p99), event loop ${ms(lag.p99Seconds)} ms late (p99), ${ms(lag.maxSeconds)} ms at most. Latencies count from the scheduled send time.`,
  ];
  if (verdict.isClientBound) lines.push("CLIENT-BOUND: this result is partly the load client's, not the server's.");
  lines.push(...verdict.reasons);
  if (verdict.isClientBound)
    lines.push(`Try --num-processes ${Math.max(2, 2 * facts.numProcesses)}, or a faster machine.`);
  const { stalls } = metrics;
  if (stalls.numServer > 0) {
    lines.push(
      `${stalls.numServer} stalls of the server (gaps over ${ms(stalls.thresholdSeconds)} ms): ${stalls.serverSeconds.toFixed(2)} s in all.`,
    );
  }
  if (stalls.numClient > 0) {
    lines.push(`${stalls.numClient} stalls of the client: ${stalls.clientSeconds.toFixed(2)} s in all.`);
  }
  if (run.overSaturatedSeconds !== null) {
    lines.push(
      `OVER-SATURATED after ${run.overSaturatedSeconds.toFixed(0)} s: requests under way and time to first token kept rising. More was offered than the server can take; averages depend on how long the run is.`,
    );
  }
  if (run.wasStopped) lines.push('The run was stopped early.');
  if (facts.promptLengths === 'words') {
    lines.push(
      'No tokenizer was at hand: prompts are words, and their real lengths are the ones that the server counted.',
    );
  }
  const errors = new Map<string, number>();
  for (const { error } of run.records) if (error !== '') errors.set(error, (errors.get(error) ?? 0) + 1);
  for (const [error, num] of [...errors].sort(([, a], [, b]) => b - a).slice(0, 5)) lines.push(`${num} x ${error}`);
  return lines;
}

function centered(title: string, fill: string): string {
  const left = Math.floor((WIDTH - title.length) / 2);
  return fill.repeat(Math.max(0, left)) + title + fill.repeat(Math.max(0, WIDTH - title.length - left));
}

/** Python's "{:<40} {:<10}". */
const count = (name: string, value: number): string => `${name.padEnd(40)} ${String(value).padEnd(10)}`;
const figure = (name: string, value: number): string => `${name.padEnd(40)} ${value.toFixed(2).padEnd(10)}`;
