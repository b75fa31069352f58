// Integer tile without byte-product instructions: codes widened to 16 bits once per block, multiplied in pairs.
#pragma once
#include "gemm-f32-inl.h"
#include "quantize-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr int kTallTile = 4;

// Lane r: low(w) * low(x) + high(w) * high(x) of the signed 16-bit halves.
PAGODA_INLINE i32x16 multiply_pairs(i32x16 w, i32x16 x) {
#if defined(__SSE2__)
  PAGODA_EACH w.v[n] = (i32n)_mm_madd_epi16((__m128i)w.v[n], (__m128i)x.v[n]);
  return w;
#else
  return shift_right_signed<16>(shift_left<16>(w)) * shift_right_signed<16>(shift_left<16>(x)) + shift_right_signed<16>(w) * shift_right_signed<16>(x);
#endif
}

template <Format F> PAGODA_INLINE void signed_codes(const uint8_t* block, int t, i32x16* even, i32x16* odd) {
  constexpr FormatFacts facts = facts_of(F);
  i32x16 codes = chunk_codes<F>(block, t);
  if constexpr (facts.table != CodeTable::None) {
    constexpr const int8_t* table = facts.table == CodeTable::Iq4 ? kIq4Values : kMxfp4Values;
    alignas(64) uint8_t bytes[64];
    store_i32(bytes, codes);
    for (int i = 0; i < 64; ++i) bytes[i] = (uint8_t)(table[bytes[i]] + 128);
    codes = load_i32(bytes);
  }
  const i32x16 low = splat_i32(0x00ff00ff), offset = splat_i32(facts.offset * 0x10001);
  *even = (codes & low);
  *odd = (shift_right<8>(codes) & low);
  PAGODA_EACH {
    even->v[n] = (i32n)((i16n)even->v[n] - (i16n)offset.v[n]);
    odd->v[n] = (i32n)((i16n)odd->v[n] - (i16n)offset.v[n]);
  }
}

PAGODA_INLINE i32x16 splat_pair(int8_t low, int8_t high) { return splat_i32((int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16)); }

// Rows are a run-time loop here: one instantiation per format keeps the unit small.
template <Format F>
PAGODA_NOINLINE void int8_rows(const uint8_t* panel, const PanelLayout& layout, int blocks, const Record* records, int row0, int rows, f32x16* acc) {
  constexpr FormatFacts facts = facts_of(F);
  for (int m = 0; m < rows; ++m) acc[m] = zero();
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* block = panel + (size_t)b * facts.code_bytes();
    const uint8_t* scales = panel + layout.scales + (size_t)b * facts.scale_bytes();
    const uint8_t* supers = panel + layout.supers + (size_t)(b / 8) * facts.super_bytes();
    i32x16 codes[8][2];
    PAGODA_NO_UNROLL for (int t = 0; t < 8; ++t) signed_codes<F>(block, t, &codes[t][0], &codes[t][1]);
    f32x16 scale, min = zero(), s[2] = {zero(), zero()}, ms[2] = {zero(), zero()};
    if constexpr (facts.sixteens()) {
      scale = load_f16(reinterpret_cast<const uint16_t*>(supers));
      for (int h = 0; h < 2; ++h) {
        s[h] = to_float(facts.has_min() ? load_u8(scales + 16 * h) : load_i8(reinterpret_cast<const int8_t*>(scales + 16 * h)));
        if (facts.has_min()) ms[h] = to_float(load_u8(scales + 32 + 16 * h));
      }
      if (facts.has_min()) min = -load_f16(reinterpret_cast<const uint16_t*>(supers + 32));
    } else {
      scale = block_scale<F>(scales, supers, 0);
      if (facts.has_min()) min = block_min<F>(scales, supers, 0);
    }
    PAGODA_NO_UNROLL for (int m = 0; m < rows; ++m) {
      const Record& record = records[b];
      const int row = row0 + m;
      const int8_t* a = record.a[row];
      i32x16 half[2] = {splat_i32(0), splat_i32(0)};
      PAGODA_NO_UNROLL for (int t = 0; t < 4; ++t) {
        PAGODA_UNROLL for (int h = 0; h < 2; ++h) {
          const int8_t* x = a + 16 * h + 4 * t;
          half[h] = half[h] + multiply_pairs(codes[4 * h + t][0], splat_pair(x[0], x[2])) + multiply_pairs(codes[4 * h + t][1], splat_pair(x[1], x[3]));
        }
      }
      const f32x16 d = splat(record.d[row]);
      if constexpr (facts.sixteens()) {
        // Below 2^24: the products of the integer sums and their scales are exact floats.
        acc[m] = fma(to_float(half[0]) * s[0] + to_float(half[1]) * s[1], scale * d, acc[m]);
        if constexpr (facts.has_min()) acc[m] = fma(ms[0] * splat((float)-record.pair[row][0]) + ms[1] * splat((float)-record.pair[row][1]), min * d, acc[m]);
      } else {
        acc[m] = fma(to_float(half[0] + half[1]), scale * d, acc[m]);
        if constexpr (facts.has_min()) acc[m] = fma(min, splat(record.sa[row]), acc[m]);
      }
    }
  }
}

template <Format F, int kRows>
PAGODA_INLINE void int8_tile(const uint8_t* panel, const PanelLayout& layout, int blocks, const Record* const* records, int row0, bool, f32x16 (&acc)[kRows]) {
  static_assert(kRows <= kGroupRows, "a tile of this path is one group");
  int8_rows<F>(panel, layout, blocks, records[0], row0, kRows, acc);
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
