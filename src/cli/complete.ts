// `pagoda complete`: continues one text in this process. The text streams to stdout; --show-steps shows the loop behind it.

import type { ResolvedOptions } from '../config/options.ts';
import { engineOptions } from '../config.ts';
import { LLM } from '../engine/llm.ts';
import type { SamplingInput } from '../engine/resolve-sampling.ts';
import type { TextDelta } from '../engine/text-generation.ts';
import { PagodaError } from '../errors.ts';
import type { StepRecord } from '../trace/step-record.ts';
import { CliExit, type CliIo } from './cli-io.ts';
import type { CompleteFlags } from './complete-flags.ts';
import { loadBar } from './load-progress.ts';
import { StepTable } from './step-table.ts';

const DEFAULT_MAX_TOKENS = 64;
/** The same command prints the same text, as with vLLM's offline engine, whose default seed this is. */
const DEFAULT_SEED = 0n;
const NUM_CANDIDATES = 5;
const INTERRUPTED = 130;

export async function complete(config: ResolvedOptions, flags: CompleteFlags, io: CliIo): Promise<void> {
  const params = samplingOf(flags);
  const prompt = await promptOf(flags, io);
  const useKvCache = flags.kvCache !== false;
  const records: StepRecord[] = [];
  const bar = loadBar(io.stderr);
  const llm = await LLM.load({
    ...engineOptions(config),
    maxNumSeqs: 1,
    useKvCache,
    generationConfig: config.generationConfig,
    overrideGenerationConfig: config.overrideGenerationConfig,
    onLoadProgress: bar.update,
    onLog: (level, message) => {
      if (level !== 'info') io.stderr.write(`${level === 'warn' ? 'warning' : level}: ${message}\n`);
    },
    onStep: (record) => records.push(record),
  }).finally(() => bar.stop());
  const controller = new AbortController();
  const forget = io.onInterrupt(() => controller.abort());
  try {
    await run({ llm, prompt, params, flags, useKvCache, records, io, signal: controller.signal });
  } catch (error) {
    if (!(error instanceof PagodaError) || error.code !== 'aborted') throw error;
    io.stdout.write('\n');
    throw new CliExit(INTERRUPTED);
  } finally {
    forget();
    await llm.dispose();
  }
}

interface Run {
  readonly llm: LLM;
  readonly prompt: string;
  readonly params: SamplingInput;
  readonly flags: CompleteFlags;
  readonly useKvCache: boolean;
  readonly records: StepRecord[];
  readonly io: CliIo;
  readonly signal: AbortSignal;
}

async function run({ llm, prompt, params, flags, useKvCache, records, io, signal }: Run): Promise<void> {
  const promptTokenIds = llm.encode(prompt);
  const asJson = flags.json === true;
  const steps = flags.showSteps === true ? new StepTable({ llm, promptTokenIds, useKvCache, records }) : null;
  if (steps !== null && !asJson) io.stdout.write(steps.header());
  const deltas: TextDelta[] = [];
  // Only a length that was asked for can be too long.
  const room = Math.max(1, llm.info.maxModelLen - promptTokenIds.length);
  const maxTokens = params.maxTokens ?? Math.min(DEFAULT_MAX_TOKENS, room);
  for await (const delta of llm.stream(promptTokenIds, { ...params, maxTokens }, { signal })) {
    deltas.push(delta);
    if (asJson) steps?.add(delta);
    else io.stdout.write(steps === null ? delta.text : steps.add(delta));
  }
  const text = deltas.map((delta) => delta.text).join('');
  const last = deltas.at(-1);
  if (asJson) {
    const tokenIds = deltas.flatMap((delta) => delta.tokenIds);
    const facts = {
      prompt,
      prompt_token_ids: promptTokenIds,
      text,
      token_ids: tokenIds,
      finish_reason: last?.finishReason ?? null,
      stop_reason: last?.stopReason ?? null,
      usage: {
        prompt_tokens: promptTokenIds.length,
        completion_tokens: tokenIds.length,
        total_tokens: promptTokenIds.length + tokenIds.length,
      },
      ...(steps === null ? {} : steps.facts()),
    };
    io.stdout.write(`${JSON.stringify(facts, null, 2)}\n`);
  } else if (steps !== null) io.stdout.write(`\n${text}\n\n${steps.summary()}`);
  else io.stdout.write('\n');
}

async function promptOf(flags: CompleteFlags, io: CliIo): Promise<string> {
  if (flags.prompt !== undefined && flags.prompt !== '-') return flags.prompt;
  if (flags.prompt === undefined && io.stdin.isTTY === true) {
    throw new PagodaError('bad_config', 'A prompt is missing: give -p TEXT, or pipe the text in.', {
      param: '--prompt',
    });
  }
  const parts: Buffer[] = [];
  for await (const part of io.stdin) parts.push(Buffer.from(part));
  const text = Buffer.concat(parts).toString('utf8');
  // The line break that `echo` and editors add is not part of the text.
  return text.endsWith('\r\n') ? text.slice(0, -2) : text.endsWith('\n') ? text.slice(0, -1) : text;
}

function samplingOf(flags: CompleteFlags): SamplingInput {
  const number = (name: string, text: string | undefined): number | undefined => {
    if (text === undefined) return undefined;
    const value = Number(text);
    if (text.trim() === '' || !Number.isFinite(value)) {
      throw new PagodaError('bad_config', `--${name} must be a number, got '${text}'.`, { param: `--${name}` });
    }
    return value;
  };
  if (flags.seed !== undefined && !/^-?\d{1,20}$/.test(flags.seed)) {
    throw new PagodaError('bad_config', `--seed must be a 64-bit integer, got '${flags.seed}'.`, { param: '--seed' });
  }
  return {
    maxTokens: number('max-tokens', flags.maxTokens),
    minTokens: number('min-tokens', flags.minTokens),
    temperature: number('temperature', flags.temperature),
    topP: number('top-p', flags.topP),
    topK: number('top-k', flags.topK),
    minP: number('min-p', flags.minP),
    presencePenalty: number('presence-penalty', flags.presencePenalty),
    frequencyPenalty: number('frequency-penalty', flags.frequencyPenalty),
    repetitionPenalty: number('repetition-penalty', flags.repetitionPenalty),
    seed: flags.seed === undefined ? DEFAULT_SEED : BigInt(flags.seed),
    stop: flags.stop,
    ignoreEos: flags.ignoreEos,
    logprobs: flags.showSteps === true ? NUM_CANDIDATES : undefined,
  };
}
