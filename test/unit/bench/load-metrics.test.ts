import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { clientVerdict } from '../../../src/bench/client-verdict.ts';
import { definitionRows } from '../../../src/bench/definitions.ts';
import { LagMonitor, type LagReport } from '../../../src/bench/lag-monitor.ts';
import { loadMetrics } from '../../../src/bench/load-metrics.ts';
import type { RequestRecord } from '../../../src/bench/request-record.ts';
import { serveReport } from '../../../src/bench/serve-report.ts';
import { type ServeFacts, serveResult } from '../../../src/bench/serve-result.ts';
import { nearestRank, percentile, sorted, standardDeviation } from '../../../src/bench/statistics.ts';

const noLag: LagReport = { numSamples: 0, meanSeconds: 0, p99Seconds: 0, maxSeconds: 0, spikes: [] };

function record(fields: Partial<RequestRecord>): RequestRecord {
  const scheduledSeconds = fields.scheduledSeconds ?? 0;
  const tokenSeconds = fields.tokenSeconds ?? [];
  return {
    index: 0,
    scheduledSeconds,
    admittedSeconds: scheduledSeconds,
    sentSeconds: scheduledSeconds,
    firstChoiceSeconds: tokenSeconds[0] ?? null,
    tokenSeconds,
    endSeconds: tokenSeconds.at(-1) ?? scheduledSeconds,
    outcome: 'completed',
    error: '',
    numPromptTokens: 10,
    numOutputTokens: tokenSeconds.length,
    countedBy: 'usage',
    finishReason: 'length',
    text: '',
    ...fields,
  };
}

describe('loadMetrics', () => {
  const records = [
    record({ index: 0, scheduledSeconds: 100, tokenSeconds: [100.25, 100.5, 101] }),
    record({
      index: 1,
      scheduledSeconds: 100.5,
      sentSeconds: 100.75,
      tokenSeconds: [101.5, 101.75],
      numOutputTokens: 5,
    }),
    record({ index: 2, scheduledSeconds: 101, outcome: 'failed', endSeconds: 101.25, error: 'HTTP 500: x' }),
    record({ index: 3, scheduledSeconds: 101, outcome: 'cut', tokenSeconds: [102, 103], endSeconds: 104 }),
  ];
  const metrics = loadMetrics({ records, startSeconds: 100, targets: { ttftSeconds: 0.5 }, lag: noLag });

  it('is exact, and counts from the scheduled time', () => {
    expect(metrics.ttfts).toEqual([0.25, 1]);
    expect(metrics.tpots).toEqual([0.375, 0.0625]);
    expect(metrics.itls).toEqual([[0.25, 0.5], [0.25]]);
    expect(metrics.e2es).toEqual([1, 1.25]);
    expect(metrics.scheduleErrors).toEqual([0, 0.25, 0, 0]);
    expect(metrics.summary).toMatchObject({
      numCompleted: 2,
      numFailed: 2,
      durationSeconds: 4,
      numPromptTokens: 20,
      numOutputTokens: 8,
      requestsPerSecond: 0.5,
      outputTokensPerSecond: 2,
      totalTokensPerSecond: 7,
      goodput: 0.25,
    });
    expect(metrics.numCut).toBe(1);
    expect(metrics.maxConcurrentRequests).toBe(2);
    expect(metrics.finishReasons).toEqual({ length: 2 });
  });

  it('speaks of the result in the names of vLLM', () => {
    const facts: ServeFacts = {
      date: '20260101-000000',
      backend: 'openai',
      label: null,
      modelId: 'org/m',
      tokenizerId: 'org/m',
      numPrompts: 4,
      requestRate: Number.POSITIVE_INFINITY,
      burstiness: 1,
      maxConcurrency: 2,
      rampUp: null,
      metadata: { gpu: 'none' },
      seed: 0,
      datasetName: 'random',
      numProcesses: 1,
      promptLengths: 'words',
      percentileMetrics: ['ttft', 'tpot', 'itl', 'e2el'],
      metricPercentiles: [50, 99.9],
      saveDetailed: true,
    };
    const verdict = clientVerdict(metrics, noLag);
    const run = {
      records,
      metrics,
      lag: noLag,
      verdict,
      startSeconds: 100,
      overSaturatedSeconds: null,
      wasStopped: false,
    };
    const result = JSON.parse(JSON.stringify(serveResult(facts, run)));
    expect(result).toMatchObject({
      request_rate: 'inf',
      gpu: 'none',
      duration: 4,
      completed: 2,
      failed: 1,
      cut: 1,
      request_goodput: 0.25,
      mean_ttft_ms: 625,
      median_ttft_ms: 625,
      std_ttft_ms: 375,
      p50_ttft_ms: 625,
      mean_tpot_ms: 218.75,
      median_itl_ms: 250,
      ttfts: [0.25, 1, 0, 0],
      output_lens: [3, 5, 0, 0],
      start_times: [0, 0.5, 1, 1],
      errors: ['', '', 'HTTP 500: x', ''],
      // A quarter of a second late is the client's fault.
      client_bound: true,
    });
    expect(result['p99.9_ttft_ms']).toBeCloseTo(999.25, 9);
    const report = serveReport(facts, run);
    expect(report.split('\n')[0]).toBe('============ Serving Benchmark Result ============');
    expect(report).toContain('Successful requests:                     2         \n');
    expect(report).toContain('Mean TTFT (ms):                          625.00    \n');
    expect(report).toContain('---------------Time to First Token----------------\n');
    expect(report).toContain('CLIENT-BOUND');
  });

  it('puts a stall on whoever slept', () => {
    const stalled = record({ tokenSeconds: [1, 1.02, 1.04, 3.04, 3.06] });
    const of = (spikes: LagReport['spikes']) =>
      loadMetrics({ records: [stalled], startSeconds: 0, targets: {}, lag: { ...noLag, spikes } }).stalls;
    expect(of([])).toMatchObject({ numServer: 1, numClient: 0 });
    expect(of([{ fromSeconds: 1.5, toSeconds: 2 }])).toMatchObject({ numServer: 1, numClient: 0 });
    expect(of([{ fromSeconds: 1.1, toSeconds: 3 }])).toMatchObject({ numServer: 0, numClient: 1 });
  });

  it('a request of one token has no TPOT, a run of none no figures', () => {
    const one = loadMetrics({ records: [record({ tokenSeconds: [1] })], startSeconds: 0, targets: {}, lag: noLag });
    expect([one.tpots, one.ttfts, one.summary.goodput]).toEqual([[], [1], null]);
    const none = loadMetrics({ records: [], startSeconds: 5, targets: {}, lag: noLag });
    expect(none.summary).toMatchObject({ numCompleted: 0, durationSeconds: 0, requestsPerSecond: 0 });
  });
});

describe('statistics', () => {
  it('percentiles as numpy and as MLPerf', () => {
    const values = sorted([40, 10, 30, 20]);
    // From numpy 2.4, to the last digit.
    expect([0, 25, 50, 99, 100].map((q) => percentile(values, q))).toEqual([10, 17.5, 25, 39.699999999999996, 40]);
    const odd = sorted([0.1, 0.7, 3.3, 9.1, 2.2]);
    const expected = [0.124, 0.7, 2.2, 3.3, 6.78, 7.939999999999999, 8.867999999999999, 9.076800000000002];
    expect([1, 25, 50, 75, 90, 95, 99, 99.9].map((q) => percentile(odd, q))).toEqual(expected);
    expect([1, 25, 26, 99, 100].map((q) => nearestRank(values, q))).toEqual([10, 10, 20, 40, 40]);
    expect(standardDeviation([1, 3])).toBe(1);
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { minLength: 1 }), (list) => {
        const all = sorted(list);
        expect(percentile(all, 0)).toBe(Math.min(...list));
        expect(percentile(all, 100)).toBe(Math.max(...list));
      }),
    );
  });
});

describe('definitions', () => {
  it('the same word, different numbers', () => {
    // Two tokens per event, as with speculative decoding; a role chunk half a second in.
    const speculative = record({
      scheduledSeconds: 10,
      firstChoiceSeconds: 10.5,
      tokenSeconds: [11, 11.5, 12],
      numOutputTokens: 6,
    });
    const by = (name: string, tool: 'vLLM' | 'AIPerf' | 'GuideLLM' | 'llmperf' | 'MLPerf') =>
      definitionRows([speculative]).find((row) => row.names[tool] === name)?.values?.meanSeconds;
    expect(by('TTFT', 'vLLM')).toBe(0.5);
    expect(by('TTFT', 'MLPerf')).toBe(1);
    expect(by('TTST', 'AIPerf')).toBe(0.5);
    expect(by('TPOT', 'vLLM')).toBe(0.2);
    expect(by('ITL', 'GuideLLM')).toBe(0.2);
    expect(by('ITL', 'vLLM')).toBe(0.5);
    expect(by('TPOT', 'GuideLLM')).toBeCloseTo(2 / 6, 12);
    expect(by('ITL', 'llmperf')).toBeCloseTo(2 / 3, 12);
  });
});

describe('LagMonitor', () => {
  it('reports how late callbacks were', () => {
    const monitor = new LagMonitor(() => 0);
    for (let i = 0; i < 99; i++) monitor.observe(i, i + 0.0004);
    monitor.observe(200, 202);
    const report = monitor.report();
    expect(report).toMatchObject({ numSamples: 100, p99Seconds: 0.0005, maxSeconds: 2 });
    expect(report.spikes).toEqual([{ fromSeconds: 200, toSeconds: 202 }]);
  });
});
