// tokenizer.json through @huggingface/tokenizers, with what tokenizer_config.json adds: BOS, EOS and whether they are put in front.
// Text becomes ids in the library; ids become bytes here, since streaming needs the bytes of each token.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer as LibraryTokenizer } from '@huggingface/tokenizers';
import { PagodaError } from '../errors.ts';
import { AddedTokenSplitter } from './added-token-splitter.ts';
import { type HfDecoding, hfDecoding } from './hf-decoding.ts';
import { TableTokenizer, type TableTokenizerFacts, type TextOptions, unmarked } from './table-tokenizer.ts';
import { type TokenEntry, TokenKind, TokenTable } from './token-table.ts';
import type { Tokenizer } from './tokenizer.ts';

type Json = Readonly<Record<string, unknown>>;

interface AddedTokenJson {
  readonly id: number;
  readonly content: string;
  readonly special: boolean;
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
}

/** Stands before text that does not begin the whole: some vocabularies treat the first piece of a text differently. */
const EARLIER_TOKEN = { id: -1, content: '\ufdef\ufdee', special: true, normalized: false };
const EARLIER_TOKEN_MIDDLE = /(?<=\ufdef)(?=\ufdee)/u;
/** Far above any vocabulary; one absurd id must not make a table of gigabytes. */
const MAX_TOKEN_ID = 1 << 21;
const EMPTY_MODEL = { type: 'BPE', vocab: {}, merges: [] };

/** The tokenizer of a folder with tokenizer.json. */
export function hfTokenizer(folder: string): Tokenizer {
  const json = readJson(folder, 'tokenizer.json');
  if (!json) throw malformed('it is missing');
  const config = { ...readJson(folder, 'special_tokens_map.json'), ...readJson(folder, 'tokenizer_config.json') };
  return createHfTokenizer(json, config);
}

export function createHfTokenizer(json: Json, config: Json): Tokenizer {
  refuseUnsupported(json);
  const decoding = hfDecoding(json);
  const added = addedTokens(json);
  const table = readTable(json, added, decoding);
  const library = buildLibraries(json, config, added);
  const idOf = (name: string): number | null => {
    const content = tokenContent(config[name]);
    return content === null ? null : table.id(content);
  };
  const bosTokenId = idOf('bos_token');
  const eosTokenId = idOf('eos_token');
  const frame = specialFrame(library.full);
  return new HfTokenizer(
    {
      kind: 'tokenizer.json',
      table,
      bosTokenId,
      eosTokenId,
      prefixTokenIds: withToken(frame.prefix, bosTokenId, config.add_bos_token),
      suffixTokenIds: withToken(frame.suffix, eosTokenId, config.add_eos_token),
      hasSpacePrefix: decoding.hasSpacePrefix,
    },
    { ...library, table, added, unknownTokenId: unknownId(json, table) },
  );
}

interface HfParts extends Libraries {
  readonly table: TokenTable;
  readonly added: readonly AddedTokenJson[];
  readonly unknownTokenId: number | null;
}

interface Libraries {
  /** Parses every added token. */
  readonly full: LibraryTokenizer;
  /** Parses only those that are not special. */
  readonly plain: LibraryTokenizer;
}

class HfTokenizer extends TableTokenizer {
  readonly #library: Libraries;
  readonly #table: TokenTable;
  readonly #controlTokens: AddedTokenSplitter;
  readonly #unknownTokenId: number | null;

  constructor(facts: TableTokenizerFacts, parts: HfParts) {
    super(facts);
    this.#library = parts;
    const control = parts.added.filter((token) => token.special);
    this.#controlTokens = new AddedTokenSplitter(
      control.map(({ id, content, lstrip = false, rstrip = false }) => {
        return { id, spelling: content, stripLeft: lstrip, stripRight: rstrip };
      }),
    );
    this.#table = parts.table;
    this.#unknownTokenId = parts.unknownTokenId;
  }

  protected appendText(text: string, { parseSpecial, mark }: TextOptions, tokenIds: number[]): void {
    if (text === '') return;
    if (parseSpecial && (mark === undefined || !text.includes(mark))) {
      for (const id of this.#library.full.encode(text, { add_special_tokens: false }).ids) tokenIds.push(id);
      return;
    }
    let isFirst = true;
    for (const fragment of parseSpecial ? this.#controlTokens.split(text) : [text]) {
      if (typeof fragment === 'number') tokenIds.push(fragment);
      else this.#appendPlain(unmarked(fragment, mark), isFirst, tokenIds);
      isFirst = false;
    }
  }

  /** Text in which no control token is parsed. */
  #appendPlain(text: string, isFirst: boolean, tokenIds: number[]): void {
    if (text.includes(EARLIER_TOKEN.content)) {
      const pieces = text.split(EARLIER_TOKEN_MIDDLE);
      pieces.forEach((piece, i) => {
        this.#appendPlain(piece, isFirst && i === 0, tokenIds);
      });
      return;
    }
    const { ids } = this.#library.plain.encode(isFirst ? text : EARLIER_TOKEN.content + text, {
      add_special_tokens: false,
    });
    for (const id of ids) {
      if (id === EARLIER_TOKEN.id) continue;
      if (id === this.#unknownTokenId || !this.isControl(id)) tokenIds.push(id);
      else this.#spellOut(this.#table.piece(id), tokenIds);
    }
  }

  /** A vocabulary can hold a control token's spelling as an ordinary word too; user text takes the long way around it. */
  #spellOut(piece: string, tokenIds: number[]): void {
    const characters = Array.from(piece);
    if (characters.length < 2) return;
    const half = characters.length >> 1;
    this.#appendPlain(characters.slice(0, half).join(''), false, tokenIds);
    this.#appendPlain(characters.slice(half).join(''), false, tokenIds);
  }
}

/** The second tokenizer shares the first one's vocabulary, which is the large part. */
function buildLibraries(json: Json, config: Json, added: readonly AddedTokenJson[]): Libraries {
  try {
    const full = new LibraryTokenizer({ ...json, added_tokens: added }, config);
    const userTokens = added.filter((token) => !token.special);
    const plainTokens = [...userTokens, EARLIER_TOKEN];
    const plain = new LibraryTokenizer({ ...json, added_tokens: plainTokens, model: EMPTY_MODEL }, config);
    plain.model = full.model;
    return { full, plain };
  } catch (error) {
    throw malformed(error instanceof Error ? error.message : String(error));
  }
}

/** What the post-processor puts around a text. */
function specialFrame(library: LibraryTokenizer): { prefix: number[]; suffix: number[] } {
  const probe = 'a';
  const bare = library.encode(probe, { add_special_tokens: false }).ids;
  const framed = library.encode(probe, { add_special_tokens: true }).ids;
  for (let start = 0; start + bare.length <= framed.length; start++) {
    if (bare.every((id: number, i: number) => framed[start + i] === id)) {
      return { prefix: framed.slice(0, start), suffix: framed.slice(start + bare.length) };
    }
  }
  return { prefix: [], suffix: [] };
}

/** add_bos_token / add_eos_token decide where they are given; else the post-processor does. */
function withToken(frame: readonly number[], tokenId: number | null, isAdded: unknown): number[] {
  if (tokenId === null || typeof isAdded !== 'boolean') return [...frame];
  if (!isAdded) return frame.filter((id) => id !== tokenId);
  return frame.includes(tokenId) ? [...frame] : [tokenId, ...frame];
}

function readTable(json: Json, added: readonly AddedTokenJson[], decoding: HfDecoding): TokenTable {
  const entries: (TokenEntry | undefined)[] = [];
  const put = (id: number, entry: TokenEntry): void => {
    if (!Number.isInteger(id) || id < 0 || id >= MAX_TOKEN_ID) throw malformed(`token id ${id} is out of range`);
    entries[id] = entry;
  };
  for (const [piece, id] of vocabulary(json)) put(id, decoding.entry(piece));
  const utf8 = new TextEncoder();
  for (const token of added) {
    const kind = token.special ? TokenKind.control : TokenKind.userDefined;
    put(token.id, { piece: token.content, kind, bytes: utf8.encode(token.content) });
  }
  return new TokenTable(entries.length, (id) => entries[id] ?? null);
}

/** BPE lists piece -> id; Unigram lists [piece, score] in the order of ids. */
function vocabulary(json: Json): Iterable<[string, number]> {
  const { vocab } = json.model as Json;
  if (Array.isArray(vocab)) return vocab.map((pair, id) => [String(pair[0]), id]);
  if (typeof vocab !== 'object' || vocab === null) throw malformed('model.vocab is missing');
  return Object.entries(vocab as Record<string, number>);
}

function unknownId(json: Json, table: TokenTable): number | null {
  const model = json.model as Json;
  if (typeof model.unk_token === 'string') return table.id(model.unk_token);
  return typeof model.unk_id === 'number' ? model.unk_id : null;
}

function addedTokens(json: Json): AddedTokenJson[] {
  const added = json.added_tokens ?? [];
  if (!Array.isArray(added)) throw malformed('added_tokens must be a list');
  return added.map((token) => {
    if (typeof token?.id !== 'number' || typeof token.content !== 'string') throw malformed('an added token has no id');
    return { ...token, special: token.special === true };
  });
}

/** `bos_token` is a string, an object with `content`, or null. */
function tokenContent(value: unknown): string | null {
  if (typeof value === 'string') return value;
  const content = (value as { content?: unknown } | null | undefined)?.content;
  return typeof content === 'string' ? content : null;
}

/** Things the library accepts without doing them would cut text wrongly in silence. */
function refuseUnsupported(json: Json): void {
  if (typeof json.model !== 'object' || json.model === null) throw malformed('model is missing');
  const inspect = (node: unknown): void => {
    if (Array.isArray(node)) node.forEach(inspect);
    if (typeof node !== 'object' || node === null) return;
    const { type, behavior } = node as Json;
    if (type === 'Split' && typeof behavior === 'string' && !/^(isolated|removed)$/i.test(behavior)) {
      throw new PagodaError(
        'unsupported',
        `tokenizer.json splits text by the behavior "${behavior}", which is not supported.`,
      );
    }
    for (const value of Object.values(node)) if (typeof value === 'object') inspect(value);
  };
  inspect(json.pre_tokenizer);
}

function readJson(folder: string, name: string): Json | null {
  let text: string;
  try {
    text = readFileSync(join(folder, name), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new PagodaError('bad_model_file', `${name} cannot be read: ${(error as Error).message}`, { cause: error });
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new PagodaError('bad_model_file', `${name} is not valid JSON.`, { cause: error });
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json)) {
    throw new PagodaError('bad_model_file', `${name} must hold a JSON object.`);
  }
  return json as Json;
}

function malformed(what: string): PagodaError {
  return new PagodaError('bad_model_file', `tokenizer.json cannot be used: ${what.slice(0, 200)}.`);
}
