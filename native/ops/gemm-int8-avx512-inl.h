// Integer tiles for AVX-512 VNNI. vpdpbusd multiplies unsigned codes with signed activations and adds four products at once;
// the offset of a code (w = code - offset) costs nothing, because -offset * sum(a) is what the accumulator starts from.
// The tallest tile has 12 sums, for which there are registers beside the 12 integer sums: stores of whole vectors take the pipes of the
// products (docs/log.md).
#pragma once
#include <algorithm>

#include "gemm-f32-inl.h"
#include "gemm-tile-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Codes of chunk t as unsigned bytes, the table already applied (+128).
template <Format F> PAGODA_INLINE __m512i unsigned_chunk(const uint8_t* block, int t, __m512i table) {
  constexpr FormatFacts facts = facts_of(F);
  __m512i codes;
  if constexpr (facts.bytes) return _mm512_loadu_si512(block + t * 64);
  if constexpr (facts.nibbles) {
    const __m512i line = _mm512_loadu_si512(block + (t & 3) * 64), low = _mm512_set1_epi8(15);
    codes = _mm512_and_si512(t < 4 ? line : _mm512_srli_epi16(line, 4), low);
    if constexpr (facts.table != CodeTable::None) return _mm512_shuffle_epi8(table, codes);
  } else {
    codes = _mm512_setzero_si512();
  }
  if constexpr (facts.two_bits) {
    const __m512i line = _mm512_loadu_si512(block + facts.two_bits_at() + (t >> 2) * 64);
    const int shift = facts.two_bits_shift() - 2 * (t & 3);
    const __m512i moved = shift > 0 ? _mm512_slli_epi16(line, shift > 0 ? shift : 0) : _mm512_srli_epi16(line, shift < 0 ? -shift : 0);
    codes = _mm512_ternarylogic_epi32(codes, moved, _mm512_set1_epi8(3 << facts.two_bits_shift()), 0xf8);  // codes | (moved & mask)
  }
  if constexpr (facts.one_bit) {
    const __m512i line = _mm512_loadu_si512(block + facts.one_bit_at());
    const int shift = facts.one_bit_shift() - t;
    const __m512i moved = shift > 0 ? _mm512_slli_epi16(line, shift > 0 ? shift : 0) : _mm512_srli_epi16(line, shift < 0 ? -shift : 0);
    codes = _mm512_ternarylogic_epi32(codes, moved, _mm512_set1_epi8(1 << facts.one_bit_shift()), 0xf8);
  }
  return codes;
}

// Values + 128 of the codes of formats that have a table.
template <Format F> PAGODA_INLINE __m512i code_table() {
  constexpr FormatFacts facts = facts_of(F);
  if constexpr (facts.table == CodeTable::None) return _mm512_setzero_si512();
  const __m128i values = _mm_loadu_si128((const __m128i*)(facts.table == CodeTable::Iq4 ? kIq4Values : kMxfp4Values));
  return _mm512_xor_si512(_mm512_broadcast_i32x4(values), _mm512_set1_epi8((char)0x80));
}

// Scale and minimum of one block of 32 columns, of formats with one scale per block.
struct BlockScales {
  f32x16 scale, min;
};
template <Format F> PAGODA_INLINE BlockScales block_scales(const uint8_t* scales, f32x16 super_scale, f32x16 super_min) {
  constexpr FormatFacts facts = facts_of(F);
  if constexpr (facts.scales == ScaleKind::KMin) {
    return {super_scale * to_float(load_u8(scales)), super_min * to_float(load_u8(scales + 16))};
  } else if constexpr (facts.scales == ScaleKind::K) {
    return {super_scale * to_float(load_i8((const int8_t*)scales)), zero()};
  } else if constexpr (facts.has_min()) {
    return {block_scale(facts, scales, scales, 0), block_min(facts, scales, scales, 0)};
  } else {
    return {block_scale(facts, scales, scales, 0), zero()};
  }
}

template <Format F> PAGODA_INLINE __m512i initial_sum(const Record& record, int row, int half) {
  constexpr FormatFacts facts = facts_of(F);
  if constexpr (facts.sixteens() && facts.offset != 0) {
    const __m512i n32 = _mm512_set1_epi32(half == 0 ? record.rows[row].n32lo : record.rows[row].n32hi);
    return facts.offset == 32 ? n32 : _mm512_srai_epi32(n32, 3);  // 4
  } else if constexpr (facts.offset == 8) {
    return _mm512_set1_epi32(record.rows[row].n8);
  } else if constexpr (facts.offset == 16) {
    return _mm512_set1_epi32(record.rows[row].n16);
  } else if constexpr (facts.offset == 128) {
    return _mm512_set1_epi32(record.rows[row].n128);
  } else {
    return _mm512_setzero_si512();
  }
}

template <Format F, int kRows, int kPanels> PAGODA_INLINE void vnni_tile(const TileJob& job) {
  constexpr FormatFacts facts = facts_of(F);
  constexpr int kHalves = facts.sixteens() ? 2 : 1;
  const size_t panel_bytes = job.args->weight->panel_bytes;
  const int blocks = job.blocks, row0 = job.row_in_group;
  const uint8_t *codes = job.codes, *scales = job.scales, *supers = job.supers;
  const Record* record = job.records;
  TileLines ahead = job.ahead, upcoming = job.upcoming;
  const __m512i table = code_table<F>();

  f32x16 sums[kRows * kPanels];
  PAGODA_UNROLL for (int i = 0; i < kRows * kPanels; ++i) sums[i] = zero();
  f32x16 super_scale[kPanels] = {}, super_min[kPanels] = {};

  prefetch_sums<kRows, kPanels>(*job.args, job.row, job.panel);
  for (int b = 0; b < blocks; ++b) {
    prefetch_lines(ahead, job.ahead_to_second_level);
    prefetch_lines_to_second_level(upcoming);
    if constexpr (facts.super_blocks()) {
      if ((b & 7) == 0) {
        const uint16_t* s = reinterpret_cast<const uint16_t*>(supers);
        PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) {
          super_scale[p] = load_f16(s + p * (panel_bytes / 2));
          if constexpr (facts.has_min()) super_min[p] = -load_f16(s + p * (panel_bytes / 2) + 16);
        }
        supers += facts.super_bytes();
      }
    }
    __m512i isum[kHalves][kRows][kPanels];
    PAGODA_UNROLL for (int h = 0; h < kHalves; ++h)
      PAGODA_UNROLL for (int m = 0; m < kRows; ++m)
        PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) isum[h][m][p] = initial_sum<F>(*record, row0 + m, h);
    PAGODA_UNROLL for (int t = 0; t < 8; ++t) {
      const int h = kHalves == 2 ? t / 4 : 0;
      __m512i w[kPanels];
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) w[p] = unsigned_chunk<F>(codes + p * panel_bytes, t, table);
      PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
        int32_t four;
        memcpy(&four, record->rows[row0 + m].a + 4 * t, 4);
        const __m512i x = _mm512_set1_epi32(four);
        PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) isum[h][m][p] = _mm512_dpbusd_epi32(isum[h][m][p], w[p], x);
      }
    }
    PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) {
      const uint8_t* s = scales + p * panel_bytes;
      if constexpr (facts.sixteens()) {
        f32x16 s0, s1, m0 = zero(), m1 = zero();
        if constexpr (facts.has_min()) {
          s0 = to_float(load_u8(s)), s1 = to_float(load_u8(s + 16));
          m0 = to_float(load_u8(s + 32)), m1 = to_float(load_u8(s + 48));
        } else {
          s0 = to_float(load_i8((const int8_t*)s)), s1 = to_float(load_i8((const int8_t*)s + 16));
        }
        PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
          const int row = row0 + m;
          const f32x16 d = splat(record->rows[row].d);
          const f32x16 f0 = {{(f32n)_mm512_cvtepi32_ps(isum[0][m][p])}}, f1 = {{(f32n)_mm512_cvtepi32_ps(isum[kHalves - 1][m][p])}};
          // Exact: integers below 2^24.
          f32x16 sum = fma(fma(f0, s0, f1 * s1), super_scale[p] * d, sums[m * kPanels + p]);
          if constexpr (facts.has_min()) {
            const f32x16 mins = fma(m0, splat((float)-record->rows[row].pair[0]), m1 * splat((float)-record->rows[row].pair[1]));
            sum = fma(mins, super_min[p] * d, sum);
          }
          sums[m * kPanels + p] = sum;
        }
      } else {
        const BlockScales block = block_scales<F>(s, super_scale[p], super_min[p]);
        PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
          const int row = row0 + m;
          const f32x16 value = {{(f32n)_mm512_cvtepi32_ps(isum[0][m][p])}};
          f32x16 sum = fma(value, block.scale * splat(record->rows[row].d), sums[m * kPanels + p]);
          if constexpr (facts.has_min()) sum = fma(block.min, splat(record->rows[row].sa), sum);
          sums[m * kPanels + p] = sum;
        }
      }
    }
    codes += facts.code_bytes();
    scales += facts.scale_bytes();
    ++record;
  }
  write_sums<kRows, kPanels>(*job.args, job.row, job.panel, sums);
}

// Three panels share the loads of the activations; four panels are two pairs. Up to three rows wait for their weights, which come from memory
// fastest in one stream.
constexpr int32_t kTilePanels = 3, kLeastRowsForPanels = 4;
constexpr TileHeights kAllHeights = {{4, 3, 2, 1}, 4}, kFewHeights = {{4, 1}, 2};  // few keep the build short
static int32_t tile_panels(Format format, int32_t rows, int32_t left) {
  if (is_rare(format) || rows < kLeastRowsForPanels) return 1;
  return left == 2 || left == 4 ? 2 : std::min(left, kTilePanels);
}
static const TileHeights& tile_heights(Format format, int32_t panels) { return is_rare(format) || panels == 2 ? kFewHeights : kAllHeights; }
template <Format F> static TileFn common_tile(int rows, int32_t panels) {
  static constexpr TileFn kTiles[kTilePanels][4] = {
      {run_tiles<vnni_tile<F, 1, 1>>, run_tiles<vnni_tile<F, 2, 1>>, run_tiles<vnni_tile<F, 3, 1>>, run_tiles<vnni_tile<F, 4, 1>>},
      {run_tiles<vnni_tile<F, 1, 2>>, nullptr, nullptr, run_tiles<vnni_tile<F, 4, 2>>},
      {run_tiles<vnni_tile<F, 1, 3>>, run_tiles<vnni_tile<F, 2, 3>>, run_tiles<vnni_tile<F, 3, 3>>, run_tiles<vnni_tile<F, 4, 3>>},
  };
  return kTiles[panels - 1][rows - 1];
}
template <Format F> static TileFn rare_tile(int rows) { return rows == 4 ? run_tiles<vnni_tile<F, 4, 1>> : run_tiles<vnni_tile<F, 1, 1>>; }

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
