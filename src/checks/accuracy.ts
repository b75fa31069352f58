// npm run test:accuracy: every golden by one command. Token for token on the reference device and on every float32 path of this
// CPU (near ties excepted), and the distance to the float32 oracle with int8 activations. Needs the reference data.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type CheckRequest, EngineRun } from './engine-runs.ts';
import { Gates } from './gates.ts';
import { DistanceMeter, readOracle } from './kl-divergence.ts';
import { availableCpuPaths, availablePaths, type ExecutionPath } from './paths.ts';
import { ROOT, SHARED, SMOLLM2 } from './shared-data.ts';

interface GoldenCase {
  readonly promptIds: number[];
  readonly outputIds: number[];
  /** Steps whose two best tokens are so close that another correct implementation may choose the other one. */
  readonly unsureSteps: readonly number[];
}

const gates = new Gates();
const F32 = { computeDtype: 'f32', kvCacheDtype: 'f32' } as const;

if (!existsSync(join(SHARED, 'golden'))) {
  process.stderr.write('The reference data are not here: set PAGODA_SHARED to their folder.\n');
  process.exit(2);
}

const json = (...parts: string[]) => JSON.parse(readFileSync(join(...parts), 'utf8'));

/** Greedy tokens of each case, compared up to its first unsure step that went the other way. */
async function greedyMatches(model: string, path: ExecutionPath, cases: readonly GoldenCase[]) {
  const run = await EngineRun.start({ model, device: path.device, ...F32, maxNumSeqs: 32 }, path.isa);
  try {
    const requests: CheckRequest[] = cases.map(({ promptIds, outputIds }) => ({
      promptTokenIds: promptIds,
      sampling: { temperature: 0, maxTokens: outputIds.length, ignoreEos: true },
    }));
    const outputs = await run.together(requests);
    let numEqual = 0;
    for (const [i, { outputIds, unsureSteps }] of cases.entries()) {
      const got = outputs[i]!.tokenIds;
      const firstWrong = outputIds.findIndex((id, step) => got[step] !== id);
      if (firstWrong === -1 || unsureSteps.includes(firstWrong)) numEqual++;
      else gates.note(`${path.name} ${model.split('/').at(-1)} case ${i}: leaves the golden at step ${firstWrong}`);
    }
    return numEqual;
  } finally {
    await run.close();
  }
}

async function tinyModels(path: ExecutionPath): Promise<void> {
  const index: Array<{ name: string }> = json(SHARED, 'golden/tiny/index.json').models;
  for (const form of ['safetensors', 'gguf'] as const) {
    let numEqual = 0;
    let numCases = 0;
    for (const { name } of index) {
      const model =
        form === 'gguf' ? join(SHARED, 'golden/tiny-gguf', `${name}.gguf`) : join(SHARED, 'golden/tiny', name);
      if (!existsSync(model)) continue;
      const cases = json(SHARED, 'golden/tiny', name, 'golden.json').cases.map((c: GoldenCase) => ({
        ...c,
        unsureSteps: [],
      }));
      numCases += cases.length;
      numEqual += await greedyMatches(model, path, cases).catch((error: Error) => {
        gates.note(`${path.name} ${name} (${form}): ${error.message}`);
        return 0;
      });
    }
    gates.equal(`${path.name}: tiny architectures (${form}), prompts equal token for token`, numEqual, numCases);
  }
}

async function embeddedModel(path: ExecutionPath): Promise<void> {
  const cases: GoldenCase[] = json(ROOT, 'assets/goldens.json').cases.map(
    (c: { prompt_ids: number[]; greedy_ids: number[]; close_calls: number[] }) => ({
      promptIds: c.prompt_ids,
      outputIds: c.greedy_ids,
      unsureSteps: c.close_calls,
    }),
  );
  const numEqual = await greedyMatches(join(ROOT, 'assets/pagoda-mini.F16.gguf'), path, cases);
  gates.equal(`${path.name}: pagoda-mini, prompts equal token for token`, numEqual, cases.length);
}

async function smolLm2Greedy(path: ExecutionPath): Promise<void> {
  const { cases } = json(SHARED, 'golden/generation/greedy.json') as { cases: GoldenCase[] };
  gates.equal(
    `${path.name}: SmolLM2-135M float32, continuations equal`,
    await greedyMatches(SMOLLM2, path, cases),
    cases.length,
  );
}

/** The bar is llama.cpp's own accuracy (reference data, golden/README.md "accuracy"). */
async function smolLm2Distance(path: ExecutionPath): Promise<void> {
  const oracle = readOracle(join(SHARED, 'golden/accuracy'));
  const meter = new DistanceMeter(oracle);
  const run = await EngineRun.start(
    {
      model: SMOLLM2,
      device: path.device,
      maxNumSeqs: 1,
      maxNumBatchedTokens: 512,
      maxModelLen: 1024,
      numGpuBlocksOverride: 128,
    },
    path.isa,
  );
  try {
    for (let window = 0; window < oracle.numWindows; window++) {
      const ids = oracle.tokenIds.slice(window * oracle.windowTokens, (window + 1) * oracle.windowTokens);
      meter.addWindow(window, await run.engine.device.logits(ids));
    }
  } finally {
    await run.close();
  }
  const { klMean, klMedian, kl99, top1Agreement, perplexity } = meter.result();
  gates.atMost(`${path.name}: int8 activations, KL mean (nats)`, klMean, 0.00255);
  gates.atMost(`${path.name}: int8 activations, KL median`, klMedian, 0.00178);
  gates.atMost(`${path.name}: int8 activations, KL 99th percentile`, kl99, 0.0153);
  gates.atLeast(`${path.name}: int8 activations, top-1 agreement`, top1Agreement, 0.967);
  gates.atMost(`${path.name}: int8 activations, perplexity`, perplexity, 15.15);
}

for (const path of availablePaths()) {
  await tinyModels(path);
  await embeddedModel(path);
}
for (const path of availableCpuPaths()) {
  await smolLm2Greedy(path);
  await smolLm2Distance(path);
}
if (availableCpuPaths().length === 0) gates.note('no cpu device here: SmolLM2 was not checked');
gates.finish();
