#include "runtime/attention-items.h"

#include <algorithm>

namespace pagoda {

void AttentionItems::build(const StepInput& in, const Plan& plan, int32_t window, int32_t group, int num_threads) {
  whole_.clear();
  items_.clear();
  num_splits_ = 0;
  partial_floats_ = 0;
  const int32_t tokens_per_item = std::max(1, kAttentionRows / group);
  for (int32_t s = 0; s < in.num_seqs; s++) {
    const int32_t end = in.token_start[s + 1];
    for (int32_t token = in.token_start[s]; token < end; token += tokens_per_item) {
      AttentionItem item;
      item.seq = s;
      item.first_token = token;
      item.num_tokens = std::min(tokens_per_item, end - token);
      item.position = in.num_computed[s] + (token - in.token_start[s]);
      const int32_t last = item.position + item.num_tokens - 1;
      const int32_t first_visible = window > 0 ? std::max(0, item.position - window + 1) : 0;
      item.cost = static_cast<int64_t>(last - first_visible + 16) * (item.num_tokens * group + 6);
      whole_.push_back(item);
    }
  }
  const int32_t kv_heads = plan.kv.num_kv_heads;
  const bool split = static_cast<int64_t>(whole_.size()) * kv_heads < 4 * static_cast<int64_t>(num_threads) && num_threads > 1;
  const int64_t stride = static_cast<int64_t>(attention_partial_floats(plan.kv.head_dim));
  for (const AttentionItem& item : whole_) {
    const int32_t last = item.position + item.num_tokens - 1;
    const int32_t first_visible = window > 0 ? std::max(0, item.position - window + 1) : 0;
    const int32_t first_segment = first_visible / kAttentionSegment;
    const int32_t num_segments = last / kAttentionSegment - first_segment + 1;
    if (!split || num_segments < 2) {
      items_.push_back(item);
      continue;
    }
    for (int32_t i = 0; i < num_segments; i++) {
      AttentionItem part = item;
      part.segment = first_segment + i;
      part.num_segments = num_segments;
      part.split = num_splits_;
      part.partial_offset = partial_floats_;
      part.cost = item.cost / num_segments;
      items_.push_back(part);
    }
    num_splits_++;
    partial_floats_ += stride * item.num_tokens * group * num_segments * kv_heads;
  }
  std::sort(items_.begin(), items_.end(), [](const AttentionItem& a, const AttentionItem& b) { return a.cost > b.cost; });
}

}  // namespace pagoda
