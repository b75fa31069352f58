// What an integer tile gets: some rows of activations against one panel of weights, all columns.
#pragma once
#include <algorithm>

#include "kernels.h"
#include "quantize-inl.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// So many lines for each block of 32 columns that a tile works on.
struct TileLines {
  const uint8_t* data;
  int per_block;
};
PAGODA_INLINE void prefetch_for_block(TileLines& lines) {
  for (int i = 0; i < lines.per_block; ++i, lines.data += 64) prefetch_to_second_level(lines.data);
}

// A tile's part of what is upcoming. The end of a run, less than a line per block, comes at once.
static TileLines take_upcoming(Upcoming* upcoming, int blocks) {
  if (upcoming == nullptr || upcoming->next == upcoming->end) return {nullptr, 0};
  Upcoming::Run& run = *upcoming->next;
  const int per_block = (int)std::min<int64_t>(run.lines / blocks, upcoming->lines_per_block);
  const TileLines lines = {run.data, per_block};
  run.data += (size_t)per_block * blocks * 64;
  run.lines -= (int64_t)per_block * blocks;
  if (run.lines < blocks) {
    for (; run.lines > 0; --run.lines, run.data += 64) prefetch_to_second_level(run.data);
    ++upcoming->next;
  }
  return lines;
}

struct TileJob {
  const GemmArgs* args;
  const uint8_t *codes, *scales, *supers;  // of the panel
  const Record* records;                   // of the group that holds the rows, first block
  int blocks;
  int row_in_group, rows;
  int32_t row, panel;
  const uint8_t* ahead;  // weights that come after these panels' ones: a tile prefetches `lines_ahead` cache lines of them per block
  int lines_ahead;
  TileLines upcoming;
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
