// npm run bench:overhead: what serving costs besides the model. Serves a model over HTTP, loads it with 32 streams and with one, and
// reads where the time went from outside: CPU time of the front, of the engine's JavaScript and of the device's threads, and the step
// time split in /metrics. Shares of CPU time do not depend on what else the machine does; time on the path of a step does.
//
// Flags: --model, --output (tokens per stream), --json.

import { parseArgs } from 'node:util';
import { Gates } from './gates.ts';
import { runPagoda } from './pagoda-command.ts';
import { type CpuSeconds, ServedModel } from './served-model.ts';
import { defaultModel } from './shared-data.ts';

/** Bounds of the promise: share of the time at 32 streams, seconds per step at one. */
const MAX_SHARE = 0.05;
const MAX_STEP_SECONDS = 0.00015;

const flags = readFlags();
const gates = new Gates();

function readFlags() {
  try {
    return parseArgs({
      options: {
        model: { type: 'string', default: defaultModel() },
        output: { type: 'string', default: '192' },
        json: { type: 'boolean' },
      },
    }).values;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`);
    process.exit(2);
  }
}

interface Sample {
  readonly cpu: CpuSeconds;
  readonly phases: ReadonlyMap<string, number>;
  readonly steps: number;
  readonly tokens: number;
  readonly time: number;
}

async function sample(server: ServedModel): Promise<Sample> {
  const phases = await server.metric('pagoda:step_phase_seconds_total', 'phase');
  const steps = (await server.metric('pagoda:engine_steps_total')).get('') ?? 0;
  const tokens = (await server.metric('vllm:generation_tokens_total')).get('') ?? 0;
  return { cpu: server.cpuSeconds(), phases, steps, tokens, time: performance.now() / 1000 };
}

/** The load comes from a process of its own, whose time counts nowhere. */
async function load(server: ServedModel, concurrency: number, numRequests: number): Promise<void> {
  const args = ['--url', server.url, '--num-warmups', '0', '--disable-tqdm', '--json'];
  const workload = { prompt: '32', output: flags.output, concurrency, 'num-requests': numRequests };
  for (const [name, value] of Object.entries(workload)) args.push(`--${name}`, String(value));
  await Promise.race([runPagoda('bench', 'serve', ...args), server.ended]);
}

interface Cost {
  readonly steps: number;
  readonly tokens: number;
  readonly wallSeconds: number;
  readonly phase: (name: string) => number;
  readonly cpu: CpuSeconds;
}

async function measured(server: ServedModel, concurrency: number, numRequests: number): Promise<Cost> {
  const before = await sample(server);
  await load(server, concurrency, numRequests);
  const after = await sample(server);
  const cpu = {
    front: after.cpu.front - before.cpu.front,
    engine: after.cpu.engine - before.cpu.engine,
    device: after.cpu.device - before.cpu.device,
  };
  return {
    steps: after.steps - before.steps,
    tokens: after.tokens - before.tokens,
    wallSeconds: after.time - before.time,
    phase: (name) => (after.phases.get(name) ?? 0) - (before.phases.get(name) ?? 0),
    cpu,
  };
}

/** Of all CPU time: JavaScript of both processes, and the share of the device's threads that went into sampling. */
function cpuShare({ cpu, phase }: Cost): number {
  const sampling = (cpu.device * phase('sampling')) / phase('device');
  return (cpu.front + cpu.engine + sampling) / (cpu.front + cpu.engine + cpu.device);
}

/** Of the wall time between two results: all that is not the model's own work on the device. A launch is beside it, but for the first. */
function pathShare({ phase }: Cost): number {
  return (phase('handover') + phase('sampling')) / (phase('handover') + phase('device'));
}

function report(title: string, cost: Cost): void {
  const { cpu, phase, steps } = cost;
  const each = (seconds: number) => `${((seconds / steps) * 1000).toFixed(3)} ms`;
  const phases = (...names: string[]) => names.map((name) => `${name} ${each(phase(name))}`).join(', ');
  gates.note(`${title}: ${steps} steps, ${cost.tokens} tokens in ${cost.wallSeconds.toFixed(1)} s. Per step:`);
  gates.note(`  CPU time: front ${each(cpu.front)}, engine ${each(cpu.engine)}, device ${each(cpu.device)}`);
  gates.note(`  on the path: ${phases('handover', 'device')}`);
  gates.note(`  of the device: ${phases('attention', 'linear', 'rows', 'sampling', 'serial')}`);
  gates.note(`  beside it: ${phases('schedule', 'fill', 'launch', 'update', 'delivery')}`);
}

try {
  const server = await ServedModel.start(flags.model, [
    '--max-num-seqs',
    '32',
    '--max-model-len',
    '1024',
    '--disable-log-stats',
  ]);
  try {
    await load(server, 32, 32);
    const many = await measured(server, 32, 64);
    report('32 streams', many);
    const one = await measured(server, 1, 3);
    report('one stream', one);
    gates.atMost(
      'share of CPU time in JavaScript, IPC, HTTP and sampling at 32 streams',
      round(cpuShare(many)),
      MAX_SHARE,
    );
    gates.atMost('share of wall time between steps and in sampling at 32 streams', round(pathShare(many)), MAX_SHARE);
    const path = (one.phase('handover') + one.phase('sampling') + one.phase('serial')) / one.steps;
    gates.atMost('seconds per step at one stream that are not the model', round(path), MAX_STEP_SECONDS);
    const parts = ['attention', 'linear', 'rows', 'sampling', 'serial'].reduce(
      (sum, name) => sum + many.phase(name),
      0,
    );
    gates.atLeast('share of device time that its parts explain', round(parts / many.phase('device')), 0.9);
  } finally {
    await server.close();
  }
} catch (error) {
  gates.check('every command ran', (error as Error).message, 'no error', false);
}
gates.finish();

function round(value: number): number {
  return Number(value.toPrecision(3));
}
