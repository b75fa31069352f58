// Byte-level BPE of a GGUF vocabulary (tokenizer.ggml.model = gpt2): cut out added tokens, cut the rest into words,
// write each word as bytes, merge by rank. Bytes that the vocabulary has no token for are dropped, as llama.cpp and tokenizers do.

import { type AddedToken, AddedTokenSplitter } from './added-token-splitter.ts';
import { BYTE_TO_CHAR, pieceToBytes } from './byte-alphabet.ts';
import { PairMerger, PairTable } from './pair-merger.ts';
import { type PreTokenizer, WordSplitter } from './pre-tokenizers.ts';
import { TableTokenizer, type TableTokenizerFacts, type TextOptions, unmarked } from './table-tokenizer.ts';
import { TokenKind, type TokenTable } from './token-table.ts';

const MAX_CACHED_WORDS = 1 << 15;
const MAX_CACHED_LENGTH = 40;

export interface BpeVocabulary {
  readonly merges: readonly string[];
  readonly preTokenizer: PreTokenizer;
  /** Control and unknown tokens, parsed only on request. */
  readonly controlTokens: readonly AddedToken[];
  /** Added tokens that are ordinary text to the user, parsed always. */
  readonly userTokens: readonly AddedToken[];
}

export class BpeTokenizer extends TableTokenizer {
  readonly #everyToken: AddedTokenSplitter;
  readonly #userTokens: AddedTokenSplitter;
  readonly #words: WordSplitter;
  readonly #wholeWords: ReadonlyMap<string, number> | null;
  readonly #byteIds: Int32Array;
  readonly #pieceBytes: readonly Uint8Array[];
  readonly #merger: PairMerger;
  readonly #encoder = new TextEncoder();
  readonly #cache = new Map<string, readonly number[]>();
  #utf8 = new Uint8Array(256);
  #symbols = new Int32Array(256);

  constructor(facts: TableTokenizerFacts, vocabulary: BpeVocabulary) {
    super(facts);
    this.#everyToken = new AddedTokenSplitter([...vocabulary.controlTokens, ...vocabulary.userTokens]);
    this.#userTokens = new AddedTokenSplitter(vocabulary.userTokens);
    this.#words = new WordSplitter(vocabulary.preTokenizer.patterns);
    this.#wholeWords = vocabulary.preTokenizer.ignoreMerges ? wordsOf(facts.table) : null;
    const pieces = new PieceIds(facts.table);
    this.#byteIds = Int32Array.from(BYTE_TO_CHAR, (char) => pieces.idOf(char));
    this.#merger = new PairMerger(pairTable(vocabulary.merges, pieces));
    this.#pieceBytes = pieces.virtualBytes();
  }

  /** Heap operations since loading, for tests of complexity. */
  get numMergeOperations(): number {
    return this.#merger.numOperations;
  }

  protected appendText(text: string, { parseSpecial, mark }: TextOptions, tokenIds: number[]): void {
    const splitter = parseSpecial ? this.#everyToken : this.#userTokens;
    for (const fragment of splitter.split(text)) {
      if (typeof fragment === 'number') tokenIds.push(fragment);
      else for (const word of this.#words.split(unmarked(fragment, mark))) this.#appendWord(word, tokenIds);
    }
  }

  #appendWord(word: string, tokenIds: number[]): void {
    const whole = this.#wholeWords?.get(word);
    if (whole !== undefined) {
      tokenIds.push(whole);
      return;
    }
    const cached = this.#cache.get(word);
    if (cached) {
      for (const id of cached) tokenIds.push(id);
      return;
    }
    const first = tokenIds.length;
    this.#mergeWord(word, tokenIds);
    if (word.length <= MAX_CACHED_LENGTH) {
      if (this.#cache.size >= MAX_CACHED_WORDS) this.#cache.clear();
      this.#cache.set(word, tokenIds.slice(first));
    }
  }

  #mergeWord(word: string, tokenIds: number[]): void {
    const capacity = word.length * 3;
    if (capacity > this.#utf8.length) {
      this.#utf8 = new Uint8Array(capacity);
      this.#symbols = new Int32Array(capacity);
    }
    const numBytes = this.#encoder.encodeInto(word, this.#utf8).written;
    for (let i = 0; i < numBytes; i++) this.#symbols[i] = this.#byteIds[this.#utf8[i]!]!;
    const numSymbols = this.#merger.merge(this.#symbols, numBytes);
    for (let i = 0; i < numSymbols; i++) {
      const id = this.#symbols[i]!;
      if (id < this.vocabSize) tokenIds.push(id);
      else this.#appendBytes(this.#pieceBytes[id - this.vocabSize]!, tokenIds);
    }
    if (this.#utf8.length > 1 << 16) {
      this.#utf8 = new Uint8Array(256);
      this.#symbols = new Int32Array(256);
    }
  }

  #appendBytes(bytes: Uint8Array, tokenIds: number[]): void {
    for (const byte of bytes) if (this.#byteIds[byte]! < this.vocabSize) tokenIds.push(this.#byteIds[byte]!);
  }
}

/** Pieces that merges name but the vocabulary lacks get ids behind it: they merge on, and fall apart into bytes at the end. */
class PieceIds {
  readonly #table: TokenTable;
  readonly #virtual = new Map<string, number>();

  constructor(table: TokenTable) {
    this.#table = table;
  }

  idOf(piece: string): number {
    const id = this.#table.id(piece);
    // Merging must never make a control token, whatever the file says.
    if (id !== null && !this.#table.isControl(id)) return id;
    let virtual = this.#virtual.get(piece);
    if (virtual === undefined) {
      virtual = this.#table.size + this.#virtual.size;
      this.#virtual.set(piece, virtual);
    }
    return virtual;
  }

  virtualBytes(): Uint8Array[] {
    return Array.from(this.#virtual.keys(), (piece) => pieceToBytes(piece) ?? new Uint8Array(0));
  }
}

function pairTable(merges: readonly string[], pieces: PieceIds): PairTable {
  const table = new PairTable(merges.length);
  for (let rank = 0; rank < merges.length; rank++) {
    const merge = merges[rank]!;
    const space = merge.indexOf(' ', 1);
    if (space < 0) continue;
    const left = merge.slice(0, space);
    const right = merge.slice(space + 1);
    table.add(pieces.idOf(left), pieces.idOf(right), rank, pieces.idOf(left + right));
  }
  return table;
}

/** Text -> id of the ordinary tokens that are whole characters. */
function wordsOf(table: TokenTable): Map<string, number> {
  const words = new Map<string, number>();
  for (const id of table.idsOfKind(TokenKind.normal)) {
    const text = table.text(id);
    if (text !== '' && !text.includes('\ufffd') && !words.has(text)) words.set(text, id);
  }
  return words;
}
