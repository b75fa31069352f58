// npm run test:reality: one workload on the server and on the simulator, side by side. Measures this machine's device (`pagoda
// calibrate device`) before and after `pagoda bench serve` loads a `pagoda serve`, adds what serving costs (`pagoda calibrate
// engine`, fitted to other workloads), replays the workload with both calibrations, and holds the medians against each other.
// Everything runs as a user would run it, in processes of its own.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Gates } from './gates.ts';
import { runPagoda } from './pagoda-command.ts';
import { ServedModel } from './served-model.ts';
import { defaultModel } from './shared-data.ts';

/** Share by which the simulated median may differ from the measured one. */
const MAX_ERROR = 0.15;

// Checks leave nothing in the user's cache; the processes started here inherit it.
process.env.PAGODA_PACKED_CACHE = 'false';

const flags = readFlags();
const workload = (['prompt', 'output', 'rate', 'num-requests'] as const).flatMap((name) => [`--${name}`, flags[name]]);

function readFlags() {
  try {
    return parseArgs({
      options: {
        model: { type: 'string', default: defaultModel() },
        prompt: { type: 'string', default: '128' },
        output: { type: 'string', default: '64' },
        // Open loop: users who wait for their last answer fall into step, and then their times say little.
        rate: { type: 'string', default: '6' },
        'num-requests': { type: 'string', default: '128' },
        json: { type: 'boolean' },
      },
    }).values;
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`);
    process.exit(2);
  }
}

interface Medians {
  readonly ttftSeconds: number;
  readonly tpotSeconds: number;
  readonly tokensPerSecond: number;
}

/** Other workloads than the one to predict: what serving costs on this machine is fitted to them. */
const SERVING_RUNS = [
  { prompt: 96, output: 96, concurrency: 1, 'num-requests': 12 },
  { prompt: 384, output: 32, concurrency: 1, 'num-requests': 12 },
  { prompt: 96, output: 96, concurrency: 4, 'num-requests': 24 },
  { prompt: 96, output: 96, concurrency: 12, 'num-requests': 48 },
];

/** What this check reads of a result of bench serve. */
interface BenchResult {
  readonly median_ttft_ms: number;
  readonly median_tpot_ms: number;
  readonly output_throughput: number;
  readonly client_bound: boolean;
  readonly client_bound_reasons: readonly string[];
}

async function measured(): Promise<Medians> {
  const server = await ServedModel.start(flags.model, []);
  try {
    const load = ['--url', server.url, '--num-warmups', '4', '--disable-tqdm', '--json'];
    const bench = (args: readonly string[]) =>
      Promise.race([runPagoda('bench', 'serve', ...load, ...args), server.ended]);
    // The first requests meet JavaScript that is not compiled yet.
    await bench(['--prompt', '64', '--output', '64', '--concurrency', '8', '--num-requests', '64', '--seed', '100']);
    const measureServing = async (round: number) => {
      for (const [i, run] of SERVING_RUNS.entries()) {
        // Prompts of their own: none of them may be found in the prefix cache.
        const seed = 101 + round * SERVING_RUNS.length + i;
        const args = Object.entries({ ...run, seed }).flatMap(([name, value]) => [`--${name}`, String(value)]);
        writeFileSync(servingRun(round, i), await bench(args));
      }
    };
    // In turns, as this machine may change its speed meanwhile: what serving costs and the workload, twice.
    const results: BenchResult[] = [];
    for (const round of [0, 1]) {
      await measureServing(round);
      results.push(JSON.parse(await bench([...workload, '--seed', String(round)])));
    }
    for (const { client_bound, client_bound_reasons } of results) {
      if (client_bound) gates.note(`the client did not keep up: ${client_bound_reasons.join('; ')}`);
    }
    const mean = (name: 'median_ttft_ms' | 'median_tpot_ms' | 'output_throughput') =>
      results.reduce((sum, result) => sum + result[name], 0) / results.length;
    return {
      ttftSeconds: mean('median_ttft_ms') / 1000,
      tpotSeconds: mean('median_tpot_ms') / 1000,
      tokensPerSecond: mean('output_throughput'),
    };
  } finally {
    // The second calibration must have the machine to itself.
    await server.close();
  }
}

const servingRun = (round: number, i: number) => join(folder, `serving-${round}-${i}.json`);

/** The device's prices with what serving adds to them. */
async function served(device: string): Promise<string> {
  const out = device.replace('.json', '-served.json');
  const runs = [0, 1].flatMap((round) => SERVING_RUNS.flatMap((_, i) => ['--bench', servingRun(round, i)]));
  await runPagoda('calibrate', 'engine', flags.model, '--calibration', device, ...runs, '--out', out);
  return out;
}

async function simulated(calibration: string): Promise<Medians> {
  const text = await runPagoda('simulate', flags.model, '--calibration', calibration, ...workload, '--json');
  const result = JSON.parse(text).configurations[0];
  return {
    ttftSeconds: result.ttft_seconds.p50,
    tpotSeconds: result.tpot_seconds.p50,
    tokensPerSecond: result.output_tokens_per_second,
  };
}

const gates = new Gates();
const folder = mkdtempSync(join(tmpdir(), 'pagoda-reality-'));
try {
  const [before, after] = [join(folder, 'before.json'), join(folder, 'after.json')];
  await runPagoda('calibrate', 'device', flags.model, '--out', before);
  const real = await measured();
  await runPagoda('calibrate', 'device', flags.model, '--out', after);
  const models = [await simulated(await served(before)), await simulated(await served(after))] as const;
  const note = (title: string, cells: readonly string[]) =>
    gates.note(title.padEnd(16) + cells.map((cell) => cell.padStart(20)).join(''));
  const row = (title: string, unit: number, of: (medians: Medians) => number) =>
    note(
      title,
      [real, ...models].map((medians) => (of(medians) * unit).toFixed(2)),
    );
  note('', ['measured', 'simulated (before)', 'simulated (after)']);
  row('TTFT p50 (ms)', 1000, (medians) => medians.ttftSeconds);
  row('TPOT p50 (ms)', 1000, (medians) => medians.tpotSeconds);
  row('output tokens/s', 1, (medians) => medians.tokensPerSecond);
  // A machine that changed its speed meanwhile shows in the two calibrations; the model is held against their mean.
  const error = (of: (medians: Medians) => number) => Math.abs((of(models[0]) + of(models[1])) / 2 / of(real) - 1);
  gates.atMost(
    'TTFT p50, simulated against measured',
    error((medians) => medians.ttftSeconds),
    MAX_ERROR,
  );
  gates.atMost(
    'TPOT p50, simulated against measured',
    error((medians) => medians.tpotSeconds),
    MAX_ERROR,
  );
} catch (error) {
  gates.check('every command ran', (error as Error).message, 'no error', false);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
gates.finish();
