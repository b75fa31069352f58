// The tokenizer of a checkpoint, whatever its format.

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { ggufTokenizer } from './gguf-tokenizer.ts';
import { hfTokenizer } from './hf-tokenizer.ts';
import { NoTokenizer } from './no-tokenizer.ts';
import type { Tokenizer } from './tokenizer.ts';

/** Throws bad_model_file or unsupported. A checkpoint without a vocabulary gets a tokenizer that refuses text. */
export function loadTokenizer(checkpoint: Checkpoint): Tokenizer {
  switch (checkpoint.format) {
    case 'gguf':
      return ggufTokenizer(checkpoint.metadata);
    case 'safetensors':
      if (!existsSync(join(checkpoint.folder, 'tokenizer.json'))) {
        return new NoTokenizer('its folder has no tokenizer.json');
      }
      return hfTokenizer(checkpoint.folder);
    default:
      return checkpoint satisfies never;
  }
}
