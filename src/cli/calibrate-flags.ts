// `pagoda calibrate engine` and `pagoda calibrate device`: flags only.

import type { Command } from 'commander';
import type { CliIo } from './cli-io.ts';
import { addConfigFlags, configOf, keysOfGroups } from './config-flags.ts';
import { addDeploymentFlags } from './deployment-flags.ts';

export interface CalibrateEngineFlags {
  readonly bench?: readonly string[];
  readonly log?: string;
  readonly out?: string;
}

export interface CalibrateDeviceFlags {
  readonly out?: string;
  readonly requestOverhead?: string;
}

const OUT = 'where to write the calibration for --calibration (default: print it)';

export function addCalibrateCommand(program: Command, io: CliIo): void {
  const calibrate = program.command('calibrate').description('Fit plan and simulate to what was measured');
  const engine = calibrate
    .command('engine')
    .description(
      "An engine's constants on known GPUs, or what serving adds to a device (--calibration), from results of bench serve or a vLLM log",
    );
  addDeploymentFlags(engine);
  engine
    .option('--bench <file.json>', 'saved result of (vllm or pagoda) bench serve; may be repeated', collect)
    .option('--log <file>', "vLLM's log with its lines of throughput and running requests")
    .option('--out <file.json>', OUT)
    .action(async (model: string | undefined, flags: CalibrateEngineFlags) => {
      const { calibrateEngine } = await import('./calibrate-engine.ts');
      calibrateEngine(engine, model, flags, io);
    });
  addDevice(calibrate, io);
}

function addDevice(calibrate: Command, io: CliIo): void {
  // Prompts are random ids and all different; nothing is sampled.
  const unused = ['model', 'generationConfig', 'overrideGenerationConfig', 'chatTemplate', 'enablePrefixCaching'];
  const keys = keysOfGroups('model', 'engine', 'scheduler').filter((key) => !unused.includes(key));
  const device = calibrate
    .command('device')
    .description("Pagoda's own device on this machine, by running it for a while");
  addConfigFlags(device, keys);
  device
    .option('--request-overhead <time>', 'time of a request outside of steps: HTTP, tokenizing (default: 5ms)')
    .option('--out <file.json>', OUT)
    .action(async (model: string | undefined, flags: CalibrateDeviceFlags) => {
      const config = await configOf(io, device, keys, model);
      const { calibrateDevice } = await import('./calibrate-device.ts');
      await calibrateDevice(config, flags, io);
    });
}

const collect = (value: string, before: readonly string[] = []): readonly string[] => [...before, value];
