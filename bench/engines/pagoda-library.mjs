// Prefill and decode in Pagoda's engine, without HTTP: reads a job from standard input, writes one JSON line.
import { EngineRun } from '../../dist/checks/engine-runs.js';
import { readJob, writeResult } from './job.mjs';

const { model, threads, job } = await readJob();
const longest = Math.max(...job.prompts.map((prompt) => prompt.length));
const numSteps = job.kind === 'decode' ? job.numWindows * job.windowSteps : 1;
const MAX_NUM_BATCHED_TOKENS = 2048;
// Prompts are prefilled one after the other: the first sequences decode while the last ones wait.
const numPrefillSteps = job.kind === 'decode' ? Math.ceil((longest * job.prompts.length) / MAX_NUM_BATCHED_TOKENS) : 0;
const run = await EngineRun.start({
  model,
  device: 'cpu',
  numThreads: threads,
  maxModelLen: longest + numSteps + numPrefillSteps + 64,
  maxNumSeqs: job.kind === 'decode' ? job.prompts.length : 1,
  maxNumBatchedTokens: MAX_NUM_BATCHED_TOKENS,
});
const request = (promptTokenIds, maxTokens) => ({
  promptTokenIds,
  sampling: { temperature: 0, maxTokens, ignoreEos: true },
});

const rates = [];
if (job.kind === 'prefill') {
  for (const prompt of job.prompts) {
    const started = performance.now();
    await run.together([request(prompt, 1)]);
    rates.push((prompt.length * 1000) / (performance.now() - started));
  }
} else {
  await run.together(job.prompts.map((prompt) => request(prompt, numSteps + numPrefillSteps + 2)));
  // Only steps in which every sequence decodes count.
  const full = run.records.filter(
    (each) => each.numPromptTokens === 0 && each.numGeneratedTokens === job.prompts.length,
  );
  for (let i = 0; i + job.windowSteps < full.length && rates.length < job.numWindows; i += job.windowSteps) {
    const seconds = full[i + job.windowSteps].time - full[i].time;
    rates.push((job.prompts.length * job.windowSteps) / seconds);
  }
}
await run.close();
writeResult({ rates: rates.slice(1) });
