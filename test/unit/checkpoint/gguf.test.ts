// The GGUF reader: good files give back what was written; every way of lying is refused with the file's name.
import { closeSync, ftruncateSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { dequantizeRow } from '../../../src/checkpoint/dequantize.ts';
import { openGguf } from '../../../src/checkpoint/gguf.ts';
import { GGUF_LIMITS } from '../../../src/checkpoint/gguf-file.ts';
import type { GgufMetadata } from '../../../src/checkpoint/gguf-metadata.ts';
import { QUANTIZATION_FORMATS } from '../../../src/checkpoint/quantization.ts';
import { readWeight } from '../../../src/checkpoint/weights.ts';
import { PagodaError } from '../../../src/errors.ts';
import {
  f32Tensor,
  ggufKey,
  ggufString,
  SMALL_KEYS,
  u32,
  u64,
  type WriterKey,
  type WriterOptions,
  type WriterTensor,
  writeGguf,
  writeSplitGguf,
} from './gguf-writer.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-gguf-'));
afterAll(() => rmSync(folder, { recursive: true }));

const TENSORS = [f32Tensor('token_embd.weight', [8, 3]), f32Tensor('output_norm.weight', [8], () => 1)];

let numSaved = 0;

/** A new file each time: overwriting one makes some file systems flush it to disk. */
function save(bytes: Uint8Array, name = `m${numSaved++}.gguf`): string {
  const path = join(folder, name);
  writeFileSync(path, bytes, { flag: 'wx' });
  return path;
}

/** The error of opening these bytes; anything but a PagodaError is a failure of the test. */
function refusal(bytes: Uint8Array, name?: string): PagodaError {
  const path = save(bytes, name);
  try {
    openGguf(path).close();
  } catch (error) {
    expect(error).toBeInstanceOf(PagodaError);
    const refused = error as PagodaError;
    expect(refused.code).toBe('bad_model_file');
    expect(refused.message).toContain(path);
    expect(refused.message).not.toContain('\n');
    return refused;
  }
  throw new Error('was accepted');
}

function small(
  extra: readonly WriterKey[] = [],
  tensors: readonly WriterTensor[] = TENSORS,
  options?: WriterOptions,
): Buffer {
  return writeGguf([...SMALL_KEYS, ...extra], tensors, options);
}

const header = (numTensors: number | bigint, numKeys: number | bigint) =>
  Buffer.concat([Buffer.from('GGUF'), u32(3), u64(numTensors), u64(numKeys)]);
/** A file with one key made of raw bytes after its name. */
const oneKey = (...parts: readonly Buffer[]) => Buffer.concat([header(0, 1), ggufString('k'), ...parts]);

describe('a good file', () => {
  it('gives back metadata and tensors', () => {
    const checkpoint = openGguf(
      save(small([{ key: 'general.alignment', type: 'u32', value: 64 }], TENSORS, { alignment: 64 })),
    );
    expect(checkpoint.metadata.get('general.name')).toBe('small');
    expect(checkpoint.metadata.get('tokenizer.ggml.tokens')).toEqual(['<s>', 'a', '中']);
    expect((checkpoint.metadata as GgufMetadata).typeOf('tokenizer.ggml.scores')).toBe('array of f32');
    const tensor = checkpoint.tensors.get('token_embd.weight')!;
    expect(tensor.shape).toEqual([3, 8]);
    expect([...new Float32Array(checkpoint.readTensor(tensor).buffer)]).toEqual(
      Array.from({ length: 24 }, (_, i) => i),
    );
    expect(checkpoint.weightBytes).toBe(128);
    checkpoint.close();
  });

  it('reads every value type and version 2', () => {
    const keys: WriterKey[] = [
      { key: 'u8', type: 'u8', value: 255 },
      { key: 'i8', type: 'i8', value: -128 },
      { key: 'u16', type: 'u16', value: 65535 },
      { key: 'i16', type: 'i16', value: -32768 },
      { key: 'u32', type: 'u32', value: 4294967295 },
      { key: 'i32', type: 'i32', value: -2147483648 },
      { key: 'f32', type: 'f32', value: 0.5 },
      { key: 'f64', type: 'f64', value: 0.1 },
      { key: 'yes', type: 'bool', value: true },
      { key: 'u64', type: 'u64', value: 2 ** 53 - 1 },
      { key: 'big', type: 'u64', value: 2n ** 64n - 1n },
      { key: 'i64', type: 'i64', value: -5 },
      { key: 'bools', type: 'array', elementType: 'bool', value: [true, false] },
      { key: 'none', type: 'array', elementType: 'u8', value: [] },
    ];
    const checkpoint = openGguf(save(writeGguf(keys, [], { version: 2 })));
    const read = Object.fromEntries(keys.map(({ key }) => [key, checkpoint.metadata.get(key)]));
    expect(read).toEqual(Object.fromEntries(keys.map(({ key, value }) => [key, value])));
    checkpoint.close();
  });

  it('reads values on both sides of the read window', () => {
    const words = Array.from({ length: 60_000 }, (_, i) => `token-${i}`);
    const keys: WriterKey[] = [
      { key: 'words', type: 'array', elementType: 'string', value: words },
      { key: 'long', type: 'string', value: 'x'.repeat(700_000) },
      { key: 'numbers', type: 'array', elementType: 'i32', value: words.map((_, i) => -i) },
    ];
    const checkpoint = openGguf(save(writeGguf(keys, TENSORS)));
    expect(checkpoint.metadata.get('words')).toEqual(words);
    expect((checkpoint.metadata.get('long') as string).length).toBe(700_000);
    expect((checkpoint.metadata.get('numbers') as number[]).at(-1)).toBe(-59_999);
    checkpoint.close();
  });

  it('keeps its descriptors until it is closed', () => {
    const checkpoint = openGguf(save(small()));
    const tensor = checkpoint.tensors.get('output_norm.weight')!;
    expect(() => checkpoint.readBytes(tensor, 30, new Uint8Array(8))).toThrow(/not in the tensor/);
    checkpoint.close();
    checkpoint.close();
    expect(() => checkpoint.readTensor(tensor)).toThrow(/closed/);
  });
});

describe('header', () => {
  it('refuses every prefix of a good file', () => {
    const good = small([], [f32Tensor('a', [3]), f32Tensor('b', [5])]);
    openGguf(save(good)).close();
    for (let length = 0; length < good.length; length++) refusal(good.subarray(0, length));
  });

  it.each([
    ['wrong magic', small([], TENSORS, { magic: 'FUGG' }), /not a GGUF file/],
    ['version 0', small([], TENSORS, { version: 0 }), /version 0 is not supported/],
    ['version 1', small([], TENSORS, { version: 1 }), /version 1 is not supported/],
    ['version 4', small([], TENSORS, { version: 4 }), /version 4 is not supported/],
    ['big endian', small([], TENSORS, { version: 0x03000000 }), /big-endian/],
    ['-1 tensors', small([], TENSORS, { numTensors: -1 }), /number of tensors is 18446744073709551615/],
    ['-1 keys', small([], TENSORS, { numKeys: -1 }), /number of metadata keys is 18446744073709551615/],
    ['too many keys', small([], TENSORS, { numKeys: 1e5 + 1 }), /more than the limit of 100000/],
    ['1e6 tensors', small([], TENSORS, { numTensors: 1e6 }), /more than the limit of 100000/],
    ['more keys than bytes', small([], TENSORS, { numKeys: 99_999 }), /bytes are left/],
  ])('%s', (_, bytes, message) => {
    expect(refusal(bytes).message).toMatch(message);
  });

  it('refuses what is no regular file, and a missing one', () => {
    expect(() => openGguf(folder)).toThrow(/not a regular file/);
    expect(() => openGguf('/dev/zero')).toThrow(/not a regular file/);
    expect(() => openGguf(join(folder, 'absent.gguf'))).toThrow(/no such file/);
  });
});

describe('metadata', () => {
  const nested = (depth: number) =>
    Buffer.concat([
      u32(9),
      ...Array.from({ length: depth - 1 }, () => [u32(9), u64(1)]).flat(),
      u32(4),
      u64(1),
      u32(7),
    ]);
  it.each([
    ['key length -1', Buffer.concat([header(0, 1), u64(-1), Buffer.alloc(64)]), /is 18446744073709551615/],
    ['key length 2^40', Buffer.concat([header(0, 1), u64(2 ** 40), Buffer.alloc(64)]), /more than the limit/],
    ['string longer than the rest', oneKey(u32(8), u64(1000), Buffer.alloc(50)), /only 50 bytes are left/],
    ['array of 2^40', oneKey(u32(9), u32(0), u64(2 ** 40), Buffer.alloc(50)), /more than the limit/],
    ['array longer than the rest', oneKey(u32(9), u32(6), u64(13), Buffer.alloc(50)), /is 13 .* only 50 bytes/],
    ['arrays 5 deep', oneKey(nested(5)), /deeper than 4/],
    ['arrays 20,000 deep', oneKey(nested(20_000)), /deeper than 4/],
    ['unknown type', oneKey(u32(13), Buffer.alloc(20)), /unknown type 13/],
    ['unknown element type', oneKey(u32(9), u32(99), u64(1), Buffer.alloc(20)), /unknown type 99/],
    ['empty key', Buffer.concat([header(0, 1), ggufString(''), u32(4), u32(1)]), /empty name/],
    ['duplicate key', writeGguf([SMALL_KEYS[0]!, SMALL_KEYS[0]!], []), /appears twice/],
    [
      'malformed UTF-8 in a key',
      Buffer.concat([header(0, 1), u64(2), Buffer.from([0xff, 0xfe]), u32(4), u32(1)]),
      /UTF-8/,
    ],
    ['bool of 2', oneKey(u32(7), Buffer.from([2])), /bool of value 2/],
  ])('%s', (_, bytes, message) => {
    const { message: said } = refusal(Buffer.concat([bytes]));
    expect(said).toMatch(message);
    expect(said).toMatch(/at byte \d+/);
  });

  it('accepts arrays 4 deep', () => {
    const checkpoint = openGguf(save(oneKey(nested(4))));
    expect(checkpoint.metadata.get('k')).toEqual([[[[7]]]]);
    checkpoint.close();
  });

  it('bounds the elements of all arrays together', () => {
    const array = Buffer.concat([
      u32(9),
      u32(0),
      u64(GGUF_LIMITS.numElements / 2 + 1),
      Buffer.alloc(GGUF_LIMITS.numElements / 2 + 1),
    ]);
    const bytes = Buffer.concat([header(0, 2), ggufString('a'), array, ggufString('b'), array]);
    expect(refusal(bytes).message).toMatch(/hold more than 10000000 elements/);
  });

  it.each([
    ['0', { type: 'u32', value: 0 }],
    ['3', { type: 'u32', value: 3 }],
    ['13', { type: 'u32', value: 13 }],
    ['2^31', { type: 'u32', value: 2 ** 31 }],
    ['2^30', { type: 'u32', value: 2 ** 30 }],
    ['4', { type: 'u32', value: 4 }],
    ['i32', { type: 'i32', value: 32 }],
    ['u64', { type: 'u64', value: 32 }],
    ['string', { type: 'string', value: '32' }],
  ] as const)('refuses alignment %s', (_, alignment) => {
    expect(refusal(small([{ key: 'general.alignment', ...alignment }])).message).toMatch(/general\.alignment/);
  });

  it('refuses alignment given twice', () => {
    const key: WriterKey = { key: 'general.alignment', type: 'u32', value: 32 };
    expect(refusal(small([key, key])).message).toMatch(/general\.alignment appears twice/);
  });
});

describe('tensors', () => {
  const withDims = (dims: readonly (number | bigint)[], ggmlType = 0): Buffer =>
    small([], [{ name: 'w', dims, ggmlType, data: new Uint8Array(256) }]);
  it.each([
    ['no dimension', small([], [{ ...TENSORS[0]!, dims: [] }]), /has 0 dimensions/],
    ['5 dimensions', withDims([1, 1, 1, 1, 1]), /has 5 dimensions/],
    ['2^32 - 1 dimensions', small([], [{ ...TENSORS[0]!, numDims: 0xffffffff }]), /has 4294967295 dimensions/],
    ['2^32 x 2^32', withDims([2 ** 32, 2 ** 32]), /too many values/],
    ['-1', withDims([-1]), /dimension of 18446744073709551615/],
    ['2^63 - 1', withDims([2n ** 63n - 1n]), /dimension of 9223372036854775807/],
    ['0', withDims([0]), /dimension of 0/],
    ['0 rows', withDims([8, 0]), /dimension of 0/],
    ['2^42 + 1', withDims([2 ** 42 + 1]), /needs \d+ bytes/],
    ['values fit 2^53, bytes do not', withDims([2 ** 26, 2 ** 26]), /too many bytes|needs \d+ bytes/],
    ['half a block', withDims([16, 2], 8), /not a whole number of Q8_0 blocks of 32/],
    ['type I8', withDims([0x7fffffffffffffc0n], 24), /dimension of/],
    ['type I8, small', withDims([64], 24), /tensor w has type I8, which is not supported \(supported: F32, /],
    ['unknown type', withDims([64], 77), /type number 77/],
    ['same name twice', small([], [TENSORS[0]!, TENSORS[0]!]), /appears twice/],
    ['empty name', small([], [{ ...TENSORS[0]!, name: '' }]), /empty name/],
    ['long name', small([], [{ ...TENSORS[0]!, name: 'x'.repeat(65) }]), /more than the limit of 64/],
    ['offset 2^62', small([], [{ ...TENSORS[0]!, offset: 2n ** 62n }]), /beyond the file/],
    ['offset beyond the end', small([], [{ ...TENSORS[0]!, offset: 2 ** 40 }]), /cut short/],
    ['offset at the end', small([], [{ ...TENSORS[0]!, offset: 64 }]), /cut short/],
    ['unaligned offset', small([], [{ ...TENSORS[0]!, offset: 4 }]), /not a multiple of 32/],
    [
      'overlap',
      small([], [TENSORS[0]!, { ...TENSORS[1]!, offset: 64 }]),
      /output_norm.weight overlaps token_embd.weight/,
    ],
    ['one byte short', small([], TENSORS).subarray(0, -1), /cut short/],
  ])('refuses %s', (_, bytes, message) => {
    expect(refusal(bytes).message).toMatch(message);
  });

  it('loads the last block of a tensor of more than 2^31 values from a sparse file', () => {
    for (const type of ['Q8_0', 'Q4_K', 'MXFP4'] as const) {
      const { ggmlType, blockSize, blockBytes } = QUANTIZATION_FORMATS[type];
      const rows = 2 ** 31 / blockSize + 1;
      const bytes = writeGguf(SMALL_KEYS, [{ name: 'w', dims: [blockSize, rows], ggmlType, data: new Uint8Array(0) }]);
      const path = save(bytes);
      const descriptor = openSync(path, 'r+');
      const lastBlock = bytes.length + (rows - 1) * blockBytes;
      ftruncateSync(descriptor, Math.ceil((rows * blockBytes) / 32) * 32 + bytes.length);
      writeSync(descriptor, new Uint8Array(blockBytes).fill(0x31), 0, blockBytes, lastBlock);
      closeSync(descriptor);
      const checkpoint = openGguf(path);
      const piece = { tensor: 'w', rowStart: rows - 1, numRows: 1 };
      const read = readWeight(checkpoint, { name: 'w', rows: 1, cols: blockSize, pieces: [piece] });
      const expected = new Float32Array(blockSize);
      dequantizeRow(type, new Uint8Array(blockBytes).fill(0x31), 0, expected, 0, blockSize);
      expect([...read]).toEqual([...expected]);
      expect(expected.some((value) => value !== 0)).toBe(true);
      expect(() => checkpoint.readTensor({ ...checkpoint.tensors.get('w')!, numBytes: 2 ** 52 })).toThrow(/too big/);
      checkpoint.close();
    }
  });
});

describe('damaged files', () => {
  it('any mutation is accepted or refused with a PagodaError, and a tensor never reaches outside its bytes', () => {
    const good = small(
      [],
      [f32Tensor('a', [32]), { name: 'q', dims: [32, 2], ggmlType: 8, data: new Uint8Array(68).fill(3) }],
    );
    const mutation = fc.record({
      at: fc.nat({ max: good.length - 1 }),
      value: fc.constantFrom(0, 1, 0x7f, 0x80, 0xff, 9, 32),
    });
    let numAccepted = 0;
    let numRefused = 0;
    fc.assert(
      fc.property(fc.array(mutation, { minLength: 1, maxLength: 3 }), (mutations) => {
        const bytes = Buffer.from(good);
        for (const { at, value } of mutations) bytes[at] = value;
        const path = save(bytes);
        try {
          const checkpoint = openGguf(path);
          for (const tensor of checkpoint.tensors.values()) {
            expect(tensor.offset + tensor.numBytes).toBeLessThanOrEqual(bytes.length);
            expect(
              Buffer.from(checkpoint.readTensor(tensor)).equals(
                bytes.subarray(tensor.offset, tensor.offset + tensor.numBytes),
              ),
            ).toBe(true);
          }
          checkpoint.close();
          numAccepted++;
        } catch (error) {
          expect(error).toBeInstanceOf(PagodaError);
          numRefused++;
        }
      }),
      { numRuns: 500 },
    );
    expect(Math.min(numAccepted, numRefused)).toBeGreaterThan(20);
  });

  it('a header that lies about its size costs no memory', () => {
    const before = process.memoryUsage().rss;
    const claims = [
      header(99_999, 99_999),
      oneKey(u32(8), u64(2 ** 25)),
      oneKey(u32(9), u32(12), u64(9e6)),
      oneKey(u32(9), u32(9), u64(9e6)),
    ];
    for (const claim of claims) refusal(Buffer.concat([claim, Buffer.alloc(1000)]));
    expect(process.memoryUsage().rss - before).toBeLessThan(64 * 2 ** 20);
  });
});

describe('split files', () => {
  const parts = [[f32Tensor('a', [8])], [f32Tensor('b', [8]), f32Tensor('c', [4])], [f32Tensor('d', [8])]];
  const saveAll = (files: ReadonlyMap<string, Buffer>) => [...files].map(([name, bytes]) => save(bytes, name));

  it('opens the whole set by any part', () => {
    for (const path of saveAll(writeSplitGguf('whole', SMALL_KEYS, parts))) {
      const checkpoint = openGguf(path);
      expect([...checkpoint.tensors.keys()].sort()).toEqual(['a', 'b', 'c', 'd']);
      expect(checkpoint.metadata.get('general.name')).toBe('small');
      expect(checkpoint.files.length).toBe(3);
      expect([...new Float32Array(checkpoint.readTensor(checkpoint.tensors.get('c')!).buffer)]).toEqual([0, 1, 2, 3]);
      checkpoint.close();
    }
  });

  it('one part of one is an ordinary file, with and without split keys', () => {
    for (const path of saveAll(writeSplitGguf('single', SMALL_KEYS, [parts[0]!]))) openGguf(path).close();
    openGguf(save(small(), 'plain-00001-of-00001.gguf')).close();
  });

  it('names a missing part', () => {
    const files = writeSplitGguf('gap', SMALL_KEYS, parts);
    files.delete('gap-00001-of-00003.gguf');
    const [second] = saveAll(files);
    expect(() => openGguf(second!)).toThrow(
      /gap-00001-of-00003\.gguf: missing; gap-00002-of-00003\.gguf is one of 3 parts/,
    );
  });

  it('refuses wrong numbers, renamed and merged parts', () => {
    const files = writeSplitGguf('bad', SMALL_KEYS, parts);
    const [one, two, three] = [...files.values()] as [Buffer, Buffer, Buffer];
    save(one, 'swap-00001-of-00003.gguf');
    save(three, 'swap-00002-of-00003.gguf');
    save(two, 'swap-00003-of-00003.gguf');
    expect(() => openGguf(join(folder, 'swap-00001-of-00003.gguf'))).toThrow(
      /swap-00002.*says part 2, split\.no says part 3/,
    );
    save(one, 'two-00001-of-00002.gguf');
    save(two, 'two-00002-of-00002.gguf');
    expect(() => openGguf(join(folder, 'two-00001-of-00002.gguf'))).toThrow(/name says 2 parts, split\.count says 3/);
    expect(refusal(one, 'renamed.gguf').message).toMatch(/holds 1 of 4 tensors of a model that was split in 3/);
    expect(refusal(Buffer.concat([one, two, three]), 'cat.gguf').message).toMatch(/may not be joined with cat/);
    expect(refusal(Buffer.concat([small(), small()]), 'cat2.gguf').message).toMatch(/second GGUF file begins at byte/);
    expect(refusal(small(), 'odd-00003-of-00002.gguf').message).toMatch(/says part 3 of 2/);
  });

  it('refuses a set with too few tensors or one twice', () => {
    const key: WriterKey = { key: 'split.tensors.count', type: 'i32', value: 9 };
    expect(refusal(small([key]), 'few.gguf').message).toMatch(/holds 2 of 9 tensors/);
    const [path] = saveAll(writeSplitGguf('dup', SMALL_KEYS, [parts[0]!, parts[0]!]));
    expect(() => openGguf(path!)).toThrow(/tensor a is also in .*dup-00001/);
  });

  it('warns about bytes after the end', () => {
    const checkpoint = openGguf(save(Buffer.concat([small(), Buffer.alloc(7)]), 'tail.gguf'));
    expect(checkpoint.warnings).toEqual([expect.stringMatching(/7 bytes after the last tensor are ignored/)]);
    checkpoint.close();
  });
});

it('the writer is what other readers expect', () => {
  expect(ggufKey({ key: 'k', type: 'array', elementType: 'u8', value: [1, 2] }).toString('hex')).toBe(
    '01000000000000006b0900000000000000020000000000000001' + '02',
  );
});
