// Vocabularies small enough to read: 256 bytes and a few control and user-defined tokens.
import type { GgufValue } from '../../../src/checkpoint/checkpoint.ts';
import { BYTE_TO_CHAR } from '../../../src/text/byte-alphabet.ts';
import { ggufTokenizer } from '../../../src/text/gguf-tokenizer.ts';
import type { Tokenizer } from '../../../src/text/tokenizer.ts';

export const CONTROL = ['<pad>', '<s>', '</s>', '<|im_start|>', '<|im_end|>', '<|endoftext|>'];
export const USER_DEFINED = ['<tool>', '  '];

export function byteMetadata(extra: Record<string, GgufValue> = {}): Map<string, GgufValue> {
  const tokens = [...CONTROL, ...BYTE_TO_CHAR, ...USER_DEFINED];
  const types = tokens.map((_, id) => (id < CONTROL.length ? 3 : id < CONTROL.length + 256 ? 1 : 4));
  return new Map<string, GgufValue>(
    Object.entries({
      'tokenizer.ggml.model': 'gpt2',
      'tokenizer.ggml.pre': 'gpt-2',
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': types,
      'tokenizer.ggml.merges': ['z z'],
      ...extra,
    }),
  );
}

export function byteVocabulary(extra: Record<string, GgufValue> = {}): Tokenizer {
  return ggufTokenizer(byteMetadata(extra));
}

/** The same vocabulary as a tokenizer.json. */
export function byteTokenizerJson(overrides: Record<string, unknown> = {}): Record<string, unknown> {
  const tokens = [...CONTROL, ...BYTE_TO_CHAR, ...USER_DEFINED];
  const added = (content: string, special: boolean) => ({
    id: tokens.indexOf(content),
    content,
    special,
    normalized: false,
  });
  return {
    version: '1.0',
    added_tokens: [...CONTROL.map((token) => added(token, true)), ...USER_DEFINED.map((token) => added(token, false))],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), merges: [] },
    ...overrides,
  };
}
