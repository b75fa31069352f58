// What all tokenizers share once each id has its bytes: decoding, spellings, ids. Subclasses know how text becomes ids.

import type { TokenTable } from './token-table.ts';
import type { EncodeOptions, Tokenizer } from './tokenizer.ts';

export interface TableTokenizerFacts {
  readonly kind: string;
  readonly table: TokenTable;
  readonly bosTokenId: number | null;
  readonly eosTokenId: number | null;
  /** What encoding with addSpecialTokens puts in front and behind: usually BOS, if anything. */
  readonly prefixTokenIds: readonly number[];
  readonly suffixTokenIds: readonly number[];
  /** The vocabulary writes a space before the first word, which decoding takes away again (SentencePiece). */
  readonly hasSpacePrefix: boolean;
}

export type TextOptions = Pick<EncodeOptions, 'parseSpecial' | 'mark'>;

const SPACE = 0x20;

/** The text of a fragment, without the mark. */
export function unmarked(fragment: string, mark: string | undefined): string {
  return mark === undefined ? fragment : fragment.replaceAll(mark, '');
}

export abstract class TableTokenizer implements Tokenizer {
  readonly kind: string;
  readonly vocabSize: number;
  readonly bosTokenId: number | null;
  readonly eosTokenId: number | null;
  readonly addsBos: boolean;
  readonly #prefixTokenIds: readonly number[];
  readonly #suffixTokenIds: readonly number[];
  readonly #table: TokenTable;
  readonly #hasSpacePrefix: boolean;

  constructor(facts: TableTokenizerFacts) {
    this.kind = facts.kind;
    this.vocabSize = facts.table.size;
    this.bosTokenId = facts.bosTokenId;
    this.eosTokenId = facts.eosTokenId;
    this.addsBos = facts.bosTokenId !== null && facts.prefixTokenIds.includes(facts.bosTokenId);
    this.#prefixTokenIds = facts.prefixTokenIds;
    this.#suffixTokenIds = facts.suffixTokenIds;
    this.#table = facts.table;
    this.#hasSpacePrefix = facts.hasSpacePrefix;
  }

  encode(text: string, options: EncodeOptions): number[] {
    const tokenIds: number[] = options.addSpecialTokens ? [...this.#prefixTokenIds] : [];
    this.appendText(text, options, tokenIds);
    if (options.addSpecialTokens) for (const id of this.#suffixTokenIds) tokenIds.push(id);
    return tokenIds;
  }

  /** Appends the ids of `text`, without BOS and EOS. */
  protected abstract appendText(text: string, options: TextOptions, tokenIds: number[]): void;

  decode(tokenIds: ArrayLike<number>, options: { skipSpecialTokens: boolean }): string {
    const text = this.#table.decode(tokenIds, options.skipSpecialTokens);
    return this.#hasSpacePrefix && this.#startsWithPrefix(tokenIds) ? text.replace(' ', '') : text;
  }

  /** The first token with text begins with the space that encoding put there. */
  #startsWithPrefix(tokenIds: ArrayLike<number>): boolean {
    for (let i = 0; i < tokenIds.length; i++) {
      if (!this.#table.isControl(tokenIds[i]!)) return this.#table.bytes(tokenIds[i]!)[0] === SPACE;
    }
    return false;
  }

  tokenBytes(tokenId: number): Uint8Array {
    return this.#table.bytes(tokenId);
  }

  tokenText(tokenId: number): string {
    return this.#table.text(tokenId);
  }

  tokenPiece(tokenId: number): string {
    return this.#table.piece(tokenId);
  }

  isControl(tokenId: number): boolean {
    return this.#table.isControl(tokenId);
  }

  tokenId(piece: string): number | null {
    return this.#table.id(piece);
  }
}
