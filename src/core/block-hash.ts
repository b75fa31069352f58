// Names the contents of full KV blocks: a SHA-256 chain over typed, length-prefixed fields, so that no two different prefixes
// share a name. The chain starts from a secret drawn at boot (nobody can construct a collision with another user's prompt
// offline) and the request's cache salt. KV groups are told apart by the pool, which keeps one map per group.

import { hash } from 'node:crypto';

const FIELD_SECRET = 1;
const FIELD_SALT = 2;
const FIELD_PARENT = 3;
const FIELD_TOKENS = 4;
const DIGEST_BYTES = 32;
const HEADER_BYTES = 8; // field type and byte length, 32 bits each
const TOKENS_AT = HEADER_BYTES + DIGEST_BYTES + HEADER_BYTES;

/** A digest as a string of 32 characters, one byte each: a compact map key. */
export type BlockHash = string;

export class BlockHasher {
  readonly #blockSize: number;
  readonly #secret: Uint8Array;
  /** [parent header, parent digest, tokens header, tokens]; headers are constant, the rest is overwritten for each block. */
  readonly #message: Buffer;
  readonly #tokens: Int32Array;

  constructor(options: { blockSize: number; secret: Uint8Array }) {
    this.#blockSize = options.blockSize;
    this.#secret = options.secret;
    const bytes = new ArrayBuffer(TOKENS_AT + 4 * options.blockSize);
    this.#message = Buffer.from(bytes);
    this.#tokens = new Int32Array(bytes, TOKENS_AT);
    writeHeader(this.#message, 0, FIELD_PARENT, DIGEST_BYTES);
    writeHeader(this.#message, HEADER_BYTES + DIGEST_BYTES, FIELD_TOKENS, 4 * options.blockSize);
  }

  /** The parent of a request's first block. No salt and an empty salt are different. */
  root(salt: string | null): BlockHash {
    const secret = field(FIELD_SECRET, this.#secret);
    if (salt === null) return digest(secret);
    return digest(Buffer.concat([secret, field(FIELD_SALT, Buffer.from(salt, 'utf8'))]));
  }

  /** The block that holds tokenIds[start, start + blockSize) after the prefix that `parent` names. */
  block(parent: BlockHash, tokenIds: Int32Array, start: number): BlockHash {
    this.#message.write(parent, HEADER_BYTES, DIGEST_BYTES, 'latin1');
    const tokens = this.#tokens;
    for (let i = 0; i < this.#blockSize; i++) tokens[i] = tokenIds[start + i]!;
    return digest(this.#message);
  }
}

function digest(message: Buffer): BlockHash {
  return hash('sha256', message, 'latin1');
}

function field(type: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(HEADER_BYTES + payload.length);
  writeHeader(bytes, 0, type, payload.length);
  bytes.set(payload, HEADER_BYTES);
  return bytes;
}

function writeHeader(bytes: Buffer, at: number, type: number, length: number): void {
  bytes.writeUInt32LE(type, at);
  bytes.writeUInt32LE(length, at + 4);
}
