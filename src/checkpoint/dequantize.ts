// Exact dequantization to float32, bit-equal to ggml: the specification that the native kernels are tested against.
// Every product of scale and quant fits float32 exactly, so a value is rounded at most once, when it is stored.

import { PagodaError } from '../errors.ts';
import type { TensorType } from './checkpoint.ts';
import { dequantizeIq4Nl, dequantizeMxfp4, dequantizeQ4, dequantizeQ5, dequantizeQ8 } from './dequantize-blocks.ts';
import {
  dequantizeIq4Xs,
  dequantizeQ2K,
  dequantizeQ3K,
  dequantizeQ4K,
  dequantizeQ5K,
  dequantizeQ6K,
} from './dequantize-superblocks.ts';
import { HALF_BITS } from './half-float.ts';
import { QUANTIZATION_FORMATS } from './quantization.ts';

type BlockKernel = (bytes: Uint8Array, offset: number, out: Float32Array, outOffset: number, numBlocks: number) => void;

const BLOCK_KERNELS: Readonly<Record<Exclude<TensorType, 'F32' | 'F16' | 'BF16'>, BlockKernel>> = {
  Q8_0: dequantizeQ8,
  Q4_0: (bytes, at, out, to, numBlocks) => dequantizeQ4(bytes, at, out, to, { numBlocks, hasMin: false }),
  Q4_1: (bytes, at, out, to, numBlocks) => dequantizeQ4(bytes, at, out, to, { numBlocks, hasMin: true }),
  Q5_0: (bytes, at, out, to, numBlocks) => dequantizeQ5(bytes, at, out, to, { numBlocks, hasMin: false }),
  Q5_1: (bytes, at, out, to, numBlocks) => dequantizeQ5(bytes, at, out, to, { numBlocks, hasMin: true }),
  Q2_K: dequantizeQ2K,
  Q3_K: dequantizeQ3K,
  Q4_K: dequantizeQ4K,
  Q5_K: dequantizeQ5K,
  Q6_K: dequantizeQ6K,
  IQ4_NL: dequantizeIq4Nl,
  IQ4_XS: dequantizeIq4Xs,
  MXFP4: dequantizeMxfp4,
};

/**
 * Dequantizes `numValues` values (a whole number of blocks) that start at byte `offset` of `bytes`
 * into out[outOffset .. outOffset + numValues).
 */
export function dequantizeRow(
  type: TensorType,
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numValues: number,
): void {
  const { blockSize, blockBytes } = QUANTIZATION_FORMATS[type];
  const numBlocks = numValues / blockSize;
  if (!Number.isInteger(numBlocks) || offset < 0 || outOffset < 0) {
    throw new PagodaError(
      'internal',
      `dequantizeRow: ${numValues} values of ${type} at ${offset} are not whole blocks`,
    );
  }
  if (offset + numBlocks * blockBytes > bytes.length || outOffset + numValues > out.length) {
    throw new PagodaError('internal', `dequantizeRow: ${numValues} values of ${type} do not fit the buffers`);
  }
  if (type === 'F32' || type === 'F16' || type === 'BF16') {
    widenFloats(type, bytes, offset, new Uint32Array(out.buffer, out.byteOffset + outOffset * 4, numValues));
  } else {
    BLOCK_KERNELS[type](bytes, offset, out, outOffset, numBlocks);
  }
}

/** Bit patterns in, bit patterns out: NaN payloads and signs of zero are kept. */
function widenFloats(type: 'F32' | 'F16' | 'BF16', bytes: Uint8Array, offset: number, out: Uint32Array): void {
  let at = offset;
  if (type === 'F32') {
    for (let i = 0; i < out.length; i++, at += 4) {
      out[i] = bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
    }
    return;
  }
  for (let i = 0; i < out.length; i++, at += 2) {
    const half = bytes[at]! | (bytes[at + 1]! << 8);
    out[i] = type === 'F16' ? HALF_BITS[half]! : half << 16;
  }
}
