// `pagoda complete`: flags only.

import type { Command } from 'commander';
import type { OptionKey } from '../config/options.ts';
import type { CliIo } from './cli-io.ts';
import { addConfigFlags, configOf } from './config-flags.ts';

/** What can make a difference to one text. */
const KEYS: readonly OptionKey[] = [
  'revision',
  'maxModelLen',
  'dtype',
  'generationConfig',
  'overrideGenerationConfig',
  'device',
  'threads',
  'computeDtype',
  'kvCacheDtype',
  'blockSize',
  'memoryUtilization',
  'kvCacheMemoryBytes',
  'numGpuBlocksOverride',
  'maxNumBatchedTokens',
  'chunkedPrefillSize',
  'speculativeConfig',
];

/** Raw texts; checked when the command runs. */
export interface CompleteFlags {
  readonly prompt?: string;
  readonly maxTokens?: string;
  readonly minTokens?: string;
  readonly temperature?: string;
  readonly topP?: string;
  readonly topK?: string;
  readonly minP?: string;
  readonly presencePenalty?: string;
  readonly frequencyPenalty?: string;
  readonly repetitionPenalty?: string;
  readonly seed?: string;
  readonly stop?: readonly string[];
  readonly ignoreEos?: boolean;
  readonly showSteps?: boolean;
  /** false with --no-kv-cache. */
  readonly kvCache: boolean;
  readonly json?: boolean;
}

export function addCompleteCommand(program: Command, io: CliIo): void {
  const command = program.command('complete').description('Continue a text, without a server');
  addConfigFlags(command, KEYS);
  command
    .option('-p, --prompt <text>', 'the text to continue; - or nothing reads it from stdin')
    .option('--max-tokens <n>', 'most tokens to generate (default: 64)')
    .option('--min-tokens <n>', 'no end before this many tokens')
    .option('--temperature <x>', "0 = always the best token (default: 1, or the model's generation_config.json)")
    .option('--top-p <x>', 'only the best tokens that together have this probability')
    .option('--top-k <n>', 'only the n best tokens; 0 = off')
    .option('--min-p <x>', "only tokens with at least this share of the best one's probability")
    .option('--presence-penalty <x>', 'from -2 to 2')
    .option('--frequency-penalty <x>', 'from -2 to 2')
    .option('--repetition-penalty <x>', 'above 0; 1 = off')
    .option('--seed <n>', 'the same seed gives the same text', '0')
    .option('--stop <text...>', 'end before any of these texts')
    .option('--ignore-eos', 'go on after end tokens')
    .option('--show-steps', 'show every step: what went in, the KV length, the five best candidates, what was chosen')
    .option(
      '--no-kv-cache',
      'compute everything again in every step: the same tokens, at the price that --show-steps shows',
    )
    .option('--json', 'print JSON')
    .action(async (model: string | undefined, flags: CompleteFlags) => {
      const config = await configOf(io, command, KEYS, model);
      const { complete } = await import('./complete.ts');
      await complete(config, flags, io);
    });
}
