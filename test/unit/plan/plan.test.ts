import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findings } from '../../../src/plan/binding.ts';
import { gpuCounts, layouts, variantsOf } from '../../../src/plan/candidates.ts';
import { requestsThatFit } from '../../../src/plan/capacity.ts';
import { type Evaluation, type EvaluationTask, evaluate } from '../../../src/plan/evaluate.ts';
import { fragmentation } from '../../../src/plan/fragmentation.ts';
import { evaluateTask } from '../../../src/plan/max-rate.ts';
import { paretoFront } from '../../../src/plan/pareto.ts';
import { plan } from '../../../src/plan/plan.ts';
import { type DeploymentRequest, draftDeployment } from '../../../src/plan/resolve-deployment.ts';
import { lengthFigures, meanRate, type WorkloadSample, workloadOfSample } from '../../../src/plan/workload-sample.ts';
import { NO_TARGETS } from '../../../src/sim/run-recorder.ts';

function sample(numRequests: number, more: Partial<WorkloadSample> = {}, prompt = 200, output = 20): WorkloadSample {
  return {
    name: 'test',
    seed: 0,
    hashBlockTokens: 16,
    closedLoop: { concurrency: 4, thinkSeconds: 0 },
    requests: Array.from({ length: numRequests }, (_, i) => ({
      arrivalSeconds: i + 1,
      numPromptTokens: prompt,
      numOutputTokens: output,
      hashIds: null,
      sessionId: null,
      priority: 0,
    })),
    ...more,
  };
}

const seven: DeploymentRequest = { model: 'llama-7b', gpu: 'a100-80gb', maxNumSeqs: 16, maxModelLen: 1024 };
const task = (more: Partial<EvaluationTask> = {}): EvaluationTask => ({
  request: seven,
  sample: sample(8),
  requestsPerSecond: null,
  targets: NO_TARGETS,
  percentile: 'p99',
  findsRate: false,
  ...more,
});

describe('Pareto front', () => {
  it('is everything that no other one beats (oracle: all pairs)', () => {
    const number = fc.integer({ min: 0, max: 6 });
    fc.assert(
      fc.property(fc.array(fc.tuple(number, number), { maxLength: 12 }), (pairs) => {
        const items = pairs.map(([tokensPerSecondPerGpu, tokensPerSecondPerUser]) => ({
          tokensPerSecondPerGpu,
          tokensPerSecondPerUser,
        }));
        const isBeaten = (a: (typeof items)[number]) =>
          items.some(
            (b) =>
              b.tokensPerSecondPerGpu >= a.tokensPerSecondPerGpu &&
              b.tokensPerSecondPerUser >= a.tokensPerSecondPerUser &&
              (b.tokensPerSecondPerGpu > a.tokensPerSecondPerGpu ||
                b.tokensPerSecondPerUser > a.tokensPerSecondPerUser),
          );
        const wanted = new Set(items.filter((item) => !isBeaten(item)).map((item) => JSON.stringify(item)));
        expect(new Set(paretoFront(items).map((item) => JSON.stringify(item)))).toEqual(wanted);
      }),
    );
  });
});

describe('a sample', () => {
  it('can be replayed at another rate', () => {
    const open = sample(10, { closedLoop: null });
    expect(meanRate(open)).toBe(1);
    const dense = [...workloadOfSample(open, 4).requests()];
    expect(dense.map(({ arrivalSeconds }) => arrivalSeconds)).toEqual(
      Array.from({ length: 10 }, (_, i) => (i + 1) / 4),
    );
    expect(lengthFigures(open)).toMatchObject({ meanTokens: 220, p99Tokens: 220, maxTokens: 220 });
  });
});

describe('capacity', () => {
  it('is blocks divided by blocks, and static reservation holds fewer', () => {
    const resolved = draftDeployment({ ...seven, maxModelLen: 2048, kvCacheMemoryBytes: 1_000 * 16 * 524_288 });
    const fit = (numTokens: number, isStatic = false) =>
      requestsThatFit(resolved, { numTokens, blockSize: 16, isStatic });
    expect(resolved.ledger.numBlocks).toBe(1000);
    expect(fit(2048, true)).toBe(7); // 1000 / 128
    expect(fit(500)).toBe(31); // 1000 / 32
    expect(fit(16)).toBe(1000);
  });
});

describe('fragmentation', () => {
  it('reserving the full length wastes most, paging least', () => {
    const resolved = draftDeployment({ ...seven, numGpuBlocksOverride: 320 });
    const rows = fragmentation(resolved, sample(40, {}, 300, 60));
    expect(rows.map(({ policy }) => policy)).toEqual(['max', 'pow2', 'oracle', 'paged']);
    const shares = rows.map((row) => row.shares.tokens);
    expect(shares[0]).toBeLessThan(shares[1]!);
    expect(shares[1]).toBeLessThanOrEqual(shares[2]!);
    expect(shares[2]).toBeLessThan(shares[3]!);
    expect(rows[0]!.meanRunning).toBeCloseTo(5, 6); // 5,120 slots / 1,024
    for (const { policy, shares: s } of rows)
      expect(s.tokens + s.reserved + s.internal + s.external, policy).toBeCloseTo(1, 6);
  });
});

describe('candidates', () => {
  it('divide the GPUs among replicas and keep what the user has fixed', () => {
    const { found, gpu } = draftDeployment({ ...seven, gpu: 'a100-80gb:4' });
    const input = { request: seven, shape: found.shape, gpu: gpu!, numGpus: 4, sample: sample(4) };
    const all = layouts(input);
    expect(all.map((each) => [each.tensorParallelSize, each.dataParallelSize])).toEqual([
      [1, 4],
      [2, 2],
      [4, 1],
    ]);
    expect(all.every((each) => each.maxNumSeqs === 16 && each.maxModelLen === 1024)).toBe(true);
    expect(
      variantsOf(all[0]!, seven).map((each) => [
        each.maxNumBatchedTokens,
        each.gpuMemoryUtilization,
        each.kvCacheDtype,
      ]),
    ).toEqual([
      [512, undefined, undefined],
      [8192, undefined, undefined],
      [2048, 0.95, undefined],
      [2048, undefined, 'fp8'],
    ]);
    expect(
      variantsOf(all[0]!, { ...seven, kvCacheDtype: 'bf16', gpuMemoryUtilization: 0.9, maxNumBatchedTokens: 512 }),
    ).toEqual([]);
    expect(gpuCounts(6)).toEqual([1, 2, 4, 6]);
  });
});

describe('an evaluation', () => {
  it('is the same each time and meets what it says', () => {
    const loose = evaluate(task({ targets: { ttftSeconds: 5, tpotSeconds: 1, e2eSeconds: null } }));
    expect(loose.isMet).toBe(true);
    expect(loose.summary?.numCompleted).toBe(8);
    expect(evaluate(task({ targets: { ttftSeconds: 5, tpotSeconds: 1, e2eSeconds: null } }))).toEqual(loose);
    const tight = evaluate(task({ targets: { ttftSeconds: null, tpotSeconds: 1e-3, e2eSeconds: null } }));
    expect(tight.isMet).toBe(false);
    const found = findings(tight, { ttftSeconds: null, tpotSeconds: 1e-3, e2eSeconds: null }, 'p99');
    // 13.5 GB of weights through 2 TB/s: nothing else comes near.
    expect(found.map(({ cause }) => cause)).toEqual(['weight-reads']);
    expect(findings(loose, { ttftSeconds: 5, tpotSeconds: 1, e2eSeconds: null }, 'p99')[0]?.cause).toBe('nothing');
  });

  it('says what fills up: slots, KV cache, step', () => {
    const targets = { ttftSeconds: 0.01, tpotSeconds: null, e2eSeconds: null };
    const cause = (request: Partial<DeploymentRequest>, of: WorkloadSample) =>
      findings(evaluate(task({ request: { ...seven, ...request }, sample: of, targets })), targets, 'p99')[0]?.cause;
    const twelve = { closedLoop: { concurrency: 12, thinkSeconds: 0 } };
    expect(cause({ maxNumSeqs: 2 }, sample(24, twelve))).toBe('max-num-seqs');
    expect(cause({ numGpuBlocksOverride: 64 }, sample(24, twelve))).toBe('kv-cache');
    expect(cause({ maxNumBatchedTokens: 64 }, sample(24, twelve))).toBe('step-budget');
  });

  it('reports a configuration that cannot start instead of throwing', () => {
    const { problem, isMet } = evaluate(task({ request: { model: 'llama-3.1-70b', gpu: 'a100-80gb' } }));
    expect(problem).toContain('does not fit');
    expect(isMet).toBe(false);
  });
});

describe('the highest rate', () => {
  it('meets the targets, and a little more does not', () => {
    const targets = { ttftSeconds: 0.3, tpotSeconds: 0.03, e2eSeconds: null };
    const open = sample(24, { closedLoop: null }, 400, 20);
    const best = evaluateTask(task({ sample: open, targets, findsRate: true }));
    const rate = best.maxRequestsPerSecond!;
    expect(rate).toBeGreaterThan(1);
    expect(evaluate(task({ sample: open, targets, requestsPerSecond: rate })).isMet).toBe(true);
    expect(evaluate(task({ sample: open, targets, requestsPerSecond: rate * 1.3 })).isMet).toBe(false);
  });
});

describe('a plan', () => {
  const ask = (request: DeploymentRequest, tpotSeconds: number | null) =>
    plan(
      {
        request,
        sample: sample(8),
        hasLoad: true,
        targets: { ttftSeconds: null, tpotSeconds, e2eSeconds: null },
        percentile: 'p99',
        wantsMaxRate: false,
        wantsPareto: false,
        wantsFragmentation: false,
      },
      { numWorkers: 0 },
    );

  it('finds the fewest GPUs that meet a target', async () => {
    const easy = await ask({ model: 'llama-7b', gpu: 'a100-80gb:4' }, 0.05);
    expect(easy.isMet).toBe(true);
    expect(easy.cheapest[0]?.numGpus).toBe(1);
    expect(easy.commands.vllm).toMatch(/^vllm serve llama-7b .*--max-model-len 256/);
    const fast = await ask({ model: 'llama-7b', gpu: 'a100-80gb:4' }, 0.008);
    expect(fast.cheapest[0]?.numGpus).toBeGreaterThan(1);
    expect(fast.cheapest.every((each: Evaluation) => each.summary!.tpotSeconds.p99 <= 0.008)).toBe(true);
  });

  it('says what would have to change when none does', async () => {
    const result = await ask({ model: 'llama-7b', gpu: 'a100-80gb' }, 0.009);
    expect(result.isMet).toBe(false);
    expect(result.changes.join()).toMatch(/2 GPUs instead of 1/);
  });
});
