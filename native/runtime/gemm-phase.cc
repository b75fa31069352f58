#include "runtime/gemm-phase.h"

#include <algorithm>

namespace pagoda {
namespace {
constexpr int32_t kRowsPerItem = 256;                // activations of an item stay in the second-level cache
constexpr size_t kMinItemBytes = size_t{48} << 10;   // weights of an item: enough to stream
constexpr size_t kMaxItemBytes = size_t{256} << 10;
}  // namespace

void GemmPhase::add(const GemmArgs& args, int num_threads) {
  const int32_t num_rows = args.row_end - args.row_begin;
  const int32_t num_panels = args.panel_end - args.panel_begin;
  if (num_rows < 1 || num_panels < 1) return;
  GemmJob job{args, 1, kRowsPerItem, 1, num_items_};
  // About eight items per thread, whole groups of four panels, within the bounds above.
  const int32_t smallest = static_cast<int32_t>(std::clamp<size_t>(kMinItemBytes / args.weight->panel_bytes, 1, 64));
  const int32_t largest = static_cast<int32_t>(std::clamp<size_t>(kMaxItemBytes / args.weight->panel_bytes, 1, 256));
  int32_t panels = num_panels / (8 * num_threads);
  if (num_rows <= 4) panels = std::max(panels, smallest);
  panels = std::min(panels, largest);
  job.panels_per_item = panels >= 4 ? panels / 4 * 4 : std::max(panels, std::min(4, (num_panels + num_threads - 1) / num_threads));
  job.num_row_items = (num_rows + kRowsPerItem - 1) / kRowsPerItem;
  num_items_ += static_cast<int64_t>(job.num_row_items) * ((num_panels + job.panels_per_item - 1) / job.panels_per_item);
  jobs_.push_back(job);
}

void GemmPhase::run(const Kernels& kernels, std::atomic<int64_t>& next, float* scratch) const {
  size_t j = 0;
  for (int64_t item = next.fetch_add(1, std::memory_order_relaxed); item < num_items_; item = next.fetch_add(1, std::memory_order_relaxed)) {
    while (j + 1 < jobs_.size() && jobs_[j + 1].first_item <= item) j++;
    const GemmJob& job = jobs_[j];
    const int64_t local = item - job.first_item;
    const int32_t row_item = static_cast<int32_t>(local % job.num_row_items);
    const int32_t panel_item = static_cast<int32_t>(local / job.num_row_items);
    GemmArgs args = job.args;
    args.row_begin = job.args.row_begin + row_item * job.rows_per_item;
    args.row_end = std::min(args.row_begin + job.rows_per_item, job.args.row_end);
    args.panel_begin = job.args.panel_begin + panel_item * job.panels_per_item;
    args.panel_end = std::min(args.panel_begin + job.panels_per_item, job.args.panel_end);
    args.scratch = scratch;
    kernels.gemm(&args);
  }
}

}  // namespace pagoda
