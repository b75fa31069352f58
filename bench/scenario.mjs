// The scenario 50 x (800 + 300): a closed loop of clients that each send the next request when the last one ends, started over ten
// seconds, first minute left out; then the highest concurrency and the highest Poisson rate that hold both targets, by bisection.
// Closed loops run on the client of the peers bench; Poisson arrivals on `pagoda bench serve`. A load holds when the 95th percentiles
// of TTFT and of each request's TPOT meet the targets.
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { RandomSource } from '../dist/workload/random-source.js';
import { ENGINES } from './engines/index.mjs';
import { readFlags, usageError, wholeNumber } from './flags.mjs';
import { complete, tpotOf } from './http-client.mjs';
import { shippedModel } from './models.mjs';
import { buildProbe, probePeaks } from './probe.mjs';
import { modelCosts, roofline } from './roofline.mjs';
import { startServer } from './server-process.mjs';
import { quantile } from './statistics.mjs';
import { randomTokens } from './workloads.mjs';

const TTFT_SECONDS = 1.5;
const TPOT_SECONDS = 0.05;
const START_SECONDS = 10;
const LEFT_OUT_SECONDS = 60;

const usage = `Usage: npm run bench:scenario -- [options]
  --engine         pagoda or llama-server
  --model          FILE.gguf
  --concurrency    50 clients
  --seconds        180, of which the first ${LEFT_OUT_SECONDS} are left out
  --threads        as many as there are cores
  --prompt         800 tokens
  --output         300 tokens
  --search         the most clients and the highest Poisson rate that hold the targets
  --json           one line with everything
`;
const flags = readFlags(usage, {
  engine: { type: 'string', default: 'pagoda' },
  model: { type: 'string', default: shippedModel },
  concurrency: { type: 'string', default: '50' },
  seconds: { type: 'string', default: '180' },
  threads: { type: 'string', default: String(availableParallelism()) },
  prompt: { type: 'string', default: '800' },
  output: { type: 'string', default: '300' },
  search: { type: 'boolean', default: false },
  json: { type: 'boolean', default: false },
});
/** No prompt comes twice in a run, so that no load finds another's in the prefix cache; every run has the same ones. */
const prompts = new RandomSource(0, 'scenario');
const [concurrency, seconds, threads, promptTokens, outputTokens] = [
  'concurrency',
  'seconds',
  'threads',
  'prompt',
  'output',
].map((name) => wholeNumber(name, flags[name]));
const engine = ENGINES[flags.engine];
if (!engine?.server) usageError(`--engine ${flags.engine}: one of pagoda, llama-server.`);
if (seconds <= LEFT_OUT_SECONDS)
  usageError(`--seconds ${seconds}: more than the ${LEFT_OUT_SECONDS} that are left out.`);

/** Requests that began after the part left out and ended before the end; tokens/s from every reply that ended in between. */
async function closedLoop(port, numClients) {
  const replies = [];
  const started = performance.now() / 1000;
  const end = started + seconds;
  const cpu = process.cpuUsage();
  const client = async (index) => {
    await sleep((1000 * START_SECONDS * index) / numClients);
    while (performance.now() / 1000 < end)
      replies.push(await complete(port, randomTokens(promptTokens, prompts), outputTokens));
  };
  await Promise.all(Array.from({ length: numClients }, (_, index) => client(index)));
  const { user, system } = process.cpuUsage(cpu);
  const from = started + LEFT_OUT_SECONDS;
  const ended = replies.filter(({ last }) => last >= from && last < end);
  const inside = replies.filter(({ sent }) => sent >= from && sent < end);
  if (ended.length === 0 || inside.length === 0)
    throw new Error(`no request ended between ${LEFT_OUT_SECONDS} and ${seconds} s: take more --seconds`);
  const percentiles = (values) => ({ p50: quantile(values, 0.5), p95: quantile(values, 0.95) });
  const ttft = percentiles(inside.map(({ first, sent }) => first - sent));
  const tpot = percentiles(inside.map(tpotOf));
  return {
    load: `${numClients} clients`,
    numRequests: inside.length,
    ttft,
    tpot,
    outputTokensPerSecond: ended.reduce((sum, { numTokens }) => sum + numTokens, 0) / (seconds - LEFT_OUT_SECONDS),
    clientCpuShare: (user + system) / 1e6 / seconds,
    holds: ttft.p95 <= TTFT_SECONDS && tpot.p95 <= TPOT_SECONDS,
  };
}

function poisson(port, rate) {
  const numPrompts = Math.max(20, Math.ceil(rate * seconds));
  const args = [
    'bench',
    'serve',
    '--url',
    `http://127.0.0.1:${port}`,
    '--model',
    'm',
    '--skip-tokenizer-init',
    '--json',
  ];
  args.push('--random-input-len', promptTokens, '--random-output-len', outputTokens, '--request-rate', rate);
  args.push('--num-prompts', numPrompts, '--seed', prompts.below(1e9), '--disable-tqdm');
  args.push('--percentile-metrics', 'ttft,tpot', '--metric-percentiles', '95');
  const program = join(import.meta.dirname, '../bin/pagoda.js');
  const run = spawnSync(process.execPath, [program, ...args.map(String)], { encoding: 'utf8', maxBuffer: 1 << 28 });
  if (run.status !== 0) throw new Error(`pagoda bench serve ended with ${run.status}: ${run.stderr.slice(-500)}`);
  const result = JSON.parse(run.stdout);
  const [ttft, tpot] = [result.p95_ttft_ms / 1000, result.p95_tpot_ms / 1000];
  if (!(ttft > 0) || !(tpot > 0)) throw new Error('pagoda bench serve gave no percentiles');
  return { holds: result.failed === 0 && ttft <= TTFT_SECONDS && tpot <= TPOT_SECONDS, ttft, tpot };
}

/** The most that holds, from `low`, which does (0 = nothing), to below `high`; `middle` gives the next try or null when close enough. */
async function highest([low, top], middle, holds) {
  for (let next = middle(low, top); next !== null; next = middle(low, top)) {
    if (await holds(next)) low = next;
    else top = next;
  }
  return low;
}

/** Clients at which a step of all of them, its share of new prompts included, takes the target TPOT; and the tokens/s of that. */
function allowed(costs, peaks) {
  let best = null;
  for (let size = 1; size <= 512; size++) {
    const decode = roofline(
      { kind: 'decode', numSequences: size, depth: promptTokens + outputTokens / 2 },
      costs,
      peaks,
    );
    const prefill = roofline({ kind: 'prefill', numTokens: promptTokens }, costs, peaks);
    if (decode === null) return null;
    // Every output token of a sequence carries promptTokens / outputTokens prompt tokens of the sequence that takes its place.
    const stepSeconds = size / decode.rate + (size * promptTokens) / outputTokens / prefill.rate;
    if (stepSeconds > TPOT_SECONDS) break;
    best = { clients: size, outputTokensPerSecond: size / stepSeconds, stepSeconds };
  }
  return best;
}

const version = engine.check();
const peaks = probePeaks(await buildProbe(), threads, 2);
const limit = allowed(modelCosts(flags.model), peaks);
const mostClients = flags.search ? 2 * concurrency : concurrency;
const settings = { numSlots: mostClients, ubatch: 512 };
const contextTokens = promptTokens + outputTokens + 64;
const server = await startServer((port) =>
  engine.server({ model: flags.model, threads, port, settings, numSeqs: mostClients, contextTokens }),
);
const report = {
  version,
  threads,
  targets: { ttftSeconds: TTFT_SECONDS, tpotSeconds: TPOT_SECONDS },
  rooflineAllows: limit,
};
try {
  await complete(server.port, randomTokens(64, new RandomSource(1, 'warm-up')), 4);
  report.steady = await closedLoop(server.port, concurrency);
  if (flags.search) {
    report.highestConcurrency = await highest(
      report.steady.holds ? [concurrency, mostClients + 1] : [0, concurrency],
      (low, top) => (top - low > 1 ? Math.floor((low + top) / 2) : null),
      async (clients) => (await closedLoop(server.port, clients)).holds,
    );
    // More requests per second than the steady loop ends cannot be sustained for long: the search begins at twice that.
    const most = (2 * report.steady.outputTokensPerSecond) / outputTokens;
    report.highestPoissonRate = await highest(
      [0, most],
      (low, top) => (top - low > 0.05 * most ? (low + top) / 2 : null),
      (rate) => poisson(server.port, rate).holds,
    );
  }
} finally {
  await server.end();
}
if (flags.json) process.stdout.write(`${JSON.stringify(report)}\n`);
else {
  const { steady } = report;
  const lines = [
    `${version}, ${threads} threads, ${promptTokens} + ${outputTokens} tokens`,
    `${steady.load}: TTFT p50 ${steady.ttft.p50.toFixed(2)} s, p95 ${steady.ttft.p95.toFixed(2)} s (target ${TTFT_SECONDS}); TPOT p50 ${(1000 * steady.tpot.p50).toFixed(1)} ms, p95 ${(1000 * steady.tpot.p95).toFixed(1)} ms (target ${1000 * TPOT_SECONDS})`,
    `${steady.outputTokensPerSecond.toFixed(1)} output tokens/s over ${steady.numRequests} requests; the client took ${(100 * steady.clientCpuShare).toFixed(1)} % of a core`,
    limit
      ? `the roofline allows ${limit.clients} clients, ${limit.outputTokensPerSecond.toFixed(0)} output tokens/s`
      : 'the roofline allows less than one client',
  ];
  if (flags.search)
    lines.push(
      `holds up to ${report.highestConcurrency} clients and ${report.highestPoissonRate.toFixed(3)} requests/s (Poisson)`,
    );
  process.stdout.write(`${lines.join('\n')}\n`);
}
