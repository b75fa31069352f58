// The gemm part of a kernel table. Integer tiles per instruction set are in gemm-int8-*-inl.h, float tiles in gemm-f32-inl.h.
//
// Order of arithmetic, the same on every path and for every tile (so that results depend on the row and the output only):
//   int8:  acc = 0; for each block of 32 columns: acc = fma(float(exact integer sum), scale * d, acc), and for weights with a
//          minimum then acc = fma(min, d * sum(a), acc).  Formats with a scale per 16 columns: the integer sum is
//          s0 * sum0 + s1 * sum1, below 2^24, so the order inside it is free.
//   float: acc = 0; for each k: acc = fma(w, x, acc).
// AVX2 and AVX-512 give identical bits for quantized formats; the portable path does too where the target has a fused
// multiply-add (arm64), and rounds twice where it has not (baseline x86-64).
//
// Loops: panels outside, row tiles inside, so that weights come from memory once; rows are taken in slabs that keep the
// activations in the second-level cache.
#pragma once
#include <algorithm>

#include "kernels.h"
#include "packed-format.h"
#include "simd.h"
#include "tile-lines-inl.h"
#include "gemm-bf16-avx512-inl.h"
#include "gemm-f32-inl.h"
#include "quantize-inl.h"
#include "gemm-tile-inl.h"
#if defined(PAGODA_ISA_AVX512) && __has_include("gemm-int8-avx512-inl.h")
#include "gemm-int8-avx512-inl.h"
#elif defined(PAGODA_ISA_AVX2) && __has_include("gemm-int8-avx2-inl.h")
#include "gemm-int8-avx2-inl.h"
#else
#include "gemm-int8-portable-inl.h"
#endif

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr size_t kSlabBytes = 1 << 20;   // activations of one row slab
constexpr size_t kLeastAhead = 8 << 10;  // bytes between what is read and what is prefetched
constexpr int32_t kMostRowsInFirstLevel = 3;  // so few rows read one stream, which comes from memory at its full speed

static int tile_height(const TileHeights& tiles, int32_t row, int32_t left) {
  const int in_group = kGroupRows - row % kGroupRows;
  for (int i = 0; i < tiles.count; ++i) {
    const int height = tiles.heights[i];
    if (height <= left && height <= in_group) return height;
  }
  return 1;
}
static TileFn tile_function(Format format, int rows, int32_t panels) {
  switch (format) {
    case Format::Q8_0: return common_tile<Format::Q8_0>(rows, panels);
    case Format::Q4_0: return common_tile<Format::Q4_0>(rows, panels);
    case Format::Q4_1: return common_tile<Format::Q4_1>(rows, panels);
    case Format::Q5_0: return common_tile<Format::Q5_0>(rows, panels);
    case Format::Q5_1: return common_tile<Format::Q5_1>(rows, panels);
    case Format::Q4_K: return common_tile<Format::Q4_K>(rows, panels);
    case Format::Q5_K: return common_tile<Format::Q5_K>(rows, panels);
    case Format::Q6_K: return common_tile<Format::Q6_K>(rows, panels);
    case Format::Q2_K: return rare_tile<Format::Q2_K>(rows);
    case Format::Q3_K: return rare_tile<Format::Q3_K>(rows);
    case Format::IQ4_NL: return rare_tile<Format::IQ4_NL>(rows);
    case Format::IQ4_XS: return rare_tile<Format::IQ4_XS>(rows);
    case Format::MXFP4: return rare_tile<Format::MXFP4>(rows);
    default: return nullptr;  // float formats never come here
  }
}

static void int8_gemm(const GemmArgs& args) {
  const PackedWeight& weight = *args.weight;
  const PanelLayout layout = panel_layout(weight.format, weight.cols);
  TileJob job = {};
  job.args = &args;
  job.blocks = num_blocks(weight.cols);
  const size_t row_bytes = (size_t)job.blocks * (sizeof(Record) / kGroupRows);
  const int32_t slab = std::max<int32_t>((int32_t)(kSlabBytes / row_bytes) / kGroupRows * kGroupRows, kGroupRows);
  const uint8_t* const ahead_end = weight.data + (size_t)args.panel_ahead * weight.panel_bytes;
  for (int32_t begin = args.row_begin, end; begin < args.row_end; begin = end) {
    end = args.row_end - begin > slab ? begin / kGroupRows * kGroupRows + slab : args.row_end;
    job.ahead_to_second_level = end - begin > kMostRowsInFirstLevel && waits_for_few_lines();
    for (int32_t panel = args.panel_begin, panels; panel < args.panel_end; panel += panels) {
      panels = tile_panels(weight.format, end - begin, args.panel_end - panel);
      const TileHeights& tiles = tile_heights(weight.format, panels);
      point_at_panel(job, weight, layout, panel);
      // While the tiles work on these panels, the next ones come in.
      const size_t now_bytes = (size_t)panels * weight.panel_bytes;
      job.next = spread_lines(job.codes + std::max(now_bytes, kLeastAhead), now_bytes, ahead_end, (end - begin + tiles.heights[0] - 1) / tiles.heights[0], job.blocks);
      for (job.row = begin; job.row < end;) {
        job.rows = tile_height(tiles, job.row, end - job.row);
        job.tiles = kGroupRows % job.rows == 0 && job.row % job.rows == 0 ? (end - job.row) / job.rows : 1;
        tile_function(weight.format, job.rows, panels)(job);
      }
    }
  }
}

static void gemm(const GemmArgs* args) {
  if (args->q != nullptr) {
#ifdef PAGODA_HAS_BF16
    if (args->q->form == RowForm::Bf16) return bf16_gemm(*args);
#endif
    return int8_gemm(*args);
  }
  switch (args->weight->format) {
    case Format::F32: return float_gemm<FloatSource::F32>(*args);
    case Format::F16: return float_gemm<FloatSource::F16>(*args);
    case Format::BF16: return float_gemm<FloatSource::BF16>(*args);
    default: return dequantized_gemm(*args);
  }
}

static RowForm row_form(Format format) {
#ifdef PAGODA_HAS_BF16
  if (format == Format::BF16 && cpu_has_fast_bf16()) return RowForm::Bf16;
#endif
  return facts_of(format).quantized() ? RowForm::Int8 : RowForm::Float;
}
static int32_t panels_together(Format format) {
#ifdef PAGODA_HAS_BF16
  if (row_form(format) == RowForm::Bf16) return kBf16TilePanels;
#endif
  return row_form(format) == RowForm::Int8 ? kTilePanels : kFloatTilePanels;
}
static size_t quantized_bytes(RowForm form, int32_t max_rows, int32_t cols) {
#ifdef PAGODA_HAS_BF16
  if (form == RowForm::Bf16) return (size_t)max_rows * bf16_row_values(cols) * 2;
#endif
  return form == RowForm::Int8 ? int8_bytes(max_rows, cols) : 0;
}
static void quantize_rows(QuantizedRows* q, const float* x, size_t x_stride, int32_t row_begin, int32_t row_end, int32_t column_begin, int32_t column_end) {
#ifdef PAGODA_HAS_BF16
  if (q->form == RowForm::Bf16) return round_rows_to_bf16(q, x, x_stride, row_begin, row_end, column_begin, column_end);
#endif
  quantize_rows_to_int8(q, x, x_stride, row_begin, row_end, column_begin, column_end);
}
static size_t packed_panel_bytes(Format format, int32_t cols) { return panel_layout(format, cols).bytes; }
static void pack_panels_here(PackedWeight* weight, const uint8_t* const* source_rows, int32_t panel_begin, int32_t panel_end) {
  pack_panels(weight, source_rows, panel_begin, panel_end, kSignedBytes);
}
static void dequantize_row_here(const PackedWeight* weight, int32_t row, float* out) { dequantize_row(weight, row, out, kSignedBytes); }
// One dequantized panel.
static size_t gemm_scratch_floats(int32_t cols) { return (size_t)num_blocks(cols) * 32 * kPanelRows; }

static void fill_gemm(Kernels& table) {
  table.row_form = row_form;
  table.panels_together = panels_together;
  table.packed_panel_bytes = packed_panel_bytes;
  table.pack_panels = pack_panels_here;
  table.dequantize_row = dequantize_row_here;
  table.quantized_bytes = quantized_bytes;
  table.quantize_rows = quantize_rows;
  table.gemm_scratch_floats = gemm_scratch_floats;
  table.gemm = gemm;
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
