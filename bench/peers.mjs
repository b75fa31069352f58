// Pagoda beside its peers on this machine, interleaved in one run: same weights, same prompts, same threads.
import { writeFileSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';
import { basename, resolve } from 'node:path';
import { ENGINES } from './engines/index.mjs';
import { readFlags, usageError, wholeNumber } from './flags.mjs';
import { gatesFor } from './gates.mjs';
import { measure, rateOf } from './measure.mjs';
import { BASES, FORMATS, modelFile } from './models.mjs';
import { peersChart } from './peers-chart.mjs';
import { bestPeaks, buildProbe, cpuKind, probePeaks } from './probe.mjs';
import { burstText, peaksText, tableText } from './report.mjs';
import { modelCosts, roofline } from './roofline.mjs';
import { median } from './statistics.mjs';
import { makeJob, parseWorkload, WORKLOAD_FORMS, WORKLOADS } from './workloads.mjs';

const usage = `Usage: npm run bench:peers -- [options]; lists are written a,b,c; ends with 1 when a gate fails
  --quick          Q4_1; pp512, x32@128, x1@128; pagoda and llama: a few minutes. All that is there otherwise: hours
  --model          ${BASES.join(', ')} (made on demand), or FILE.gguf
  --formats        of a named model: ${FORMATS.join(', ')}
  --engines        ${Object.keys(ENGINES).join(', ')}
  --workloads      ${WORKLOAD_FORMS}
  --rounds         5; fewer give no gates
  --threads        as many as there are cores
  --windows        4 in each round
  --steps          16 decode steps in a window
  --no-sweep       each engine's first setting instead of the best of its candidates
  --json           one line {gates, machine, command, versions, skipped, peaks, rows} instead of the tables
  --svg FILE       the medians as a chart, by workload and format
`;
const flags = readFlags(usage, {
  model: { type: 'string', default: 'smollm2-135m' },
  formats: { type: 'string' },
  engines: { type: 'string' },
  workloads: { type: 'string' },
  rounds: { type: 'string', default: '5' },
  threads: { type: 'string', default: String(availableParallelism()) },
  windows: { type: 'string' },
  steps: { type: 'string' },
  quick: { type: 'boolean', default: false },
  'no-sweep': { type: 'boolean', default: false },
  json: { type: 'boolean', default: false },
  svg: { type: 'string' },
});

const say = (text) => flags.json || process.stdout.write(`${text}\n`);
const showProgress = (text) => process.stderr.isTTY && process.stderr.write(`\r\x1b[K${text}`);
const warn = (text) => process.stderr.write(`${process.stderr.isTTY ? '\r\x1b[K' : ''}${text}\n`);

function list(name, fallback, allowed) {
  const chosen = flags[name]?.split(',').map((each) => each.trim()) ?? fallback;
  const unknown = chosen.find((each) => !allowed.includes(each));
  if (unknown !== undefined) usageError(`--${name} ${unknown}: one or more of ${allowed.join(', ')}.`);
  return [...new Set(chosen)];
}

const whole = (name, fallback) => wholeNumber(name, flags[name] ?? fallback);
const numRounds = whole('rounds');
const threads = whole('threads');
const numWindows = whole('windows', flags.quick ? '3' : '4');
const windowSteps = whole('steps', flags.quick ? '8' : '16');
const formats = list('formats', flags.quick ? ['q4_1'] : FORMATS, FORMATS);
const wanted = list('engines', flags.quick ? ['pagoda', 'llama'] : Object.keys(ENGINES), Object.keys(ENGINES));
const workloads = (flags.workloads?.split(',') ?? (flags.quick ? ['pp512', 'x32@128', 'x1@128'] : WORKLOADS)).map(
  (name) => parseWorkload(name.trim()) ?? usageError(`--workloads ${name}: ${WORKLOAD_FORMS}.`),
);

function namedModel(base, format) {
  try {
    return modelFile(base, format);
  } catch (error) {
    return usageError(error.message);
  }
}

function chooseModels() {
  if (BASES.includes(flags.model))
    return formats.map((format) => ({ base: flags.model, format, path: namedModel(flags.model, format) }));
  if (!flags.model.endsWith('.gguf')) usageError(`--model ${flags.model}: a .gguf file, or ${BASES.join(', ')}.`);
  if (flags.formats) usageError('--formats is for the named models: a file has the format it has.');
  return [{ base: basename(flags.model, '.gguf'), format: '', path: resolve(flags.model) }];
}

/** name -> version of the engines that are there; the others are named aloud. */
function availableEngines() {
  const versions = {};
  const skipped = {};
  for (const name of wanted) {
    try {
      versions[name] = ENGINES[name].check();
    } catch (error) {
      skipped[name] = error.message;
      warn(`skipped: ${ENGINES[name].label}: ${error.message}`);
    }
  }
  return { versions, skipped };
}

/** The fastest of an engine's candidate settings, from one short measurement each. */
async function bestSettings(engine, workload, model) {
  const candidates = ENGINES[engine].settings(workload).slice(0, flags.quick ? 2 : undefined);
  if (candidates.length === 1 || flags['no-sweep']) return candidates[0];
  const tried = [];
  for (const settings of candidates) {
    const job = makeJob(workload, { round: -1, numWindows: 2, windowSteps });
    try {
      tried.push({ settings, rate: rateOf(await measure(ENGINES[engine], { model, threads, settings, job })) });
    } catch (error) {
      warn(`${ENGINES[engine].label} with ${JSON.stringify(settings)}: ${error.message}`);
    }
  }
  if (tried.length === 0) throw new Error('no setting worked');
  return tried.reduce((best, each) => (each.rate > best.rate ? each : best)).settings;
}

function summary(engine, settings, rounds) {
  const middle = (of) => median(rounds.map(of));
  return {
    engine,
    settings,
    median: middle(rateOf),
    best: Math.max(...rounds.flatMap(({ rates }) => rates)),
    rounds: rounds.map(rateOf),
    ...(rounds[0].seconds === undefined
      ? {}
      : {
          burst: {
            seconds: middle(({ seconds }) => seconds),
            ttft: middle(({ ttft }) => median(ttft)),
            tpot: middle(({ tpot }) => median(tpot)),
            clientCpuSeconds: middle(({ clientCpuSeconds }) => clientCpuSeconds),
          },
        }),
  };
}

/** All engines on one workload of one model: sweep, then A B A B. An engine that fails is named and left out of the rest. */
async function compare({ base, format, path }, workload, engines) {
  const running = new Map();
  const failures = {};
  const attempt = async (engine, work) => {
    try {
      return await work();
    } catch (error) {
      failures[engine] = error.message;
      running.delete(engine);
      warn(`failed: ${ENGINES[engine].label}, ${format} ${workload.name}: ${error.message}`);
      return null;
    }
  };
  for (const engine of engines.filter((name) => ENGINES[name].covers(workload, format))) {
    showProgress(`${format} ${workload.name}: settings of ${ENGINES[engine].label}`);
    const settings = await attempt(engine, () => bestSettings(engine, workload, path));
    if (settings) running.set(engine, { settings, rounds: [] });
  }
  for (let round = 0; round < numRounds; round++)
    for (const [engine, { settings, rounds }] of [...running]) {
      showProgress(`${format} ${workload.name}: round ${round + 1} of ${numRounds}, ${ENGINES[engine].label}`);
      const job = makeJob(workload, { round, numWindows, windowSteps });
      const result = await attempt(engine, () => measure(ENGINES[engine], { model: path, threads, settings, job }));
      if (result) rounds.push(result);
    }
  const results = [...running].map(([engine, { settings, rounds }]) => summary(engine, settings, rounds));
  const medians = Object.fromEntries(results.map((result) => [result.engine, result.median]));
  say(
    `${format} ${workload.name}: ${results.map(({ engine, median: rate }) => `${ENGINES[engine].label} ${rate.toFixed(1)}`).join(', ')} tokens/s`,
  );
  return { base, format, workload: workload.name, results, medians, failures };
}

const models = chooseModels();
const { versions, skipped } = availableEngines();
const engines = Object.keys(versions);
if (engines.length === 0) usageError('No engine is there.');
const probe = await buildProbe();
const probeSeconds = flags.quick ? 1 : 2;
const before = probePeaks(probe, threads, probeSeconds);
const rows = [];
for (const model of models)
  for (const workload of workloads)
    rows.push({ model, parsed: workload, ...(await compare(model, workload, engines)) });
showProgress('');
const after = probePeaks(probe, threads, probeSeconds);

const peaks = bestPeaks(before, after);
const kind = cpuKind(peaks);
const costs = new Map(models.map(({ path }) => [path, modelCosts(path)]));
const reported = rows.map(({ model, parsed, ...row }) => {
  const roof = roofline(parsed, costs.get(model.path), peaks);
  const share = roof && row.medians.pagoda !== undefined ? row.medians.pagoda / roof.rate : null;
  return { ...row, roofline: roof, share };
});
const gates = numRounds >= 5 ? gatesFor(kind, reported) : [];
// An engine that was there and failed in the middle is a failure of the run, not a peer that is absent.
for (const { format, workload, failures } of reported)
  for (const [engine, message] of Object.entries(failures))
    gates.push({ name: `${format} ${workload}: ${engine} ran`, value: message, bound: 'no error', ok: false });

if (flags.svg) writeFileSync(flags.svg, peersChart(reported, ENGINES));
if (flags.json) {
  const machine = { cpu: cpus()[0]?.model ?? 'unknown', kind, threads };
  const command = `node bench/peers.mjs ${process.argv.slice(2).join(' ')}`;
  process.stdout.write(
    `${JSON.stringify({ gates, machine, command, versions, skipped, peaks: { before, after }, rows: reported })}\n`,
  );
} else {
  say(`\n${cpus()[0]?.model}, ${kind} kind, ${threads} threads, ${numRounds} rounds, Node ${process.version}`);
  say(`node bench/peers.mjs ${process.argv.slice(2).join(' ')}`);
  for (const version of Object.values(versions)) say(version);
  say(`peaks before: ${peaksText(before)}\npeaks after:  ${peaksText(after)}\n`);
  say(tableText(reported, ENGINES));
  const bursts = burstText(reported, ENGINES);
  if (bursts) say(bursts);
  say('');
  if (numRounds < 5) say(`No gates: they need five rounds, not ${numRounds}.`);
  for (const { ok, name, value, bound } of gates) say(`${ok ? 'ok  ' : 'FAIL'} ${name}: ${value} (${bound})`);
}
const failed = gates.filter(({ ok }) => !ok).length;
process.stdout.write(`${gates.length - failed} passed, ${failed} failed\n`);
process.exitCode = failed > 0 ? 1 : 0;
