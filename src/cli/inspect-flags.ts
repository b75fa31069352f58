// `pagoda inspect`: flags only.

import type { Command } from 'commander';
import type { OptionKey } from '../config/options.ts';
import type { CliIo } from './cli-io.ts';
import { addConfigFlags, configOf } from './config-flags.ts';

const KEYS: readonly OptionKey[] = ['revision', 'kvCacheDtype'];

export function addInspectCommand(program: Command, io: CliIo): void {
  const command = program.command('inspect').description('Show what a model is, without loading its weights');
  addConfigFlags(command, KEYS);
  command.option('--json', 'print JSON').action(async (model: string | undefined, options: { json?: boolean }) => {
    const config = await configOf(io, command, KEYS, model);
    const { inspect } = await import('./inspect.ts');
    inspect(config, options.json === true, io);
  });
}
