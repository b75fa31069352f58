// From the MODEL that a user names to an opened checkpoint: the embedded model, a .gguf file (also split), a Hugging Face folder, or
// org/name[:QUANT][@revision] in the local Hugging Face cache. Nothing is ever downloaded here.

import { statSync } from 'node:fs';
import { dirname, extname, resolve } from 'node:path';
import { PagodaError } from '../errors.ts';
import type { Checkpoint, GgufCheckpoint } from './checkpoint.ts';
import { openGguf } from './gguf.ts';
import { choicesText, chooseGguf, findFiles, listGgufChoices } from './gguf-choice.ts';
import { isLanguageModel, summarizeGguf } from './gguf-file.ts';
import {
  downloadHint,
  type Environment,
  findSnapshot,
  hubCacheFolder,
  type ModelId,
  parseModelId,
} from './hub-cache.ts';
import { isSafetensorsFolder, openSafetensors } from './safetensors.ts';

export const EMBEDDED_MODEL = 'pagoda-mini';

/** Two folders below the package root, in src/ as in dist/. */
export const EMBEDDED_PATH: string = resolve(import.meta.dirname, '../../assets/pagoda-mini.Q8_0.gguf');

export interface OpenModelOptions {
  /** Where HF_HOME and its relatives are looked up; the process's own by default. */
  readonly env?: Environment;
}

/** Opens a model by name. Choices that were made for the user stand in `warnings`. */
export function openModel(name: string = EMBEDDED_MODEL, { env = process.env }: OpenModelOptions = {}): Checkpoint {
  if (name === EMBEDDED_MODEL) return openGguf(EMBEDDED_PATH, name);
  if (name === '' || name.includes('\0')) {
    throw new PagodaError('bad_config', `${JSON.stringify(name)} is not a model name`, { param: 'model' });
  }
  const stats = statSync(name, { throwIfNoEntry: false });
  if (stats?.isDirectory()) return openFolder(name, name);
  if (stats) return openFile(name);
  const id = parseModelId(name);
  if (id === null || /^\.gguf$/i.test(extname(id.repository))) {
    throw new PagodaError(
      'not_found',
      `${name}: no such file or folder (a model is ${EMBEDDED_MODEL}, a .gguf file, a folder with config.json and safetensors, or org/name[:QUANT][@revision] in the Hugging Face cache)`,
      { param: 'model' },
    );
  }
  return openCached(name, id, hubCacheFolder(env));
}

/** `checkpoint` with lines added before its own warnings. */
function withNotes(checkpoint: Checkpoint, notes: readonly (string | null)[]): Checkpoint {
  const said = notes.filter((note) => note !== null);
  return said.length === 0 ? checkpoint : { ...checkpoint, warnings: [...said, ...checkpoint.warnings] };
}

function openFile(path: string): Checkpoint {
  const extension = extname(path).toLowerCase();
  if (extension === '.safetensors' || extension === '.json') {
    throw new PagodaError(
      'bad_config',
      `${path}: give the folder (${dirname(path)}), which also holds config.json and the tokenizer`,
      { param: 'model' },
    );
  }
  if (['.bin', '.pt', '.pth', '.ckpt', '.pkl'].includes(extension)) {
    throw new PagodaError(
      'bad_model_file',
      `${path}: pickle files can run code and are never opened; convert the model to safetensors or GGUF`,
    );
  }
  return openLanguageModel(path, path);
}

/** A GGUF that holds a model, not a projector, importance matrix or adapter. */
function openLanguageModel(path: string, source: string): GgufCheckpoint {
  const checkpoint = openGguf(path, source);
  const summary = summarizeGguf(checkpoint.metadata);
  if (isLanguageModel(summary)) return checkpoint;
  checkpoint.close();
  const kind = summary.type !== null && summary.type !== 'model' ? summary.type : summary.architecture;
  throw new PagodaError('bad_model_file', `${path}: is a GGUF of kind ${kind}, not a language model`);
}

function openFolder(folder: string, source: string): Checkpoint {
  if (isSafetensorsFolder(folder)) return openSafetensors(folder, source);
  const choices = listGgufChoices(folder, 1);
  if (choices.length === 1) return openLanguageModel(choices[0]!.path, source);
  if (choices.length > 1) {
    throw new PagodaError(
      'bad_config',
      `${source}: holds several models; give the path of one: ${choicesText(choices)}`,
      { param: 'model' },
    );
  }
  // Says what is missing.
  return openSafetensors(folder, source);
}

function openCached(source: string, id: ModelId, cache: string): Checkpoint {
  const snapshot = findSnapshot(cache, id);
  if (id.quant === null && isSafetensorsFolder(snapshot.folder)) {
    return withNotes(openSafetensors(snapshot.folder, source), [snapshot.note]);
  }
  const choices = listGgufChoices(snapshot.folder);
  if (choices.length === 0) {
    const names = findFiles(snapshot.folder).length;
    throw new PagodaError(
      id.quant === null ? 'not_found' : 'bad_config',
      `${source}: the cache has no complete ${id.quant === null ? 'safetensors or ' : ''}GGUF model of it (${names} files in ${snapshot.folder}). ${downloadHint(id)}`,
      { param: 'model' },
    );
  }
  const bare = id.revision === null ? id.repository : `${id.repository}@${id.revision}`;
  const { choice, note } = chooseGguf(choices, { source: id.quant === null ? bare : source, quant: id.quant });
  return withNotes(openLanguageModel(choice.path, source), [snapshot.note, note]);
}
