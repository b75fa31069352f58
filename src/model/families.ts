// The list of model families and how a checkpoint finds its own.

import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';
import { gemma2 } from './gemma2.ts';
import { gemma3 } from './gemma3.ts';
import { gptNeox } from './gpt-neox.ts';
import { gpt2 } from './gpt2.ts';
import { llama } from './llama.ts';
import { mixtral } from './mixtral.ts';
import type { ModelFamily } from './model-family.ts';
import { opt } from './opt.ts';
import { phi } from './phi.ts';
import { phi3 } from './phi3.ts';
import { qwen2 } from './qwen2.ts';
import { qwen2Moe } from './qwen2-moe.ts';
import { qwen3 } from './qwen3.ts';
import { qwen3Moe } from './qwen3-moe.ts';

export const FAMILIES: readonly ModelFamily[] = [
  llama,
  qwen2,
  qwen3,
  mixtral,
  qwen2Moe,
  qwen3Moe,
  gemma2,
  gemma3,
  phi,
  phi3,
  gpt2,
  gptNeox,
  opt,
];

export function findFamily(checkpoint: Checkpoint): ModelFamily {
  return checkpoint.format === 'gguf' ? ggufFamily(checkpoint) : hfFamily(checkpoint);
}

function ggufFamily(checkpoint: Checkpoint & { format: 'gguf' }): ModelFamily {
  const name = checkpoint.metadata.get('general.architecture');
  if (typeof name !== 'string')
    throw new PagodaError('bad_model_file', `${checkpoint.source}: general.architecture must be a string.`);
  const family = FAMILIES.find((each) => each.ggufArchitectures.includes(name) && (each.accepts?.(checkpoint) ?? true));
  if (family) return family;
  throw unsupported(
    name,
    FAMILIES.flatMap((each) => each.ggufArchitectures),
  );
}

/** `architectures` decides; `model_type` is asked when the list is absent or empty. */
function hfFamily(checkpoint: Checkpoint & { format: 'safetensors' }): ModelFamily {
  const { architectures, model_type: modelType } = checkpoint.config;
  const listed = Array.isArray(architectures) ? architectures.filter((each) => typeof each === 'string') : [];
  const accepts = (family: ModelFamily) => family.accepts?.(checkpoint) ?? true;
  if (listed.length > 0) {
    const family = FAMILIES.find((each) => each.hfArchitectures.includes(listed[0]) && accepts(each));
    if (family) return family;
    throw unsupported(
      listed[0],
      FAMILIES.flatMap((each) => each.hfArchitectures),
    );
  }
  if (typeof modelType !== 'string') {
    throw new PagodaError(
      'bad_model_file',
      `${checkpoint.source}: config.json names neither architectures nor model_type.`,
    );
  }
  const family = FAMILIES.find((each) => each.hfModelTypes.includes(modelType) && accepts(each));
  if (family) return family;
  throw unsupported(
    modelType,
    FAMILIES.flatMap((each) => each.hfModelTypes),
  );
}

function unsupported(name: string, known: readonly string[]): PagodaError {
  return new PagodaError(
    'unsupported',
    `Model architecture '${name}' is not supported. Supported: ${[...new Set(known)].join(', ')}.`,
  );
}
