// vLLM's `sharegpt` data set: first turn of each conversation as the prompt, length of the first answer as the output length, with
// its filter (prompt 4 to 1024 tokens, output at least 4, together at most 2048).

import { PagodaError } from '../../errors.ts';
import { Draws } from '../draws.ts';
import { type BenchPrompt, type DatasetContext, oversample } from './dataset.ts';

const MIN_TOKENS = 4;
const MAX_PROMPT_TOKENS = 1024;
const MAX_TOTAL_TOKENS = 2048;

export interface ShareGptOptions {
  /** Text of the JSON file. */
  readonly json: string;
  readonly path: string;
  /** null = as long as the answers of the data set. */
  readonly outputLen: number | null;
}

export function shareGptPrompts(options: ShareGptOptions, context: DatasetContext): BenchPrompt[] {
  const conversations = parse(options);
  const draws = new Draws(context.seed, 'order');
  if (!context.disableShuffle) draws.shuffle(conversations);
  const prompts: BenchPrompt[] = [];
  for (const [prompt, answer] of conversations) {
    if (prompts.length >= context.numPrompts) break;
    const numPromptTokens = context.source.countTokens(prompt);
    const numOutputTokens = options.outputLen ?? context.source.countTokens(answer);
    const fits =
      numPromptTokens >= MIN_TOKENS &&
      numPromptTokens <= MAX_PROMPT_TOKENS &&
      (options.outputLen !== null || numOutputTokens >= MIN_TOKENS) &&
      numPromptTokens + numOutputTokens <= MAX_TOTAL_TOKENS;
    if (fits) prompts.push({ prompt, numPromptTokens, numOutputTokens, sendSeconds: null });
  }
  if (prompts.length === 0) {
    throw new PagodaError(
      'bad_config',
      `--dataset-path ${options.path} has no conversation with a prompt of ${MIN_TOKENS} to ${MAX_PROMPT_TOKENS} tokens and an answer.`,
      { param: '--dataset-path' },
    );
  }
  return oversample(prompts, context, draws);
}

/** Pairs of the first two turns. */
function parse({ json, path }: ShareGptOptions): Array<[string, string]> {
  let rows: unknown;
  try {
    rows = JSON.parse(json);
  } catch (error) {
    throw notShareGpt(path, error instanceof Error ? error.message : String(error));
  }
  if (!Array.isArray(rows)) throw notShareGpt(path, 'it is not a list');
  return rows.flatMap((row: { conversations?: unknown; conversation?: unknown }): Array<[string, string]> => {
    const turns = row?.conversations ?? row?.conversation;
    if (!Array.isArray(turns) || turns.length < 2) return [];
    const [prompt, answer] = turns.map((turn: { value?: unknown; content?: unknown }) => turn?.value ?? turn?.content);
    return typeof prompt === 'string' && typeof answer === 'string' ? [[prompt, answer]] : [];
  });
}

function notShareGpt(path: string, reason: string): PagodaError {
  return new PagodaError(
    'bad_config',
    `--dataset-path ${path} is not a ShareGPT file (a JSON list of {"conversations": [{"value": ...}, ...]}): ${reason}.`,
    { param: '--dataset-path' },
  );
}
