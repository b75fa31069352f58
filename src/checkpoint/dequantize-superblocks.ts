// The formats with 256 values per block and scales per 16 or 32 values (ggml-common.h: block_q2_K .. block_q6_K, block_iq4_xs).

import { IQ4_LEVELS } from './dequantize-blocks.ts';
import { HALF_VALUES } from './half-float.ts';

function halfAt(bytes: Uint8Array, at: number): number {
  return HALF_VALUES[bytes[at]! | (bytes[at + 1]! << 8)]!;
}

/** 84 bytes: 16 scales (low half scale, high half min), 64 bytes of 2-bit quants, d, dmin. */
export function dequantizeQ2K(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 84) {
    const d = halfAt(bytes, at + 80);
    const dmin = halfAt(bytes, at + 82);
    for (let group = 0; group < 16; group++) {
      const packed = bytes[at + group]!;
      const scale = d * (packed & 15);
      const min = dmin * (packed >> 4);
      const quants = at + 16 + (group >> 3) * 32 + (group & 1) * 16;
      const shift = group & 6;
      for (let i = 0; i < 16; i++) out[to++] = scale * ((bytes[quants + i]! >> shift) & 3) - min;
    }
  }
}

/** 110 bytes: 32 bytes of third bits, 64 of 2-bit quants, 12 of 6-bit scales, d. A clear third bit means minus 4. */
export function dequantizeQ3K(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 110) {
    const d = halfAt(bytes, at + 108);
    const scales = at + 96;
    for (let group = 0; group < 16; group++) {
      const low = (bytes[scales + (group & 7)]! >> (group < 8 ? 0 : 4)) & 15;
      const high = (bytes[scales + 8 + (group & 3)]! >> ((group >> 2) * 2)) & 3;
      const scale = d * ((low | (high << 4)) - 32);
      const half = (group & 1) * 16;
      const quants = at + 32 + (group >> 3) * 32 + half;
      const shift = group & 6;
      const bit = group >> 1;
      for (let i = 0; i < 16; i++) {
        const third = (bytes[at + half + i]! >> bit) & 1;
        out[to++] = scale * (((bytes[quants + i]! >> shift) & 3) - (third ? 0 : 4));
      }
    }
  }
}

/** Scale of group j (0..7) in the 12 packed bytes that Q4_K and Q5_K share. */
function packedScale(bytes: Uint8Array, at: number, j: number): number {
  return j < 4 ? bytes[at + j]! & 63 : (bytes[at + j + 4]! & 15) | ((bytes[at + j - 4]! >> 6) << 4);
}

function packedMin(bytes: Uint8Array, at: number, j: number): number {
  return j < 4 ? bytes[at + j + 4]! & 63 : (bytes[at + j + 4]! >> 4) | ((bytes[at + j]! >> 6) << 4);
}

/** 144 bytes: d, dmin, 12 of scales and mins, 128 of 4-bit quants (32 bytes hold two groups of 32). */
export function dequantizeQ4K(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 144) {
    const d = halfAt(bytes, at);
    const dmin = halfAt(bytes, at + 2);
    for (let group = 0; group < 8; group++) {
      const scale = d * packedScale(bytes, at + 4, group);
      const min = dmin * packedMin(bytes, at + 4, group);
      const quants = at + 16 + (group >> 1) * 32;
      const shift = (group & 1) * 4;
      for (let i = 0; i < 32; i++) out[to++] = scale * ((bytes[quants + i]! >> shift) & 15) - min;
    }
  }
}

/** 176 bytes: as Q4_K, with 32 bytes of fifth bits (bit `group` of byte i) before the quants. */
export function dequantizeQ5K(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 176) {
    const d = halfAt(bytes, at);
    const dmin = halfAt(bytes, at + 2);
    for (let group = 0; group < 8; group++) {
      const scale = d * packedScale(bytes, at + 4, group);
      const min = dmin * packedMin(bytes, at + 4, group);
      const quants = at + 48 + (group >> 1) * 32;
      const shift = (group & 1) * 4;
      for (let i = 0; i < 32; i++) {
        const fifth = (bytes[at + 16 + i]! >> group) & 1;
        out[to++] = scale * (((bytes[quants + i]! >> shift) & 15) | (fifth << 4)) - min;
      }
    }
  }
}

/** 210 bytes: 128 of low 4 bits, 64 of high 2 bits, 16 signed scales, d. */
export function dequantizeQ6K(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 210) {
    const d = halfAt(bytes, at + 208);
    for (let group = 0; group < 16; group++) {
      const scale = d * ((bytes[at + 192 + group]! << 24) >> 24);
      const half = group >> 3; // 128 values each
      const quarter = (group >> 1) & 3; // of 32 values
      const low = at + half * 64 + (quarter & 1) * 32 + (group & 1) * 16;
      const lowShift = (quarter >> 1) * 4;
      const high = at + 128 + half * 32 + (group & 1) * 16;
      const highShift = quarter * 2;
      for (let i = 0; i < 16; i++) {
        const quant = ((bytes[low + i]! >> lowShift) & 15) | (((bytes[high + i]! >> highShift) & 3) << 4);
        out[to++] = scale * (quant - 32);
      }
    }
  }
}

/** 136 bytes: d, 16 bits of high scale bits, 4 bytes of low scale bits, 128 of indices into IQ4_LEVELS. */
export function dequantizeIq4Xs(
  bytes: Uint8Array,
  offset: number,
  out: Float32Array,
  outOffset: number,
  numBlocks: number,
): void {
  for (let b = 0, at = offset, to = outOffset; b < numBlocks; b++, at += 136) {
    const d = halfAt(bytes, at);
    const scalesHigh = bytes[at + 2]! | (bytes[at + 3]! << 8);
    for (let group = 0; group < 8; group++, to += 32) {
      const low = (bytes[at + 4 + (group >> 1)]! >> ((group & 1) * 4)) & 15;
      const scale = d * ((low | (((scalesHigh >> (group * 2)) & 3) << 4)) - 32);
      const quants = at + 8 + group * 16;
      for (let i = 0; i < 16; i++) {
        const byte = bytes[quants + i]!;
        out[to + i] = scale * IQ4_LEVELS[byte & 15]!;
        out[to + i + 16] = scale * IQ4_LEVELS[byte >> 4]!;
      }
    }
  }
}
