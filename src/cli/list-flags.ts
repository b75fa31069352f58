// `pagoda list`: flags only.

import type { Command } from 'commander';
import type { CliIo } from './cli-io.ts';

export function addListCommand(program: Command, io: CliIo): void {
  program
    .command('list')
    .description('List the models that are here: the embedded one and those in the Hugging Face cache')
    .option('--json', 'print JSON')
    .action(async (options: { json?: boolean }) => {
      const { list } = await import('./list.ts');
      list(options.json === true, io);
    });
}
