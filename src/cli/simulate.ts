// `pagoda simulate`: resolves deployments and workload from flags, runs them, prints what came out side by side.

import { closeSync, openSync, writeFileSync, writeSync } from 'node:fs';
import type { Command } from 'commander';
import { PagodaError } from '../errors.ts';
import { type DeploymentRequest, type ResolvedDeployment, resolveDeployment } from '../plan/resolve-deployment.ts';
import { htmlReport } from '../sim/html-report.ts';
import { ROUTING_POLICIES } from '../sim/router.ts';
import type { LatencyTargets } from '../sim/run-recorder.ts';
import { Simulation, type SimulationOptions, type SimulationResult } from '../sim/simulation.ts';
import { simulationJson } from '../sim/simulation-json.ts';
import { Timeline } from '../sim/timeline.ts';
import type { Workload } from '../workload/workload.ts';
import { choiceValue, secondsValue } from './bench-values.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import { changedDeployment, deploymentRequestOf } from './deployment-flags.ts';
import { runBar } from './run-bar.ts';
import type { SimulateFlags } from './simulate-flags.ts';
import { simulationReport } from './simulate-report.ts';
import { workloadOf } from './workload-flags.ts';

/** Steps between two looks at the terminal and at interrupts. */
const STEPS_PER_TURN = 5000;

interface Configuration {
  /** As its column is called. */
  readonly label: string;
  readonly resolved: ResolvedDeployment;
}

export async function simulateCommand(
  command: Command,
  model: string | undefined,
  flags: SimulateFlags,
  io: CliIo,
): Promise<void> {
  const request = deploymentRequestOf(command, model);
  requireGpu(request);
  const configurations = configurationsOf(request, flags);
  const workload = workloadOf(flags);
  const options = optionsOf(flags);
  const results: SimulationResult[] = [];
  const watch = watchInterrupts(io);
  try {
    for (const [index, configuration] of configurations.entries()) {
      const timelinePath = index === 0 ? flags.timeline : undefined;
      results.push(await runOne(configuration, workload, { ...options, timelinePath, io, watch }));
    }
  } finally {
    watch.stop();
  }
  const named = results.map((result, index) => ({ label: configurations[index]!.label, result }));
  const notes = [...new Set(configurations.flatMap(({ resolved }) => resolved.notes))];
  if (flags.html !== undefined) writeText('--html', flags.html, htmlReport(named, { targets: options.targets, notes }));
  if (flags.json === true) {
    io.stdout.write(`${JSON.stringify(simulationJson(named, { targets: options.targets, notes }), null, 2)}\n`);
  } else {
    io.stdout.write(simulationReport(named, { targets: options.targets, notes }));
  }
}

/** The given flags first, then one per --compare. */
function configurationsOf(request: DeploymentRequest, { compare = [] }: SimulateFlags): Configuration[] {
  const configurations: Configuration[] = [
    { label: compare.length === 0 ? 'simulated' : 'given flags', resolved: resolveDeployment(request) },
  ];
  for (const changes of compare) {
    const isDefault = changes.trim() === '' || changes.trim() === 'defaults';
    configurations.push(
      isDefault
        ? { label: 'default flags', resolved: resolveDeployment(defaultsOf(request)) }
        : { label: changes.trim(), resolved: resolveDeployment(changedDeployment(request, changes, '--compare')) },
    );
  }
  return configurations;
}

/** `vllm serve MODEL` and nothing more on the same machine: it takes one GPU, however many there are. */
function defaultsOf({ model, gpu, engineProfile, calibration }: DeploymentRequest): DeploymentRequest {
  return {
    model,
    gpu: gpu ?? null,
    dataParallelSize: 1,
    engineProfile: engineProfile ?? null,
    calibration: calibration ?? null,
  };
}

interface RunOptions extends SimulationOptions {
  readonly timelinePath: string | undefined;
  readonly io: CliIo;
  readonly watch: InterruptWatch;
}

async function runOne(
  { label, resolved }: Configuration,
  workload: Workload,
  run: RunOptions,
): Promise<SimulationResult> {
  const { deployment } = resolved;
  const sink = run.timelinePath === undefined ? null : new FileSink('--timeline', run.timelinePath);
  const timeline =
    sink === null
      ? null
      : new Timeline((text) => sink.write(text), {
          numReplicas: deployment.numReplicas,
          title: `${deployment.name} (${label})`,
        });
  const simulation = new Simulation(deployment, workload, { ...run, observer: timeline });
  const bar = runBar(run.io.stderr, workload.numRequests ?? 0, workload.numRequests === null);
  try {
    while (!simulation.advance(STEPS_PER_TURN)) {
      bar.update(simulation.numEnded);
      await new Promise((resolve) => setImmediate(resolve));
      if (run.watch.isInterrupted) throw new CliExit(130);
    }
  } finally {
    bar.stop();
    timeline?.end();
    sink?.close();
  }
  const result = simulation.result();
  if (result.summary.numCompleted > 0) return result;
  if (result.summary.numFailed === 0) {
    throw new PagodaError('bad_config', 'The workload has no requests: give a longer --duration or a higher --rate.', {
      param: '--duration',
    });
  }
  throw new PagodaError(
    'bad_config',
    `No request of the workload can be served by ${deployment.name}. The first refusal: ${result.firstRefusal ?? 'none'}`,
    { param: '--max-model-len' },
  );
}

interface InterruptWatch {
  readonly isInterrupted: boolean;
  stop(): void;
}

function watchInterrupts(io: CliIo): InterruptWatch {
  let isInterrupted = false;
  const stop = io.onInterrupt(() => {
    isInterrupted = true;
  });
  return {
    get isInterrupted() {
      return isInterrupted;
    },
    stop,
  };
}

function optionsOf(flags: SimulateFlags): SimulationOptions {
  const time = (name: 'ttft' | 'tpot' | 'e2e') => {
    const text = flags[name];
    return text === undefined ? null : secondsValue(name, text);
  };
  const targets: LatencyTargets = { ttftSeconds: time('ttft'), tpotSeconds: time('tpot'), e2eSeconds: time('e2e') };
  const routing =
    flags.routing === undefined ? 'least-loaded' : choiceValue('routing', flags.routing, ROUTING_POLICIES);
  return { routing, targets, observer: null };
}

/** Times come from a GPU's peaks. */
function requireGpu(request: DeploymentRequest): void {
  if ((request.gpu ?? request.calibration ?? null) !== null) return;
  throw new PagodaError('bad_config', '--gpu is needed to tell how long steps take, like --gpu a100-80gb:4.', {
    param: '--gpu',
  });
}

function writeText(option: string, path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (cause) {
    throw unwritable(option, path, cause);
  }
}

/** Collects small pieces before they go to the file. */
class FileSink {
  readonly #file: number;
  #pending: string[] = [];
  #numPending = 0;

  constructor(option: string, path: string) {
    try {
      this.#file = openSync(path, 'w');
    } catch (cause) {
      throw unwritable(option, path, cause);
    }
  }

  write(text: string): void {
    this.#pending.push(text);
    this.#numPending += text.length;
    if (this.#numPending > 1 << 18) this.#flush();
  }

  close(): void {
    this.#flush();
    closeSync(this.#file);
  }

  #flush(): void {
    const bytes = Buffer.from(this.#pending.join(''));
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
    this.#pending = [];
    this.#numPending = 0;
  }
}

function unwritable(option: string, path: string, cause: unknown): PagodaError {
  const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
  return new PagodaError('bad_config', `${option} ${path}: cannot be written (${code}).`, { param: option, cause });
}
