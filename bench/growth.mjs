// How Pagoda's rates grow with the batch, the context and the prompt, on one thread and on all, beside what the peaks of the same run
// allow: prints the table and writes one chart each to docs/.
import { writeFileSync } from 'node:fs';
import { availableParallelism, cpus } from 'node:os';
import { basename, join } from 'node:path';
import * as pagoda from './engines/pagoda.mjs';
import { readFlags, wholeNumber } from './flags.mjs';
import { growthChart } from './growth-chart.mjs';
import { measure } from './measure.mjs';
import { shippedModel } from './models.mjs';
import { bestPeaks, buildProbe, probePeaks } from './probe.mjs';
import { peaksText } from './report.mjs';
import { modelCosts, roofline } from './roofline.mjs';
import { median } from './statistics.mjs';
import { makeJob, parseWorkload } from './workloads.mjs';

const usage = `Usage: npm run bench:growth -- [options]
  --model          FILE.gguf (SmolLM2-135M Q4_1)
  --out            folder of the charts (docs)
  --rounds         1, of about two minutes
  --json           one line {machine, command, version, peaks, series} instead of the table
`;
const flags = readFlags(usage, {
  model: { type: 'string', default: shippedModel },
  out: { type: 'string', default: join(import.meta.dirname, '../docs') },
  rounds: { type: 'string', default: '1' },
  json: { type: 'boolean', default: false },
});
const numRounds = wholeNumber('rounds', flags.rounds);
const threadCounts = [...new Set([1, availableParallelism()])];
const PROBE_SECONDS = 0.5;
const WINDOW_STEPS = 8;

// The last one leaves room for what is generated in a context of 8,192.
const LENGTHS = [128, 256, 512, 1024, 2048, 4096, 8064];
const SERIES = [
  {
    file: 'growth-batch.svg',
    title: 'Decode: tokens/s against sequences at once (128 tokens of context)',
    xLabel: 'sequences at once',
    sizes: [1, 2, 4, 8, 16, 32, 64],
    workload: (size) => `x${size}@128`,
    numWindows: 3,
  },
  {
    file: 'growth-context.svg',
    title: 'Decode: tokens/s against context, one sequence',
    xLabel: 'tokens of context',
    sizes: LENGTHS,
    workload: (size) => `x1@${size}`,
    numWindows: 3,
  },
  {
    file: 'growth-prompt.svg',
    title: 'Prefill: tokens/s against the length of the prompt',
    xLabel: 'tokens of the prompt',
    sizes: LENGTHS,
    workload: (size) => `pp${size}`,
    numWindows: 1,
  },
];

/** Tokens/s of every window; the rounds go through all points, so that a slow minute of the machine does not bend one end of a curve. */
async function measureAll(points) {
  for (let round = 0; round < numRounds; round++)
    for (const { workload, threads, numWindows, rates } of points) {
      if (process.stderr.isTTY)
        process.stderr.write(`\r\x1b[Kround ${round + 1} of ${numRounds}: ${workload.name}, ${threads} threads`);
      const job = makeJob(workload, { round, numWindows, windowSteps: WINDOW_STEPS });
      // A short prompt warms up as well.
      if (job.kind === 'prefill') job.prompts[0] = job.prompts[0].slice(0, LENGTHS[0]);
      rates.push(...(await measure(pagoda, { model: flags.model, threads, settings: {}, job })).rates);
    }
  if (process.stderr.isTTY) process.stderr.write('\r\x1b[K');
}

const version = pagoda.check();
const costs = modelCosts(flags.model);
const probe = await buildProbe();
const probeAll = () => threadCounts.map((threads) => probePeaks(probe, threads, PROBE_SECONDS));
const points = SERIES.flatMap(({ file, sizes, workload, numWindows }) =>
  sizes.flatMap((size) =>
    threadCounts.map((threads) => ({
      file,
      size,
      threads,
      workload: parseWorkload(workload(size)),
      numWindows,
      rates: [],
    })),
  ),
);
const before = probeAll();
await measureAll(points);
const after = probeAll();
const peaks = threadCounts.map((threads, i) => ({ threads, ...bestPeaks(before[i], after[i]) }));

for (const point of points) {
  point.rate = median(point.rates);
  point.roofline = roofline(
    point.workload,
    costs,
    peaks.find(({ threads }) => threads === point.threads),
  );
}
for (const { file, title, xLabel, sizes } of SERIES) {
  const lines = threadCounts.flatMap((threads, colour) => {
    const own = points.filter((point) => point.file === file && point.threads === threads);
    const name = threads === 1 ? '1 thread' : `${threads} threads`;
    const measured = { name, colour, isLimit: false, rates: own.map(({ rate }) => rate) };
    if (own[0].roofline === null) return [measured];
    return [
      measured,
      { name: `roofline, ${name}`, colour, isLimit: true, rates: own.map((each) => each.roofline.rate) },
    ];
  });
  writeFileSync(
    join(flags.out, file),
    growthChart({ title, note: basename(flags.model, '.gguf'), xLabel, sizes, lines }),
  );
}

const machine = { cpu: cpus()[0]?.model ?? 'unknown', threads: threadCounts };
const command = `node bench/growth.mjs ${process.argv.slice(2).join(' ')}`.trim();
if (flags.json) {
  process.stdout.write(`${JSON.stringify({ machine, command, version, peaks, series: points })}\n`);
} else {
  const say = (text) => process.stdout.write(`${text}\n`);
  say(`${machine.cpu}, ${version}, ${basename(flags.model)}, rounds: ${numRounds}; ${command}`);
  for (const each of peaks) say(`peaks, ${each.threads} threads: ${peaksText(each)}`);
  say(
    '\n| workload | threads | tokens/s (median) | best | of the roofline | bound by |\n| --- | --- | --- | --- | --- | --- |',
  );
  for (const { workload, threads, rate, rates, roofline: roof } of points) {
    const [share, bound] = roof ? [`${((100 * rate) / roof.rate).toFixed(0)} %`, roof.bound] : ['', ''];
    const cells = [workload.name, threads, rate.toFixed(0), Math.max(...rates).toFixed(0), share, bound];
    say(`| ${cells.join(' | ')} |`);
  }
}
