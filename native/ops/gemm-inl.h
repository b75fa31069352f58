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
#include "kernels.h"
#include "packed-format.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

#ifdef PAGODA_ISA_AVX512
constexpr bool kSignedBytes = false;  // vpdpbusd multiplies unsigned weights with signed activations
constexpr int kFloatTileRows = 8, kFloatTilePanels = 2;
#elif defined(PAGODA_ISA_AVX2)
constexpr bool kSignedBytes = true;  // vpmaddubsw saturates: |w| as the unsigned side, the sign moved to the activation
constexpr int kFloatTileRows = 6, kFloatTilePanels = 1;
#else
constexpr bool kSignedBytes = true;
constexpr int kFloatTileRows = 6, kFloatTilePanels = 1;
#endif

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda

#include "gemm-f32-inl.h"
#include "quantize-inl.h"
#if defined(PAGODA_ISA_AVX512) && __has_include("gemm-int8-avx512-inl.h")
#include "gemm-int8-avx512-inl.h"
#elif defined(PAGODA_ISA_AVX2) && __has_include("gemm-int8-avx2-inl.h")
#include "gemm-int8-avx2-inl.h"
#else
#include "gemm-int8-portable-inl.h"
#endif

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr size_t kSlabBytes = 1 << 20;  // activations of one row slab

template <Format F, int kRows>
PAGODA_NOINLINE void int8_tile_out(const GemmArgs& args, const PanelLayout& layout, int32_t row, int32_t panel, bool first) {
  const int blocks = num_blocks(args.weight->cols);
  const uint8_t* data = args.weight->data + (size_t)panel * args.weight->panel_bytes;
  constexpr int kGroups = (kRows + kGroupRows - 1) / kGroupRows;
  const Record* records[kGroups];
  PAGODA_UNROLL for (int g = 0; g < kGroups; ++g) records[g] = reinterpret_cast<const Record*>(args.q->data) + (size_t)(row / kGroupRows + g) * blocks;
  f32x16 acc[kRows];
  int8_tile<F, kRows>(data, layout, blocks, records, row % kGroupRows, first, acc);
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) write_lanes(args, row + m, panel, acc[m]);
}

// A tile never crosses the end of a group of four unless it starts on one.
template <Format F> static void int8_gemm(const GemmArgs& args) {
  const PanelLayout layout = panel_layout(F, args.weight->cols);
  const size_t row_bytes = (size_t)num_blocks(args.weight->cols) * (sizeof(Record) / kGroupRows);
  int32_t slab = (int32_t)(kSlabBytes / row_bytes) / kTallTile * kTallTile;
  if (slab < kTallTile) slab = kTallTile;
  for (int32_t begin = args.row_begin, end; begin < args.row_end; begin = end) {
    end = args.row_end - begin > slab ? (begin / kGroupRows) * kGroupRows + slab : args.row_end;
    for (int32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
      int32_t row = begin;
      while (row < end) {
        const bool first = row == begin;
        const int32_t in_group = kGroupRows - row % kGroupRows, left = end - row;
        if (in_group == kGroupRows && left >= kTallTile) {
          int8_tile_out<F, kTallTile>(args, layout, row, panel, first);
          row += kTallTile;
          continue;
        }
        const int32_t rows = left < in_group ? left : in_group;
        switch (rows) {
          case 1: int8_tile_out<F, 1>(args, layout, row, panel, first); break;
          case 2: int8_tile_out<F, 2>(args, layout, row, panel, first); break;
          case 3: int8_tile_out<F, 3>(args, layout, row, panel, first); break;
          default: int8_tile_out<F, 4>(args, layout, row, panel, first); break;
        }
        row += rows;
      }
    }
  }
}

template <Format F> PAGODA_INLINE void gemm_of(const GemmArgs& args) {
  if (args.q != nullptr) int8_gemm<F>(args);
  else dequantized_gemm<F>(args);
}

static void gemm(const GemmArgs* args) {
  switch (args->weight->format) {
    case Format::F32: float_gemm<FloatSource::F32>(*args); break;
    case Format::F16: float_gemm<FloatSource::F16>(*args); break;
    case Format::BF16: float_gemm<FloatSource::BF16>(*args); break;
    case Format::Q8_0: gemm_of<Format::Q8_0>(*args); break;
    case Format::Q4_0: gemm_of<Format::Q4_0>(*args); break;
    case Format::Q4_1: gemm_of<Format::Q4_1>(*args); break;
    case Format::Q5_0: gemm_of<Format::Q5_0>(*args); break;
    case Format::Q5_1: gemm_of<Format::Q5_1>(*args); break;
    case Format::Q2_K: gemm_of<Format::Q2_K>(*args); break;
    case Format::Q3_K: gemm_of<Format::Q3_K>(*args); break;
    case Format::Q4_K: gemm_of<Format::Q4_K>(*args); break;
    case Format::Q5_K: gemm_of<Format::Q5_K>(*args); break;
    case Format::Q6_K: gemm_of<Format::Q6_K>(*args); break;
    case Format::IQ4_NL: gemm_of<Format::IQ4_NL>(*args); break;
    case Format::IQ4_XS: gemm_of<Format::IQ4_XS>(*args); break;
    case Format::MXFP4: gemm_of<Format::MXFP4>(*args); break;
  }
}

static bool uses_int8(Format format) { return facts_of(format).quantized(); }
static size_t packed_panel_bytes(Format format, int32_t cols) { return panel_layout(format, cols).bytes; }
static void pack_panels_here(PackedWeight* weight, const uint8_t* const* source_rows, int32_t panel_begin, int32_t panel_end) {
  pack_panels(weight, source_rows, panel_begin, panel_end, kSignedBytes);
}
static void dequantize_row_here(const PackedWeight* weight, int32_t row, float* out) { dequantize_row(weight, row, out, kSignedBytes); }
// One dequantized panel.
static size_t gemm_scratch_floats(int32_t cols) { return (size_t)num_blocks(cols) * 32 * kPanelRows; }

static void fill_gemm(Kernels& table) {
  table.uses_int8 = uses_int8;
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
