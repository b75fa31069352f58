// The models that can be served without naming a path: the embedded one and what lies usable in the Hugging Face cache.

import { statSync } from 'node:fs';
import { basename } from 'node:path';
import { PagodaError } from '../errors.ts';
import { findFiles, listGgufChoices, tagOf } from './gguf-choice.ts';
import { cachedRepositories, type Environment, findSnapshot, hubCacheFolder } from './hub-cache.ts';
import { EMBEDDED_MODEL, EMBEDDED_PATH } from './resolve-model.ts';
import { isSafetensorsFolder } from './safetensors.ts';

export interface ListedModel {
  /** What to write as MODEL. */
  readonly name: string;
  readonly format: 'gguf' | 'safetensors';
  /** Tag of the file's name; null for safetensors and for names without one. */
  readonly quant: string | null;
  readonly numBytes: number;
  /** File (first part) or folder. */
  readonly path: string;
}

export interface ModelList {
  readonly models: readonly ListedModel[];
  /** One line for each cached model that cannot be used, with the reason. */
  readonly problems: readonly string[];
}

export function listCachedModels(env: Environment = process.env): ModelList {
  const models: ListedModel[] = [
    {
      name: EMBEDDED_MODEL,
      format: 'gguf',
      quant: tagOf(EMBEDDED_PATH),
      numBytes: statSync(EMBEDDED_PATH).size,
      path: EMBEDDED_PATH,
    },
  ];
  const problems: string[] = [];
  const cache = hubCacheFolder(env);
  for (const repository of cachedRepositories(cache)) {
    try {
      models.push(...modelsOf(cache, repository));
    } catch (error) {
      if (!(error instanceof PagodaError)) throw error;
      problems.push(error.message);
    }
  }
  return { models, problems };
}

function modelsOf(cache: string, repository: string): ListedModel[] {
  const { folder } = findSnapshot(cache, { repository, quant: null, revision: null });
  const models: ListedModel[] = [];
  if (isSafetensorsFolder(folder)) {
    const shards = findFiles(folder, 0).filter((path) => path.endsWith('.safetensors'));
    const numBytes = shards.reduce((sum, path) => sum + statSync(path).size, 0);
    models.push({ name: repository, format: 'safetensors', quant: null, numBytes, path: folder });
  }
  const choices = listGgufChoices(folder);
  for (const { tag, path, name, numBytes } of choices) {
    // A tag that two files share chooses neither; the file's own name does.
    const sharing = choices.filter((other) => other.tag?.toUpperCase() === tag?.toUpperCase());
    const chosen = tag !== null && sharing.length === 1 ? tag : basename(name).replace(/\.gguf$/i, '');
    const quant = tag?.toUpperCase() ?? null;
    models.push({ name: `${repository}:${chosen}`, format: 'gguf', quant, numBytes, path });
  }
  return models;
}
