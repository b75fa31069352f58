// Keys and values of a layer come into the cache while the products before its attention are computed: those wait for arithmetic,
// attention waits for memory.
#pragma once
#include <vector>

#include "ops/kernels.h"
#include "runtime/attention-items.h"
#include "runtime/plan.h"
#include "runtime/step.h"

namespace pagoda {

// One thread's.
class alignas(64) KvPrefetch {
 public:
  void reserve(const Plan& plan, const WeightStore& weights, const Kernels& kernels, int num_threads);
  void clear() {
    runs_.clear();
    upcoming_ = {};
  }
  // What the thread's own items of the attention of `layer` read of tokens that were computed before this step, at most its share of the
  // last-level cache.
  void fill(const Plan& plan, const AttentionItems& work, const StepInput& in, const uint8_t* kv, int32_t layer, int thread, int num_threads);
  Upcoming* upcoming() { return &upcoming_; }

 private:
  std::vector<Upcoming::Run> runs_;
  Upcoming upcoming_ = {};
  size_t most_bytes_ = 0;
  int64_t tile_blocks_ = 1;  // blocks of 32 columns that the thread's tiles of four rows go through from one attention to the next
};

}  // namespace pagoda
