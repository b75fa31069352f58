// SentencePiece BPE of a GGUF vocabulary (tokenizer.ggml.model = llama): spaces become U+2581, characters merge by score,
// characters without a token become byte tokens <0xXX>. The whole text between added tokens is one word.

import { type AddedToken, AddedTokenSplitter } from './added-token-splitter.ts';
import { PairMerger, PairTable } from './pair-merger.ts';
import { TableTokenizer, type TableTokenizerFacts, type TextOptions, unmarked } from './table-tokenizer.ts';
import { TokenKind, type TokenTable } from './token-table.ts';

export interface SpmVocabulary {
  /** One per token; the higher score merges first. */
  readonly scores: readonly number[];
  /** A space is put before text at the start and after every added token. */
  readonly addsSpacePrefix: boolean;
  readonly unknownTokenId: number | null;
  readonly controlTokens: readonly AddedToken[];
  readonly userTokens: readonly AddedToken[];
}

const SPACE_MARK = '\u2581';
const LONE_SURROGATE = /\p{Surrogate}/gu;
/** No token holds this character; it never merges. */
const UNKNOWN_CHARACTER = -2;

export class SpmTokenizer extends TableTokenizer {
  readonly #everyToken: AddedTokenSplitter;
  readonly #userTokens: AddedTokenSplitter;
  readonly #addsSpacePrefix: boolean;
  readonly #characterIds: ReadonlyMap<string, number>;
  readonly #byteIds: Int32Array;
  readonly #unknownTokenId: number | null;
  readonly #merger: PairMerger;
  readonly #utf8 = new TextEncoder();

  constructor(facts: TableTokenizerFacts, vocabulary: SpmVocabulary) {
    super(facts);
    this.#everyToken = new AddedTokenSplitter([...vocabulary.controlTokens, ...vocabulary.userTokens]);
    this.#userTokens = new AddedTokenSplitter(vocabulary.userTokens);
    this.#addsSpacePrefix = vocabulary.addsSpacePrefix;
    this.#unknownTokenId = vocabulary.unknownTokenId;
    const symbols = new SymbolIds(facts.table);
    this.#characterIds = symbols.characters();
    this.#merger = new PairMerger(scoredPairs(vocabulary.scores, symbols));
    this.#byteIds = byteTokenIds(facts.table);
  }

  /** Heap operations since loading, for tests of complexity. */
  get numMergeOperations(): number {
    return this.#merger.numOperations;
  }

  protected appendText(text: string, { parseSpecial, mark }: TextOptions, tokenIds: number[]): void {
    const splitter = parseSpecial ? this.#everyToken : this.#userTokens;
    let isAfterToken = true;
    for (const fragment of splitter.split(text)) {
      if (typeof fragment === 'number') {
        tokenIds.push(fragment);
        isAfterToken = true;
      } else {
        const plain = unmarked(fragment, mark);
        this.#appendFragment(this.#addsSpacePrefix && isAfterToken ? ` ${plain}` : plain, tokenIds);
        isAfterToken = false;
      }
    }
  }

  #appendFragment(text: string, tokenIds: number[]): void {
    const characters = Array.from(text.replaceAll(' ', SPACE_MARK).replace(LONE_SURROGATE, '\ufffd'));
    const symbols = Int32Array.from(characters, (char) => this.#characterIds.get(char) ?? UNKNOWN_CHARACTER);
    const positions = new Int32Array(symbols.length);
    const numSymbols = this.#merger.merge(symbols, symbols.length, positions);
    for (let i = 0; i < numSymbols; i++) {
      const id = symbols[i]!;
      if (id >= 0 && id < this.vocabSize) tokenIds.push(id);
      else this.#appendBytes(characters[positions[i]!]!, tokenIds);
    }
  }

  /** Only single characters get here: whatever has merged is a token. */
  #appendBytes(character: string, tokenIds: number[]): void {
    for (const byte of this.#utf8.encode(character)) {
      const id = this.#byteIds[byte]!;
      if (id >= 0) tokenIds.push(id);
      else if (this.#unknownTokenId !== null) tokenIds.push(this.#unknownTokenId);
    }
  }
}

/** Characters that occur in tokens without being one themselves get ids behind the vocabulary, so that they can still merge. */
class SymbolIds {
  readonly #ids = new Map<string, number>();
  readonly #characters = new Map<string, number>();

  constructor(table: TokenTable) {
    // Unused tokens are left out on purpose: they are placeholders. Control tokens: text must never become one.
    const ids = table.idsOfKind(TokenKind.normal, TokenKind.userDefined);
    for (const id of ids) if (!this.#ids.has(table.piece(id))) this.#ids.set(table.piece(id), id);
    let numVirtual = 0;
    for (const id of ids) {
      for (const char of table.piece(id)) {
        if (!this.#characters.has(char)) {
          this.#characters.set(char, this.#ids.get(char) ?? table.size + numVirtual++);
        }
      }
    }
  }

  characters(): ReadonlyMap<string, number> {
    return this.#characters;
  }

  /** Id of a token, or of a single character, or -1. */
  idOf(piece: string): number {
    return this.#ids.get(piece) ?? this.#characters.get(piece) ?? -1;
  }

  get pieces(): ReadonlyMap<string, number> {
    return this.#ids;
  }
}

/** Every way to put a token together from two others (or characters); the rank is the place of its score among all scores. */
function scoredPairs(scores: readonly number[], symbols: SymbolIds): PairTable {
  const ranks = new Map([...new Set(scores)].sort((a, b) => b - a).map((score, rank) => [score, rank]));
  const pairs: number[] = [];
  for (const [piece, id] of symbols.pieces) {
    const rank = ranks.get(scores[id]!)!;
    for (let cut = 1; cut < piece.length; cut++) {
      const left = symbols.idOf(piece.slice(0, cut));
      if (left < 0) continue;
      const right = symbols.idOf(piece.slice(cut));
      if (right >= 0) pairs.push(left, right, rank, id);
    }
  }
  const pairTable = new PairTable(pairs.length / 4);
  for (let i = 0; i < pairs.length; i += 4) pairTable.add(pairs[i]!, pairs[i + 1]!, pairs[i + 2]!, pairs[i + 3]!);
  return pairTable;
}

function byteTokenIds(table: TokenTable): Int32Array {
  const ids = new Int32Array(256).fill(-1);
  for (const id of table.idsOfKind(TokenKind.byte)) ids[table.bytes(id)[0]!] = id;
  return ids;
}
