// `pagoda bench`: the flags of `throughput`; `latency` and `serve` have files of their own.

import type { Command } from 'commander';
import { addBenchLatencyCommand } from './bench-latency-flags.ts';
import { addBenchServeCommand } from './bench-serve-flags.ts';
import type { CliIo } from './cli-io.ts';
import { addConfigFlags, configOf, keysOfGroups } from './config-flags.ts';

export interface ThroughputFlags {
  readonly numPrompts: string;
  readonly inputLen: string;
  readonly outputLen: string;
  readonly seed: string;
  readonly json?: boolean;
}

export function addBenchCommand(program: Command, io: CliIo): void {
  const bench = program.command('bench').description('Measure this machine, or a running server');
  addBenchServeCommand(bench, io);
  addBenchLatencyCommand(bench, io);
  // No sampling defaults and no template: the prompts are random token ids, the choice is greedy.
  const unused = [
    'model',
    'generationConfig',
    'overrideGenerationConfig',
    'chatTemplate',
    'schedulingPolicy',
    'maxNumQueuedReqs',
  ];
  const keys = keysOfGroups('model', 'engine', 'scheduler').filter((key) => !unused.includes(key));
  const command = bench
    .command('throughput')
    .description('Many requests at once, offline: tokens per second and what the KV cache did');
  addConfigFlags(command, keys);
  command
    .option('--num-prompts <n>', 'requests, all submitted at once; --max-num-seqs of them run together', '50')
    .option('--input-len <n>', 'prompt tokens per request (random ids)', '256')
    .option('--output-len <n>', 'output tokens per request', '128')
    .option('--seed <n>', 'of the random prompts', '0')
    .option('--json', 'print JSON')
    .action(async (model: string | undefined, flags: ThroughputFlags) => {
      const config = await configOf(io, command, keys, model);
      const { benchThroughput } = await import('./bench-throughput.ts');
      await benchThroughput(config, flags, io);
    });
}
