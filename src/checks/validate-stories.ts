// Tuning stories whose direction is published: 1 the KV cache runs out, 2 the token budget trades TTFT against ITL, 4 tensor parallelism
// saturates, 7 a larger prefix cache finds more. The simulator must move the same way.

import { join } from 'node:path';
import { type DeploymentRequest, resolveDeployment } from '../plan/resolve-deployment.ts';
import type { Deployment } from '../sim/deployment.ts';
import { simulate } from '../sim/simulation.ts';
import { parseLengths } from '../workload/parse-lengths.ts';
import { createSyntheticWorkload, type SyntheticSpec } from '../workload/synthetic-workload.ts';
import { openTrace } from '../workload/trace-workload.ts';
import { percent, type ValidationContext, type ValidationPart } from './validation-part.ts';

export const validateStories: ValidationPart = {
  name: 'stories',
  run(context) {
    kvExhaustion(context);
    tokenBudget(context);
    tensorParallelism(context);
    prefixCacheSize(context);
  },
};

const LLAMA_70B: DeploymentRequest = {
  model: 'llama-3.1-70b',
  weightDtype: 'fp8',
  gpu: 'h100:2',
  tensorParallelSize: 2,
  maxModelLen: 12_288,
  maxNumBatchedTokens: 8192,
  enablePrefixCaching: false,
};

/** InferenceX, H100 TP 2, 8k/1k: mean TTFT 1.28, 6.5, 59 s at 16, 32, 64 users; TPOT only 34.6 to 52.4 ms. */
function kvExhaustion({ gates, add }: ValidationContext): void {
  const published = ['1.28 s / 34.6 ms', '6.5 s / 52.4 ms', '59 s / 52.4 ms'];
  const results = [16, 32, 64].map((users) => {
    const { deployment } = resolveDeployment({ ...LLAMA_70B, maxNumSeqs: users });
    return simulate(deployment, closed(users, '6553-8192', '819-1024', 6)).summary;
  });
  const ttft = results.map((summary) => summary.ttftSeconds.mean);
  const tpot = results.map((summary) => summary.tpotSeconds.mean);
  gates.check(
    'Story 1: TTFT explodes when the KV cache is full',
    ttft.map((each) => each.toFixed(1)).join(' '),
    'x 3 and x 5',
    ttft[1]! > 3 * ttft[0]! && ttft[2]! > 5 * ttft[1]!,
  );
  gates.check(
    'Story 1: TPOT hardly moves',
    tpot.map((each) => (1000 * each).toFixed(1)).join(' '),
    'less than doubles',
    tpot[2]! < 2 * tpot[0]!,
  );
  add({
    title: 'Story 1: the KV cache runs out',
    text: 'Llama-3.1-70B FP8, two H100, 8k/1k. Mean TTFT / mean TPOT by users.',
    header: ['users', 'published', 'simulated'],
    rows: results.map((_, i) => [
      String([16, 32, 64][i]),
      published[i]!,
      `${ttft[i]!.toFixed(2)} s / ${(1000 * tpot[i]!).toFixed(1)} ms`,
    ]),
  });
}

/** vLLM's documentation: a smaller max_num_batched_tokens gives better ITL, a larger one better TTFT. */
function tokenBudget({ gates, add }: ValidationContext): void {
  const budgets = [512, 1024, 2048, 8192];
  const results = budgets.map((maxNumBatchedTokens) => {
    const { deployment } = resolveDeployment({
      ...LLAMA_70B,
      gpu: 'h100:4',
      tensorParallelSize: 4,
      maxNumBatchedTokens,
      maxNumSeqs: 256,
    });
    const arrivals = { kind: 'poisson', requestsPerSecond: 2.5 } as const;
    return simulate(deployment, synthetic({ arrivals, closedLoop: null, numRequests: 400 }, '4096', '250')).summary;
  });
  const ttft = results.map((summary) => summary.ttftSeconds.p99);
  const itl = results.map((summary) => summary.itlSeconds.p99);
  const falls = ttft.every((each, i) => i === 0 || each <= ttft[i - 1]!);
  const rises = itl.every((each, i) => i === 0 || each >= itl[i - 1]!);
  gates.check(
    'Story 2: TTFT p99 falls with the token budget',
    ttft.map((each) => each.toFixed(2)).join(' '),
    'falling',
    falls,
  );
  gates.check(
    'Story 2: ITL p99 rises with the token budget',
    itl.map((each) => each.toFixed(3)).join(' '),
    'rising',
    rises,
  );
  add({
    title: 'Story 2: the token budget',
    text: 'Llama-3.1-70B FP8, four H100, 4,096 in, 250 out, 2.5 requests/s.',
    header: ['max-num-batched-tokens', 'TTFT p99 s', 'ITL p99 ms'],
    rows: budgets.map((budget, i) => [String(budget), ttft[i]!.toFixed(2), (1000 * itl[i]!).toFixed(0)]),
  });
}

/** InferenceX, 1k/1k, 64 users: TPOT 28.8, 19.5, 15.5 ms at TP 2, 4, 8. */
function tensorParallelism({ gates, add }: ValidationContext): void {
  const sizes = [2, 4, 8];
  const tpot = sizes.map((tensorParallelSize) => {
    const gpu = `h100:${tensorParallelSize}`;
    const { deployment } = resolveDeployment({ ...LLAMA_70B, gpu, tensorParallelSize, maxNumSeqs: 64 });
    return simulate(deployment, closed(64, '820-1024', '820-1024', 4)).summary.tpotSeconds.mean;
  });
  const [two, four, eight] = tpot as [number, number, number];
  const shown = tpot.map((each) => (1000 * each).toFixed(1)).join(' ');
  gates.check(
    'Story 4: more GPUs per layer are faster, ever less',
    shown,
    'x 1.2 to 1.9, then less',
    two / four > 1.2 && two / four < 1.9 && four / eight > 1 && four / eight < two / four,
  );
  add({
    title: 'Story 4: tensor parallelism saturates',
    text: 'Llama-3.1-70B FP8 on H100, 1k/1k, 64 users: TPOT in ms.',
    header: ['TP', 'published', 'simulated'],
    rows: sizes.map((size, i) => [String(size), ['28.8', '19.5', '15.5'][i]!, (1000 * tpot[i]!).toFixed(1)]),
  });
}

/** Mooncake conversation trace: 4, 11, 21, 33, 36 % of the prompt tokens hit with 0.5, 2.6, 5.1, 15, 26 million cached tokens. */
function prefixCacheSize({ gates, sharedRoot, add }: ValidationContext): void {
  const workload = openTrace({ path: join(sharedRoot, 'data', 'mooncake_conversation_trace.jsonl') });
  const sizes = [0.5e6, 2.6e6, 5.1e6, 15e6, 26e6];
  const published = [0.04, 0.11, 0.21, 0.33, 0.36];
  const shares = sizes.map((tokens) => simulate(cacheOnly(tokens), workload).scheduler.prefixHitShare);
  const rises = shares.every((share, i) => i === 0 || share >= shares[i - 1]!);
  gates.check(
    'Story 7: hits rise with the size of the prefix cache',
    shares.map((share) => percent(share, 0)).join(' '),
    'rising',
    rises,
  );
  const last = shares[shares.length - 1]!;
  gates.check(
    'Story 7: hits of the largest cache',
    percent(last),
    'within 3 points of 36 %',
    Math.abs(last - 0.36) <= 0.03,
  );
  add({
    title: 'Story 7: size of the prefix cache',
    text: 'Mooncake conversation trace, share of prompt tokens found in the cache.',
    header: ['million tokens', 'published', 'simulated'],
    rows: sizes.map((size, i) => [(size / 1e6).toFixed(1), percent(published[i]!, 0), percent(shares[i]!, 1)]),
  });
}

/** A device so fast that requests hardly overlap: only the cache counts. Blocks are the trace's own. */
function cacheOnly(numTokens: number): Deployment {
  const blockSize = 512;
  return {
    name: 'a prefix cache',
    flags: {
      maxNumSeqs: 64,
      maxNumBatchedTokens: 131_072,
      chunkedPrefillSize: null,
      enableChunkedPrefill: true,
      enablePrefixCaching: true,
      blockSize,
      maxModelLen: 131_072,
      watermark: 0,
      schedulingPolicy: 'fcfs',
      kvAllocation: 'paged',
    },
    numBlocks: Math.floor(numTokens / blockSize),
    groupWindows: [0],
    numReplicas: 1,
    cost: { requestOverheadSeconds: 0, stepSeconds: () => 0.5e-3 },
  };
}

function closed(users: number, prompt: string, output: string, perUser: number) {
  const closedLoop = { concurrency: users, thinkSeconds: 0 };
  return synthetic({ arrivals: null, closedLoop, numRequests: perUser * users }, prompt, output);
}

function synthetic(
  load: Pick<SyntheticSpec, 'arrivals' | 'closedLoop' | 'numRequests'>,
  prompt: string,
  output: string,
) {
  return createSyntheticWorkload({
    name: `${prompt} in, ${output} out`,
    seed: 1,
    maxSeconds: null,
    prompt: parseLengths(prompt, '--prompt'),
    output: parseLengths(output, '--output'),
    rankCorrelation: 0,
    prefix: { kind: 'none' },
    ...load,
  });
}
