#include "runtime/kv-prefetch.h"

#include <unistd.h>

#include <algorithm>

namespace pagoda {
namespace {

constexpr int64_t kLine = 64;
constexpr size_t kLeastBytes = size_t{256} << 10, kMostBytes = size_t{4} << 20;
constexpr int64_t kMostLinesPerBlock = 6;  // more of them come in bursts, and the tiles wait (docs/log.md)
constexpr int32_t kTileRows = 4;
constexpr int32_t kLeastTokens = 12;  // with fewer, products wait for their weights, and whoever comes first takes the memory from the other

size_t last_level_cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (bytes > 0) return static_cast<size_t>(bytes);
#endif
  return size_t{8} << 20;
}

}  // namespace

void KvPrefetch::reserve(const Plan& plan, const WeightStore& weights, const Kernels& kernels, int num_threads) {
  // Weights and activations need the rest of the cache.
  most_bytes_ = std::clamp(last_level_cache_bytes() / (4 * static_cast<size_t>(num_threads)), kLeastBytes, kMostBytes);
  runs_.reserve(most_bytes_ / plan.kv.layer_bytes() + 1);
  int64_t blocks = 0, attentions = 0;
  for (int32_t p = 0; p < plan.num_token_phases; p++) {
    for (int32_t i = plan.phases[p].first; i < plan.phases[p].last; i++) {
      const Op& op = plan.ops[i];
      if (op.kind == OpKind::Attention) attentions++;
      if (op.kind != OpKind::Linear) continue;
      const PackedWeight& weight = weights.matrix(op.weight).parts[0];
      blocks += static_cast<int64_t>(weight.num_panels) * ((weight.cols + 31) / 32) / kernels.panels_together(weight.format);
    }
  }
  tile_blocks_ = std::max<int64_t>(1, blocks / (std::max<int64_t>(1, attentions) * num_threads));
}

void KvPrefetch::fill(const Plan& plan, const AttentionItems& work, const StepInput& in, const uint8_t* kv, int32_t layer, int thread, int num_threads) {
  const KvSpec& spec = plan.kv;
  const int32_t group = spec.layer_group[layer], window = spec.groups[group].window, num_groups = static_cast<int32_t>(spec.groups.size());
  const uint8_t* const here = kv + spec.layer_index[layer] * spec.layer_bytes();
  const int64_t num_items = static_cast<int64_t>(work.items().size());
  clear();
  if (in.num_tokens < kLeastTokens) return;
  size_t bytes = 0;
  for (int64_t i = num_items * thread / num_threads; i < num_items * (thread + 1) / num_threads && bytes < most_bytes_; i++) {
    const AttentionItem& item = work.items()[i];
    if (!item.tile.begins_run) continue;  // the first tile reads the same
    int32_t begin = first_visible(item.tile, window), end = in.num_computed[item.tile.seq];
    if (item.segment >= 0) {
      begin = std::max(begin, item.segment * kAttentionSegment);
      end = std::min(end, (item.segment + 1) * kAttentionSegment);
    }
    const int32_t* table = in.block_tables.data() + in.block_table_start[item.tile.seq * num_groups + group];
    for (int32_t token = begin / spec.block_size * spec.block_size; token < end && bytes < most_bytes_; token += spec.block_size) {
      runs_.push_back({here + static_cast<size_t>(table[token / spec.block_size]) * spec.block_bytes(), static_cast<int64_t>(spec.layer_bytes()) / kLine});
      bytes += spec.layer_bytes();
    }
  }
  // Twice as fast as would do: the last products before the attention are short.
  const int64_t tile_blocks = tile_blocks_ * ((in.num_tokens + kTileRows - 1) / kTileRows), lines = static_cast<int64_t>(bytes) / kLine;
  upcoming_ = {runs_.data(), runs_.data() + runs_.size(), static_cast<int32_t>(std::min((2 * lines + tile_blocks - 1) / tile_blocks, kMostLinesPerBlock))};
}

}  // namespace pagoda
