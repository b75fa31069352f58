// Names the contents of full KV blocks: a SHA-256 chain over typed, length-prefixed fields, so that no two different prefixes
// share a name. The chain starts from a secret drawn at boot (nobody can work out a collision with another user's prompt
// offline) and the request's cache salt. KV groups are told apart by the index that the digests are filed in.

import { hash } from 'node:crypto';
import { DIGEST_WORDS } from './content-index.ts';

const FIELD_SECRET = 1;
const FIELD_SALT = 2;
const FIELD_PARENT = 3;
const FIELD_TOKENS = 4;
const HEADER_WORDS = 2; // field type and byte length

/** Digests of a sequence's leading full blocks. */
export class BlockHashes {
  /** [>= numBlocks + 1, DIGEST_WORDS] first the root, then one digest per block. */
  words = new Int32Array(0);
  /** Blocks hashed so far. */
  numBlocks = 0;

  /** Where the digest of a block starts in `words`. */
  offsetOf(block: number): number {
    return (block + 1) * DIGEST_WORDS;
  }
}

export class BlockHasher {
  readonly #blockSize: number;
  readonly #secret: Uint8Array;
  /** [parent header, parent digest, tokens header, tokens], 32 bits each: the headers stay, the rest is overwritten. */
  readonly #message: Int32Array;
  readonly #messageBytes: Uint8Array;

  constructor(options: { blockSize: number; secret: Uint8Array }) {
    this.#blockSize = options.blockSize;
    this.#secret = options.secret;
    const parentHeader = [FIELD_PARENT, 4 * DIGEST_WORDS];
    const tokensHeader = [FIELD_TOKENS, 4 * options.blockSize];
    this.#message = Int32Array.from([
      ...parentHeader,
      ...new Array<number>(DIGEST_WORDS).fill(0),
      ...tokensHeader,
      ...new Array<number>(options.blockSize).fill(0),
    ]);
    this.#messageBytes = new Uint8Array(this.#message.buffer);
  }

  /** Extends the hashes to at least `numBlocks` blocks of known tokens. No salt and an empty salt are different. */
  extend(hashes: BlockHashes, numBlocks: number, tokenIds: Int32Array, salt: string | null): void {
    if (numBlocks <= hashes.numBlocks) return;
    this.#reserve(hashes, numBlocks);
    if (hashes.numBlocks === 0) writeDigest(this.#rootMessage(salt), hashes.words, 0);
    while (hashes.numBlocks < numBlocks) this.#append(hashes, tokenIds);
  }

  #append(hashes: BlockHashes, tokenIds: Int32Array): void {
    const message = this.#message;
    const block = hashes.numBlocks;
    const parentAt = hashes.offsetOf(block - 1);
    for (let word = 0; word < DIGEST_WORDS; word++) message[HEADER_WORDS + word] = hashes.words[parentAt + word]!;
    const tokensAt = HEADER_WORDS + DIGEST_WORDS + HEADER_WORDS;
    const start = block * this.#blockSize;
    for (let i = 0; i < this.#blockSize; i++) message[tokensAt + i] = tokenIds[start + i]!;
    writeDigest(this.#messageBytes, hashes.words, hashes.offsetOf(block));
    hashes.numBlocks++;
  }

  #reserve(hashes: BlockHashes, numBlocks: number): void {
    const numWords = (numBlocks + 1) * DIGEST_WORDS;
    if (numWords <= hashes.words.length) return;
    const larger = new Int32Array(Math.max(numWords, 2 * hashes.words.length));
    larger.set(hashes.words);
    hashes.words = larger;
  }

  #rootMessage(salt: string | null): Uint8Array {
    const secret = field(FIELD_SECRET, this.#secret);
    return salt === null ? secret : Buffer.concat([secret, field(FIELD_SALT, Buffer.from(salt, 'utf8'))]);
  }
}

/** A string is what the one-shot hash returns fastest. */
function writeDigest(message: Uint8Array, words: Int32Array, at: number): void {
  const digest = hash('sha256', message, 'binary');
  for (let word = 0; word < DIGEST_WORDS; word++) {
    const i = 4 * word;
    words[at + word] =
      digest.charCodeAt(i) |
      (digest.charCodeAt(i + 1) << 8) |
      (digest.charCodeAt(i + 2) << 16) |
      (digest.charCodeAt(i + 3) << 24);
  }
}

function field(type: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(4 * HEADER_WORDS + payload.length);
  bytes.writeUInt32LE(type, 0);
  bytes.writeUInt32LE(payload.length, 4);
  bytes.set(payload, 4 * HEADER_WORDS);
  return bytes;
}
