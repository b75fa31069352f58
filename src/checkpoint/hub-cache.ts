// The local Hugging Face cache (huggingface_hub's layout: models--ORG--NAME with refs/, snapshots/ and blobs/), read only and
// offline. A model id can never name a path outside it.

import { existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, sep } from 'node:path';
import { PagodaError } from '../errors.ts';
import { findFiles } from './gguf-choice.ts';

export type Environment = Readonly<Record<string, string | undefined>>;

/** `org/name[:QUANT][@revision]`, taken apart. */
export interface ModelId {
  readonly repository: string;
  readonly quant: string | null;
  readonly revision: string | null;
}

export interface Snapshot {
  readonly folder: string;
  readonly commit: string;
  /** Said to the user when the choice was not plain. */
  readonly note: string | null;
}

const MODEL_ID = /^([A-Za-z0-9_][\w.-]*\/[A-Za-z0-9_][\w.-]*)(?::([\w.-]+))?(?:@([\w./-]+))?$/;
const COMMIT = /^[0-9a-f]{40}$/;

/** Same precedence as huggingface_hub. */
export function hubCacheFolder(env: Environment): string {
  if (env.HF_HUB_CACHE) return env.HF_HUB_CACHE;
  if (env.HUGGINGFACE_HUB_CACHE) return env.HUGGINGFACE_HUB_CACHE;
  if (env.HF_HOME) return join(env.HF_HOME, 'hub');
  if (env.XDG_CACHE_HOME) return join(env.XDG_CACHE_HOME, 'huggingface', 'hub');
  return join(env.HOME || homedir(), '.cache', 'huggingface', 'hub');
}

/** Null for anything that is not of this form; `..` and other ways out of the cache are none. */
export function parseModelId(name: string): ModelId | null {
  const match = MODEL_ID.exec(name);
  if (!match) return null;
  const [, repository = '', quant = null, revision = null] = match;
  if (repository.length > 96 || repository.includes('..') || repository.includes('--')) return null;
  if (revision?.split('/').some((part) => part === '' || part.startsWith('.'))) return null;
  return { repository, quant, revision };
}

function repositoryFolder(cache: string, repository: string): string {
  return join(cache, `models--${repository.replace('/', '--')}`);
}

/** The files of one revision (`main` unless named) of a model in the cache. */
export function findSnapshot(cache: string, id: ModelId): Snapshot {
  const folder = repositoryFolder(cache, id.repository);
  if (!existsSync(join(folder, 'snapshots'))) {
    throw new PagodaError(
      'not_found',
      `${id.repository} is not in the local Hugging Face cache (${cache}). ${downloadHint(id)}`,
    );
  }
  const { commit, note } = commitOf(folder, id);
  const snapshot = join(folder, 'snapshots', commit);
  if (!existsSync(snapshot)) {
    const revision = id.revision ?? 'main';
    throw new PagodaError(
      'not_found',
      `${id.repository}: revision ${revision} (${commit}) is not in the local Hugging Face cache; there: ${commits(folder).join(', ') || 'none'}. ${downloadHint(id)}`,
    );
  }
  refuseLinksOutside(snapshot, folder);
  return { folder: snapshot, commit, note };
}

/** What to run to get a model that is not there. */
export function downloadHint({ repository, quant, revision }: ModelId): string {
  const include = quant === null ? '' : ` --include "*${quant}*"`;
  const at = revision === null ? '' : ` --revision ${revision}`;
  return `Pagoda does not download yet; run: hf download ${repository}${include}${at}`;
}

function commitOf(folder: string, id: ModelId): { commit: string; note: string | null } {
  if (id.revision !== null && COMMIT.test(id.revision)) return { commit: id.revision, note: null };
  const ref = join(folder, 'refs', ...(id.revision ?? 'main').split('/'));
  if (statSync(ref, { throwIfNoEntry: false })?.isFile()) {
    const commit = readFileSync(ref, 'latin1').trim();
    if (!COMMIT.test(commit)) throw new PagodaError('bad_model_file', `${ref}: does not hold a commit`);
    return { commit, note: null };
  }
  const newest = commits(folder)[0];
  if (id.revision === null && newest !== undefined) {
    return {
      commit: newest,
      note: `${id.repository}: the cache does not say which revision main is; using the newest snapshot, ${newest}`,
    };
  }
  throw new PagodaError(
    'not_found',
    `${id.repository}: revision ${id.revision ?? 'main'} is not in the local Hugging Face cache. ${downloadHint(id)}`,
  );
}

/** Snapshots in the cache, newest first. */
function commits(folder: string): string[] {
  const root = join(folder, 'snapshots');
  return readdirSync(root)
    .filter((name) => COMMIT.test(name))
    .map((name) => ({ name, modified: statSync(join(root, name)).mtimeMs }))
    .sort((a, b) => b.modified - a.modified || a.name.localeCompare(b.name))
    .map(({ name }) => name);
}

/** A snapshot is made of links; each must lead into its own repository folder. */
function refuseLinksOutside(snapshot: string, folder: string): void {
  const root = realpathSync(folder) + sep;
  for (const path of [snapshot, ...findFiles(snapshot)]) {
    if (!realpathSync(path).startsWith(root)) {
      throw new PagodaError(
        'bad_model_file',
        `${path}: leads out of ${folder}; only files inside a model's cache folder are opened`,
      );
    }
  }
}

/** Ids of all models in the cache. */
export function cachedRepositories(cache: string): string[] {
  if (!existsSync(cache)) return [];
  return readdirSync(cache)
    .filter((name) => name.startsWith('models--'))
    .map((name) => name.slice('models--'.length).replace('--', '/'))
    .filter((repository) => parseModelId(repository) !== null)
    .sort();
}
