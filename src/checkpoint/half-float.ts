// IEEE half precision to single, by table: 65,536 bit patterns of float32, so that NaN payloads survive.

function singleBits(half: number): number {
  const sign = (half & 0x8000) << 16;
  const exponent = (half >> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 31) return (sign | 0x7f800000 | (fraction << 13)) >>> 0;
  if (exponent !== 0) return (sign | ((exponent + 112) << 23) | (fraction << 13)) >>> 0;
  if (fraction === 0) return sign >>> 0;
  // Subnormal: shift the leading one out of the fraction.
  const shift = Math.clz32(fraction) - 21;
  return (sign | ((113 - shift) << 23) | (((fraction << shift) & 0x3ff) << 13)) >>> 0;
}

/** Float32 bits of every half. */
export const HALF_BITS: Uint32Array = Uint32Array.from({ length: 65536 }, (_, half) => singleBits(half));

/** Float32 value of every half (the same memory as HALF_BITS). */
export const HALF_VALUES: Float32Array = new Float32Array(HALF_BITS.buffer);
