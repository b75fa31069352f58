// `pagoda bench latency`: flags only, with the names and defaults of `vllm bench latency`.

import type { Command } from 'commander';
import type { CliIo } from './cli-io.ts';
import { addConfigFlags, configOf, keysOfGroups } from './config-flags.ts';

/** Raw texts; checked when the command runs. */
export interface BenchLatencyFlags {
  readonly inputLen: string;
  readonly outputLen: string;
  readonly batchSize: string;
  readonly n: string;
  readonly numItersWarmup: string;
  readonly numIters: string;
  readonly seed: string;
  readonly outputJson?: string;
  readonly json?: boolean;
}

export function addBenchLatencyCommand(bench: Command, io: CliIo): void {
  // No sampling defaults and no template: the prompts are random token ids. The prefix cache is off: the prompts repeat.
  const unused = [
    'model',
    'generationConfig',
    'overrideGenerationConfig',
    'chatTemplate',
    'schedulingPolicy',
    'maxNumQueuedReqs',
    'enablePrefixCaching',
  ];
  const keys = keysOfGroups('model', 'engine', 'scheduler').filter((key) => !unused.includes(key));
  const command = bench
    .command('latency')
    .description('One batch at a time, offline: seconds from its start to its last token');
  addConfigFlags(command, keys);
  command
    .option('--input-len <n>', 'prompt tokens per request (random ids)', '32')
    .option('--output-len <n>', 'output tokens per request', '128')
    .option('--batch-size <n>', 'requests in the batch', '8')
    .option('--n <n>', 'sequences per prompt', '1')
    .option('--num-iters-warmup <n>', 'batches before that do not count', '10')
    .option('--num-iters <n>', 'batches that count', '30')
    .option('--seed <n>', 'of the random prompts', '0')
    .option('--output-json <file>', 'write the result there')
    .option('--json', 'print JSON')
    .action(async (model: string | undefined, flags: BenchLatencyFlags) => {
      const config = await configOf(io, command, keys, model);
      const { benchLatency } = await import('./bench-latency.ts');
      await benchLatency(config, flags, io);
    });
}
