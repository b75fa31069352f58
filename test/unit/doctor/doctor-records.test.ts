import { describe, expect, it } from 'vitest';
import { deriveSignals } from '../../../src/doctor/derive-signals.ts';
import { diagnose } from '../../../src/doctor/diagnose.ts';
import { diagnosisJson } from '../../../src/doctor/diagnosis-json.ts';
import { observeRecords } from '../../../src/doctor/observe-record.ts';
import { changedRequest } from '../../../src/doctor/resimulate.ts';
import { answer, evidenceOf } from '../../../src/doctor/rule.ts';
import { RULES } from '../../../src/doctor/rules.ts';
import type { RunSummary } from '../../../src/sim/run-summary.ts';

const NO_TARGETS = { ttftSeconds: null, tpotSeconds: null };

const bench = (fields: object): string =>
  JSON.stringify({
    duration: 120,
    completed: 100,
    total_input_tokens: 50_000,
    total_output_tokens: 12_000,
    request_throughput: 0.8,
    mean_ttft_ms: 400,
    median_ttft_ms: 350,
    p99_ttft_ms: 900,
    median_itl_ms: 20,
    p99_itl_ms: 30,
    ...fields,
  });

const rulesOf = (...texts: string[]) =>
  diagnose(observeRecords(texts.map((text, i) => ({ path: `${i}.json`, text }))).at(-1)!).findings.map((f) => f.rule);

describe('results of bench serve', () => {
  it('a healthy one, also without any field of our own', () => {
    expect(rulesOf(bench({}))).toEqual([]);
  });

  it('client too slow', () => {
    expect(rulesOf(bench({ client_bound: true, event_loop_lag_p99_ms: 50, p99_itl_ms: 500 }))).toEqual(['R20']);
  });

  it('overload, as the client saw it or from the lists of vLLM', () => {
    expect(rulesOf(bench({ over_saturated: true, p99_ttft_ms: 60_000 }))).toEqual(['R18']);
    const starts = Array.from({ length: 60 }, (_, i) => 2 * i);
    const lists = {
      start_times: starts,
      ttfts: starts.map((s) => 0.1 + 0.2 * s),
      latencies: starts.map((s) => 5 + 0.5 * s),
    };
    expect(rulesOf(bench(lists))).toEqual(['R18']);
    const flat = { start_times: starts, ttfts: starts.map(() => 3), latencies: starts.map(() => 6) };
    expect(rulesOf(bench(flat))).toEqual([]);
  });

  it('a second run with the same seed, and a mean that falls under load', () => {
    const run = { seed: 0, dataset_name: 'random', num_prompts: 100, request_rate: 4 };
    expect(rulesOf(bench(run), bench({ ...run, mean_ttft_ms: 100 }))).toEqual(['R19']);
    expect(rulesOf(bench(run), bench({ ...run, seed: 1, mean_ttft_ms: 100 }))).toEqual([]);
    expect(rulesOf(bench({ request_rate: 1 }), bench({ request_rate: 10, mean_ttft_ms: 200 }))).toEqual(['R21']);
  });

  it('runaway outputs and a proposal for max_tokens', () => {
    const lengths = Array.from({ length: 100 }, (_, i) => (i >= 90 ? 2048 : 40 + (i % 20)));
    const text = bench({ output_lens: lengths, finish_reasons: { stop: 90, length: 10 } });
    const diagnosis = diagnose(observeRecords([{ path: 'a.json', text }])[0]!);
    expect(diagnosis.findings.map((finding) => finding.rule)).toEqual(['R17']);
    expect(diagnosis.findings[0]!.changes[0]).toMatchObject({ to: '112' });
    expect(diagnosis.maxTokens).toMatchObject({ outputP95Tokens: 2048, proposedTokens: 2048 });
  });

  it('reads one result per line, refuses anything else', () => {
    expect(observeRecords([{ path: 'a.json', text: `${bench({})}\n${bench({})}` }])).toHaveLength(2);
    for (const text of ['', '[]', '{"x":1}', 'nonsense']) {
      expect(() => observeRecords([{ path: 'a.json', text }])).toThrow(/--result a.json is neither/);
    }
  });
});

describe('rules', () => {
  it('are R1 to R22, each with a cause, a change and a source', () => {
    expect(RULES.map((rule) => rule.id)).toEqual(Array.from({ length: 22 }, (_, i) => `R${i + 1}`));
    for (const rule of RULES) {
      expect(rule.cause.length).toBeGreaterThan(20);
      expect(rule.changes.length).toBeGreaterThan(0);
      expect(rule.links.length).toBeGreaterThan(0);
      // Nothing is known: nobody is accused.
      expect(answer(rule.when, {})).toBe('unknown');
    }
  });

  it('have three answers', () => {
    const more = { signal: 'waitingMean', is: '>', than: 1 } as const;
    const ifKnown = { signal: 'queueShare', is: '>', than: 0.5, ifKnown: true } as const;
    expect(answer({ all: [more, ifKnown] }, {})).toBe('unknown');
    expect(answer({ all: [more, ifKnown] }, { waitingMean: 2 })).toBe('yes');
    expect(answer({ all: [more, ifKnown] }, { waitingMean: 2, queueShare: 0.1 })).toBe('no');
    expect(answer({ any: [more, ifKnown] }, { waitingMean: 0, queueShare: 0.1 })).toBe('no');
    expect(evidenceOf({ all: [more, ifKnown] }, { waitingMean: 2 })).toEqual([more]);
  });

  it('a target makes slow tokens a finding', () => {
    const text = bench({ p25_itl_ms: 45 });
    const [observation] = observeRecords([{ path: 'a', text }]);
    expect(diagnose(observation!, { targets: { ttftSeconds: null, tpotSeconds: 0.05 } }).findings[0]?.rule).toBe('R6');
    expect(deriveSignals(observation!, NO_TARGETS).itlP25OfTarget).toBeUndefined();
  });
});

describe('predictions', () => {
  const summary = (ttft: number): RunSummary => {
    const spread = { mean: ttft, p50: ttft, p90: ttft, p95: ttft, p99: ttft, max: ttft };
    return {
      numCompleted: 1,
      numFailed: 0,
      durationSeconds: 1,
      numPromptTokens: 1,
      numOutputTokens: 1,
      requestsPerSecond: 1,
      outputTokensPerSecond: 1,
      totalTokensPerSecond: 2,
      ttftSeconds: spread,
      tpotSeconds: spread,
      itlSeconds: spread,
      e2eSeconds: spread,
      goodput: null,
    };
  };

  it('come from whoever can simulate, and are left out where that is not possible', () => {
    const [observation] = observeRecords([{ path: 'a', text: bench({ over_saturated: true, p99_ttft_ms: 60_000 }) }]);
    const asked: object[] = [];
    const diagnosis = diagnose(observation!, {
      resimulate: (change) => {
        asked.push(change);
        return change.loadFactor !== undefined ? null : summary(change.numReplicas === 2 ? 1 : 6);
      },
    });
    expect(asked).toEqual([{}, { numReplicas: 2 }, { loadFactor: 0.5 }]);
    const json = diagnosisJson(diagnosis);
    expect(json.healthy).toBe(false);
    expect(json.findings[0]!.changes.map((change) => change.predicted)).toMatchObject([
      { before: { ttft_p99_seconds: 6 }, after: { ttft_p99_seconds: 1 } },
      null,
    ]);
  });

  it('a change of parallelism brings its GPUs', () => {
    const current = { numReplicas: 2, tensorParallelSize: 1 };
    expect(changedRequest({ model: 'm', gpu: 'a100-80gb:2' }, { tensorParallelSize: 2 }, current)).toMatchObject({
      gpu: 'a100-80gb:4',
      tensorParallelSize: 2,
      dataParallelSize: 2,
    });
    expect(changedRequest({ model: 'm', gpu: 'a100-80gb:2' }, { maxNumSeqs: 9 }, current)).toEqual({
      model: 'm',
      gpu: 'a100-80gb:2',
      maxNumSeqs: 9,
    });
  });
});
