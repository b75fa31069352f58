// One measurement of llama.cpp through node-llama-cpp, in a process of its own. Prints one JSON line.
// Usage: node peer-llama.mjs MODEL THREADS WORKLOAD  (WORKLOAD: prefill:TOKENS or decode:SEQUENCES:DEPTH:STEPS)
import { getLlama } from 'node-llama-cpp';

const [modelPath, threadsText, workload] = process.argv.slice(2);
const threads = Number(threadsText);
const [kind, ...numbers] = workload.split(':');
const llama = await getLlama({
  gpu: false,
  maxThreads: threads,
  build: 'never',
  logLevel: 'error',
  progressLogs: false,
});
const model = await llama.loadModel({ modelPath });
const vocabulary = 40_000;
const prompt = (length, salt) => Array.from({ length }, (_, i) => 100 + ((i * 7919 + salt * 104_729) % vocabulary));

async function prefill(numTokens) {
  const context = await model.createContext({
    sequences: 1,
    contextSize: numTokens + 8,
    batchSize: 512,
    threads,
    flashAttention: true,
  });
  let best = Number.POSITIVE_INFINITY;
  const sequence = context.getSequence();
  for (let round = 0; round < 4; round++) {
    await sequence.clearHistory();
    const started = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt(numTokens, round));
    best = Math.min(best, (performance.now() - started) / 1000);
  }
  await context.dispose();
  return numTokens / best;
}

async function decode(numSequences, depth, numSteps) {
  const context = await model.createContext({
    sequences: numSequences,
    contextSize: depth + numSteps + 16,
    batchSize: 512,
    threads,
    flashAttention: true,
  });
  const sequences = Array.from({ length: numSequences }, () => context.getSequence());
  for (const [i, sequence] of sequences.entries()) await sequence.evaluateWithoutGeneratingNewTokens(prompt(depth, i));
  const started = performance.now();
  await Promise.all(
    sequences.map(async (sequence, i) => {
      let count = 0;
      for await (const _ of sequence.evaluate(prompt(1, i + 77), { temperature: 0, yieldEogToken: true }))
        if (++count === numSteps) break;
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  await context.dispose();
  return (numSequences * numSteps) / seconds;
}

const tokensPerSecond =
  kind === 'prefill' ? await prefill(numbers.map(Number)[0]) : await decode(...numbers.map(Number));
process.stdout.write(`${JSON.stringify({ engine: 'llama.cpp', workload, tokensPerSecond })}\n`);
process.exit(0);
