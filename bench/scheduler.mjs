// How many steps per second the scheduler plans and takes back when the device costs nothing: 64 running sequences that each
// decode one token per step, prefix caching on, a prompt of 128 tokens, a new sequence for each one that ends.
// Run `npm run bench:scheduler`; `--json` prints one line {"gates":[{name,value,bound,ok}]} instead of the table.

import { Scheduler } from '../dist/core/scheduler.js';
import { readFlags } from './flags.mjs';

const flags = readFlags(
  `Usage: npm run bench:scheduler -- [options]\n  --json           one line {gates} instead of the table\n`,
  {
    json: { type: 'boolean', default: false },
  },
);

const NUM_SEQUENCES = 64;
// Many short runs and the best of them: each is long enough to contain ends, admissions and hundreds of filled blocks, and short
// enough that some are not disturbed by whatever else the machine does.
const NUM_STEPS = 500;
const NUM_RUNS = 200;
const BOUND_STEPS_PER_SECOND = 100_000;

const OPTIONS = {
  maxNumSeqs: NUM_SEQUENCES,
  maxNumBatchedTokens: 2048,
  chunkedPrefillSize: 512,
  enableChunkedPrefill: true,
  enablePrefixCaching: true,
  policy: 'fcfs',
  watermark: 0.01,
  maxModelLen: 8192,
  kvAllocation: 'paged',
  useKvCache: true,
  blockSize: 16,
  numBlocks: 20_000,
  groups: [{ window: 0 }],
  maxNumQueuedReqs: 256,
  cacheSecret: new Uint8Array(32).fill(7),
  speculation: null,
};

const SAMPLING = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: [],
  allowedTokenIds: null,
  badWords: [],
  minTokens: 0,
  eosTokenIds: [2],
  ignoreEos: false,
  stopTokenIds: [],
  seed: 0n,
  logprobs: null,
  promptLogprobs: null,
};

/** Requests of different prompts; lengths are spread so that ends and admissions come one by one, as in a server at work. */
function makeRequest(number) {
  const promptTokenIds = Array.from({ length: 128 }, (_, i) => 3 + ((number * 131 + i * 7) % 50_000));
  const maxTokens = 1000 + ((number * 613) % 2000);
  return {
    id: `request-${number}`,
    promptTokenIds,
    sampling: { ...SAMPLING, maxTokens },
    priority: 0,
    arrivalTime: 0,
    cacheSalt: null,
  };
}

/** Steps per second, best run; `isAhead` plans a step before the result of the one before it is known, as the engine does. */
function measure(isAhead) {
  const scheduler = new Scheduler(OPTIONS);
  // A device that costs nothing: results it had ready.
  const results = Array.from({ length: 64 }, (_, step) =>
    Int32Array.from({ length: NUM_SEQUENCES }, (_, i) => 3 + ((step * 7 + i * 13) % 50_000)),
  );
  let numRequests = 0;
  let now = 0;
  const take = (plan) => {
    for (const progress of scheduler.update(plan, results[now % 64], null, now)) {
      if (progress.finishReason !== null) scheduler.add(makeRequest(numRequests++));
    }
  };
  const run = () => {
    let inFlight = isAhead ? scheduler.schedule(now) : null;
    for (let step = 0; step < NUM_STEPS; step++) {
      const next = scheduler.schedule(++now);
      take(inFlight ?? next);
      if (isAhead) inFlight = next;
    }
    if (inFlight) take(inFlight);
  };
  while (numRequests < NUM_SEQUENCES) scheduler.add(makeRequest(numRequests++));
  let best = 0;
  for (let i = 0; i < NUM_RUNS; i++) {
    const start = process.hrtime.bigint();
    run();
    best = Math.max(best, NUM_STEPS / (Number(process.hrtime.bigint() - start) / 1e9));
  }
  scheduler.checkIntegrity();
  if (scheduler.stats().numRunning < NUM_SEQUENCES - 1)
    throw new Error('The batch was not full: the measurement is void.');
  return best;
}

const gates = [];
for (const [name, isAhead] of [
  ['one step ahead', true],
  ['in turn', false],
]) {
  const value = Math.round(measure(isAhead));
  gates.push({
    name: `schedule and update ${name}, ${NUM_SEQUENCES} running, steps per second`,
    value,
    bound: BOUND_STEPS_PER_SECOND,
    ok: value >= BOUND_STEPS_PER_SECOND,
  });
}

if (flags.json) {
  console.log(JSON.stringify({ gates }));
} else {
  for (const gate of gates)
    console.log(
      `${gate.ok ? 'ok  ' : 'FAIL'} ${gate.name}: ${gate.value.toLocaleString('en')} (at least ${gate.bound.toLocaleString('en')}; best of ${NUM_RUNS})`,
    );
}
const numPassed = gates.filter((gate) => gate.ok).length;
console.log(`${numPassed} passed, ${gates.length - numPassed} failed`);
process.exitCode = numPassed === gates.length ? 0 : 1;
