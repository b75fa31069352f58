// `pagoda doctor`: flags only.

import type { Command } from 'commander';
import type { CliIo } from './cli-io.ts';
import { addDeploymentFlags } from './deployment-flags.ts';

/** Raw texts; checked when the command runs. */
export interface DoctorFlags {
  readonly url?: string;
  readonly metrics?: readonly string[];
  readonly log?: readonly string[];
  readonly result?: readonly string[];
  readonly window: string;
  readonly interval: string;
  readonly watch?: boolean;
  readonly ttft?: string;
  readonly tpot?: string;
  readonly header?: readonly string[];
  readonly insecure?: boolean;
  readonly json?: boolean;
}

export function addDoctorCommand(program: Command, io: CliIo): void {
  const command = program
    .command('doctor')
    .description(
      'What is wrong with a server and which flag to change: from its metrics, its log or the result of a run',
    )
    .addHelpText(
      'after',
      '\nExit code: 0 nothing found, 1 something found, 2 bad input.\nWith MODEL and --gpu, changes are tried by simulating the observed load; the other deployment flags say how the server was started.',
    );
  addDeploymentFlags(command);
  command
    .option('--url <url>', 'a running vLLM, SGLang or Pagoda server: its /metrics over --window')
    .option('--metrics <file...>', 'saved pages of /metrics, oldest first')
    .option('--log <file...>', 'logs of vLLM or Pagoda, one diagnosis each')
    .option('--result <file...>', 'results of bench serve (--save-result) or simulate (--json)')
    .option('--window <time>', 'how long to look', '30s')
    .option('--interval <time>', 'between two looks', '2s')
    .option('--watch', 'go on, window after window, until Ctrl-C')
    .option('--ttft <time>', 'what time to first token should be, like 1.5s')
    .option('--tpot <time>', 'what time between tokens should be, like 50ms')
    .option('--header <KEY=VALUE...>', 'headers of the requests to --url')
    .option('--insecure', 'accept certificates that cannot be checked')
    .option('--json', 'print JSON: one object, or a list with several sources')
    .action(async (model: string | undefined, flags: DoctorFlags) => {
      const { doctor } = await import('./doctor.ts');
      await doctor(command, model, flags, io);
    });
}
