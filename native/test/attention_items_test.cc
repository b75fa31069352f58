// The attention work of random steps: every segment of every query token is done exactly once, tokens share an item only where their
// blocks are the same, and partial results do not overlap. What is prefetched for it is what it reads.
#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "runtime/attention-items.h"
#include "runtime/cpu-features.h"
#include "runtime/kv-prefetch.h"

using namespace pagoda;

namespace {

int num_failures = 0;
void expect(bool ok, const char* what) {
  if (ok) return;
  std::printf("FAILED %s\n", what);
  num_failures++;
}

struct Random {
  std::mt19937 engine;
  int32_t below(int32_t n) { return static_cast<int32_t>(engine() % static_cast<uint32_t>(n)); }
};

// Sequences of which some begin with the blocks of the one before.
StepInput random_step(Random& random, int32_t block_size, int32_t num_groups) {
  StepInput in;
  in.num_seqs = 1 + random.below(12);
  in.token_start = {0};
  in.block_table_start = {0};
  int32_t next_block = 1;
  std::vector<std::vector<int32_t>> before(num_groups);
  for (int32_t s = 0; s < in.num_seqs; s++) {
    const int32_t count = random.below(3) == 0 ? 1 + random.below(150) : 1;
    in.num_computed.push_back(random.below(4) == 0 ? random.below(40) : random.below(2000));
    in.token_start.push_back(in.token_start[s] + count);
    const int32_t num_blocks = (in.num_computed[s] + count + block_size - 1) / block_size;
    const int32_t num_shared = random.below(3) == 0 ? 0 : random.below(num_blocks + 1);
    for (std::vector<int32_t>& table : before) {
      table.resize(std::min<size_t>(table.size(), static_cast<size_t>(num_shared)));
      while (static_cast<int32_t>(table.size()) < num_blocks) table.push_back(next_block++);
      in.block_tables.insert(in.block_tables.end(), table.begin(), table.end());
      in.block_table_start.push_back(static_cast<int32_t>(in.block_tables.size()));
    }
  }
  return in;
}

// All tokens of a step.
std::vector<QueryRun> whole_runs(const StepInput& in) {
  std::vector<QueryRun> runs;
  for (int32_t s = 0; s < in.num_seqs; s++) runs.push_back({s, in.token_start[s], in.token_start[s + 1] - in.token_start[s], in.num_computed[s]});
  return runs;
}

// Some neighbouring tokens of some sequences, sometimes two runs of one.
std::vector<QueryRun> some_runs(Random& random, const StepInput& in) {
  std::vector<QueryRun> runs;
  int32_t row = 0;
  for (const QueryRun& all : whole_runs(in)) {
    for (int32_t t = random.below(2) * random.below(all.num_tokens + 1); t < all.num_tokens; t += 1 + random.below(all.num_tokens)) {
      const int32_t count = 1 + random.below(all.num_tokens - t);
      runs.push_back({all.seq, row, count, all.position + t});
      row += count;
      t += count;
    }
  }
  return runs;
}

void check(const std::vector<QueryRun>& runs, const StepInput& in, const Plan& plan, const AttentionItems& work, int32_t kv_group, int32_t group) {
  const int32_t num_groups = static_cast<int32_t>(plan.kv.groups.size()), window = plan.kv.groups[kv_group].window;
  const auto block = [&](int32_t s, int32_t index) { return in.block_tables[in.block_table_start[s * num_groups + kv_group] + index]; };
  std::map<std::pair<int32_t, int32_t>, int> done;  // (row, segment)
  const auto count = [&](const AttentionTile& tile, int32_t first, int32_t last) {
    for (int32_t t = 0; t < tile.num_tokens; t++) {
      for (int32_t segment = first; segment < last; segment++) done[{tile.first_row + t, segment}]++;
    }
  };
  const auto segments_of = [&](const AttentionTile& tile) {
    const int32_t first = window > 0 ? std::max(0, tile.position - window + 1) : 0;
    return std::make_pair(first / kAttentionSegment, (tile.position + tile.num_tokens - 1) / kAttentionSegment + 1);
  };
  for (const AttentionItem& item : work.items()) {
    if (item.num_members == 0) {
      const auto [first, last] = segments_of(item.tile);
      if (item.split < 0) count(item.tile, first, last);
      else count(item.tile, item.segment, item.segment + 1);
      continue;
    }
    expect(item.num_members * group <= std::max(kAttentionRows, group), "an item has at most so many rows");
    for (int32_t i = 0; i < item.num_members; i++) {
      const AttentionTile& tile = work.split(work.member(item, i)).tile;
      count(tile, item.segment, item.segment + 1);
      expect(tile.num_tokens == 1 && tile.position >= (item.segment + 1) * kAttentionSegment, "members see the whole segment");
      for (int32_t token = item.segment * kAttentionSegment; token < (item.segment + 1) * kAttentionSegment; token += plan.kv.block_size) {
        expect(block(tile.seq, token / plan.kv.block_size) == block(item.tile.seq, token / plan.kv.block_size), "members have the same blocks");
      }
    }
  }
  size_t wanted = 0;
  for (const QueryRun& run : runs) {
    const int32_t tokens_per_tile = std::max(1, kAttentionRows / group);
    for (int32_t t = 0; t < run.num_tokens; t++) {
      const int32_t tile_start = t / tokens_per_tile * tokens_per_tile;
      const int32_t length = std::min(tokens_per_tile, run.num_tokens - tile_start);
      const auto [first, last] = segments_of({0, run.seq, run.first_row + tile_start, length, run.position + tile_start, tile_start == 0});
      for (int32_t segment = first; segment < last; segment++, wanted++) expect(done[{run.first_row + t, segment}] == 1, "each segment of each token is done once");
    }
  }
  expect(done.size() == wanted, "nothing else is done");
  int64_t end = 0;
  for (int32_t i = 0; i < work.num_splits(); i++) {
    const AttentionSplit& split = work.split(i);
    expect(split.partial_offset == end, "partial results follow each other");
    end += static_cast<int64_t>(attention_partial_floats(plan.kv.head_dim)) * split.tile.num_tokens * group * split.num_segments * plan.kv.num_kv_heads;
  }
  expect(end == work.partial_floats(), "partial results have room");
}

// -> whether all threads together had so little to prefetch that it was not cut.
bool check_prefetch(const StepInput& in, const Plan& plan, const AttentionItems& work, int32_t kv_group, int num_threads) {
  const KvSpec& kv = plan.kv;
  const int32_t num_groups = static_cast<int32_t>(kv.groups.size()), window = kv.groups[kv_group].window;
  std::set<size_t> wanted, got;  // offsets in the pool
  for (int32_t s = 0; s < in.num_seqs; s++) {
    for (int32_t token = window > 0 ? std::max(0, in.num_computed[s] - window + 1) : 0; token < in.num_computed[s]; token++) {
      const int32_t block = in.block_tables[in.block_table_start[s * num_groups + kv_group] + token / kv.block_size];
      wanted.insert(block * kv.block_bytes() + kv.layer_index[kv_group] * kv.layer_bytes());
    }
  }
  const uint8_t* const pool = reinterpret_cast<const uint8_t*>(uintptr_t{1} << 40);
  bool is_whole = true;
  for (int thread = 0; thread < num_threads; thread++) {
    KvPrefetch prefetch;
    prefetch.reserve(plan, WeightStore(nullptr, nullptr), *choose_kernels("portable"), num_threads);
    prefetch.fill(plan, work, in, pool, kv_group, thread, num_threads);
    const Upcoming& upcoming = *prefetch.upcoming();
    size_t bytes = 0;
    for (const Upcoming::Run* run = upcoming.next; run < upcoming.end; run++) {
      expect(run->lines * 64 == static_cast<int64_t>(kv.layer_bytes()), "a run is the layer's part of a block");
      got.insert(static_cast<size_t>(run->data - pool));
      bytes += kv.layer_bytes();
    }
    expect(bytes < (size_t{4} << 20) + kv.layer_bytes(), "a thread prefetches a few megabytes at most");
    expect(bytes == 0 || upcoming.lines_per_block > 0, "what is prefetched gets lines");
    is_whole = is_whole && bytes < size_t{256} << 10;
  }
  if (in.num_tokens < 12) {
    expect(got.empty(), "a step of few tokens prefetches nothing");
    return false;
  }
  for (const size_t offset : got) expect(wanted.count(offset) == 1, "only keys that the step reads are prefetched");
  if (is_whole) expect(got == wanted, "all of them are prefetched");
  return is_whole;
}

}  // namespace

int main() {
  Random random{std::mt19937(5)};
  int64_t num_shared = 0, num_whole = 0;
  for (int run = 0; run < 2000; run++) {
    Plan plan;
    plan.kv.block_size = 8 << random.below(5);
    plan.kv.num_kv_heads = 1 + random.below(3);
    plan.kv.head_dim = 64;
    plan.kv.groups.resize(2);
    plan.kv.groups[1].window = 1 + random.below(900);
    plan.kv.layers_per_group = 3;
    plan.kv.layer_group = {0, 1};
    plan.kv.layer_index = {2, 1};
    StepInput in = random_step(random, plan.kv.block_size, 2);
    in.num_tokens = in.token_start[in.num_seqs];
    const int32_t group = 1 + random.below(9);
    AttentionItems work;
    for (int32_t kv_group = 0; kv_group < 2; kv_group++) {
      const int num_threads = 1 + random.below(8);
      for (const bool is_whole : {false, true}) {
        const std::vector<QueryRun> runs = is_whole ? whole_runs(in) : some_runs(random, in);
        work.build(runs, in, plan, kv_group, group, num_threads);
        check(runs, in, plan, work, kv_group, group);
        if (is_whole) num_whole += check_prefetch(in, plan, work, kv_group, num_threads);
        for (const AttentionItem& item : work.items()) num_shared += item.num_members > 1;
      }
    }
    if (num_failures > 0) break;
  }
  expect(num_shared > 300, "blocks are shared in many steps");
  expect(num_whole > 300, "everything is prefetched in many steps");
  std::printf(num_failures == 0 ? "attention items: all passed (%lld shared)\n" : "attention items: failed (%lld shared)\n", static_cast<long long>(num_shared));
  return num_failures == 0 ? 0 : 1;
}
