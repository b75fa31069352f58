// The attention work of one step, the same for all layers of a KV group: query tiles of each sequence, cut further into segments
// only when there is too little to keep the threads busy (the results are the same either way).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention.h"
#include "runtime/plan.h"
#include "runtime/step.h"

namespace pagoda {

struct AttentionItem {
  int32_t seq, first_token, num_tokens;  // first_token: row of the step
  int32_t position;                      // of first_token
  int32_t segment = -1;                  // -1 = all segments
  int32_t num_segments = 1;              // of the split it belongs to
  int32_t split = -1;                    // index of the split
  int64_t partial_offset = 0;            // floats, of the split's first segment, for KV head 0
  int64_t cost = 0;
};

class AttentionItems {
 public:
  // `group` = query heads per KV head.
  void build(const StepInput& in, const Plan& plan, int32_t window, int32_t group, int num_threads);

  const std::vector<AttentionItem>& items() const { return items_; }
  int32_t num_splits() const { return num_splits_; }
  int64_t partial_floats() const { return partial_floats_; }

 private:
  std::vector<AttentionItem> items_, whole_;
  int32_t num_splits_ = 0;
  int64_t partial_floats_ = 0;
};

}  // namespace pagoda
