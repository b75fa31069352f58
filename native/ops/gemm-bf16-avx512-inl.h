// Products of bf16 weights with activations rounded to bf16, on CPUs that are fast at multiplying pairs of them (vdpbf16ps): two
// columns per lane and instruction, accumulated in float32. Every output is one chain over the pairs in order, whatever the tile, so results depend
// on the row and the output only. The instruction flushes subnormals and rounds on its own terms: its bits are its own.
#pragma once
#include "kernels.h"
#include "simd.h"
#include "gemm-f32-inl.h"

#if defined(PAGODA_ISA_AVX512) && defined(__AVX512BF16__)
#define PAGODA_HAS_BF16 1

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Intel's cores do half as many of them as float32 multiply-adds (docs/performance-kernels.md): there BF16 weights meet float32. By
// vendor, not by a timing: the bits of a result must be the same in every run.
static bool cpu_has_fast_bf16() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
  return has;
}

// [rows][cols] bf16, an odd last column padded with 0.
static inline size_t bf16_row_values(int32_t cols) { return (size_t)(cols + 31) / 32 * 32; }

static void round_rows_to_bf16(QuantizedRows* q, const float* x, size_t x_stride, int32_t row_begin, int32_t row_end, int32_t column_begin, int32_t column_end) {
  const size_t values = bf16_row_values(q->cols);
  for (int32_t row = row_begin; row < row_end; ++row) {
    const float* source = x + (size_t)row * x_stride;
    uint16_t* out = reinterpret_cast<uint16_t*>(q->data) + (size_t)row * values;
    for (int32_t c = column_begin; c < column_end; c += 16) {
      const int left = column_end - c;
      const f32x16 part = left >= 16 ? load(source + c) : load_n(source + c, left);
      _mm256_storeu_si256((__m256i*)(out + c), (__m256i)_mm512_cvtneps_pbh((__m512)part.v[0]));
    }
  }
}

constexpr int32_t kBf16TilePanels = 2;
// Up to three rows wait for their weights, which come from memory fastest in one stream: one panel at a time, prefetched across the border to the next.
constexpr int32_t kMostRowsOfOneStream = 3;
// From so many rows on, two panels and eight rows at a time: two panels fit the first-level cache, and the tiles together prefetch the next two.
constexpr int32_t kLeastRowsToSpread = 8;
template <int kPanels> constexpr size_t kBytesAhead = kPanels == 1 ? 8192 : 2048;

template <int kRows, int kPanels> PAGODA_NOINLINE void bf16_tile(const GemmArgs& args, const uint8_t* w, int32_t row, int32_t panel, bool first, TileLines ahead) {
  const int32_t cols = args.weight->cols, pairs = (cols + 1) / 2;
  const size_t panel_bytes = args.weight->panel_bytes, stride = bf16_row_values(args.q->cols) * 2;
  const uint8_t* x = args.q->data + (size_t)row * stride;
  __m512 sums[kRows][kPanels];
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) sums[m][p] = _mm512_setzero_ps();
  TileLines upcoming = take_upcoming(args.upcoming, (cols + 31) / 32);
  prefetch_sums<kRows, kPanels>(args, row, panel);
  for (int32_t k = 0; k < pairs; ++k, w += 64, x += 4) {
    if (k % 16 == 0) {
      prefetch_lines_to_second_level(upcoming);
      prefetch_lines_to_second_level(ahead);
    }
    __m512bh v[kPanels];
    PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) {
      if (first) prefetch(w + p * panel_bytes + kBytesAhead<kPanels>);
      v[p] = (__m512bh)_mm512_loadu_si512(w + p * panel_bytes);
    }
    PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
      int32_t two;
      memcpy(&two, x + m * stride, 4);
      const __m512bh value = (__m512bh)_mm512_set1_epi32(two);
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) sums[m][p] = _mm512_dpbf16_ps(sums[m][p], v[p], value);
    }
  }
  f32x16 values[kRows * kPanels];
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) values[m * kPanels + p].v[0] = (f32n)sums[m][p];
  write_sums<kRows, kPanels>(args, row, panel, values);
}

template <int kPanels> static int32_t bf16_tile_rows(int32_t left) { return kPanels == 1 && left >= 16 ? 16 : kPanels <= 2 && left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }

// All rows against kPanels panels; the tallest tile that fits first. Sixteen chains of sums fill both pipes of a core.
template <int kPanels> static void bf16_rows(const GemmArgs& args, int32_t panel) {
  const size_t panel_bytes = args.weight->panel_bytes;
  const uint8_t* w = args.weight->data + (size_t)panel * panel_bytes;
  const int32_t num_rows = args.row_end - args.row_begin, blocks = (args.weight->cols + 31) / 32;
  const bool spreads = num_rows >= kLeastRowsToSpread;
  const int height = bf16_tile_rows<kPanels>(num_rows);
  SpreadLines next = spread_lines(w + kPanels * panel_bytes, kPanels * panel_bytes, args.weight->data + (size_t)args.panel_ahead * panel_bytes, (num_rows + height - 1) / height, blocks);
  for (int32_t row = args.row_begin, rows; row < args.row_end; row += rows) {
    const bool first = !spreads && row == args.row_begin;
    const TileLines ahead = spreads ? take_lines(next, blocks) : TileLines{nullptr, 0};
    rows = bf16_tile_rows<kPanels>(args.row_end - row);
    switch (rows) {
      case 16: if constexpr (kPanels == 1) bf16_tile<16, 1>(args, w, row, panel, first, ahead); break;
      case 8: if constexpr (kPanels <= 2) bf16_tile<8, kPanels>(args, w, row, panel, first, ahead); break;
      case 4: bf16_tile<4, kPanels>(args, w, row, panel, first, ahead); break;
      case 2: bf16_tile<2, kPanels>(args, w, row, panel, first, ahead); break;
      default: bf16_tile<1, kPanels>(args, w, row, panel, first, ahead);
    }
  }
}

static void bf16_gemm(const GemmArgs& args) {
  int32_t panel = args.panel_begin;
  if (args.row_end - args.row_begin <= kMostRowsOfOneStream) {
    for (; panel < args.panel_end; ++panel) bf16_rows<1>(args, panel);
    return;
  }
  if (args.row_end - args.row_begin < kLeastRowsToSpread) {
    for (; panel + 4 <= args.panel_end; panel += 4) bf16_rows<4>(args, panel);
  }
  for (; panel + 2 <= args.panel_end; panel += 2) bf16_rows<2>(args, panel);
  for (; panel < args.panel_end; ++panel) bf16_rows<1>(args, panel);
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
#endif
