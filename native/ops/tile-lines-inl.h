// What tiles of a product prefetch while they compute: cache lines in steps of a block of 32 columns.
#pragma once
#include <algorithm>

#include "kernels.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// So many lines for each block that a tile works on.
struct TileLines {
  const uint8_t* data;
  int per_block;
};
PAGODA_INLINE void prefetch_lines(TileLines& lines, bool to_second_level) {
  for (int i = 0; i < lines.per_block; ++i, lines.data += 64) prefetch(lines.data, to_second_level);
}
PAGODA_INLINE void prefetch_lines_to_second_level(TileLines& lines) {
  for (int i = 0; i < lines.per_block; ++i, lines.data += 64) prefetch_to_second_level(lines.data);
}

// Lines that are spread evenly over the blocks of some tiles.
struct SpreadLines {
  const uint8_t *next, *end;
  int per_block;
};
// `bytes` from `data` on, but nothing at or after `end`.
static SpreadLines spread_lines(const uint8_t* data, size_t bytes, const uint8_t* end, int tiles, int blocks) {
  const uint32_t slots = (uint32_t)tiles * (uint32_t)blocks;
  return {data, std::min(data + bytes, end), (int)(((uint32_t)(bytes / 64) + slots - 1) / slots)};
}
// The part of the next tile.
static TileLines take_lines(SpreadLines& spread, int blocks) {
  const TileLines lines = {spread.next, spread.next < spread.end ? spread.per_block : 0};
  spread.next += (size_t)lines.per_block * blocks * 64;
  return lines;
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

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
