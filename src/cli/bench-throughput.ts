// `pagoda bench throughput`: random prompts through the engine in this process. Reports vLLM's figures, and what continuous
// batching and paging did: KV waste, preemptions, how many ran at once.

import { now } from '../clock.ts';
import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions } from '../config.ts';
import { DEFAULT_SAMPLING } from '../core/sampling-params.ts';
import type { EngineClient, EngineInfo } from '../engine/engine-client.ts';
import { createInProcessClient } from '../engine/in-process-client.ts';
import { PagodaError } from '../errors.ts';
import { randomUniform } from '../rng.ts';
import type { StepRecord } from '../trace/step-record.ts';
import type { ThroughputFlags } from './bench-flags.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { loadBar } from './load-progress.ts';
import { bytesText, countText } from './table.ts';

interface Workload {
  readonly numPrompts: number;
  readonly inputLen: number;
  readonly outputLen: number;
  readonly seed: bigint;
}

export async function benchThroughput(config: ResolvedOptions, flags: ThroughputFlags, io: CliIo): Promise<void> {
  const workload: Workload = {
    numPrompts: count('num-prompts', flags.numPrompts, 1),
    inputLen: count('input-len', flags.inputLen, 1),
    outputLen: count('output-len', flags.outputLen, 1),
    seed: BigInt(count('seed', flags.seed, 0)),
  };
  const options = { ...engineOptions(config), maxNumQueuedReqs: workload.numPrompts };
  const summary = new RunSummary();
  const bar = loadBar(io.stderr);
  const client = await createInProcessClient(options, {
    onStep: (record) => summary.add(record),
    onLog: (level, message) => io.stderr.write(`${level}: ${message}\n`),
    onLoadProgress: bar.update,
  }).finally(() => bar.stop());
  let numInterrupts = 0;
  const forget = io.onInterrupt(() => {
    numInterrupts++;
    client.abort(requestIds(workload), 'abort');
  });
  try {
    checkFits(workload, client.info);
    const startTime = now();
    const numOutputTokens = await runAll(client, workload);
    if (numInterrupts > 0) throw new CliExit(130);
    const facts = summary.facts(workload, client.info, { seconds: now() - startTime, numOutputTokens });
    io.stdout.write(flags.json === true ? `${JSON.stringify(facts, null, 2)}\n` : report(facts));
  } finally {
    forget();
    await client.close({ drainSeconds: 0 });
  }
}

const requestIds = ({ numPrompts }: Workload): string[] => Array.from({ length: numPrompts }, (_, i) => `bench-${i}`);

/** Fulfilled with the number of output tokens when the last request has ended. */
function runAll(client: EngineClient, workload: Workload): Promise<number> {
  const { inputLen, outputLen, seed } = workload;
  const { vocabSize } = client.info;
  const requests = requestIds(workload).map((id, index) => ({
    id,
    promptTokenIds: Array.from({ length: inputLen }, (_, i) =>
      Math.floor(randomUniform(seed, index * inputLen + i) * vocabSize),
    ),
    sampling: { ...DEFAULT_SAMPLING, temperature: 0, maxTokens: outputLen, ignoreEos: true },
    priority: 0,
    arrivalTime: now(),
    cacheSalt: null,
  }));
  let numOpen = requests.length;
  let numOutputTokens = 0;
  return new Promise((resolve, reject) => {
    client.submit(requests, (event) => {
      numOutputTokens += event.tokenIds.length;
      if (event.finish === null) return;
      if (event.finish.reason === 'error')
        reject(new PagodaError('device_fault', event.finish.message ?? 'A request failed.'));
      if (--numOpen === 0) resolve(numOutputTokens);
    });
  });
}

function checkFits({ inputLen, outputLen }: Workload, { maxModelLen }: EngineInfo): void {
  if (inputLen + outputLen <= maxModelLen) return;
  throw new PagodaError(
    'bad_config',
    `--input-len ${inputLen} + --output-len ${outputLen} is more than max-model-len ${maxModelLen}.`,
    { param: '--input-len' },
  );
}

/** What the step records add up to. */
class RunSummary {
  #numSteps = 0;
  #peakRunning = 0;
  #numPreemptions = 0;
  #numRecomputedTokens = 0;
  #numPrefixHitTokens = 0;
  #numComputedPromptTokens = 0;
  #wasteSum = 0;
  #usedSum = 0;
  #peakUsed = 0;
  #numDraftTokens = 0;
  #numAcceptedTokens = 0;

  add(record: StepRecord): void {
    this.#numSteps++;
    this.#peakRunning = Math.max(this.#peakRunning, record.numRunning);
    this.#numPreemptions += record.preemptions.length;
    this.#numRecomputedTokens += record.numRecomputedTokens;
    this.#numPrefixHitTokens += record.numPrefixHitTokens;
    this.#numComputedPromptTokens += record.numPromptTokens;
    this.#wasteSum += record.kvWaste * record.numBlocksUsed;
    this.#usedSum += record.numBlocksUsed;
    this.#peakUsed = Math.max(this.#peakUsed, record.numBlocksUsed);
    this.#numDraftTokens += record.speculation?.numDraftTokens ?? 0;
    this.#numAcceptedTokens += record.speculation?.numAcceptedTokens ?? 0;
  }

  facts(workload: Workload, info: EngineInfo, run: { seconds: number; numOutputTokens: number }) {
    const { numPrompts, inputLen } = workload;
    const { seconds, numOutputTokens } = run;
    const numPromptTokens = numPrompts * inputLen;
    return {
      elapsed_time: seconds,
      num_requests: numPrompts,
      total_num_tokens: numPromptTokens + numOutputTokens,
      total_prompt_tokens: numPromptTokens,
      total_output_tokens: numOutputTokens,
      requests_per_second: numPrompts / seconds,
      tokens_per_second: (numPromptTokens + numOutputTokens) / seconds,
      output_tokens_per_second: numOutputTokens / seconds,
      num_steps: this.#numSteps,
      computed_prompt_tokens: this.#numComputedPromptTokens,
      prefix_cache_hit_tokens: this.#numPrefixHitTokens,
      max_running: this.#peakRunning,
      preemptions: this.#numPreemptions,
      recomputed_tokens: this.#numRecomputedTokens,
      spec_decode_num_draft_tokens: this.#numDraftTokens,
      spec_decode_num_accepted_tokens: this.#numAcceptedTokens,
      /** Empty token slots as a share of all slots in held blocks, over the whole run. */
      kv_waste: this.#usedSum === 0 ? 0 : this.#wasteSum / this.#usedSum,
      max_kv_usage: this.#peakUsed / info.numBlocks,
      num_blocks: info.numBlocks,
      block_size: info.blockSize,
      kv_pool_bytes: info.kvPoolBytes,
      weight_bytes: info.weightBytes,
      device: info.device,
      isa: info.isa,
      num_threads: info.numThreads,
      compute_dtype: info.computeDtype,
      kv_cache_dtype: info.kvCacheDtype,
    };
  }
}

function report(facts: ReturnType<RunSummary['facts']>): string {
  return [
    `Throughput: ${facts.requests_per_second.toFixed(2)} requests/s, ${facts.tokens_per_second.toFixed(2)} total tokens/s, ${facts.output_tokens_per_second.toFixed(2)} output tokens/s`,
    `Total num prompt tokens:  ${facts.total_prompt_tokens}`,
    `Total num output tokens:  ${facts.total_output_tokens}`,
    `${countText(facts.num_steps)} steps in ${facts.elapsed_time.toFixed(2)} s; at most ${facts.max_running} requests ran at once`,
    `KV cache: ${countText(facts.num_blocks)} blocks of ${facts.block_size} tokens (${bytesText(facts.kv_pool_bytes)}), up to ${(100 * facts.max_kv_usage).toFixed(1)}% in use, ${(100 * facts.kv_waste).toFixed(2)}% of it wasted`,
    ...(facts.spec_decode_num_draft_tokens > 0
      ? [
          `Speculation: ${countText(facts.spec_decode_num_accepted_tokens)} of ${countText(facts.spec_decode_num_draft_tokens)} draft tokens accepted`,
        ]
      : []),
    `${facts.preemptions} preemptions, ${countText(facts.recomputed_tokens)} tokens computed again`,
    '',
  ].join('\n');
}

function count(name: string, text: string, least: number): number {
  if (/^\d{1,15}$/.test(text) && Number(text) >= least) return Number(text);
  throw new PagodaError('bad_config', `--${name} must be a whole number of at least ${least}, got '${text}'.`, {
    param: `--${name}`,
  });
}
