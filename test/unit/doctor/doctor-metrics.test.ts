import { describe, expect, it } from 'vitest';
import { deriveSignals } from '../../../src/doctor/derive-signals.ts';
import { diagnose } from '../../../src/doctor/diagnose.ts';
import { observeMetrics } from '../../../src/doctor/observe-metrics.ts';
import { histogramDelta, histogramQuantile, Scrape, shareAbove } from '../../../src/doctor/prometheus-text.ts';
import { PagodaError } from '../../../src/errors.ts';

const NO_TARGETS = { ttftSeconds: null, tpotSeconds: null };

/** A page of vLLM's metrics after `n` seconds of a life in which everything goes on evenly. */
function page(
  n: number,
  fields: { running: number; waiting: number; kv: number; preemptions?: number; prefix?: string },
): string {
  const { running, waiting, kv, preemptions = 0, prefix = 'vllm' } = fields;
  const labels = 'engine="0",model_name="m"';
  const hist = (name: string, counts: ReadonlyArray<readonly [string, number]>, sum: number) =>
    [
      ...counts.map(([le, count]) => `${prefix}:${name}_bucket{${labels},le="${le}"} ${count * n}`),
      `${prefix}:${name}_sum{${labels}} ${sum * n}`,
      `${prefix}:${name}_count{${labels}} ${counts.at(-1)![1] * n}`,
    ].join('\n');
  return [
    `# HELP ${prefix}:num_requests_running x`,
    `# TYPE ${prefix}:num_requests_running gauge`,
    `${prefix}:num_requests_running{${labels}} ${running}`,
    `${prefix}:num_requests_waiting{${labels}} ${waiting}`,
    `${prefix}:kv_cache_usage_perc{${labels}} ${kv}`,
    `${prefix}:num_preemptions_total{${labels}} ${preemptions * n}`,
    `${prefix}:prompt_tokens_total{${labels}} ${1000 * n}`,
    `${prefix}:generation_tokens_total{${labels}} ${300 * n}`,
    `${prefix}:prefix_cache_queries_total{${labels}} ${1000 * n}`,
    `${prefix}:prefix_cache_hits_total{${labels}} ${250 * n}`,
    `${prefix}:request_success_total{${labels},finished_reason="stop"} ${3 * n}`,
    `${prefix}:request_success_total{${labels},finished_reason="length"} ${n}`,
    `${prefix}:cache_config_info{${labels},block_size="16",num_gpu_blocks="1000",cache_dtype="auto"} 1`,
    hist(
      'time_to_first_token_seconds',
      [
        ['1', 0],
        ['2.5', 2],
        ['5', 4],
        ['+Inf', 4],
      ],
      12,
    ),
    hist(
      'request_queue_time_seconds',
      [
        ['1', 0],
        ['5', 4],
        ['+Inf', 4],
      ],
      9,
    ),
    hist(
      'request_prefill_time_seconds',
      [
        ['0.5', 0],
        ['1', 4],
        ['+Inf', 4],
      ],
      2,
    ),
    hist(
      'inter_token_latency_seconds',
      [
        ['0.01', 0],
        ['0.025', 300],
        ['+Inf', 300],
      ],
      6,
    ),
    hist(
      'request_generation_tokens',
      [
        ['50', 0],
        ['100', 2],
        ['200', 4],
        ['+Inf', 4],
      ],
      400,
    ),
    hist(
      'request_prompt_tokens',
      [
        ['200', 0],
        ['500', 4],
        ['+Inf', 4],
      ],
      1000,
    ),
    '',
  ].join('\n');
}

const window = (num: number, fields: (i: number) => Parameters<typeof page>[1]) =>
  Array.from({ length: num }, (_, i) => ({ seconds: 1000 + 5 * i, text: page(100 + 5 * i, fields(i)) }));

describe('Scrape', () => {
  it('reads labels, escapes, infinities and skips what is no sample', () => {
    const scrape = new Scrape(
      [
        '# a comment',
        'a 1',
        'b{x="1",y="say \\"hi\\", }"} 2.5 1700000000',
        'b{x="2"} 3',
        'c +Inf',
        'd{x=1} 4',
        'e NaN',
        '<html>',
      ].join('\n'),
    );
    expect([...scrape.names()]).toEqual(['a', 'b', 'c']);
    expect(scrape.sum('b')).toBe(5.5);
    expect(scrape.sum('b', ['x', '2'])).toBe(3);
    expect(scrape.samples('b')[0]!.labels.get('y')).toBe('say "hi", }');
    expect(scrape.sum('c')).toBe(Number.POSITIVE_INFINITY);
    expect(scrape.sum('none')).toBeNull();
  });

  it('quantiles as Prometheus takes them', () => {
    const buckets = [
      { le: 1, count: 10 },
      { le: 2, count: 30 },
      { le: 4, count: 40 },
      { le: Number.POSITIVE_INFINITY, count: 40 },
    ];
    const histogram = { count: 40, sum: 60, buckets };
    expect(histogramQuantile(histogram, 0.5)).toBe(1.5);
    expect(histogramQuantile(histogram, 0.25)).toBe(1);
    expect(histogramQuantile(histogram, 1)).toBe(4);
    expect(histogramQuantile({ ...histogram, buckets: [] }, 0.5)).toBeNull();
    expect(shareAbove(histogram, 4)).toBe(0.25);
    const later = { count: 50, sum: 80, buckets: buckets.map(({ le, count }) => ({ le, count: count + 10 })) };
    expect(histogramDelta(histogram, later)).toMatchObject({ count: 10, sum: 20 });
    // A server that was started again.
    expect(histogramDelta(later, histogram)).toEqual(histogram);
  });
});

describe('a window of metrics', () => {
  it('gauges are samples, counters are what happened in between', () => {
    const observation = observeMetrics(
      '--url x',
      window(7, () => ({ running: 20, waiting: 9, kv: 0.98, preemptions: 0.2 })),
    );
    expect(observation).toMatchObject({ engine: 'vllm', windowSeconds: 30, facts: { poolTokens: 16000 } });
    const signals = deriveSignals(observation, NO_TARGETS);
    expect(signals).toMatchObject({
      runningMean: 20,
      waitingMean: 9,
      promptTokensPerSecond: 1000,
      generationTokensPerSecond: 300,
      requestsPerSecond: 4,
      prefixHitShare: 0.25,
      ttftMean: 3,
      ttftP50: 2.5,
      queueShare: 0.75,
      lengthFinishShare: 0.25,
      outputP50: 100,
      outputMean: 100,
    });
    expect(signals.preemptionsPerMinute).toBeCloseTo(12, 9);
    expect(signals.prefillShare).toBeCloseTo(1 / 6, 9);
    expect(signals.frontShare).toBeCloseTo(1 / 12, 9);
    // 16,000 tokens x 0.98 / 20 requests.
    expect(signals.contextTokens).toBeCloseTo(784, 9);
    const { findings, maxTokens } = diagnose(observation);
    expect(findings.map((finding) => finding.rule)).toEqual(['R1', 'R2']);
    expect(maxTokens).toMatchObject({ proposedTokens: 224, tightTokens: 192 });
  });

  it('the same of SGLang, with its own flags in the change', () => {
    const text = (n: number) =>
      [
        'sglang:num_running_reqs{m="x"} 32',
        'sglang:num_queue_reqs{m="x"} 50',
        'sglang:token_usage{m="x"} 0.2',
        `sglang:prompt_tokens_total{m="x"} ${n * 100}`,
        `sglang:generation_tokens_total{m="x"} ${n * 300}`,
      ].join('\n');
    const pages = [0, 1, 2, 3].map((i) => ({ seconds: i * 10, text: text(i * 10) }));
    const { engine, findings } = diagnose(observeMetrics('--url x', pages));
    expect(engine).toBe('sglang');
    expect(findings.map((finding) => finding.rule)).toEqual(['R3']);
    expect(findings[0]!.changes[0]).toMatchObject({ flag: 'max-running-requests', from: '32' });
    expect(findings[0]!.changes[0]!.words).toContain('--max-running-requests');
  });

  it("Pagoda's own counters: where step time goes", () => {
    const own = (n: number) =>
      [
        page(n, { running: 2, waiting: 0, kv: 0.1 }),
        `pagoda:step_phase_seconds_total{phase="schedule"} ${0.05 * n}`,
        `pagoda:step_phase_seconds_total{phase="device"} ${0.9 * n}`,
        `pagoda:step_phase_seconds_total{phase="sampling"} ${0.3 * n}`,
        `pagoda:step_phase_seconds_total{phase="update"} ${0.05 * n}`,
        `pagoda:recomputed_tokens_total ${100 * n}`,
      ].join('\n');
    const observation = observeMetrics(
      'x',
      [0, 1].map((i) => ({ seconds: 60 * i, text: own(60 * (i + 1)) })),
    );
    const signals = deriveSignals(observation, NO_TARGETS);
    expect(observation.engine).toBe('pagoda');
    expect(signals.samplingShare).toBeCloseTo(0.3, 9);
    expect(signals.overheadShare).toBeCloseTo(0.1, 9);
    expect(signals.recomputedShare).toBeCloseTo(100 / 1400, 9);
    expect(diagnose(observation).findings.map((finding) => finding.rule)).toEqual(['R8']);
  });

  it('one page: the life of the server so far', () => {
    const text = `${page(100, { running: 1, waiting: 0, kv: 0.1 })}process_start_time_seconds 900\n`;
    const observation = observeMetrics('--metrics a', [{ seconds: 1000, text }]);
    expect(observation.windowSeconds).toBe(100);
    expect(deriveSignals(observation, NO_TARGETS)).toMatchObject({ promptTokensPerSecond: 1000, ttftMean: 3 });
  });

  it('refuses other pages in one line', () => {
    const refused = (text: string) => () => observeMetrics('--url http://x/metrics', [{ seconds: 0, text }]);
    expect(refused('<html>hello</html>')).toThrow(/--url http:\/\/x\/metrics has no vllm:, sglang: or pagoda: metrics/);
    expect(refused('go_goroutines 8')).toThrow(PagodaError);
    expect(refused('vllm:num_requests_running 1\nvllm:num_requests_waiting 0')).toThrow(
      /lacks the metric vllm:kv_cache_usage_perc/,
    );
  });
});
