// npm run test:reality: one workload on the server and on the simulator, side by side. Measures this machine's device (`pagoda
// calibrate device`) before and after `pagoda bench serve` loads a `pagoda serve`, replays the same workload with both
// calibrations, and holds the medians against each other. Everything runs as a user would run it, in processes of its own.

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { Gates } from './gates.ts';

const root = resolve(import.meta.dirname, '../..');
const shared = process.env.PAGODA_SHARED ?? join(root, '../shared');
const smollm2 = join(shared, 'models/smollm2-135m-instruct/SmolLM2-135M-Instruct.Q4_1.gguf');
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
        model: { type: 'string', default: existsSync(smollm2) ? smollm2 : 'pagoda-mini' },
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

/** What a `pagoda` command printed; its standard error is shown, and any exit code but 0 is an error. */
async function pagoda(...args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, [join(root, 'bin/pagoda.js'), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => {
    text += part;
  });
  const code = await exitOf(child);
  if (code !== 0) throw new Error(`pagoda ${args.join(' ')}: exit code ${code}`);
  return text;
}

function exitOf(child: ChildProcess): Promise<number | null> {
  return new Promise((done, reject) => {
    child.once('error', reject);
    child.once('close', done);
  });
}

async function measured(): Promise<Medians> {
  const server = spawn(process.execPath, [join(root, 'bin/pagoda.js'), 'serve', flags.model, '--port', '0'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = exitOf(server);
  const ended = exited.then((code) => {
    throw new Error(`pagoda serve ended with exit code ${code} before the load was done`);
  });
  try {
    const url = await Promise.race([addressOf(server), ended]);
    const load = ['--url', url, '--num-warmups', '4', '--disable-tqdm', '--json'];
    const text = await Promise.race([pagoda('bench', 'serve', ...load, ...workload), ended]);
    const result = JSON.parse(text);
    if (result.client_bound) gates.note(`the client did not keep up: ${result.client_bound_reasons.join('; ')}`);
    return {
      ttftSeconds: result.median_ttft_ms / 1000,
      tpotSeconds: result.median_tpot_ms / 1000,
      tokensPerSecond: result.output_throughput,
    };
  } finally {
    ended.catch(() => {});
    server.kill('SIGTERM');
    // The second calibration must have the machine to itself.
    await exited;
  }
}

/** From the line that a server prints when it is ready. */
async function addressOf(server: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: server.stdout! })) {
    const url = / on (http:\S+)\. Try/.exec(line)?.[1];
    if (url !== undefined) return url;
  }
  throw new Error('pagoda serve printed no address');
}

async function simulated(calibration: string): Promise<Medians> {
  const text = await pagoda('simulate', flags.model, '--calibration', calibration, ...workload, '--json');
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
  await pagoda('calibrate', 'device', flags.model, '--out', before);
  const real = await measured();
  await pagoda('calibrate', 'device', flags.model, '--out', after);
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
