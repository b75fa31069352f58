// `pagoda bench latency`: the same batch of random prompts again and again through the engine in this process; the time of each
// round is its latency. Figures, lines and JSON fields are those of `vllm bench latency`.

import { writeFileSync } from 'node:fs';
import { mean, percentile, sorted, standardDeviation } from '../bench/statistics.ts';
import { now } from '../clock.ts';
import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions } from '../config.ts';
import type { GenerateRequest } from '../core/request.ts';
import { DEFAULT_SAMPLING } from '../core/sampling-params.ts';
import type { EngineClient, EngineInfo } from '../engine/engine-client.ts';
import { createInProcessClient } from '../engine/in-process-client.ts';
import { PagodaError } from '../errors.ts';
import { randomUniform } from '../rng.ts';
import type { BenchLatencyFlags } from './bench-latency-flags.ts';
import { countValue } from './bench-values.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { loadBar } from './load-progress.ts';

const PERCENTAGES = [10, 25, 50, 75, 90, 99];
const INTERRUPTED = 130;

interface LatencyPlan {
  readonly inputLen: number;
  readonly outputLen: number;
  readonly batchSize: number;
  readonly n: number;
  readonly numWarmups: number;
  readonly numRounds: number;
  readonly seed: number;
}

export async function benchLatency(config: ResolvedOptions, flags: BenchLatencyFlags, io: CliIo): Promise<void> {
  const plan: LatencyPlan = {
    inputLen: countValue('input-len', flags.inputLen, 1),
    outputLen: countValue('output-len', flags.outputLen, 1),
    batchSize: countValue('batch-size', flags.batchSize, 1),
    n: countValue('n', flags.n, 1),
    numWarmups: countValue('num-iters-warmup', flags.numItersWarmup, 0),
    numRounds: countValue('num-iters', flags.numIters, 1),
    seed: countValue('seed', flags.seed, 0),
  };
  const options = { ...engineOptions(config), enablePrefixCaching: false, maxNumQueuedReqs: plan.batchSize * plan.n };
  const bar = loadBar(io.stderr);
  const client = await createInProcessClient(options, {
    onLog: (level, message) => io.stderr.write(`${level}: ${message}\n`),
    onLoadProgress: bar.update,
  }).finally(() => bar.stop());
  let isInterrupted = false;
  const forget = io.onInterrupt(() => {
    isInterrupted = true;
    client.abort(
      requestsOf(plan, client.info).map((request) => request.id),
      'abort',
    );
  });
  try {
    checkFits(plan, client.info);
    const latencies: number[] = [];
    for (let round = -plan.numWarmups; round < plan.numRounds; round++) {
      const seconds = await runRound(client, requestsOf(plan, client.info));
      if (isInterrupted) throw new CliExit(INTERRUPTED);
      if (round >= 0) latencies.push(seconds);
    }
    output(latencies, flags, io);
  } finally {
    forget();
    await client.close({ drainSeconds: 0 });
  }
}

function checkFits({ inputLen, outputLen }: LatencyPlan, { maxModelLen }: EngineInfo): void {
  if (inputLen + outputLen <= maxModelLen) return;
  throw new PagodaError(
    'bad_config',
    `--input-len ${inputLen} + --output-len ${outputLen} is more than max-model-len ${maxModelLen}; the longest output is ${Math.max(0, maxModelLen - inputLen)}.`,
    { param: '--input-len' },
  );
}

/** The same requests in every round. vLLM's benchmark samples at temperature 1. */
function requestsOf({ inputLen, outputLen, batchSize, n, seed }: LatencyPlan, info: EngineInfo): GenerateRequest[] {
  return Array.from({ length: batchSize * n }, (_, i) => {
    const prompt = Math.floor(i / n);
    return {
      id: `latency-${i}`,
      promptTokenIds: Array.from({ length: inputLen }, (_unused, position) =>
        Math.floor(randomUniform(BigInt(seed), prompt * inputLen + position) * info.vocabSize),
      ),
      sampling: { ...DEFAULT_SAMPLING, maxTokens: outputLen, ignoreEos: true, seed: BigInt(i) },
      priority: 0,
      arrivalTime: now(),
      cacheSalt: null,
    };
  });
}

/** Seconds until the last request has ended. */
function runRound(client: EngineClient, requests: readonly GenerateRequest[]): Promise<number> {
  const startTime = now();
  let numOpen = requests.length;
  return new Promise((resolve, reject) => {
    client.submit(requests, ({ finish }) => {
      if (finish === null) return;
      if (finish.reason === 'error') reject(new PagodaError('device_fault', finish.message ?? 'A request failed.'));
      if (--numOpen === 0) resolve(now() - startTime);
    });
  });
}

function output(latencies: readonly number[], flags: BenchLatencyFlags, io: CliIo): void {
  const ascending = sorted(latencies);
  const percentiles = PERCENTAGES.map((percent): [string, number] => [String(percent), percentile(ascending, percent)]);
  const result = {
    avg_latency: mean(ascending),
    std_latency: standardDeviation(ascending),
    latencies,
    percentiles: Object.fromEntries(percentiles),
  };
  if (flags.outputJson !== undefined) write(flags.outputJson, `${JSON.stringify(result, null, 4)}\n`);
  if (flags.json === true) {
    io.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
    return;
  }
  io.stdout.write(`Avg latency: ${result.avg_latency} seconds\nStd latency: ${result.std_latency} seconds\n`);
  for (const [percent, seconds] of percentiles) {
    io.stdout.write(`${percent}% percentile latency: ${seconds} seconds\n`);
  }
}

function write(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new PagodaError('bad_config', `--output-json cannot be written: ${reason}`, { param: '--output-json' });
  }
}
