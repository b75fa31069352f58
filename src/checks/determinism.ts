// npm run test:determinism: promise P1. 64 mixed requests, greedy and seeded, prompts and outputs of many lengths, give the same
// token ids and the same logprobs, bit for bit, alone and together, whatever the chunk size, block size, threads, prefix cache
// and drafts, and however often they are preempted. `--quick` leaves out the real model.

import { existsSync } from 'node:fs';
import type { TokenLogprob } from '../core/request.ts';
import type { SamplingParams } from '../core/sampling-params.ts';
import type { EngineOptions } from '../engine/engine-options.ts';
import { LLM } from '../engine/llm.ts';
import type { SamplingInput } from '../engine/resolve-sampling.ts';
import type { SpeculativeConfig } from '../engine/speculative-config.ts';
import type { TextDelta } from '../engine/text-generation.ts';
import { RandomSource } from '../workload/random-source.ts';
import { type CheckOutput, type CheckRequest, EngineRun } from './engine-runs.ts';
import { Gates } from './gates.ts';
import { availableCpuPaths } from './paths.ts';
import { SMOLLM2 } from './shared-data.ts';

const NUM_REQUESTS = 64;
const gates = new Gates();

/** With one token as the shortest n-gram nearly every step has drafts, most of them wrong ones. */
const SPECULATION: SpeculativeConfig = {
  method: 'ngram',
  num_speculative_tokens: 4,
  prompt_lookup_max: 4,
  prompt_lookup_min: 1,
  disable_by_batch_size: 64,
};

/** Lengths 1 to 600; a third of the prompts share a long prefix; half are sampled with a seed, some with every filter on; two fifths without logprobs. */
function mixedRequests(vocabSize: number): CheckRequest[] {
  const source = new RandomSource(2026, 'determinism');
  const random = () => source.uniform();
  const token = () => 3 + source.below(vocabSize - 3);
  const prefix = Array.from({ length: 160 }, token);
  const lengths = [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 255, 256, 511, 512, 600];
  return Array.from({ length: NUM_REQUESTS }, (_, i) => {
    const length = lengths[i] ?? 1 + Math.floor(random() ** 2 * 600);
    const own = Array.from({ length }, token);
    const promptTokenIds = i % 3 === 0 && length > 200 ? [...prefix, ...own.slice(160)] : own;
    const sampled: Partial<SamplingParams> = {
      temperature: 0.7 + random() * 0.6,
      seed: BigInt(i) * 7919n,
      ...(i % 4 === 1 ? { topK: 40, topP: 0.9, minP: 0.01 } : {}),
      ...(i % 8 === 7 ? { topK: 20, topP: 0.9 } : {}),
      ...(i % 8 === 3 ? { repetitionPenalty: 1.2, presencePenalty: 0.3, frequencyPenalty: 0.2 } : {}),
    };
    return {
      promptTokenIds,
      sampling: {
        ...(i % 2 === 0 ? { temperature: 0 } : sampled),
        maxTokens: 8 + Math.floor(random() * 120),
        ignoreEos: true,
        logprobs: [5, 0, 0, null, null][i % 5],
      },
    };
  });
}

/** Everything a caller could tell two outputs apart by; numbers keep all their bits in JSON. */
const fingerprint = (output: CheckOutput) => JSON.stringify([output.tokenIds, output.logprobs, output.finishReason]);

async function outputs(options: Partial<EngineOptions>, isa: string | null, how: 'alone' | 'together') {
  const run = await EngineRun.start(options, isa);
  try {
    const requests = mixedRequests(Math.min(run.info.vocabSize, 4096));
    const found = how === 'alone' ? await run.alone(requests) : await run.together(requests);
    const { numPreemptions, numRecomputedTokens, numPrefixHitTokens, numDraftTokens, numAcceptedTokens } = run;
    const numMixedSteps = run.records.filter((r) => r.numPromptTokens > 0 && r.numGeneratedTokens > 0).length;
    return {
      found: found.map(fingerprint),
      numPreemptions,
      numRecomputedTokens,
      numPrefixHitTokens,
      numDraftTokens,
      numAcceptedTokens,
      numSteps: run.records.length,
      numMixedSteps,
    };
  } finally {
    await run.close();
  }
}

interface Variant {
  readonly name: string;
  readonly options: Partial<EngineOptions>;
}

/** Chunk sizes x block sizes x threads x prefix cache; `small` takes one value of each in turn instead of all pairs. */
function variants(small: boolean): Variant[] {
  const all: Variant[] = [];
  for (const chunk of [16, 64, 512]) {
    for (const blockSize of [16, 32]) {
      for (const numThreads of [1, 2]) {
        for (const enablePrefixCaching of [false, true]) {
          all.push({
            name: `chunk ${chunk}, block ${blockSize}, ${numThreads} thread${numThreads > 1 ? 's' : ''}, prefix cache ${enablePrefixCaching ? 'on' : 'off'}`,
            options: { chunkedPrefillSize: chunk, blockSize, numThreads, enablePrefixCaching, maxNumSeqs: 64 },
          });
        }
      }
    }
  }
  return small ? all.filter((_, i) => [0, 7, 11, 13, 18, 21].includes(i)) : all;
}

async function checkModel(
  label: string,
  base: Partial<EngineOptions>,
  options: { isa: string | null; small: boolean },
): Promise<void> {
  const alone = await outputs({ ...base, numThreads: 1 }, options.isa, 'alone');
  gates.note(`${label}: ${NUM_REQUESTS} requests alone took ${alone.numSteps} steps`);
  const compare = async (name: string, variant: Partial<EngineOptions>) => {
    const result = await outputs({ ...base, ...variant }, options.isa, 'together');
    const numEqual = result.found.filter((text, i) => text === alone.found[i]).length;
    gates.equal(`${label}, ${name}: outputs equal to those alone`, numEqual, NUM_REQUESTS);
    gates.note(
      `${result.numSteps} steps, ${result.numMixedSteps} of them prefill and decode mixed, ${result.numPreemptions} preemptions, ${result.numRecomputedTokens} tokens recomputed, ${result.numPrefixHitTokens} from the prefix cache`,
    );
    return result;
  };
  for (const { name, options: variant } of variants(options.small)) await compare(name, variant);
  for (const enablePrefixCaching of [false, true]) {
    // 64 usable blocks of 16 tokens, none held back: one long request nearly fills them.
    const tight = await compare(`pool of 64 blocks, prefix cache ${enablePrefixCaching ? 'on' : 'off'}`, {
      numGpuBlocksOverride: 65,
      maxModelLen: 736,
      watermark: 0,
      chunkedPrefillSize: 64,
      enablePrefixCaching,
    });
    gates.atLeast(`${label}, pool of 64 blocks: preemptions`, tight.numPreemptions, 20);
  }
  await checkDrafts(label, compare);
}

type Compare = (name: string, variant: Partial<EngineOptions>) => ReturnType<typeof outputs>;

/** With drafts, roomy and in a pool that preempts; that none is ever accepted would prove nothing. */
async function checkDrafts(label: string, compare: Compare): Promise<void> {
  const variants: Variant[] = [
    { name: 'drafts, chunk 64, prefix cache on', options: { chunkedPrefillSize: 64, enablePrefixCaching: true } },
    {
      name: 'drafts, pool of 64 blocks',
      options: { numGpuBlocksOverride: 65, maxModelLen: 736, watermark: 0, chunkedPrefillSize: 64 },
    },
  ];
  for (const { name, options } of variants) {
    const { numDraftTokens, numAcceptedTokens } = await compare(name, { ...options, speculativeConfig: SPECULATION });
    gates.atLeast(`${label}, ${name}: accepted draft tokens`, numAcceptedTokens, 1);
    gates.note(`${numAcceptedTokens} of ${numDraftTokens} draft tokens accepted`);
  }
}

/** The same requests through the public class, all at once: streamed piece by piece, and as whole results. */
async function checkStreaming(label: string, base: Partial<EngineOptions>, isa: string | null): Promise<void> {
  if (isa !== null) process.env.PAGODA_CPU_ISA = isa;
  const llm = await LLM.load({ ...base, packedCache: false });
  try {
    const requests = mixedRequests(Math.min(llm.info.vocabSize, 4096));
    const streams = await Promise.all(
      requests.map(async ({ promptTokenIds, sampling }) => {
        const deltas: TextDelta[] = [];
        for await (const delta of llm.stream(promptTokenIds, asInput(sampling))) deltas.push(delta);
        return {
          numDeltas: deltas.length,
          text: deltas.map((delta) => delta.text).join(''),
          tokens: JSON.stringify(deltas.flatMap((delta) => pairs([delta.tokenIds, delta.logprobs]))),
        };
      }),
    );
    let numEqual = 0;
    for (const [i, { promptTokenIds, sampling }] of requests.entries()) {
      const [result] = await llm.generate(promptTokenIds, asInput(sampling));
      const { text, tokenIds, logprobs } = result!.outputs[0]!;
      if (streams[i]!.text === text && streams[i]!.tokens === JSON.stringify(pairs([tokenIds, logprobs]))) numEqual++;
    }
    gates.equal(
      `${label}, streamed together: texts, ids and logprobs equal to whole results alone`,
      numEqual,
      NUM_REQUESTS,
    );
    gates.note(`${streams.reduce((sum, { numDeltas }) => sum + numDeltas, 0)} pieces were streamed`);
  } finally {
    await llm.dispose();
  }
}

/** What the requests of this check set, as a caller of the class writes it. */
function asInput(sampling: Partial<SamplingParams>): SamplingInput {
  const { temperature, seed, topK, topP, minP, maxTokens, ignoreEos, logprobs } = sampling;
  const { repetitionPenalty, presencePenalty, frequencyPenalty } = sampling;
  const filters = { temperature, topK, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty };
  return { ...filters, seed, maxTokens, ignoreEos, logprobs };
}

/** Each token id with its logprobs. */
function pairs([tokenIds, logprobs]: readonly [readonly number[], readonly TokenLogprob[] | null]): unknown[] {
  return tokenIds.map((id, i) => [id, logprobs?.[i] ?? null]);
}

const paths = availableCpuPaths();

if (paths.length === 0) {
  gates.note('no cpu device here: the reference device is checked on a few variants');
  await checkModel('reference, pagoda-mini', { device: 'reference', maxModelLen: 736 }, { isa: null, small: true });
}
for (const [i, { name, isa }] of paths.entries()) {
  await checkModel(`${name}, pagoda-mini`, { device: 'cpu', maxModelLen: 736 }, { isa, small: i > 0 });
  if (i === 0) await checkStreaming(`${name}, pagoda-mini`, { device: 'cpu', maxModelLen: 736 }, isa);
}
if (paths.length > 0 && !process.argv.includes('--quick')) {
  if (existsSync(SMOLLM2)) {
    await checkModel(
      `${paths[0]!.name}, SmolLM2-135M`,
      { device: 'cpu', model: SMOLLM2, maxModelLen: 736 },
      { isa: paths[0]!.isa, small: true },
    );
  } else gates.note('SmolLM2-135M is not here: set PAGODA_SHARED to the folder with the reference data');
}
gates.finish();
