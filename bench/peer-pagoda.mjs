// One measurement of Pagoda's engine, in a process of its own. Prints one JSON line.
// Usage: node peer-pagoda.mjs MODEL THREADS WORKLOAD  (WORKLOAD: prefill:TOKENS or decode:SEQUENCES:DEPTH:STEPS)
import { EngineRun } from '../dist/checks/engine-runs.js';

const [model, threadsText, workload] = process.argv.slice(2);
const [kind, ...numbers] = workload.split(':');
const vocabulary = 40_000;
const prompt = (length, salt) => Array.from({ length }, (_, i) => 100 + ((i * 7919 + salt * 104_729) % vocabulary));
const [first, depth, numSteps] = numbers.map(Number);
const run = await EngineRun.start({
  model,
  device: 'cpu',
  numThreads: Number(threadsText),
  maxModelLen: 2048,
  maxNumSeqs: kind === 'decode' ? first : 1,
  maxNumBatchedTokens: 512,
});

async function seconds(requests) {
  const started = performance.now();
  await run.together(requests);
  return (performance.now() - started) / 1000;
}

const greedy = (maxTokens) => ({ temperature: 0, maxTokens, ignoreEos: true });

async function prefill(numTokens) {
  let best = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 4; round++)
    best = Math.min(best, await seconds([{ promptTokenIds: prompt(numTokens, round), sampling: greedy(1) }]));
  return numTokens / best;
}

/** The step records say what was decoded: only steps in which every sequence decodes count. */
async function decode(numSequences) {
  await run.together(
    Array.from({ length: numSequences }, (_, i) => ({
      promptTokenIds: prompt(depth + 1, i),
      sampling: greedy(numSteps + 1),
    })),
  );
  const full = run.records.filter(
    (record) => record.numPromptTokens === 0 && record.numGeneratedTokens === numSequences,
  );
  const first = full[0].time;
  const last = full.at(-1).time;
  return ((full.length - 1) * numSequences) / (last - first);
}

const tokensPerSecond = kind === 'prefill' ? await prefill(first) : await decode(first);
await run.close();
process.stdout.write(`${JSON.stringify({ engine: 'pagoda', workload, tokensPerSecond })}\n`);
