// How many scheduler steps per second the simulator replays on one core: 64 running sequences in a closed loop, prefix caching on,
// roofline cost model, everything recorded. Run `node scripts/build.mjs && node bench/simulator.mjs`; `--json` prints one line
// {"gates":[{name,value,bound,ok}]} instead of the table.

import { resolveDeployment } from '../dist/plan/resolve-deployment.js';
import { Simulation } from '../dist/sim/simulation.js';
import { parseLengths } from '../dist/workload/parse-lengths.js';
import { createSyntheticWorkload } from '../dist/workload/synthetic-workload.js';
import { readFlags } from './flags.mjs';

const flags = readFlags(
  `Usage: node bench/simulator.mjs [options]\n  --json           one line {gates} instead of the table\n`,
  {
    json: { type: 'boolean', default: false },
  },
);

const NUM_SEQUENCES = 64;
const STEPS_PER_RUN = 2000;
const NUM_RUNS = 60;
const BOUND_STEPS_PER_SECOND = 100_000;

const { deployment } = resolveDeployment({
  model: 'llama-3.1-8b',
  gpu: 'h100',
  maxNumSeqs: NUM_SEQUENCES,
  maxModelLen: 8192,
});
const workload = createSyntheticWorkload({
  name: '128 in, 1000-3000 out',
  seed: 0,
  numRequests: 1_000_000,
  arrivals: null,
  closedLoop: { concurrency: NUM_SEQUENCES, thinkSeconds: 0 },
  maxSeconds: null,
  prompt: parseLengths('128', '--prompt'),
  output: parseLengths('1000-3000', '--output'),
  rankCorrelation: 0,
  prefix: { kind: 'none' },
});

const simulation = new Simulation(deployment, workload);
const bytesBefore = process.memoryUsage().heapUsed;
let best = 0;
for (let i = 0; i < NUM_RUNS; i++) {
  const stepsBefore = simulation.numSteps;
  const start = process.hrtime.bigint();
  simulation.advance(STEPS_PER_RUN);
  best = Math.max(best, (simulation.numSteps - stepsBefore) / (Number(process.hrtime.bigint() - start) / 1e9));
}
const { scheduler } = simulation.result();
if (scheduler.meanRunning < NUM_SEQUENCES - 2) throw new Error('The batch was not full: the measurement is void.');

const value = Math.round(best);
const gate = {
  name: `simulated steps per second, ${NUM_SEQUENCES} running`,
  value,
  bound: BOUND_STEPS_PER_SECOND,
  ok: value >= BOUND_STEPS_PER_SECOND,
};
if (flags.json) {
  console.log(JSON.stringify({ gates: [gate] }));
} else {
  const heap = (process.memoryUsage().heapUsed - bytesBefore) / 2 ** 20;
  console.log(
    `${gate.ok ? 'ok  ' : 'FAIL'} ${gate.name}: ${value.toLocaleString('en')} (at least ${gate.bound.toLocaleString('en')}; best of ${NUM_RUNS})`,
  );
  console.log(
    `     ${scheduler.numSteps.toLocaleString('en')} steps in all, heap ${heap >= 0 ? '+' : ''}${heap.toFixed(1)} MiB`,
  );
}
console.log(`${gate.ok ? 1 : 0} passed, ${gate.ok ? 0 : 1} failed`);
process.exitCode = gate.ok ? 0 : 1;
