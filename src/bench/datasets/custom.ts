// vLLM's `custom` data set: JSON lines with `prompt` and, where --custom-output-len is -1, `output_tokens`.

import { PagodaError } from '../../errors.ts';
import { Draws } from '../draws.ts';
import { type BenchPrompt, type DatasetContext, oversample } from './dataset.ts';

export interface CustomOptions {
  /** Text of the JSON lines file. */
  readonly jsonl: string;
  readonly path: string;
  /** -1 = each line's own output_tokens. */
  readonly outputLen: number;
}

export function customPrompts(options: CustomOptions, context: DatasetContext): BenchPrompt[] {
  const prompts: BenchPrompt[] = [];
  for (const [index, line] of options.jsonl.split('\n').entries()) {
    if (line.trim() === '') continue;
    const row = parseLine(line, index + 1, options.path);
    const numOutputTokens = options.outputLen === -1 ? row.output_tokens : options.outputLen;
    if (typeof numOutputTokens !== 'number' || !Number.isInteger(numOutputTokens) || numOutputTokens < 1) {
      throw bad(options.path, index + 1, '--custom-output-len -1 needs a whole number "output_tokens" of at least 1');
    }
    const { prompt } = row;
    if (typeof prompt !== 'string' || prompt === '') {
      throw bad(options.path, index + 1, 'it needs a text "prompt"');
    }
    prompts.push({ prompt, numPromptTokens: context.source.countTokens(prompt), numOutputTokens, sendSeconds: null });
  }
  if (prompts.length === 0) throw bad(options.path, 1, 'the file is empty');
  const draws = new Draws(context.seed, 'order');
  if (!context.disableShuffle) draws.shuffle(prompts);
  return oversample(prompts, context, draws);
}

function parseLine(line: string, number: number, path: string): { prompt?: unknown; output_tokens?: unknown } {
  let row: unknown;
  try {
    row = JSON.parse(line);
  } catch (error) {
    throw bad(path, number, error instanceof Error ? error.message : String(error));
  }
  if (typeof row !== 'object' || row === null || Array.isArray(row)) throw bad(path, number, 'it is not a JSON object');
  return row;
}

function bad(path: string, number: number, reason: string): PagodaError {
  return new PagodaError('bad_config', `--dataset-path ${path}, line ${number}: ${reason}.`, {
    param: '--dataset-path',
  });
}
