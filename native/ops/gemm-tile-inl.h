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
  bool ahead_to_second_level;
  TileLines upcoming;  // for what comes after the products
  SpreadLines next;    // what `ahead` is taken from
  int tiles;           // one below the other
};
using TileFn = void (*)(TileJob& job);

// All tiles of a job in one function: the CPU begins with the next one while the last one ends.
template <void (*kTile)(const TileJob&)> PAGODA_NOINLINE void run_tiles(TileJob& job) {
  for (; job.tiles > 0; --job.tiles, job.row += job.rows) {
    job.row_in_group = job.row % kGroupRows;
    job.records = reinterpret_cast<const Record*>(job.args->q->data) + (size_t)(job.row / kGroupRows) * job.blocks;
    job.ahead = take_lines(job.next, job.blocks);
    job.upcoming = take_upcoming(job.args->upcoming, job.blocks);
    kTile(job);
  }
}

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
