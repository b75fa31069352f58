// What a model's files say about generating: the ids that end a text, and default sampling parameters.
// The set of end ids is the union of the tokenizer's and the configuration's; which defaults came from the file is kept for the log.

import type { Checkpoint, GgufCheckpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { readTokenId } from './gguf-metadata.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface SamplingFromFile {
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly maxTokens?: number;
}

export interface GenerationDefaults {
  /** Ascending, without repeats. */
  readonly eosTokenIds: readonly number[];
  readonly sampling: SamplingFromFile;
  /** The same values by their names in generation_config.json; empty when none is used. */
  readonly fromFile: Readonly<Record<string, number>>;
}

type Json = Readonly<Record<string, unknown>>;

const SAMPLING_KEYS = {
  temperature: 'temperature',
  top_k: 'topK',
  top_p: 'topP',
  min_p: 'minP',
  repetition_penalty: 'repetitionPenalty',
  max_new_tokens: 'maxTokens',
} as const satisfies Record<string, keyof SamplingFromFile>;

/** GGUF files name few end ids; these control tokens end a turn in the models that have them. */
const END_OF_TURN = [
  '<|im_end|>',
  '<|eot_id|>',
  '<|eom_id|>',
  '<|end|>',
  '<|return|>',
  '<|call|>',
  '<end_of_turn>',
  '<|endoftext|>',
  '<|end_of_text|>',
  '<|end_of_turn|>',
  '<end_of_utterance>',
  '<\uff5cend\u2581of\u2581sentence\uff5c>',
  '<EOT>',
  '[EOT]',
  '[EOS]',
  '</s>',
  '<eos>',
];

/** `generationConfig: 'vllm'` leaves generation_config.json aside, as vLLM's flag does. */
export function generationDefaults(
  checkpoint: Checkpoint,
  tokenizer: Tokenizer,
  options: { readonly generationConfig: 'auto' | 'vllm' },
): GenerationDefaults {
  const ids = new Set<number>();
  if (tokenizer.eosTokenId !== null) ids.add(tokenizer.eosTokenId);
  if (checkpoint.format === 'gguf') {
    addGgufEnds(checkpoint, tokenizer, ids);
    return { eosTokenIds: ascending(ids), sampling: {}, fromFile: {} };
  }
  const file = options.generationConfig === 'auto' ? checkpoint.generationConfig : null;
  addConfigEnds(file ?? checkpoint.config, file ? 'generation_config.json' : 'config.json', ids);
  return { eosTokenIds: ascending(ids), ...samplingFrom(file ?? {}) };
}

function addConfigEnds(config: Json, fileName: string, ids: Set<number>): void {
  const value = config.eos_token_id;
  if (value === undefined || value === null) return;
  for (const id of Array.isArray(value) ? value : [value]) {
    if (!Number.isInteger(id) || id < 0) {
      throw new PagodaError('bad_model_file', `${fileName}: eos_token_id must be a token id or a list of them.`);
    }
    ids.add(id);
  }
}

function addGgufEnds(checkpoint: GgufCheckpoint, tokenizer: Tokenizer, ids: Set<number>): void {
  if (tokenizer.vocabSize === 0) return;
  for (const key of ['eos_token_id', 'eot_token_id', 'eom_token_id']) {
    const id = readTokenId(checkpoint.metadata, `tokenizer.ggml.${key}`, tokenizer.vocabSize);
    if (id !== null) ids.add(id);
  }
  const controlId = (piece: string): number | null => {
    const id = tokenizer.tokenId(piece);
    return id !== null && tokenizer.isControl(id) ? id : null;
  };
  // In the harmony format <|end|> closes one message of several; the turn ends with <|return|> or <|call|>.
  const isHarmony = controlId('<|return|>') !== null && controlId('<|call|>') !== null;
  for (const piece of END_OF_TURN) {
    if (isHarmony && piece === '<|end|>') continue;
    const id = controlId(piece);
    if (id !== null) ids.add(id);
  }
}

function samplingFrom(file: Json): Pick<GenerationDefaults, 'sampling' | 'fromFile'> {
  const sampling: Record<string, number> = {};
  const fromFile: Record<string, number> = {};
  for (const [key, name] of Object.entries(SAMPLING_KEYS)) {
    const value = file[key];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number' || !Number.isFinite(value)) {
      throw new PagodaError('bad_model_file', `generation_config.json: ${key} must be a number.`);
    }
    sampling[name] = value;
    fromFile[key] = value;
  }
  return { sampling, fromFile };
}

function ascending(ids: ReadonlySet<number>): number[] {
  return [...ids].sort((a, b) => a - b);
}
