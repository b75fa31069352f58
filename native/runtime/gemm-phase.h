// A list of matrix products that one phase does together: cut into items of a few panels and some rows, which the threads claim.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "ops/kernels.h"

namespace pagoda {

struct GemmJob {
  GemmArgs args;  // row and panel ranges are those of the whole job
  int32_t panels_per_item, rows_per_item;
  int32_t num_row_items;
  int64_t first_item;  // items of the jobs before
};

class GemmPhase {
 public:
  void clear() {
    jobs_.clear();
    num_items_ = 0;
  }
  void reserve(size_t num_jobs) { jobs_.reserve(num_jobs); }
  void add(const GemmArgs& args, int num_threads);
  // Every thread calls it; returns when nothing is left to claim.
  void run(const Kernels& kernels, std::atomic<int64_t>& next, float* scratch) const;

 private:
  std::vector<GemmJob> jobs_;
  int64_t num_items_ = 0;
};

}  // namespace pagoda
