// What an integer tile gets: some rows of activations against one panel of weights, all columns.
#pragma once
#include "kernels.h"
#include "quantize-inl.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

struct TileJob {
  const GemmArgs* args;
  const uint8_t *codes, *scales, *supers;  // of the panel
  const Record* records;                   // of the group that holds the rows, first block
  int blocks;
  int row_in_group, rows;
  int32_t row, panel;
  const uint8_t* ahead;  // weights that come after these panels' ones: a tile prefetches `lines_ahead` cache lines of them per block
  int lines_ahead;
};
using TileFn = void (*)(const TileJob& job);

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
