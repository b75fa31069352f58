// The tokenizer of a checkpoint, whatever its format.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufTokenizer } from './gguf-tokenizer.ts';
import { NoTokenizer } from './no-tokenizer.ts';
import type { Tokenizer } from './tokenizer.ts';

export function loadTokenizer(checkpoint: Checkpoint): Tokenizer {
  switch (checkpoint.format) {
    case 'gguf':
      return ggufTokenizer(checkpoint.metadata);
    case 'safetensors':
      return new NoTokenizer(`${checkpoint.folder} has no tokenizer.json`);
    default:
      return checkpoint satisfies never;
  }
}
