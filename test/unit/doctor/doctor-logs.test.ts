import { describe, expect, it } from 'vitest';
import { diagnose } from '../../../src/doctor/diagnose.ts';
import { diagnosisText } from '../../../src/doctor/diagnosis-text.ts';
import { observeLog } from '../../../src/doctor/observe-log.ts';
import { PagodaError } from '../../../src/errors.ts';
import { HEALTHY, KV_BOUND, PREFILL_BOUND, SLOT_BOUND } from './s08-logs.ts';

const of = (text: string) => diagnose(observeLog('vllm.log', text));
const rules = (text: string) => of(text).findings.map((finding) => finding.rule);
const flags = (text: string) => of(text).findings.flatMap((finding) => finding.changes.map((change) => change.flag));

describe('four logs that look alike', () => {
  it('reads them', () => {
    const observation = observeLog('vllm.log', KV_BOUND);
    expect(observation).toMatchObject({
      engine: 'vllm',
      windowSeconds: 180,
      facts: { poolTokens: 61440, maxModelLen: 8192, fullLengthConcurrency: 7.5 },
    });
    expect(observation.samples).toHaveLength(18);
    expect(observation.samples[4]).toMatchObject({
      seconds: 40,
      numRunning: 18,
      numWaiting: 43,
      kvUsage: 0.975,
      numPreemptions: 2,
      generationTokensPerSecond: 606,
    });
  });

  it('KV cache and preemptions, and no more slots', () => {
    expect(rules(KV_BOUND)).toEqual(['R1', 'R2']);
    const [memory, thrash] = of(KV_BOUND).findings;
    // 36 preemptions in 180 s.
    const evidence = (finding: typeof memory, signal: string) =>
      finding?.evidence.find((each) => each.signal === signal)?.value;
    expect(evidence(memory, 'preemptionsPerMinute')).toBeCloseTo(12, 12);
    expect(evidence(memory, 'waitingMean')).toBeCloseTo(41.5, 12);
    expect(evidence(thrash, 'recomputedShare')).toBeGreaterThan(0.1);
    expect(flags(KV_BOUND)).toContain('kv-cache-dtype');
    expect(flags(KV_BOUND)).toContain('gpu-memory-utilization');
    // max-num-seqs only ever downwards.
    for (const change of of(KV_BOUND).findings.flatMap((finding) => finding.changes)) {
      if (change.flag === 'max-num-seqs') expect(Number(change.to)).toBeLessThan(18);
    }
    expect(of(KV_BOUND).findings.map((finding) => finding.rule)).not.toContain('R3');
  });

  it('prefill, not the KV cache', () => {
    expect(rules(PREFILL_BOUND)).toEqual(['R4']);
    expect(flags(PREFILL_BOUND)[0]).toBe('max-num-batched-tokens');
    expect(flags(PREFILL_BOUND)).not.toContain('gpu-memory-utilization');
    expect(flags(PREFILL_BOUND)).not.toContain('kv-cache-dtype');
  });

  it('slots: raise max-num-seqs to what the memory takes', () => {
    expect(rules(SLOT_BOUND)).toEqual(['R3']);
    const [change] = of(SLOT_BOUND).findings[0]!.changes;
    expect(change).toMatchObject({ flag: 'max-num-seqs', from: '32' });
    // 22 % of the pool at 32: 145 would fill it.
    expect(Number(change!.to)).toBeGreaterThan(64);
    expect(Number(change!.to)).toBeLessThanOrEqual(0.9 * (32 / 0.21));
  });

  it('healthy: nothing, said plainly', () => {
    expect(rules(HEALTHY)).toEqual([]);
    expect(of(HEALTHY).consequences).toEqual([]);
    expect(diagnosisText(of(HEALTHY))).toContain('Nothing found: no rule holds.');
  });
});

describe('other logs', () => {
  it('reads the one-line form, flags of the start, V0 and fractions of a second', () => {
    const text = [
      "INFO 11-29 12:00:00 [api_server.py:1] non-default args: {'max_num_seqs': 32, 'enforce_eager': True, 'gpu_memory_utilization': 0.8}",
      'INFO 11-29 12:00:01 [core.py:2] Chunked prefill is enabled with max_num_batched_tokens=2048.',
      'INFO 2025-11-29 12:00:02,500 [kv.py:3] GPU KV cache size: 123,456 tokens, Maximum concurrency for 32,768 tokens per request: 3.77x',
      'INFO 11-29 12:00:10 metrics.py:455] Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 4 reqs, GPU KV cache usage: 5.0%, CPU KV cache usage: 0.0%.',
    ].join('\n');
    const { facts, samples } = observeLog('a.log', text);
    expect(facts).toMatchObject({
      maxNumSeqs: 32,
      enforceEager: true,
      gpuMemoryUtilization: 0.8,
      maxNumBatchedTokens: 2048,
      poolTokens: 123456,
      maxModelLen: 32768,
      fullLengthConcurrency: 3.77,
    });
    expect(samples).toMatchObject([{ numRunning: 3, numWaiting: 4, kvUsage: 0.05 }]);
    // CUDA graphs off.
    expect(rules(text)).toEqual(['R10']);
  });

  it('a start that ran out of memory', () => {
    const text =
      'ERROR 11-29 12:00:00 [core.py:1] ValueError: No available memory for the cache blocks. Try increasing...\n';
    const [finding] = of(text).findings;
    expect(finding).toMatchObject({ rule: 'R16', severity: 'critical' });
    expect(finding!.quotes[0]).toContain('No available memory');
    const short =
      'INFO 1-1 GPU KV cache size: 23,648 tokens, Maximum concurrency for 29,000 tokens per request: 0.82x\n';
    expect(rules(short)).toEqual(['R16']);
    expect(of(short).findings[0]!.changes[0]).toMatchObject({ flag: 'max-model-len', from: '29000', to: '23648' });
  });

  it('uneven engines: the fullest one is looked at, and the spread is a finding', () => {
    const line = (engine: string, minute: number, running: number, waiting: number) =>
      `INFO 11-20 09:0${minute}:00 [loggers.py:258] Engine ${engine}: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 900.0 tokens/s, Running: ${running} reqs, Waiting: ${waiting} reqs, GPU KV cache usage: 40.0%, Prefix cache hit rate: 0.0%`;
    const text = [0, 1, 2, 3].flatMap((i) => [line('000', i, 30 + i, 8), line('001', i, 2, 0)]).join('\n');
    expect(observeLog('a.log', text).samples.map((sample) => sample.numRunning)).toEqual([30, 31, 32, 33]);
    expect(rules(text)).toEqual(['R15']);
  });

  it('refuses what is no log of a server', () => {
    expect(() => observeLog('notes.txt', 'hello\nworld\n')).toThrow(PagodaError);
    expect(() => observeLog('notes.txt', '')).toThrow(/--log notes.txt has no line like/);
  });
});
