// What synthetic prompts are made of. Three sources, from exact to rough: a tokenizer on this machine, token ids that the server's
// own /tokenize gave, or plain words (about a token each; the server's usage then tells the real lengths).

import type { Draws } from './draws.ts';

/** The part of a tokenizer that loads need; the command line brings one. */
export interface BenchTokenizer {
  readonly vocabSize: number;
  isOrdinary(tokenId: number): boolean;
  encode(text: string): number[];
  decode(tokenIds: readonly number[]): string;
}

export type PromptText = string | readonly number[];

/** A piece of a prompt: ids where they are known, else words. Pieces are joined before they are sent. */
export type Piece = readonly number[] | readonly string[];

export interface PromptSource {
  /** For the report: where lengths come from. */
  readonly kind: 'tokenizer' | 'server ids' | 'words';
  piece(numTokens: number, draws: Draws): Piece;
  /** `asIds` false: always text. */
  join(pieces: readonly Piece[], asIds: boolean): PromptText;
  /** Tokens of a text; without a tokenizer an estimate. */
  countTokens(text: string): number;
  /** Whether pieces are exactly as long as they were asked for. */
  readonly isExact: boolean;
}

/** Common short English words: one token each (with their blank) in the usual vocabularies. */
const WORDS = (
  'the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what all ' +
  'were we when your can said there use an each which she do how their if will up other about out many then them these so some ' +
  'her would make like him into time has look two more write go see number no way could people my than first water been call who ' +
  'oil its now find long down day did get come made may part over new sound take only little work know place year live me back ' +
  'give most very after thing our just name good sentence man think say great where help through much before line right too mean ' +
  'old any same tell boy follow came want show also around form three small set put end does another well large must big even such ' +
  'because turn here why ask went men read need land different home us move try kind hand picture again change off play spell air ' +
  'away animal house point page letter mother answer found study still learn should world high every near add food between own'
).split(' ');

export function wordList(): readonly string[] {
  return WORDS;
}

/** A token is about four characters of English text. */
const CHARACTERS_PER_TOKEN = 4;

export function wordSource(): PromptSource {
  return {
    kind: 'words',
    isExact: false,
    piece: (numTokens, draws) => Array.from({ length: numTokens }, () => WORDS[draws.integer(0, WORDS.length - 1)]!),
    join: (pieces) => pieces.flat().join(' '),
    countTokens: (text) => Math.ceil(text.length / CHARACTERS_PER_TOKEN),
  };
}

/** `pool`: ids of ordinary text in the server's vocabulary. Only for servers that take ids as a prompt. */
export function idSource(pool: readonly number[]): PromptSource {
  const words = wordSource();
  return {
    kind: 'server ids',
    isExact: true,
    piece: (numTokens, draws) => Array.from({ length: numTokens }, () => pool[draws.integer(0, pool.length - 1)]!),
    join: (pieces) => (pieces as ReadonlyArray<readonly number[]>).flat(),
    countTokens: words.countTokens,
  };
}

const MAX_ID_TRIES = 1000;

export function tokenizerSource(tokenizer: BenchTokenizer): PromptSource {
  const randomId = (draws: Draws): number => {
    for (let i = 0; i < MAX_ID_TRIES; i++) {
      const id = draws.integer(0, tokenizer.vocabSize - 1);
      if (tokenizer.isOrdinary(id)) return id;
    }
    return 0;
  };
  return {
    kind: 'tokenizer',
    isExact: true,
    piece: (numTokens, draws) => Array.from({ length: numTokens }, () => randomId(draws)),
    join: (pieces, asIds) => {
      const ids = (pieces as ReadonlyArray<readonly number[]>).flat();
      return asIds ? ids : textOfLength(tokenizer, ids);
    },
    countTokens: (text) => tokenizer.encode(text).length,
  };
}

const MAX_ROUNDS = 10;

/** A text whose tokens number as many as `ids`: decoding and encoding again rarely keeps the number, so it is trimmed and filled. */
function textOfLength(tokenizer: BenchTokenizer, ids: readonly number[]): string {
  let current = ids;
  let text = tokenizer.decode(current);
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const again = tokenizer.encode(text);
    if (again.length === ids.length) return text;
    current =
      again.length > ids.length ? again.slice(0, ids.length) : [...again, ...ids.slice(0, ids.length - again.length)];
    text = tokenizer.decode(current);
  }
  return text;
}
