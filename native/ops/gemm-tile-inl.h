// What an integer tile gets: some rows of activations against some panels of weights, all columns.
#pragma once
#include "kernels.h"
#include "quantize-inl.h"
#include "simd.h"
#include "tile-lines-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

struct TileJob {
  const GemmArgs* args;
  const uint8_t *codes, *scales, *supers;  // of the first panel
  const Record* records;                   // of the group that holds the rows, first block
  int blocks;
  int row_in_group, rows;
  int32_t row, panel;
  TileLines ahead;     // weights that come after these panels' ones
  TileLines upcoming;  // for what comes after the products
};
using TileFn = void (*)(const TileJob& job);

static void point_at_panel(TileJob& job, const PackedWeight& weight, const PanelLayout& layout, int32_t panel) {
  job.panel = panel;
  job.codes = weight.data + (size_t)panel * weight.panel_bytes;
  job.scales = job.codes + layout.scales;
  job.supers = job.codes + layout.supers;
}

// The heights an instruction set offers, tallest first. A tile stays inside a group of rows.
struct TileHeights {
  int heights[8];
  int count;
};
// Formats that few files are made of have fewer heights, to keep the build short; their rows are then done one by one.
static inline bool is_rare(Format format) {
  return format == Format::Q2_K || format == Format::Q3_K || format == Format::IQ4_NL || format == Format::IQ4_XS || format == Format::MXFP4;
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
