#include "runtime/gemm-phase.h"

#include <algorithm>
#include <numeric>

namespace pagoda {
namespace {

constexpr int32_t kRowsPerItem = 256;                // activations of an item stay in the second-level cache
constexpr size_t kMinItemBytes = size_t{48} << 10;   // weights of an item: enough to stream
constexpr size_t kMaxItemBytes = size_t{256} << 10;
constexpr int32_t kSmallTileFloats = 8192;           // results of few rows stay in the first-level cache
constexpr int32_t kItemsPerThread = 8;
constexpr int32_t kLeastRowsPerPart = 16;            // of items whose number would not be shared evenly

// Panels that the busiest thread gets when all are equally fast.
int32_t largest_share(int32_t num_panels, int32_t panels_per_item, int num_threads) {
  const int32_t items = (num_panels + panels_per_item - 1) / panels_per_item;
  return (items + num_threads - 1) / num_threads * panels_per_item;
}

// About kItemsPerThread items per thread; near that, what shares the panels most evenly.
int32_t choose_panels(int32_t num_panels, int32_t unit, int32_t smallest, int32_t largest, int num_threads) {
  const int32_t target = std::clamp(num_panels / (kItemsPerThread * num_threads), smallest, largest);
  int32_t best = 0, best_share = 0;
  for (int32_t panels = unit; panels <= std::max(2 * target, unit) && panels <= std::max(largest, unit); panels += unit) {
    if (panels < smallest && panels + unit <= largest && panels + unit <= num_panels) continue;
    const int32_t share = largest_share(num_panels, panels, num_threads);
    const bool nearer = std::abs(panels - target) < std::abs(best - target);
    if (best == 0 || share < best_share || (share == best_share && nearer)) best = panels, best_share = share;
  }
  return best;
}

}  // namespace

void GemmPhase::add(const GemmArgs& args, int num_threads, int32_t unit_panels) {
  GemmJob job;
  job.args = args;
  job.rows_per_item = kRowsPerItem;
  add_job(job, num_threads, unit_panels > 0 ? unit_panels : kernels_->panels_together(args.weight->format));
}

void GemmPhase::add_tiled(const GemmArgs& args, const GemmArgs* up, int num_threads, float* tile, int32_t unit_cols) {
  GemmJob job;
  job.args = args;
  job.up = up;
  job.tile = tile;
  job.rows_per_item = kTileRowsPerItem;
  add_job(job, num_threads, std::lcm(unit_cols / kPanelRows, kernels_->panels_together(args.weight->format)));
}

void GemmPhase::add_job(GemmJob job, int num_threads, int32_t unit) {
  const GemmArgs& args = job.args;
  const int32_t num_rows = args.row_end - args.row_begin;
  const int32_t num_panels = args.panel_end - args.panel_begin;
  if (num_rows < 1 || num_panels < 1) return;
  const int32_t smallest = num_rows <= 4 ? static_cast<int32_t>(std::clamp<size_t>(kMinItemBytes / args.weight->panel_bytes, 1, 64)) : 1;
  int32_t largest = static_cast<int32_t>(std::clamp<size_t>(kMaxItemBytes / args.weight->panel_bytes, 1, 256));
  if (job.tile != nullptr) largest = std::min(largest, std::max(kTileColsPerItem, kSmallTileFloats / num_rows) / kPanelRows);
  job.panels_per_item = choose_panels(num_panels, unit, std::min(smallest, largest), largest, num_threads);
  const int32_t panel_items = (num_panels + job.panels_per_item - 1) / job.panels_per_item;
  if (panel_items % num_threads != 0 && num_rows >= num_threads * kLeastRowsPerPart) {
    // So that each thread gets as much.
    const int32_t rows = (num_rows + num_threads - 1) / num_threads;
    job.rows_per_item = std::min(job.rows_per_item, (rows + kLeastRowsPerPart - 1) / kLeastRowsPerPart * kLeastRowsPerPart);
  }
  job.num_row_items = (num_rows + job.rows_per_item - 1) / job.rows_per_item;
  job.first_item = num_items_;
  num_items_ += static_cast<int64_t>(job.num_row_items) * panel_items;
  jobs_.push_back(job);
}

GemmArgs GemmPhase::run_item(const GemmJob& job, int64_t item, int64_t own_end, float* scratch, Upcoming* upcoming) const {
  const int64_t local = item - job.first_item;
  const int32_t row_item = static_cast<int32_t>(local % job.num_row_items);
  const int32_t panel_item = static_cast<int32_t>(local / job.num_row_items);
  GemmArgs args = job.args;
  args.row_begin = job.args.row_begin + row_item * job.rows_per_item;
  args.row_end = std::min(args.row_begin + job.rows_per_item, job.args.row_end);
  args.panel_begin = job.args.panel_begin + panel_item * job.panels_per_item;
  args.panel_end = std::min(args.panel_begin + job.panels_per_item, job.args.panel_end);
  args.panel_ahead = args.panel_end;
  if (item < own_end) {
    const int64_t own_panel_items = (own_end - job.first_item + job.num_row_items - 1) / job.num_row_items;
    args.panel_ahead = static_cast<int32_t>(std::min<int64_t>(job.args.panel_begin + own_panel_items * job.panels_per_item, job.args.panel_end));
  }
  args.scratch = scratch;
  args.upcoming = upcoming;
  if (job.tile == nullptr) {
    kernels_->gemm(&args);
    return args;
  }
  // Row 0 and column 0 of the whole product, were it all there.
  args.out_stride = static_cast<size_t>(args.panel_end - args.panel_begin) * kPanelRows;
  const ptrdiff_t before = static_cast<ptrdiff_t>(args.out_stride) * args.row_begin + static_cast<ptrdiff_t>(args.panel_begin) * kPanelRows;
  args.out = job.tile - before;
  kernels_->gemm(&args);
  if (job.up != nullptr) {
    GemmArgs up = args;
    up.weight = job.up->weight;
    up.bias = job.up->bias;
    up.out = job.tile + kGemmTileFloats / 2 - before;
    kernels_->gemm(&up);
  }
  return args;
}

}  // namespace pagoda
