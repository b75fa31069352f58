// Builds the tokenizer that a GGUF file describes in its tokenizer.ggml.* keys.
// BOS and EOS exist only where the file names them: no default ids, which would be some unrelated token.

import { PagodaError } from '../errors.ts';
import type { AddedToken } from './added-token-splitter.ts';
import { BpeTokenizer } from './bpe-tokenizer.ts';
import { pieceToBytes } from './byte-alphabet.ts';
import { type GgufMetadata, readBoolean, readNumbers, readString, readStrings, readTokenId } from './gguf-metadata.ts';
import { NoTokenizer } from './no-tokenizer.ts';
import { findPreTokenizer, preTokenizerNames } from './pre-tokenizers.ts';
import { SpmTokenizer } from './spm-tokenizer.ts';
import type { TableTokenizerFacts } from './table-tokenizer.ts';
import { type TokenEntry, TokenKind, TokenTable } from './token-table.ts';
import type { Tokenizer } from './tokenizer.ts';

const KEY = 'tokenizer.ggml.';
const SPACE_MARK = '\u2581';
const BYTE_PIECE = /^<0x([0-9A-Fa-f]{2})>$/;

export function ggufTokenizer(metadata: GgufMetadata): Tokenizer {
  const model = readString(metadata, `${KEY}model`);
  switch (model) {
    case null:
    case 'none':
    case 'no_vocab':
      return new NoTokenizer('the model file has no vocabulary (tokenizer.ggml.model)');
    case 'gpt2':
      return bpeTokenizer(metadata);
    case 'llama':
      return spmTokenizer(metadata);
    default:
      throw new PagodaError(
        'unsupported',
        `The vocabulary type "${model}" (tokenizer.ggml.model) is not supported. Supported: gpt2, llama, no_vocab.`,
      );
  }
}

function bpeTokenizer(metadata: GgufMetadata): Tokenizer {
  // Files from before the key existed were made for llama.cpp's default scheme.
  const name = readString(metadata, `${KEY}pre`) ?? 'default';
  const preTokenizer = findPreTokenizer(name);
  if (!preTokenizer) {
    throw new PagodaError(
      'unsupported',
      `The pre-tokenizer "${name}" (tokenizer.ggml.pre) is not supported: its text would be cut wrongly. ` +
        `Supported: ${preTokenizerNames().join(', ')}.`,
    );
  }
  const merges = readStrings(metadata, `${KEY}merges`);
  if (!merges) throw new PagodaError('bad_model_file', `The model file is malformed: ${KEY}merges is missing.`);
  const { pieces, kinds } = readVocabulary(metadata);
  const table = new TokenTable(pieces.length, (id) => bpeEntry(pieces[id]!, kinds[id]!));
  const facts = readFacts(metadata, 'gpt2', table, { addsBos: preTokenizer.addsBos, hasSpacePrefix: false });
  return new BpeTokenizer(facts, { merges, preTokenizer, ...addedTokens(table) });
}

function spmTokenizer(metadata: GgufMetadata): Tokenizer {
  const { pieces, kinds } = readVocabulary(metadata);
  const scores = readNumbers(metadata, `${KEY}scores`, pieces.length);
  if (!scores) throw new PagodaError('bad_model_file', `The model file is malformed: ${KEY}scores is missing.`);
  const table = new TokenTable(pieces.length, (id) => spmEntry(pieces[id]!, kinds[id]!));
  const addsSpacePrefix = readBoolean(metadata, `${KEY}add_space_prefix`) ?? true;
  const facts = readFacts(metadata, 'llama', table, { addsBos: true, hasSpacePrefix: addsSpacePrefix });
  return new SpmTokenizer(facts, {
    scores,
    addsSpacePrefix,
    unknownTokenId: readTokenId(metadata, `${KEY}unknown_token_id`, table.size),
    ...addedTokens(table, swallowsSpaceAfter(metadata)),
  });
}

function readVocabulary(metadata: GgufMetadata): { pieces: readonly string[]; kinds: readonly TokenKind[] } {
  const pieces = readStrings(metadata, `${KEY}tokens`);
  if (!pieces || pieces.length === 0) {
    throw new PagodaError('bad_model_file', `The model file is malformed: ${KEY}tokens is missing or empty.`);
  }
  const types = readNumbers(metadata, `${KEY}token_type`, pieces.length);
  const kinds = pieces.map((_, id) => {
    const type = types?.[id] ?? TokenKind.normal;
    return type >= TokenKind.normal && type <= TokenKind.byte ? (type as TokenKind) : TokenKind.unused;
  });
  return { pieces, kinds };
}

function readFacts(
  metadata: GgufMetadata,
  kind: string,
  table: TokenTable,
  defaults: { addsBos: boolean; hasSpacePrefix: boolean },
): TableTokenizerFacts {
  const bosTokenId = readTokenId(metadata, `${KEY}bos_token_id`, table.size);
  const eosTokenId = readTokenId(metadata, `${KEY}eos_token_id`, table.size);
  const addsBos = readBoolean(metadata, `${KEY}add_bos_token`) ?? defaults.addsBos;
  const addsEos = readBoolean(metadata, `${KEY}add_eos_token`) ?? false;
  return {
    kind,
    table,
    bosTokenId,
    eosTokenId,
    prefixTokenIds: addsBos && bosTokenId !== null ? [bosTokenId] : [],
    suffixTokenIds: addsEos && eosTokenId !== null ? [eosTokenId] : [],
    hasSpacePrefix: defaults.hasSpacePrefix,
  };
}

const utf8 = new TextEncoder();

/** Added tokens are spelled out; all others in the byte alphabet. */
function bpeEntry(piece: string, kind: TokenKind): TokenEntry {
  const isSpelledOut = kind === TokenKind.control || kind === TokenKind.unknown || kind === TokenKind.userDefined;
  return { piece, kind, bytes: (isSpelledOut ? null : pieceToBytes(piece)) ?? utf8.encode(piece) };
}

function spmEntry(piece: string, kind: TokenKind): TokenEntry {
  if (kind === TokenKind.byte) {
    const hex = BYTE_PIECE.exec(piece)?.[1];
    if (hex === undefined) {
      const shown = JSON.stringify(piece.slice(0, 20));
      throw new PagodaError('bad_model_file', `The model file is malformed: ${shown} is no byte token like <0x0A>.`);
    }
    return { piece, kind, bytes: Uint8Array.of(Number.parseInt(hex, 16)) };
  }
  const isSpelledOut = kind === TokenKind.control || kind === TokenKind.unknown;
  return { piece, kind, bytes: utf8.encode(isSpelledOut ? piece : piece.replaceAll(SPACE_MARK, ' ')) };
}

function addedTokens(
  table: TokenTable,
  stripsRight: (piece: string) => boolean = () => false,
): { controlTokens: AddedToken[]; userTokens: AddedToken[] } {
  const added = (id: number): AddedToken => ({
    id,
    spelling: table.text(id),
    stripRight: stripsRight(table.piece(id)),
  });
  return {
    controlTokens: table.idsOfKind(TokenKind.control, TokenKind.unknown).map(added),
    userTokens: table.idsOfKind(TokenKind.userDefined).map(added),
  };
}

// Phi-3's special tokens swallow the whitespace after them (`rstrip` in its tokenizer.json), which GGUF has no key for.
const PHI3_KEEPS_SPACE = new Set(['<unk>', '<s>', '<|endoftext|>']);

function swallowsSpaceAfter(metadata: GgufMetadata): (piece: string) => boolean {
  const name = (readString(metadata, 'general.name') ?? '').toLowerCase();
  const isPhi3 = name.includes('phi-3') || name.includes('phi3');
  return (piece) => isPhi3 && !PHI3_KEEPS_SPACE.has(piece);
}
