// Where a checkpoint keeps its chat template, and whether the template wants message content as text or as a list of parts.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint/checkpoint.ts';
import { PagodaError } from '../errors.ts';

/** The template's source, or null when the checkpoint has none. */
export function findChatTemplate(checkpoint: Checkpoint): string | null {
  if (checkpoint.format === 'gguf') {
    const source = checkpoint.metadata.get('tokenizer.chat_template');
    return typeof source === 'string' && source !== '' ? source : null;
  }
  const file = join(checkpoint.folder, 'chat_template.jinja');
  if (existsSync(file)) return readFileSync(file, 'utf8');
  for (const name of ['chat_template.json', 'tokenizer_config.json']) {
    const source = templateOf(readJson(join(checkpoint.folder, name), name)?.chat_template);
    if (source !== null) return source;
  }
  return null;
}

/** One template, or a list of named ones of which `default` is meant. */
function templateOf(value: unknown): string | null {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return null;
  const chosen = value.find((each) => each?.name === 'default') ?? value[0];
  return typeof chosen?.template === 'string' ? chosen.template : null;
}

function readJson(path: string, name: string): Record<string, unknown> | null {
  if (!existsSync(path)) return null;
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    throw new PagodaError('bad_model_file', `${name} is not valid JSON.`, { cause: error });
  }
}

/**
 * `openai`: the template goes through the parts of a message's content (`for part in message.content`); `string`: it wants text.
 * Told from the source, as vLLM's `--chat-template-content-format auto` does.
 */
export function detectContentFormat(source: string): 'string' | 'openai' {
  const loopsOverContent =
    /\{%[-+]?\s*for\s+\w+\s+in\s+(?:\w+(?:\[\s*['"]content['"]\s*\]|\.content)|content)(?![\w.[])/.test(source);
  return loopsOverContent ? 'openai' : 'string';
}
