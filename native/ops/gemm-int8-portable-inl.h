// Integer tiles without byte-product instructions: codes widened to 16 bits once per block, multiplied in pairs. One function
// for all formats and heights; also the specification that the other paths are tested against.
#pragma once
#include "gemm-f32-inl.h"
#include "gemm-tile-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Lane r: low(w) * low(x) + high(w) * high(x) of the signed 16-bit halves.
PAGODA_INLINE i32x16 multiply_pairs(i32x16 w, i32x16 x) {
#if defined(PAGODA_ISA_AVX512)
  w.v[0] = (i32n)_mm512_madd_epi16((__m512i)w.v[0], (__m512i)x.v[0]);
  return w;
#elif defined(PAGODA_ISA_AVX2)
  PAGODA_EACH w.v[n] = (i32n)_mm256_madd_epi16((__m256i)w.v[n], (__m256i)x.v[n]);
  return w;
#elif defined(__SSE2__)
  PAGODA_EACH w.v[n] = (i32n)_mm_madd_epi16((__m128i)w.v[n], (__m128i)x.v[n]);
  return w;
#else
  return shift_right_signed<16>(shift_left<16>(w)) * shift_right_signed<16>(shift_left<16>(x)) + shift_right_signed<16>(w) * shift_right_signed<16>(x);
#endif
}
PAGODA_INLINE i32x16 splat_pair(int8_t low, int8_t high) { return splat_i32((int32_t)((uint32_t)(uint16_t)low | (uint32_t)(uint16_t)high << 16)); }

static void portable_tile(const TileJob& job) {
  const FormatFacts& facts = facts_of(job.args->weight->format);
  f32x16 acc[kGroupRows];
  for (int m = 0; m < job.rows; ++m) acc[m] = zero();
  for (int b = 0; b < job.blocks; ++b) {
    const uint8_t* scales = job.scales + (size_t)b * facts.scale_bytes();
    const uint8_t* supers = job.supers + (size_t)(b / 8) * facts.super_bytes();
    i32x16 even[8], odd[8];
    block_values(facts, job.codes + (size_t)b * facts.code_bytes(), even, odd);
    f32x16 scale, min = zero(), s[2] = {zero(), zero()}, ms[2] = {zero(), zero()};
    if (facts.sixteens()) {
      scale = load_f16(reinterpret_cast<const uint16_t*>(supers));
      for (int h = 0; h < 2; ++h) {
        s[h] = to_float(facts.has_min() ? load_u8(scales + 16 * h) : load_i8(reinterpret_cast<const int8_t*>(scales + 16 * h)));
        if (facts.has_min()) ms[h] = to_float(load_u8(scales + 32 + 16 * h));
      }
      if (facts.has_min()) min = -load_f16(reinterpret_cast<const uint16_t*>(supers + 32));
    } else {
      scale = block_scale(facts, scales, supers, 0);
      if (facts.has_min()) min = block_min(facts, scales, supers, 0);
    }
    for (int m = 0; m < job.rows; ++m) {
      const Record& record = job.records[b];
      const int row = job.row_in_group + m;
      const int8_t* a = record.rows[row].a;
      i32x16 half[2] = {splat_i32(0), splat_i32(0)};
      for (int h = 0; h < 2; ++h) {
        for (int t = 4 * h; t < 4 * h + 4; ++t) {
          half[h] = half[h] + multiply_pairs(even[t], splat_pair(a[4 * t], a[4 * t + 2])) + multiply_pairs(odd[t], splat_pair(a[4 * t + 1], a[4 * t + 3]));
        }
      }
      const f32x16 d = splat(record.rows[row].d);
      if (facts.sixteens()) {
        // Below 2^24: the products of the integer sums and their scales are exact floats.
        acc[m] = fma(to_float(half[0]) * s[0] + to_float(half[1]) * s[1], scale * d, acc[m]);
        if (facts.has_min()) acc[m] = fma(ms[0] * splat((float)-record.rows[row].pair[0]) + ms[1] * splat((float)-record.rows[row].pair[1]), min * d, acc[m]);
      } else {
        acc[m] = fma(to_float(half[0] + half[1]), scale * d, acc[m]);
        if (facts.has_min()) acc[m] = fma(min, splat(record.rows[row].sa), acc[m]);
      }
    }
  }
  write_tile(*job.args, job.row, job.rows, job.panel, 1, acc);
}

constexpr TileHeights kHeights = {{4, 3, 2, 1}, 4};
constexpr int32_t kTilePanels = 1;
static int32_t tile_panels(Format, int32_t, int32_t) { return 1; }
static const TileHeights& tile_heights(Format, int32_t) { return kHeights; }
template <Format F> static TileFn common_tile(int, int32_t) { return run_tiles<portable_tile>; }
template <Format F> static TileFn rare_tile(int) { return run_tiles<portable_tile>; }

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
