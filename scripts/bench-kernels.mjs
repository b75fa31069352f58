// `npm run bench:kernels`: the rate of every kernel as a share of a peak probed in the same process, held against the shares that the
// kernels must reach (docs/performance-kernels.md). Links native/test/kernel_bench.cc with the very objects of the addon.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { buildNativeBench } from './native-bench.mjs';

const usage = `Usage: npm run bench:kernels -- [options], every value a list a,b,c
  --path     amx, avx512, avx2, portable (default: all this CPU can run but portable; with --all that too)
  --part     gemm, decode, prefill
  --format   Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16, F16, F32
  --shape    COLSxROWS of a weight
  --m        rows of activations
  --threads  1, 2, …
  --all      every shape of SmolLM2-135M, Qwen2.5-0.5B and Llama-3.2-1B, every format, M 1, 8, 32, 96, 512, every path (an hour)
  --json     {"gates":[{name,value,bound,ok}],…} with all measurements
`;
const formats = ['Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K', 'Q5_K', 'Q6_K', 'BF16', 'F16', 'F32'];
const parts = ['gemm', 'decode', 'prefill'];
const paths = ['amx', 'avx512', 'avx2', 'portable'];
/** Hidden size, the rows of q + k + v, feed-forward size and vocabulary. */
const models = [
  [576, 576 + 2 * 192, 1536, 49152],
  [896, 896 + 2 * 128, 4864, 151936],
  [2048, 2048 + 2 * 512, 8192, 128256],
];
const allShapes = models.flatMap(([hidden, qkv, ffn, vocab]) =>
  [
    [hidden, qkv],
    [hidden, hidden],
    [hidden, 2 * ffn],
    [ffn, hidden],
    [hidden, vocab],
  ].map((pair) => pair.join('x')),
);

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

function readOptions() {
  const list = { type: 'string' };
  try {
    return parseArgs({
      options: {
        path: list,
        part: list,
        format: list,
        shape: list,
        m: list,
        threads: list,
        all: { type: 'boolean', default: false },
        json: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    }).values;
  } catch (error) {
    return fail(`${error.message}\n${usage}`);
  }
}

function listOf(name, text, allowed) {
  const items = text.split(',');
  for (const item of items) {
    if (Array.isArray(allowed) ? !allowed.includes(item) : !allowed.test(item))
      fail(`--${name} ${text}: ${Array.isArray(allowed) ? `use ${allowed.join(', ')}` : 'positive numbers expected'}`);
  }
  return items;
}

/** The runs of the program that cover what was asked for; each is a table of lists. */
function plan(options, usable) {
  const counts = /^[1-9]\d{0,5}$/;
  const given = (name, allowed, fallback) =>
    options[name] === undefined ? fallback : listOf(name, options[name], allowed);
  const base = {
    path: given(
      'path',
      usable,
      options.all ? usable : usable.filter((path) => path !== 'portable' || usable.length === 1),
    ),
    threads: given('threads', counts, ['1', '2']),
  };
  const wanted = given('part', parts, parts);
  const attention = wanted.filter((part) => part !== 'gemm');
  const runs = [];
  if (wanted.includes('gemm')) {
    const asked = ['format', 'shape', 'm'].some((name) => options[name] !== undefined);
    const run = (format, shape, m) =>
      runs.push({
        part: ['gemm'],
        ...base,
        format: given('format', formats, format),
        shape: given('shape', /^[1-9]\d{0,5}x[1-9]\d{0,5}$/, shape),
        m: given('m', counts, m),
      });
    if (options.all) run(formats, allShapes, ['1', '8', '32', '96', '512']);
    else if (asked) run(formats, ['576x3072', '1536x576'], ['1', '32', '96', '512']);
    else {
      // What is gated, on one model: every format reading its weights once, and the formats with a bound of their own in batches.
      run(formats, ['576x3072', '1536x576'], ['1']); // K formats need multiples of 256 columns
      run(['Q4_0', 'Q4_1', 'Q4_K', 'Q8_0', 'BF16'], ['576x3072', '1536x576'], ['32', '512']);
    }
  }
  if (attention.length > 0)
    runs.push({ part: attention, kv: options.all ? ['f16', 'bf16', 'int8', 'f32'] : ['f16', 'bf16'], ...base });
  return runs;
}

/** Runs the program; every line of its output goes to `onLine`. */
async function run(program, lists, onLine) {
  const args = Object.entries(lists).map(([key, items]) => `${key}=${items.join(',')}`);
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code, signal) => resolve(code ?? signal));
  });
  for await (const line of createInterface({ input: child.stdout })) onLine(line);
  const status = await ended;
  if (status !== 0) throw new Error(`kernel_bench ${args.join(' ')} ended with ${status}`);
}

const options = readOptions();
if (options.help) {
  process.stdout.write(usage);
  process.exit(0);
}
const measurements = [];
const gates = [];
function take(line) {
  const result = JSON.parse(line);
  const share = result.peak > 0 ? result.rate / result.peak : undefined;
  measurements.push({ ...result, share });
  const what =
    result.kind === 'gemm'
      ? `${result.format} ${result.shape} M ${result.m}`
      : `${result.kind} ${result.format} ${result.shape}`;
  const name = `${result.path} ${what}, ${result.threads} thread${result.threads === 1 ? '' : 's'}`;
  const isGate = result.bound > 0;
  const ok = share >= result.bound;
  if (isGate)
    gates.push({ name, value: Number(share.toFixed(3)), bound: `>= ${result.bound} of ${result.peakName}`, ok });
  if (options.json) return;
  const mark = !isGate ? '    ' : ok ? 'ok  ' : 'FAIL';
  const rate = `${result.rate.toFixed(1).padStart(7)} ${result.unit.padEnd(6)}`;
  const of = share === undefined ? '' : `  ${share.toFixed(3)} of ${result.peakName} ${result.peak.toFixed(0)}`;
  process.stdout.write(`${mark} ${name.padEnd(46)} ${rate}${of}${isGate ? ` (>= ${result.bound})` : ''}\n`);
}
try {
  const program = await buildNativeBench('kernel_bench', [
    'bench_common',
    'bench_probes',
    'bench_gemm',
    'bench_attention',
  ]);
  const usable = [];
  await run(program, { part: ['paths'] }, (line) => usable.push(line));
  for (const lists of plan(
    options,
    paths.filter((path) => usable.includes(path)),
  ))
    await run(program, lists, take);
} catch (error) {
  fail(error.message);
}
const numFailed = gates.filter((gate) => !gate.ok).length;
if (options.json) process.stdout.write(`${JSON.stringify({ gates, measurements })}\n`);
process.stdout.write(`${gates.length - numFailed} passed, ${numFailed} failed\n`);
if (numFailed > 0) process.exitCode = 1;
