// The requests of a `bench serve` run: chooses what prompts are made of, reads the data set, gives each request its time and body.

import { readFileSync } from 'node:fs';
import { customPrompts } from '../bench/datasets/custom.ts';
import type { BenchPrompt, DatasetContext } from '../bench/datasets/dataset.ts';
import { prefixRepetitionPrompts } from '../bench/datasets/prefix-repetition.ts';
import { randomPrompts } from '../bench/datasets/random.ts';
import { shareGptPrompts } from '../bench/datasets/sharegpt.ts';
import { tracePrompts } from '../bench/datasets/trace.ts';
import { Draws } from '../bench/draws.ts';
import {
  type BenchTokenizer,
  idSource,
  type PromptSource,
  tokenizerSource,
  wordSource,
} from '../bench/prompt-source.ts';
import { sendTimes } from '../bench/send-times.ts';
import { type ServerAddress, serverIds } from '../bench/server-probe.ts';
import { openModel } from '../checkpoint/resolve-model.ts';
import { PagodaError } from '../errors.ts';
import { loadTokenizer } from '../text/load-tokenizer.ts';
import { openTrace } from '../workload/trace-workload.ts';
import type { BenchServeFlags } from './bench-serve-flags.ts';
import type { ServeSettings } from './bench-serve-settings.ts';
import { countValue, numberValue, POSITIVE, refuse } from './bench-values.ts';

/** The best source there is. A tokenizer that was asked for by name and cannot be had is an error. */
export async function promptSource(
  flags: BenchServeFlags,
  settings: ServeSettings,
  server: { address: ServerAddress; model: string },
): Promise<PromptSource> {
  if (flags.skipTokenizerInit !== true) {
    if (flags.tokenizer !== undefined) return tokenizerSource(localTokenizer(flags.tokenizer));
    try {
      return tokenizerSource(localTokenizer(flags.model ?? server.model));
    } catch (error) {
      // The model is not on this machine: the ordinary case.
      if (!(error instanceof PagodaError)) throw error;
    }
  }
  const takesIds =
    settings.backend !== 'openai-chat' && settings.dataset !== 'sharegpt' && settings.dataset !== 'custom';
  const ids = takesIds ? await serverIds(server.address, server.model) : null;
  return ids === null ? wordSource() : idSource(ids);
}

function localTokenizer(model: string): BenchTokenizer {
  const checkpoint = openModel(model);
  try {
    const tokenizer = loadTokenizer(checkpoint);
    if (tokenizer.kind === 'none') {
      throw new PagodaError('bad_config', `--tokenizer ${model} has no vocabulary.`, { param: '--tokenizer' });
    }
    return {
      vocabSize: tokenizer.vocabSize,
      isOrdinary: (id) => !tokenizer.isControl(id),
      encode: (text) => tokenizer.encode(text, { addSpecialTokens: false, parseSpecial: false }),
      decode: (ids) => tokenizer.decode(ids, { skipSpecialTokens: false }),
    };
  } finally {
    checkpoint.close();
  }
}

export interface TimedPrompt extends BenchPrompt {
  readonly sendSeconds: number;
}

export interface Prompts {
  readonly timed: readonly TimedPrompt[];
  readonly warmups: readonly BenchPrompt[];
}

export function makePrompts(flags: BenchServeFlags, settings: ServeSettings, source: PromptSource): Prompts {
  const context: DatasetContext = {
    // Warm-up prompts are further ones, so that they leave no measured prompt in the server's cache.
    numPrompts: settings.numPrompts + settings.numWarmups,
    seed: settings.seed,
    source,
    asIds: source.isExact && settings.backend !== 'openai-chat',
    noOversample: !flags.oversample,
    disableShuffle: flags.disableShuffle === true,
  };
  const all = readDataset(flags, settings, context);
  const numMeasured = Math.min(settings.numPrompts, all.length);
  const measured = all.slice(0, numMeasured);
  const rest = all.slice(numMeasured);
  const times = timesOf(measured, settings);
  return {
    timed: measured.map((prompt, i) => ({ ...prompt, sendSeconds: times[i]! })),
    warmups: Array.from({ length: settings.numWarmups }, (_, i) => rest[i] ?? warmup(i, context)),
  };
}

const WARMUP_TOKENS = 64;

/** Where the data set has no more rows. */
function warmup(index: number, { source, asIds, seed }: DatasetContext): BenchPrompt {
  const piece = source.piece(WARMUP_TOKENS, new Draws(seed, `warm-up ${index}`));
  return { prompt: source.join([piece], asIds), numPromptTokens: WARMUP_TOKENS, numOutputTokens: 1, sendSeconds: null };
}

function timesOf(prompts: readonly BenchPrompt[], settings: ServeSettings): ArrayLike<number> {
  const { requestRate, burstiness, rampUp, seed } = settings;
  if (requestRate === null && rampUp === null) return prompts.map((prompt) => prompt.sendSeconds ?? 0);
  const rate = requestRate ?? Number.POSITIVE_INFINITY;
  return sendTimes({ numRequests: prompts.length, requestRate: rate, burstiness, rampUp, seed });
}

function readDataset(flags: BenchServeFlags, settings: ServeSettings, context: DatasetContext): BenchPrompt[] {
  const num = (option: string, text: string, least: number): number => countValue(option, text, least);
  const length = (text: string | undefined, option: string, own: string): number =>
    text === undefined ? num(option, own, 1) : num(option, text, 1);
  const outputLen = flags.outputLen === undefined ? null : num('output-len', flags.outputLen, 1);
  const path = flags.datasetPath ?? '';
  switch (settings.dataset) {
    case 'random': {
      const rangeRatio = numberValue('random-range-ratio', flags.randomRangeRatio, SHARE);
      return randomPrompts(
        {
          inputLen: length(flags.inputLen, 'random-input-len', flags.randomInputLen),
          outputLen: outputLen ?? num('random-output-len', flags.randomOutputLen, 1),
          rangeRatio,
          prefixLen: num('random-prefix-len', flags.randomPrefixLen, 0),
        },
        context,
      );
    }
    case 'prefix_repetition':
      return prefixRepetitionPrompts(
        {
          prefixLen: num('prefix-repetition-prefix-len', flags.prefixRepetitionPrefixLen, 1),
          suffixLen: num('prefix-repetition-suffix-len', flags.prefixRepetitionSuffixLen, 0),
          numPrefixes: num('prefix-repetition-num-prefixes', flags.prefixRepetitionNumPrefixes, 1),
          outputLen: outputLen ?? num('prefix-repetition-output-len', flags.prefixRepetitionOutputLen, 1),
        },
        context,
      );
    case 'sharegpt': {
      const own = flags.sharegptOutputLen;
      const given = outputLen ?? (own === undefined ? null : num('sharegpt-output-len', own, 1));
      return shareGptPrompts({ json: readText(path), path, outputLen: given }, context);
    }
    case 'custom': {
      const own = flags.customOutputLen === '-1' ? -1 : num('custom-output-len', flags.customOutputLen, 1);
      return customPrompts({ jsonl: readText(path), path, outputLen: outputLen ?? own }, context);
    }
    case 'workload':
      return tracePrompts(settings.workload!, context);
    case 'trace': {
      const scale = numberValue('trace-scale', flags.traceScale ?? '1', POSITIVE);
      const workload = openTrace({ path, scale, maxRequests: context.numPrompts, seed: context.seed });
      const prompts = tracePrompts(workload, context);
      return outputLen === null ? prompts : prompts.map((prompt) => ({ ...prompt, numOutputTokens: outputLen }));
    }
    default:
      return settings.dataset satisfies never;
  }
}

const SHARE = {
  rule: 'a number from 0 up to, but not including, 1',
  accepts: (value: number) => value >= 0 && value < 1,
};

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const reason = (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'there is no such file' : String(error);
    throw refuse('dataset-path', `a file that can be read (${reason})`, path);
  }
}
