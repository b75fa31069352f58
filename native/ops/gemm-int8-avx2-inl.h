// Integer tiles for AVX2 without VNNI: vpmaddubsw multiplies unsigned codes with signed activations into 16-bit sums of two.
// Exact, because as many products are added in 16 bits as fit for the width of the code (|a| <= 127, lanes of two products):
//   4 bits: 16 products, at most 16 * 15 * 127 = 30,480      5 bits: 8 products, 31,496      6 bits: 4 products, 32,004
//   8 bits: |w| <= 128 unsigned, the sign moved to the activation: 2 products, 32,512
// Source of the bounds and of the tile shape (4 rows x one panel): measurements on Zen 3 with gcc 12.
#pragma once
#include "gemm-f32-inl.h"
#include "gemm-tile-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Pins the order of additions: gcc otherwise reassociates integer sums, hoists all products of a block and spills them.
#define PAGODA_KEEP(x) asm("" : "+x"(x))

PAGODA_INLINE __m256i load_half(const void* p) { return _mm256_loadu_si256((const __m256i*)p); }
PAGODA_INLINE __m256i splat_at(const void* p) {
  int32_t v;
  memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
PAGODA_INLINE __m256 f16_half(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }
PAGODA_INLINE __m256 u8_half(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p))); }
PAGODA_INLINE __m256 i8_half(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p))); }
// Eight bytes as 16-bit pairs (s, s), one pair per 32-bit lane.
PAGODA_INLINE __m256i pair_of_i8(const uint8_t* p) {
  const __m256i v = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
  return _mm256_or_si256(_mm256_slli_epi32(v, 16), _mm256_and_si256(v, _mm256_set1_epi32(0xffff)));
}
PAGODA_INLINE __m256i pair_of_u8(const uint8_t* p) {
  const __m256i v = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p));
  return _mm256_or_si256(_mm256_slli_epi32(v, 16), v);
}
// Codes of chunk t for rows 8c .. 8c + 7. `block` already points at that half of each line.
template <Format F> PAGODA_INLINE __m256i chunk_half(const uint8_t* block, int t, __m256i table) {
  constexpr FormatFacts facts = facts_of(F);
  if constexpr (facts.bytes) return load_half(block + t * 64);
  __m256i codes = _mm256_setzero_si256();
  if constexpr (facts.nibbles) {
    const __m256i line = load_half(block + (t & 3) * 64);
    codes = _mm256_and_si256(t < 4 ? line : _mm256_srli_epi16(line, 4), _mm256_set1_epi8(15));
    if constexpr (facts.table != CodeTable::None) return _mm256_shuffle_epi8(table, codes);
  }
  if constexpr (facts.two_bits) {
    const __m256i line = load_half(block + facts.two_bits_at() + (t >> 2) * 64);
    const int shift = facts.two_bits_shift() - 2 * (t & 3);
    const __m256i moved = shift > 0 ? _mm256_slli_epi16(line, shift > 0 ? shift : 0) : _mm256_srli_epi16(line, shift < 0 ? -shift : 0);
    codes = _mm256_or_si256(codes, _mm256_and_si256(moved, _mm256_set1_epi8(3 << facts.two_bits_shift())));
  }
  if constexpr (facts.one_bit) {
    const __m256i line = load_half(block + facts.one_bit_at());
    const int shift = facts.one_bit_shift() - t;
    const __m256i moved = shift > 0 ? _mm256_slli_epi16(line, shift > 0 ? shift : 0) : _mm256_srli_epi16(line, shift < 0 ? -shift : 0);
    codes = _mm256_or_si256(codes, _mm256_and_si256(moved, _mm256_set1_epi8(1 << facts.one_bit_shift())));
  }
  return codes;
}

constexpr bool is_signed(const FormatFacts& facts) { return facts.bytes || facts.table != CodeTable::None; }
// Chunks of 4 columns that may be added up in 16 bits.
constexpr int chunks_in_16_bits(const FormatFacts& facts) {
  return is_signed(facts) ? 1 : facts.nibbles && facts.two_bits ? 2 : facts.one_bit || facts.sixteens() ? 4 : 8;
}

template <Format F, int kRows> PAGODA_INLINE void maddubs_tile(const TileJob& job) {
  constexpr FormatFacts facts = facts_of(F);
  constexpr int kChunks = chunks_in_16_bits(facts);
  const int blocks = job.blocks, row0 = job.row_in_group;
  const uint8_t *codes = job.codes, *scales = job.scales, *supers = job.supers;
  const Record* record = job.records;
  TileLines ahead = job.ahead, upcoming = job.upcoming;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i table = ones;
  if constexpr (facts.table != CodeTable::None) table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)(facts.table == CodeTable::Iq4 ? kIq4Values : kMxfp4Values)));

  alignas(32) float buffer[kRows * 16];
  float* sums = buffer;
  asm("" : "+r"(sums));  // opaque, so that the float sums stay in the first-level cache and all registers serve the integers
  PAGODA_UNROLL for (int i = 0; i < kRows * 2; ++i) _mm256_store_ps(sums + 8 * i, _mm256_setzero_ps());

  prefetch_sums<kRows, 1>(*job.args, job.row, job.panel);
  for (int b = 0; b < blocks; ++b) {
    prefetch_lines(ahead, job.ahead_to_second_level);
    prefetch_lines_to_second_level(upcoming);
    __m256i isum[kRows][2], acc[kRows][2], multiplier[2][2];  // the multiplier of 16-bit sums: 1, or the scale of these 16 columns
    if constexpr (facts.sixteens()) {
      PAGODA_UNROLL for (int h = 0; h < 2; ++h)
        PAGODA_UNROLL for (int c = 0; c < 2; ++c) multiplier[h][c] = facts.has_min() ? pair_of_u8(scales + 16 * h + 8 * c) : pair_of_i8(scales + 16 * h + 8 * c);
    }
    PAGODA_UNROLL for (int t = 0; t < 8; ++t) {
      __m256i w[2], magnitude[2];
      PAGODA_UNROLL for (int c = 0; c < 2; ++c) {
        w[c] = chunk_half<F>(codes + 32 * c, t, table);
        if constexpr (is_signed(facts)) magnitude[c] = _mm256_abs_epi8(w[c]);
      }
      PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
        const __m256i x = splat_at(record->rows[row0 + m].a + 4 * t);
        PAGODA_UNROLL for (int c = 0; c < 2; ++c) {
          if constexpr (is_signed(facts)) {
            const __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude[c], _mm256_sign_epi8(x, w[c])), ones);
            isum[m][c] = t == 0 ? products : _mm256_add_epi32(isum[m][c], products);
            PAGODA_KEEP(isum[m][c]);
          } else {
            const __m256i products = _mm256_maddubs_epi16(w[c], x);
            acc[m][c] = t % kChunks == 0 ? products : _mm256_add_epi16(acc[m][c], products);
            PAGODA_KEEP(acc[m][c]);
          }
        }
      }
      if constexpr (!is_signed(facts)) {
        if (t % kChunks == kChunks - 1) {
          PAGODA_UNROLL for (int m = 0; m < kRows; ++m)
            PAGODA_UNROLL for (int c = 0; c < 2; ++c) {
              const __m256i wide = _mm256_madd_epi16(acc[m][c], facts.sixteens() ? multiplier[t / 4][c] : ones);
              isum[m][c] = t < kChunks ? wide : _mm256_add_epi32(isum[m][c], wide);
              PAGODA_KEEP(isum[m][c]);
            }
        }
      }
    }
    if constexpr (facts.sixteens() && facts.offset != 0) {
      // - offset * (s0 * sum0 + s1 * sum1): the low half of each lane takes s0, the high half s1.
      constexpr int kShift = facts.offset == 32 ? 5 : 2;
      PAGODA_UNROLL for (int c = 0; c < 2; ++c) {
        const __m256i both = _mm256_slli_epi16(_mm256_blend_epi16(multiplier[0][c], multiplier[1][c], 0xaa), kShift);
        PAGODA_UNROLL for (int m = 0; m < kRows; ++m) isum[m][c] = _mm256_add_epi32(isum[m][c], _mm256_madd_epi16(both, splat_at(record->rows[row0 + m].pair)));
      }
    } else if constexpr (!is_signed(facts) && facts.offset != 0) {
      PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
        const __m256i offset = splat_at(facts.offset == 8 ? &record->rows[row0 + m].n8 : &record->rows[row0 + m].n16);
        PAGODA_UNROLL for (int c = 0; c < 2; ++c) isum[m][c] = _mm256_add_epi32(isum[m][c], offset);
      }
    }
    PAGODA_UNROLL for (int c = 0; c < 2; ++c) {
      __m256 scale, min = _mm256_setzero_ps();
      __m256i mins = ones;
      if constexpr (facts.scales == ScaleKind::F16 || facts.scales == ScaleKind::F16Min) {
        scale = f16_half(scales + 16 * c);
        if constexpr (facts.has_min()) min = f16_half(scales + 32 + 16 * c);
      } else if constexpr (facts.scales == ScaleKind::F32Exp) {
        scale = (__m256)block_scale(facts, scales, scales, 0).v[c];
      } else {
        scale = f16_half(supers + 16 * c);
        if constexpr (facts.scales == ScaleKind::KMin) {
          scale = _mm256_mul_ps(scale, u8_half(scales + 8 * c));
          min = _mm256_mul_ps(_mm256_xor_ps(f16_half(supers + 32 + 16 * c), _mm256_set1_ps(-0.0f)), u8_half(scales + 16 + 8 * c));
        } else if constexpr (facts.scales == ScaleKind::K) {
          scale = _mm256_mul_ps(scale, i8_half(scales + 8 * c));
        } else if constexpr (facts.scales == ScaleKind::K16Min) {
          min = _mm256_xor_ps(f16_half(supers + 32 + 16 * c), _mm256_set1_ps(-0.0f));
          mins = _mm256_blend_epi16(pair_of_u8(scales + 32 + 8 * c), pair_of_u8(scales + 48 + 8 * c), 0xaa);
        }
      }
      PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
        float* sum = sums + m * 16 + c * 8;
        const __m256 d = _mm256_broadcast_ss(&record->rows[row0 + m].d);
        __m256 value = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[m][c]), _mm256_mul_ps(scale, d), _mm256_load_ps(sum));
        if constexpr (facts.scales == ScaleKind::K16Min) {
          // pair holds negated sums.
          const __m256i weighted = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_madd_epi16(mins, splat_at(record->rows[row0 + m].pair)));
          value = _mm256_fmadd_ps(_mm256_cvtepi32_ps(weighted), _mm256_mul_ps(min, d), value);
        } else if constexpr (facts.has_min()) {
          value = _mm256_fmadd_ps(min, _mm256_broadcast_ss(&record->rows[row0 + m].sa), value);
        }
        _mm256_store_ps(sum, value);
      }
    }
    codes += facts.code_bytes();
    scales += facts.scale_bytes();
    if ((b & 7) == 7) supers += facts.super_bytes();
    ++record;
  }
  write_tile(*job.args, job.row, kRows, job.panel, 1, reinterpret_cast<const f32x16*>(sums));
}
#undef PAGODA_KEEP

constexpr TileHeights kCommonHeights = {{4, 3, 2, 1}, 4};
constexpr TileHeights kRareHeights = {{4, 1}, 2};
constexpr int32_t kTilePanels = 1;
static int32_t tile_panels(Format, int32_t, int32_t) { return 1; }
static const TileHeights& tile_heights(Format format, int32_t) { return is_rare(format) ? kRareHeights : kCommonHeights; }
template <Format F> static TileFn common_tile(int rows, int32_t) {
  switch (rows) {
    case 4: return run_tiles<maddubs_tile<F, 4>>;
    case 3: return run_tiles<maddubs_tile<F, 3>>;
    case 2: return run_tiles<maddubs_tile<F, 2>>;
    default: return run_tiles<maddubs_tile<F, 1>>;
  }
}
template <Format F> static TileFn rare_tile(int rows) { return rows == 4 ? run_tiles<maddubs_tile<F, 4>> : run_tiles<maddubs_tile<F, 1>>; }

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
