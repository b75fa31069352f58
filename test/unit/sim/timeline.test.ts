import { describe, expect, it } from 'vitest';
import { htmlReport } from '../../../src/sim/html-report.ts';
import { NO_TARGETS } from '../../../src/sim/run-recorder.ts';
import { simulate } from '../../../src/sim/simulation.ts';
import { simulationJson } from '../../../src/sim/simulation-json.ts';
import { TimeSeries } from '../../../src/sim/time-series.ts';
import { Timeline } from '../../../src/sim/timeline.ts';
import { deploymentOf, request, workloadOf } from './simulation-fixtures.ts';

interface Event {
  readonly ph: string;
  readonly name: string;
  readonly cat?: string;
  readonly ts: number;
  readonly dur?: number;
  readonly args: Readonly<Record<string, number>>;
}

describe('timeline', () => {
  it('is JSON with a slice per step, whose tokens add up, and a span per request', () => {
    let text = '';
    const timeline = new Timeline((piece) => (text += piece), { numReplicas: 1, title: 'a "test"' });
    const requests = [request(0, 16, 20), request(0.05, 1000, 3)];
    const { scheduler } = simulate(deploymentOf(), workloadOf(requests), { observer: timeline });
    timeline.end();
    const events = (JSON.parse(text) as { traceEvents: Event[] }).traceEvents;
    const steps = events.filter((event) => event.ph === 'X');
    expect(steps).toHaveLength(scheduler.numSteps);
    const sum = (name: string) => steps.reduce((total, event) => total + event.args[name]!, 0);
    expect(sum('prefill_tokens')).toBe(1016);
    expect(sum('decode_tokens')).toBe(19 + 2);
    expect(steps.every((event, i) => i === 0 || event.ts >= steps[i - 1]!.ts + steps[i - 1]!.dur! - 0.01)).toBe(true);
    expect(events.filter((event) => event.ph === 'b' && event.name.startsWith('request'))).toHaveLength(2);
    expect(events.filter((event) => event.ph === 'b')).toHaveLength(events.filter((event) => event.ph === 'e').length);
    expect(steps.filter((event) => event.name === 'mixed')).toHaveLength(4);
  });
});

describe('time series', () => {
  it('keeps sums and order when it merges windows', () => {
    const series = new TimeSeries(1, 1);
    for (let i = 0; i < 5000; i++) {
      series.add({
        seconds: i,
        stepSeconds: 1,
        numRunning: 2,
        numWaiting: 0,
        kvUsage: 0.5,
        numPrefillTokens: 3,
        numDecodeTokens: 2,
        numPreemptions: 1,
      });
    }
    const points = series.points();
    expect(points.length).toBeLessThanOrEqual(240);
    const total = (pick: (point: (typeof points)[number]) => number) =>
      points.reduce((sum, point) => sum + pick(point) * point.windowSeconds, 0);
    expect(total((point) => point.prefillTokensPerSecond)).toBeCloseTo(15_000, 6);
    expect(total((point) => point.preemptionsPerSecond)).toBeCloseTo(5000, 6);
    expect(points.every((point) => point.numRunning === 2 && point.kvUsage === 0.5)).toBe(true);
  });
});

describe('reports', () => {
  const requests = Array.from({ length: 20 }, (_, i) => request(0.01 * i, 50, 10));
  const named = [
    { label: 'a <b>', result: simulate(deploymentOf({}, { name: 'x & y' }), workloadOf(requests)) },
    { label: 'small', result: simulate(deploymentOf({ maxNumSeqs: 2 }), workloadOf(requests)) },
  ];

  it('HTML: self-contained, escaped, with a chart for each series', () => {
    const page = htmlReport(named, { targets: { ...NO_TARGETS, ttftSeconds: 0.1 }, notes: ['<i>'] });
    expect(page).toContain('a &lt;b&gt;');
    expect(page).toContain('x &amp; y');
    expect(page).not.toMatch(/<b>|<i>|<script|https?:|src=|NaN|undefined|Infinity/);
    expect(page.match(/<svg /g)).toHaveLength(11);
    expect(page.match(/<svg /g)).toHaveLength(page.match(/<\/svg>/g)!.length);
    // Two lines in every chart.
    expect(page.match(/<polyline /g)).toHaveLength(22);
  });

  it('JSON: one object per configuration, figures as in the result', () => {
    const json = simulationJson(named, { targets: NO_TARGETS, notes: [] });
    const text = JSON.stringify(json);
    expect(json.configurations.map((each) => each.label)).toEqual(['a <b>', 'small']);
    expect(json.configurations[0]!.num_completed).toBe(20);
    expect(json.configurations[0]!.ttft_seconds.p99).toBe(named[0]!.result.summary.ttftSeconds.p99);
    expect(JSON.parse(text)).toEqual(json);
    expect(text).not.toContain('null,null');
  });
});
