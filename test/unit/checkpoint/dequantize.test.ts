// Every weight format against tensors dequantized by ggml itself, bit for bit.
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { TensorType } from '../../../src/checkpoint/checkpoint.ts';
import { dequantizeRow } from '../../../src/checkpoint/dequantize.ts';
import { HALF_VALUES } from '../../../src/checkpoint/half-float.ts';
import {
  formatOfGgmlType,
  ggmlTypeName,
  QUANTIZATION_FORMATS,
  rowBytes,
} from '../../../src/checkpoint/quantization.ts';
import { noShared, sharedPath } from '../../shared-data.ts';

interface GoldenTensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly offset: number;
  readonly bytes: number;
}
interface GoldenType {
  readonly type: TensorType;
  readonly ggmlType: number;
  readonly blockSize: number;
  readonly blockBytes: number;
  readonly file: string;
  readonly tensors: readonly GoldenTensor[];
}

const types = Object.keys(QUANTIZATION_FORMATS) as TensorType[];

describe.skipIf(noShared)('dequantizeRow equals ggml', () => {
  const manifest = noShared
    ? { types: [] as GoldenType[] }
    : (JSON.parse(readFileSync(sharedPath('golden', 'quant', 'manifest.json'), 'utf8')) as { types: GoldenType[] });

  it.each(types)('%s', (type) => {
    const golden = manifest.types.find((entry) => entry.type === type);
    expect(golden, `no golden for ${type}`).toBeDefined();
    const { blockSize, blockBytes, ggmlType, file, tensors } = golden!;
    expect(QUANTIZATION_FORMATS[type]).toEqual({ type, ggmlType, blockSize, blockBytes });
    expect(formatOfGgmlType(ggmlType)?.type).toBe(type);
    const bytes = readFileSync(sharedPath('golden', 'quant', file));
    let compared = 0;
    for (const raw of tensors.filter((t) => t.name === 'gauss' || t.name === 'bits')) {
      const expected = tensors.find((t) => t.name === `${raw.name}.f32`)!;
      const [rows, cols] = raw.shape as [number, number];
      const out = new Float32Array(rows * cols + 2).fill(Number.NaN);
      for (let row = 0; row < rows; row++) {
        dequantizeRow(type, bytes, raw.offset + row * rowBytes(type, cols), out, 1 + row * cols, cols);
      }
      expect(rows * rowBytes(type, cols)).toBe(raw.bytes);
      const got = Buffer.from(out.buffer, 4, rows * cols * 4);
      expect(got.equals(bytes.subarray(expected.offset, expected.offset + expected.bytes)), `${type} ${raw.name}`).toBe(
        true,
      );
      expect([out[0], out.at(-1)], 'guards').toEqual([Number.NaN, Number.NaN]);
      compared++;
    }
    expect(compared).toBe(type === 'F32' ? 1 : 2);
  });
});

describe('dequantizeRow', () => {
  it.each(types)('%s writes exactly the asked values and refuses what does not fit', (type) => {
    const { blockSize, blockBytes } = QUANTIZATION_FORMATS[type];
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 5 }),
        fc.integer({ min: 0, max: 9 }),
        (blocks, lead, from) => {
          const bytes = new Uint8Array(from + blocks * blockBytes);
          const out = new Float32Array(lead + blocks * blockSize + 3).fill(7);
          dequantizeRow(type, bytes, from, out, lead, blocks * blockSize);
          expect(out.subarray(0, lead).every((v) => v === 7)).toBe(true);
          expect(out.subarray(lead + blocks * blockSize).every((v) => v === 7)).toBe(true);
          expect(out.subarray(lead, lead + blocks * blockSize).includes(7)).toBe(false);
          expect(() => dequantizeRow(type, bytes, from + 1, out, lead, blocks * blockSize)).toThrow(/do not fit/);
          expect(() => dequantizeRow(type, bytes, from, out, lead + 4, blocks * blockSize)).toThrow(/do not fit/);
        },
      ),
      { numRuns: 20 },
    );
    if (blockSize > 1) expect(() => rowBytes(type, blockSize + 1)).toThrow(/whole number of blocks/);
  });

  it('names types it does not know', () => {
    expect(formatOfGgmlType(16)).toBeNull();
    expect(ggmlTypeName(16)).toBe('IQ2_XXS');
    expect(ggmlTypeName(9999)).toBe('number 9999');
  });

  it('widens every half exactly', () => {
    const wrong: number[] = [];
    for (let half = 0; half < 65536; half++) {
      const exponent = (half >> 10) & 31;
      const fraction = half & 1023;
      if (exponent === 31) continue;
      const size = exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15);
      if (!Object.is(HALF_VALUES[half], half & 0x8000 ? -size : size)) wrong.push(half);
    }
    expect(wrong).toEqual([]);
    expect([HALF_VALUES[0x7c00], HALF_VALUES[0xfc00], HALF_VALUES[0x7e01]]).toEqual([Infinity, -Infinity, Number.NaN]);
  });
});
