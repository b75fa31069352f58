// npm run test:reality: one workload on the server and on the simulator, side by side. Measures this machine's device (`pagoda
// calibrate device`) before and after `pagoda bench serve` loads a `pagoda serve`, replays the same workload with both
// calibrations, and holds the medians against each other. Everything runs as a user would run it, in processes of its own.

import { mkdtempSync, rmSync } from 'node:fs';
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
const workload = (['prompt', 'output', 'concurrency', 'num-requests'] as const).flatMap((name) => [
  `--${name}`,
  flags[name],
]);

function readFlags() {
  try {
    return parseArgs({
      options: {
        model: { type: 'string', default: defaultModel() },
        prompt: { type: 'string', default: '128' },
        output: { type: 'string', default: '64' },
        concurrency: { type: 'string', default: '8' },
        'num-requests': { type: 'string', default: '64' },
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

async function measured(): Promise<Medians> {
  const server = await ServedModel.start(flags.model, []);
  try {
    const load = ['--url', server.url, '--num-warmups', '4', '--disable-tqdm', '--json'];
    const text = await Promise.race([runPagoda('bench', 'serve', ...load, ...workload), server.ended]);
    const result = JSON.parse(text);
    if (result.client_bound) gates.note(`the client did not keep up: ${result.client_bound_reasons.join('; ')}`);
    return {
      ttftSeconds: result.median_ttft_ms / 1000,
      tpotSeconds: result.median_tpot_ms / 1000,
      tokensPerSecond: result.output_throughput,
    };
  } finally {
    // The second calibration must have the machine to itself.
    await server.close();
  }
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
  const models = [await simulated(before), await simulated(after)] as const;
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
