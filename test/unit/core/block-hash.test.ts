import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { BlockHasher, BlockHashes } from '../../../src/core/block-hash.ts';
import { DIGEST_WORDS } from '../../../src/core/content-index.ts';

const secret = Uint8Array.of(9, 8, 7);

function hashesOf(
  tokens: number[],
  options: { salt?: string | null; blockSize?: number; key?: Uint8Array } = {},
): string[] {
  const { salt = null, blockSize = 2, key = secret } = options;
  const hashes = new BlockHashes();
  new BlockHasher({ blockSize, secret: key }).extend(
    hashes,
    Math.floor(tokens.length / blockSize),
    Int32Array.from(tokens),
    salt,
  );
  return Array.from({ length: hashes.numBlocks }, (_, i) =>
    hex(hashes.words.subarray(hashes.offsetOf(i), hashes.offsetOf(i) + DIGEST_WORDS)),
  );
}

function hex(words: Int32Array): string {
  return Buffer.from(new Uint8Array(words.slice().buffer)).toString('hex');
}

describe('BlockHasher', () => {
  it('is SHA-256 over typed, length-prefixed fields', () => {
    const u32 = (value: number) => Buffer.from(Uint32Array.of(value).buffer);
    const field = (type: number, payload: Buffer) => Buffer.concat([u32(type), u32(payload.length), payload]);
    const sha256 = (...parts: Buffer[]) => createHash('sha256').update(Buffer.concat(parts)).digest();
    const root = sha256(field(1, Buffer.from(secret)), field(2, Buffer.from('salt é')));
    const first = sha256(field(3, root), field(4, Buffer.concat([u32(5), u32(6)])));
    const second = sha256(field(3, first), field(4, Buffer.concat([u32(7), u32(70_000)])));
    expect(hashesOf([5, 6, 7, 70_000], { salt: 'salt é' })).toEqual([first.toString('hex'), second.toString('hex')]);
  });

  it('depends on every token before, the salt, the secret and nothing after', () => {
    const [first, second] = hashesOf([1, 2, 3, 4]);
    expect(hashesOf([1, 2, 3, 4, 5, 6]).slice(0, 2)).toEqual([first, second]);
    expect(hashesOf([1, 9, 3, 4])[1]).not.toBe(second);
    expect(hashesOf([3, 4])[0]).not.toBe(second);
    const roots = [
      hashesOf([1, 2]),
      hashesOf([1, 2], { salt: '' }),
      hashesOf([1, 2], { salt: 'a' }),
      hashesOf([1, 2], { key: Uint8Array.of(9, 8) }),
    ];
    expect(new Set(roots.flat()).size).toBe(4);
  });

  it('extends a chain block by block to the same result', () => {
    const tokens = Array.from({ length: 40 }, (_, i) => i * 3);
    const hashes = new BlockHashes();
    const hasher = new BlockHasher({ blockSize: 4, secret });
    for (let numBlocks = 1; numBlocks <= 10; numBlocks++)
      hasher.extend(hashes, numBlocks, Int32Array.from(tokens), 's');
    const piecewise = Array.from({ length: 10 }, (_, i) =>
      hex(hashes.words.subarray(hashes.offsetOf(i), hashes.offsetOf(i) + DIGEST_WORDS)),
    );
    expect(piecewise).toEqual(hashesOf(tokens, { salt: 's', blockSize: 4 }));
  });
});
