// The attention work of one step, the same for all layers of a KV group: query tiles of each run of tokens, cut further into segments
// when there is too little to keep the threads busy, or when sequences share the blocks of a segment: then these are read once for
// all of them. The results are the same either way.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention.h"
#include "runtime/plan.h"
#include "runtime/step.h"

namespace pagoda {

// Neighbouring tokens of a sequence whose queries are there.
struct QueryRun {
  int32_t seq, first_row, num_tokens;  // first_row: of the queries
  int32_t position;                    // of the first token
};

// Neighbouring tokens of a run.
struct AttentionTile {
  int32_t run, seq, first_row, num_tokens;
  int32_t position;  // of the first token
  bool begins_run;
};

// Of the keys that the first token sees.
inline int32_t first_visible(const AttentionTile& tile, int32_t window) { return window > 0 ? std::max(0, tile.position - window + 1) : 0; }

// A tile whose segments are done apart; whoever does the last merges them, in order.
struct AttentionSplit {
  AttentionTile tile;
  int32_t first_segment, num_segments;
  int64_t partial_offset;  // floats, of the first segment, for KV head 0
};

struct AttentionItem {
  AttentionTile tile;
  int32_t segment = -1;       // -1 = all segments
  int32_t split = -1;         // index of the tile's split, where there is one segment to do
  int32_t first_member = -1;  // of the splits that share the segment's blocks, the tile's first; -1 = it is alone
  int32_t num_members = 0;
  int64_t cost = 0;
};

class AttentionItems {
 public:
  // `group` = query heads per KV head.
  void build(const std::vector<QueryRun>& runs, const StepInput& in, const Plan& plan, int32_t kv_group, int32_t group, int num_threads);

  const std::vector<AttentionItem>& items() const { return items_; }
  const AttentionSplit& split(int32_t index) const { return splits_[index]; }
  // Index of the split of member `index` of an item.
  int32_t member(const AttentionItem& item, int32_t index) const { return members_[item.first_member + index]; }
  int32_t num_splits() const { return static_cast<int32_t>(splits_.size()); }
  int64_t partial_floats() const { return partial_floats_; }

 private:
  void find_shared_segments(const std::vector<QueryRun>& runs, const StepInput& in, const Plan& plan, int32_t kv_group);
  void add_split(const AttentionTile& tile, int32_t first_segment, int32_t num_segments, int32_t group);
  void add_shared_items(int32_t group);

  // A run of one token after a whole first segment, by the last block of that.
  struct Starter {
    int32_t block, run;
  };
  struct Range {
    size_t begin, end;
  };

  std::vector<AttentionTile> tiles_;
  std::vector<AttentionItem> items_;
  std::vector<AttentionSplit> splits_;
  std::vector<int32_t> members_;
  std::vector<Starter> starters_;
  std::vector<Range> sharing_;       // runs of starters_ that share blocks with the first of their run
  std::vector<int32_t> num_shared_;  // [runs] segments that are shared, the first ones
  std::vector<int32_t> split_of_;    // [runs] of a run that shares
  int64_t partial_floats_ = 0;
  int64_t split_stride_ = 0;       // floats of one row of one segment, for all KV heads
};

}  // namespace pagoda
