// A list of matrix products that one phase does together: cut into items of a few panels and some rows, which the threads claim.
#pragma once
#include <cstdint>
#include <vector>

#include "ops/kernels.h"
#include "runtime/claims.h"

namespace pagoda {

// Rows and columns of an item whose results stay with its thread; with few rows it may have more columns.
constexpr int32_t kTileRowsPerItem = 256, kTileColsPerItem = 128;
constexpr size_t kGemmTileFloats = 2 * static_cast<size_t>(kTileRowsPerItem) * kTileColsPerItem;
static_assert(kTileRowsPerItem * kChoiceChunk <= kGemmTileFloats, "a chunk of logits fits into a tile");

struct GemmJob {
  GemmArgs args;  // row and panel ranges are those of the whole job
  const GemmArgs* up = nullptr;  // a second product of the same shape and activations that an item does, too
  float* tile = nullptr;         // where an item's results go, [rows of an item][columns of an item], `up`'s after them; null: to `out`
  int32_t panels_per_item, rows_per_item;
  int32_t num_row_items;
  int64_t first_item;  // items of the jobs before
};

class GemmPhase {
 public:
  explicit GemmPhase(const Kernels* kernels) : kernels_(kernels) {}
  void clear() {
    jobs_.clear();
    num_items_ = 0;
  }
  void reserve(size_t num_jobs) { jobs_.reserve(num_jobs); }
  // Items are whole multiples of `unit_panels` panels; 0: of what is fastest.
  void add(const GemmArgs& args, int num_threads, int32_t unit_panels = 0);
  // Items whose results stay with the thread that goes on with them: `tile` has kGemmTileFloats. Items are whole multiples of
  // `unit_cols` columns: 32 of what goes on to a quantized form.
  void add_tiled(const GemmArgs& args, const GemmArgs* up, int num_threads, float* tile, int32_t unit_cols = 2 * kPanelRows);
  // Every thread calls it; returns when nothing is left to claim. `upcoming` is the thread's, or null. `after` gets the index of the job and the arguments of the item.
  template <typename F>
  void run(const Claims& claims, float* scratch, Upcoming* upcoming, F after) const {
    size_t j = 0;
    for (int64_t item = claims.next(num_items_); item >= 0; item = claims.next(num_items_)) {
      if (item < jobs_[j].first_item) j = 0;
      while (j + 1 < jobs_.size() && jobs_[j + 1].first_item <= item) j++;
      after(j, run_item(jobs_[j], item, claims.own_end(num_items_), scratch, upcoming));
    }
  }
  void run(const Claims& claims, float* scratch, Upcoming* upcoming) const {
    run(claims, scratch, upcoming, [](size_t, const GemmArgs&) {});
  }

 private:
  void add_job(GemmJob job, int num_threads, int32_t unit);
  // The thread goes on with the items up to `own_end`: their weights may be prefetched.
  GemmArgs run_item(const GemmJob& job, int64_t item, int64_t own_end, float* scratch, Upcoming* upcoming) const;

  const Kernels* kernels_;
  std::vector<GemmJob> jobs_;
  int64_t num_items_ = 0;
};

}  // namespace pagoda
