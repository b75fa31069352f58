// `pagoda simulate`: flags only.

import { type Command, Option as Flag } from 'commander';
import { ROUTING_POLICIES } from '../sim/router.ts';
import type { CliIo } from './cli-io.ts';
import { addDeploymentFlags } from './deployment-flags.ts';
import { addWorkloadFlags, type WorkloadFlags } from './workload-flags.ts';

export interface SimulateFlags extends WorkloadFlags {
  readonly routing?: string;
  readonly ttft?: string;
  readonly tpot?: string;
  readonly e2e?: string;
  /** One per --compare; `defaults` = no flags. */
  readonly compare?: readonly string[];
  readonly timeline?: string;
  readonly html?: string;
  readonly json?: boolean;
}

export function addSimulateCommand(program: Command, io: CliIo): void {
  const command = program
    .command('simulate')
    .description('Replay a workload on the real scheduler and a modelled device: what a load test would say, and why');
  addDeploymentFlags(command);
  addWorkloadFlags(command);
  command
    .option(
      '--routing <policy>',
      `how requests are dealt out to replicas: ${ROUTING_POLICIES.join(', ')} (default: least-loaded)`,
    )
    .option('--ttft <time>', 'target of the time to first token, like 1.5s; goodput counts who met all targets')
    .option('--tpot <time>', 'target of the time per output token, like 50ms')
    .option('--e2e <time>', 'target of the whole request')
    .addOption(
      new Flag(
        '--compare [flags]',
        'beside it, the engine without any flags on the same machine; --compare="--max-num-seqs 64" = with these changed; may be repeated',
      )
        .preset('defaults')
        .argParser((value: string, before: readonly string[] | undefined) => [...(before ?? []), value]),
    )
    .option('--timeline <file.json>', 'every step and request for ui.perfetto.dev or chrome://tracing')
    .option('--html <file.html>', 'one self-contained page with charts')
    .option('--json', 'print JSON')
    .action(async (model: string | undefined, flags: SimulateFlags) => {
      const { simulateCommand } = await import('./simulate.ts');
      await simulateCommand(command, model, flags, io);
    });
}
