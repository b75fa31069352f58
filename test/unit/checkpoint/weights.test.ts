// Weights assembled from stored pieces, against a plain gather over the dequantized tensors.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { dequantizeRow } from '../../../src/checkpoint/dequantize.ts';
import { openGguf } from '../../../src/checkpoint/gguf.ts';
import { readWeight, weightRows } from '../../../src/checkpoint/weights.ts';
import { f32Tensor, SMALL_KEYS, writeGguf } from './gguf-writer.ts';

const folder = mkdtempSync(join(tmpdir(), 'pagoda-weights-'));
const path = join(folder, 'w.gguf');
const random = (i: number) => Math.fround(Math.sin(i * 12.9898) * 43758);
const quants = Uint8Array.from({ length: 6 * 2 * 18 }, (_, i) => (i % 18 < 2 ? 0x2c : (i * 37) & 255));
writeFileSync(
  path,
  writeGguf(SMALL_KEYS, [
    f32Tensor('matrix', [5, 7], random),
    f32Tensor('other', [5, 3], (i) => random(i + 1000)),
    f32Tensor('experts', [5, 2, 3], (i) => random(i + 2000)),
    f32Tensor('vector', [12], (i) => random(i + 3000)),
    { name: 'quantized', dims: [64, 6], ggmlType: 2, data: quants },
  ]),
);
const checkpoint = openGguf(path);
afterAll(() => {
  checkpoint.close();
  rmSync(folder, { recursive: true });
});

/** A stored tensor as rows of numbers. */
function stored(name: string): number[][] {
  const tensor = checkpoint.tensors.get(name)!;
  const cols = tensor.shape.at(-1)!;
  const numRows = tensor.shape.slice(0, -1).reduce((a, b) => a * b, 1);
  const values = new Float32Array(numRows * cols);
  dequantizeRow(tensor.type, checkpoint.readTensor(tensor), 0, values, 0, values.length);
  return Array.from({ length: numRows }, (_, r) => [...values.subarray(r * cols, (r + 1) * cols)]);
}

const piece = (tensor: string, rowStart: number, numRows: number) => ({ tensor, rowStart, numRows });

describe('readWeight', () => {
  it('stacks pieces of matrices and experts', () => {
    const pieces = [piece('matrix', 2, 3), piece('experts', 1, 4), piece('other', 0, 1)];
    const expected = [
      ...stored('matrix').slice(2, 5),
      ...stored('experts').slice(1, 5),
      ...stored('other').slice(0, 1),
    ];
    expect([...readWeight(checkpoint, { name: 'w', rows: 8, cols: 5, pieces })]).toEqual(expected.flat());
    const plusOne = readWeight(checkpoint, { name: 'w', rows: 8, cols: 5, pieces, addOne: true });
    expect([...plusOne]).toEqual(expected.flat().map((value) => Math.fround(value + 1)));
  });

  it('turns a stored matrix and takes rows of the turned one', () => {
    const matrix = stored('matrix');
    const expected = [1, 2, 4].map((col) => matrix.map((row) => row[col]));
    const pieces = [piece('matrix', 1, 2), piece('matrix', 4, 1)];
    expect([...readWeight(checkpoint, { name: 'w', rows: 3, cols: 7, pieces, transpose: true })]).toEqual(
      expected.flat(),
    );
  });

  it('counts the values of a vector', () => {
    const pieces = [piece('vector', 4, 4), piece('vector', 0, 2)];
    const [vector] = stored('vector') as [number[]];
    expect([...readWeight(checkpoint, { name: 'b', rows: 1, cols: 6, pieces })]).toEqual([
      ...vector.slice(4, 8),
      ...vector.slice(0, 2),
    ]);
  });

  it('reads any rows of a quantized matrix', () => {
    fc.assert(
      fc.property(fc.nat({ max: 5 }), fc.integer({ min: 1, max: 6 }), (start, count) => {
        const numRows = Math.min(count, 6 - start);
        const values = readWeight(checkpoint, {
          name: 'q',
          rows: numRows,
          cols: 64,
          pieces: [piece('quantized', start, numRows)],
        });
        expect([...values]).toEqual(
          stored('quantized')
            .slice(start, start + numRows)
            .flat(),
        );
      }),
    );
  });

  it.each([
    ['a missing tensor', { rows: 1, cols: 5, pieces: [piece('absent', 0, 1)] }, /tensor absent is not in/],
    ['other columns', { rows: 7, cols: 6, pieces: [piece('matrix', 0, 7)] }, /has shape \[7, 5\]/],
    ['too many rows', { rows: 8, cols: 5, pieces: [piece('matrix', 0, 8)] }, /8 from 0 on were asked/],
    ['rows from -1', { rows: 1, cols: 5, pieces: [piece('matrix', -1, 1)] }, /from -1 on/],
    ['too few rows', { rows: 7, cols: 5, pieces: [piece('matrix', 0, 6)] }, /35 values are needed but 30/],
    ['a turned vector', { rows: 1, cols: 12, pieces: [piece('vector', 0, 12)], transpose: true }, /has shape \[12\]/],
  ])('refuses %s', (_, spec, message) => {
    expect(() => readWeight(checkpoint, { name: 'w', ...spec })).toThrow(message);
    expect(() => weightRows(checkpoint, { name: 'w', ...spec })).toThrow(message);
  });
});

describe('weightRows', () => {
  it('says where the bytes are', () => {
    const bytes = readFileSync(path);
    const specs = [
      { name: 'q', rows: 5, cols: 64, pieces: [piece('quantized', 1, 3), piece('quantized', 4, 2)] },
      { name: 'm', rows: 6, cols: 5, pieces: [piece('matrix', 3, 4), piece('experts', 2, 2)] },
      { name: 'v', rows: 1, cols: 6, pieces: [piece('vector', 4, 4), piece('vector', 0, 2)] },
    ];
    for (const spec of specs) {
      const places = weightRows(checkpoint, spec)!;
      expect(places.every(({ file }) => file === path)).toBe(true);
      const out = new Float32Array(spec.rows * spec.cols);
      let done = 0;
      for (const { offset, rowBytes, numRows, type } of places) {
        const numValues = type === 'F32' ? (rowBytes * numRows) / 4 : spec.cols * numRows;
        dequantizeRow(type, bytes, offset, out, done, numValues);
        done += numValues;
      }
      expect(done).toBe(out.length);
      expect([...out]).toEqual([...readWeight(checkpoint, spec)]);
    }
  });

  it('is null when values must be computed', () => {
    const pieces = [piece('matrix', 0, 5)];
    expect(weightRows(checkpoint, { name: 'w', rows: 5, cols: 7, pieces, transpose: true })).toBeNull();
    expect(weightRows(checkpoint, { name: 'w', rows: 5, cols: 5, pieces, addOne: true })).toBeNull();
  });
});
