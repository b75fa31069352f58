#include "runtime/attention-items.h"

#include <algorithm>

namespace pagoda {
namespace {

// For `num_keys` keys, of a tile of `num_rows` rows of queries.
int64_t cost_of(int64_t num_keys, int64_t num_rows) { return (num_keys + 16) * (num_rows + 6); }

// How many segments, of at most `most`, are the same blocks in both tables.
int32_t count_equal_segments(const int32_t* a, const int32_t* b, int32_t blocks_per_segment, int32_t most) {
  int32_t segments = 0;
  while (segments < most && std::equal(a + segments * blocks_per_segment, a + (segments + 1) * blocks_per_segment, b + segments * blocks_per_segment)) segments++;
  return segments;
}

}  // namespace

void AttentionItems::build(const std::vector<QueryRun>& runs, const StepInput& in, const Plan& plan, int32_t kv_group, int32_t group, int num_threads) {
  tiles_.clear();
  items_.clear();
  splits_.clear();
  members_.clear();
  partial_floats_ = 0;
  const int32_t window = plan.kv.groups[kv_group].window, kv_heads = plan.kv.num_kv_heads;
  split_stride_ = static_cast<int64_t>(attention_partial_floats(plan.kv.head_dim)) * kv_heads;
  find_shared_segments(runs, in, plan, kv_group);
  const int32_t tokens_per_tile = std::max(1, kAttentionRows / group);
  for (size_t r = 0; r < runs.size(); r++) {
    const QueryRun& run = runs[r];
    for (int32_t t = 0; t < run.num_tokens; t += tokens_per_tile) {
      tiles_.push_back({static_cast<int32_t>(r), run.seq, run.first_row + t, std::min(tokens_per_tile, run.num_tokens - t), run.position + t, t == 0});
    }
  }
  const bool split_all = static_cast<int64_t>(tiles_.size()) * kv_heads < 4 * static_cast<int64_t>(num_threads) && num_threads > 1;
  for (const AttentionTile& tile : tiles_) {
    const int32_t last = tile.position + tile.num_tokens - 1, first = first_visible(tile, window);
    const int32_t first_segment = first / kAttentionSegment, num_segments = last / kAttentionSegment - first_segment + 1;
    const int32_t num_shared = num_shared_[tile.run], num_rows = tile.num_tokens * group;
    AttentionItem item;
    item.tile = tile;
    if (num_shared == 0 && (!split_all || num_segments < 2)) {
      item.cost = cost_of(last - first, num_rows);
      items_.push_back(item);
      continue;
    }
    item.split = num_splits();
    item.cost = cost_of((last - first) / num_segments, num_rows);
    for (int32_t i = num_shared; i < num_segments; i++) {
      item.segment = first_segment + i;
      items_.push_back(item);
    }
    split_of_[tile.run] = item.split;
    add_split(tile, first_segment, num_segments, group);
  }
  add_shared_items(group);
  std::sort(items_.begin(), items_.end(), [](const AttentionItem& a, const AttentionItem& b) { return a.cost > b.cost; });
}

void AttentionItems::add_split(const AttentionTile& tile, int32_t first_segment, int32_t num_segments, int32_t group) {
  splits_.push_back({tile, first_segment, num_segments, partial_floats_});
  partial_floats_ += split_stride_ * tile.num_tokens * group * num_segments;
}

// Single tokens whose sequences begin with the same blocks, whole segments of them: at the same positions, so that the keys are the same.
void AttentionItems::find_shared_segments(const std::vector<QueryRun>& runs, const StepInput& in, const Plan& plan, int32_t kv_group) {
  num_shared_.assign(runs.size(), 0);
  split_of_.assign(runs.size(), -1);
  starters_.clear();
  sharing_.clear();
  if (plan.kv.groups[kv_group].window > 0) return;  // what is visible begins elsewhere for each
  const int32_t num_groups = static_cast<int32_t>(plan.kv.groups.size()), blocks_per_segment = kAttentionSegment / plan.kv.block_size;
  const auto table = [&](int32_t r) { return in.block_tables.data() + in.block_table_start[runs[r].seq * num_groups + kv_group]; };
  const auto whole_segments = [&](int32_t r) { return runs[r].position / kAttentionSegment; };
  for (int32_t r = 0; r < static_cast<int32_t>(runs.size()); r++) {
    if (runs[r].num_tokens == 1 && whole_segments(r) > 0) starters_.push_back({table(r)[blocks_per_segment - 1], r});
  }
  std::sort(starters_.begin(), starters_.end(), [](const Starter& a, const Starter& b) { return a.block != b.block ? a.block < b.block : a.run < b.run; });
  for (size_t begin = 0, end; begin < starters_.size(); begin = end) {
    const int32_t first = starters_[begin].run;
    for (end = begin + 1; end < starters_.size() && starters_[end].block == starters_[begin].block; end++) {
      const int32_t r = starters_[end].run;
      num_shared_[r] = count_equal_segments(table(first), table(r), blocks_per_segment, std::min(whole_segments(first), whole_segments(r)));
      num_shared_[first] = std::max(num_shared_[first], num_shared_[r]);
    }
    if (num_shared_[first] > 0) sharing_.push_back({begin, end});
  }
}

void AttentionItems::add_shared_items(int32_t group) {
  const int32_t most_members = std::max(1, kAttentionRows / group);
  for (const Range& range : sharing_) {
    for (int32_t segment = 0; segment < num_shared_[starters_[range.begin].run]; segment++) {
      AttentionItem item;
      for (size_t i = range.begin; i < range.end; i++) {
        const int32_t r = starters_[i].run;
        if (num_shared_[r] <= segment) continue;
        if (item.num_members == 0) {
          item.tile = splits_[split_of_[r]].tile;
          item.segment = segment;
          item.first_member = static_cast<int32_t>(members_.size());
        }
        members_.push_back(split_of_[r]);
        item.num_members++;
        item.cost = cost_of(kAttentionSegment, item.num_members * group);
        if (item.num_members < most_members) continue;
        items_.push_back(item);
        item = {};
      }
      if (item.num_members > 0) items_.push_back(item);
    }
  }
}

}  // namespace pagoda
