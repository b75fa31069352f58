// `pagoda plan`: flags only.

import type { Command } from 'commander';
import type { CliIo } from './cli-io.ts';
import { addDeploymentFlags } from './deployment-flags.ts';
import { addWorkloadFlags, type WorkloadFlags } from './workload-flags.ts';

export interface PlanFlags extends WorkloadFlags {
  readonly ttft?: string;
  readonly tpot?: string;
  readonly e2e?: string;
  readonly percentile?: string;
  readonly maxRate?: boolean;
  readonly pareto?: boolean;
  readonly fragmentation?: boolean;
  readonly workers?: string;
  readonly json?: boolean;
}

export function addPlanCommand(program: Command, io: CliIo): void {
  const command = program
    .command('plan')
    .description(
      'What a model needs and what hardware gives: memory, capacity, latency, the cheapest configuration that meets a target',
    );
  addDeploymentFlags(command);
  addWorkloadFlags(command);
  command
    .option('--ttft <time>', 'target of the time to first token, like 1.5s')
    .option('--tpot <time>', 'target of the time per output token, like 50ms')
    .option('--e2e <time>', 'target of the whole request')
    .option('--percentile <p>', 'what the targets are held against: mean, p50, p90, p95, p99 (default: p99)')
    .option('--max-rate', 'look for the highest request rate that meets the targets')
    .option('--pareto', 'try every configuration: throughput per GPU against speed per user')
    .option('--fragmentation', 'where KV memory goes under full-length, rounded, exact and paged allocation')
    .option('--workers <n>', 'threads that try configurations (default: one per core, at most 8)')
    .option('--json', 'print JSON')
    .action(async (model: string | undefined, flags: PlanFlags) => {
      const { planCommand } = await import('./plan.ts');
      await planCommand(command, model, flags, io);
    });
}
