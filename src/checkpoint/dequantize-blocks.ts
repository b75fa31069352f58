// The formats with 32 values per block (ggml-common.h: block_q8_0, block_q4_0, block_q4_1, block_q5_0, block_q5_1,
// block_iq4_nl, block_mxfp4). In the 4-bit ones byte i holds value i in its low half and value i + 16 in its high half.

import { HALF_VALUES } from './half-float.ts';

/** The 16 levels of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl). */
export const IQ4_LEVELS: Float32Array = Float32Array.of(
  -127,
  -104,
  -83,
  -65,
  -49,
  -35,
  -22,
  -10,
  1,
  13,
  25,
  38,
  53,
  69,
  89,
  113,
);

/** Twice the 16 values of E2M1 (OCP Microscaling Formats 1.0); the scale below is halved in return. */
const FP4_LEVELS = Float32Array.of(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);

/** Half of an E8M0 scale: 2^(e - 127) / 2, as float32 (subnormal for e = 0). */
const FP4_HALF_SCALES = Float32Array.from({ length: 256 }, (_, e) => 2 ** (e - 128));

function halfAt(bytes: Uint8Array, at: number): number {
  return HALF_VALUES[bytes[at]! | (bytes[at + 1]! << 8)]!;
}

export function dequantizeQ8(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 34, to += 32) {
    const scale = halfAt(bytes, at);
    for (let i = 0; i < 32; i++) out[to + i] = scale * ((bytes[at + 2 + i]! << 24) >> 24);
  }
}

/** Q4_0: (q - 8) * d. Q4_1: q * d + m. */
export function dequantizeQ4(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  { numBlocks, hasMin }: { numBlocks: number; hasMin: boolean },
): void {
  const blockBytes = hasMin ? 20 : 18;
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += blockBytes, to += 32) {
    const scale = halfAt(bytes, at);
    const min = hasMin ? halfAt(bytes, at + 2) : 0;
    const quants = at + blockBytes - 16;
    for (let i = 0; i < 16; i++) {
      const byte = bytes[quants + i]!;
      out[to + i] = hasMin ? scale * (byte & 15) + min : scale * ((byte & 15) - 8);
      out[to + i + 16] = hasMin ? scale * (byte >> 4) + min : scale * ((byte >> 4) - 8);
    }
  }
}

/** As Q4, with a fifth bit per value in a 32-bit mask. Q5_0: (q - 16) * d. Q5_1: q * d + m. */
export function dequantizeQ5(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  { numBlocks, hasMin }: { numBlocks: number; hasMin: boolean },
): void {
  const blockBytes = hasMin ? 24 : 22;
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += blockBytes, to += 32) {
    const scale = halfAt(bytes, at);
    const min = hasMin ? halfAt(bytes, at + 2) : 0;
    const quants = at + blockBytes - 16;
    const high = quants - 4;
    for (let i = 0; i < 16; i++) {
      const byte = bytes[quants + i]!;
      const low = (byte & 15) | (((bytes[high + (i >> 3)]! >> (i & 7)) & 1) << 4);
      const up = (byte >> 4) | (((bytes[high + 2 + (i >> 3)]! >> (i & 7)) & 1) << 4);
      out[to + i] = hasMin ? scale * low + min : scale * (low - 16);
      out[to + i + 16] = hasMin ? scale * up + min : scale * (up - 16);
    }
  }
}

export function dequantizeIq4Nl(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 18, to += 32) {
    const scale = halfAt(bytes, at);
    for (let i = 0; i < 16; i++) {
      const byte = bytes[at + 2 + i]!;
      out[to + i] = scale * IQ4_LEVELS[byte & 15]!;
      out[to + i + 16] = scale * IQ4_LEVELS[byte >> 4]!;
    }
  }
}

export function dequantizeMxfp4(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 17, to += 32) {
    const scale = FP4_HALF_SCALES[bytes[at]!]!;
    for (let i = 0; i < 16; i++) {
      const byte = bytes[at + 1 + i]!;
      out[to + i] = scale * FP4_LEVELS[byte & 15]!;
      out[to + i + 16] = scale * FP4_LEVELS[byte >> 4]!;
    }
  }
}
