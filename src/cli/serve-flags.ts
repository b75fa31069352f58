// `pagoda serve`: flags only; the command itself is loaded when it runs.

import type { Command } from 'commander';
import type { CliIo } from './cli-io.ts';
import { addConfigFlags, configOf, keysOfGroups } from './config-flags.ts';

export function addServeCommand(program: Command, io: CliIo): void {
  const keys = keysOfGroups('model', 'engine', 'scheduler', 'server').filter((key) => key !== 'model');
  const command = program.command('serve').description('Serve a model with the OpenAI API');
  addConfigFlags(command, keys);
  command.option('--model <model>', 'the same as MODEL');
  command.action(async (model: string | undefined) => {
    const config = await configOf(io, command, [...keys, 'model'], model);
    const { serve } = await import('./serve.ts');
    await serve(config, io);
  });
}
