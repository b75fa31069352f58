// Prefill and decode through the API of node-llama-cpp: reads a job from standard input, writes one JSON line.
import { getLlama } from 'node-llama-cpp';
import { readJob, writeResult } from './job.mjs';

const { model: modelPath, threads, settings, job } = await readJob();
const llama = await getLlama({
  gpu: false,
  maxThreads: threads,
  build: 'never',
  logLevel: 'error',
  progressLogs: false,
});
const model = await llama.loadModel({ modelPath });
const longest = Math.max(...job.prompts.map((prompt) => prompt.length));
const numSteps = job.kind === 'decode' ? job.numWindows * job.windowSteps : 0;
const context = await model.createContext({
  sequences: job.kind === 'decode' ? job.prompts.length : 1,
  contextSize: longest + numSteps + 64,
  batchSize: settings.batchSize,
  flashAttention: settings.flashAttention,
  threads,
});

const rates = [];
if (job.kind === 'prefill') {
  const sequence = context.getSequence();
  for (const prompt of job.prompts) {
    await sequence.clearHistory();
    const started = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt);
    rates.push((prompt.length * 1000) / (performance.now() - started));
  }
} else {
  const sequences = job.prompts.map(() => context.getSequence());
  for (const [i, sequence] of sequences.entries())
    await sequence.evaluateWithoutGeneratingNewTokens(job.prompts[i].slice(0, -1));
  const perWindow = sequences.length * job.windowSteps;
  let count = 0;
  let started = performance.now();
  await Promise.all(
    sequences.map(async (sequence, i) => {
      let own = 0;
      for await (const _ of sequence.evaluate(job.prompts[i].slice(-1), { temperature: 0, yieldEogToken: true })) {
        if (++count % perWindow === 0) {
          const now = performance.now();
          rates.push((perWindow * 1000) / (now - started));
          started = now;
        }
        if (++own === numSteps) break;
      }
    }),
  );
}
writeResult({ rates: rates.slice(1) });
process.exit(0);
