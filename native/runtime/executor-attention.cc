// The attention phase: claimed items, each a tile of queries over one KV head.
#include "runtime/executor.h"

namespace pagoda {

void Executor::attention_phase(Walker& walker, const Phase& phase, const Step& step) {
  const Op& op = plan_.ops[phase.first];
  const Claims claims = begin_phase(walker);
  const AttentionItems& work = attention_items(op);
  const int32_t kv_heads = plan_.kv.num_kv_heads;
  const int64_t total = static_cast<int64_t>(work.items().size()) * kv_heads;
  const auto args_of = [&](int64_t i) { return item_args(op, step, work.items()[i / kv_heads], static_cast<int32_t>(i % kv_heads), walker.scratch); };
  // This item and the next one of the thread's own run, which is prefetched while this one ends.
  AttentionArgs both[2];
  int64_t prepared = -1;
  int current = 0;
  for (int64_t i = claims.next(total); i >= 0; i = claims.next(total), current = 1 - current) {
    AttentionArgs& args = both[current];
    if (i != prepared) args = args_of(i);
    if (i + 1 < claims.own_end(total)) {
      prepared = i + 1;
      both[1 - current] = args_of(prepared);
      args.ahead = &both[1 - current];
    }
    attend_item(phase, step, work.items()[i / kv_heads], static_cast<int32_t>(i % kv_heads), args);
  }
  prefetch_next_attention(walker, step, phase.last);
  end_phase(walker);
}

// The products from here on bring what the next attention from op `first_op` on reads into the cache.
void Executor::prefetch_next_attention(const Walker& walker, const Step& step, int32_t first_op) {
  KvPrefetch& prefetch = kv_prefetch_[walker.thread];
  for (size_t i = first_op; i < plan_.ops.size(); i++) {
    if (plan_.ops[i].kind != OpKind::Attention) continue;
    return prefetch.fill(plan_, attention_items(plan_.ops[i]), step.in, step_kv_, plan_.ops[i].layer, walker.thread, pool_->num_threads());
  }
  prefetch.clear();
}

AttentionArgs Executor::attention_args(const Op& op, const Step& step, const AttentionTile& tile, int32_t kv_head, float* scratch) const {
  const KvSpec& kv = plan_.kv;
  const int32_t group_index = kv.layer_group[op.layer];
  const int32_t group = op.num_heads / kv.num_kv_heads;
  const int32_t width = op.num_heads * op.head_dim;
  AttentionArgs args{};
  args.q = row(op.in, width, tile.first_row) + static_cast<size_t>(kv_head) * group * op.head_dim;
  args.q_stride = width;
  args.out = row(op.out, width, tile.first_row) + static_cast<size_t>(kv_head) * group * op.head_dim;
  args.out_stride = width;
  args.num_tokens = tile.num_tokens;
  args.group = group;
  args.head_dim = op.head_dim;
  args.position = tile.position;
  args.window = kv.groups[group_index].window;
  args.scale = op.scale;
  args.softcap = op.cap;
  args.block_table = step.in.block_tables.data() + step.in.block_table_start[tile.seq * num_groups_ + group_index];
  args.kv = step_kv_ + kv.layer_index[op.layer] * kv.layer_bytes() + kv_head * kv.head_bytes();
  args.block_bytes = kv.block_bytes();
  args.block_size = kv.block_size;
  args.type = kv.type;
  args.partial_stride = attention_partial_floats(op.head_dim);
  args.scratch = scratch;
  return args;
}

// Where the rows of a split's segment are, in floats from the start of all partial results.
int64_t Executor::partial_offset(const AttentionSplit& split, const AttentionArgs& args, int32_t kv_head, int32_t segment) const {
  const int64_t segment_floats = static_cast<int64_t>(args.partial_stride) * split.tile.num_tokens * args.group;
  return split.partial_offset + segment_floats * (static_cast<int64_t>(split.num_segments) * kv_head + segment - split.first_segment);
}

AttentionArgs Executor::item_args(const Op& op, const Step& step, const AttentionItem& item, int32_t kv_head, float* scratch) const {
  AttentionArgs args = attention_args(op, step, item.tile, kv_head, scratch);
  if (item.segment < 0) return args;
  args.segment_begin = item.segment;
  args.segment_end = item.segment + 1;
  args.partial = partials_.floats();
  if (item.num_members == 0) args.partial += partial_offset(attention_items(op).split(item.split), args, kv_head, item.segment);
  return args;
}

void Executor::attend_item(const Phase& phase, const Step& step, const AttentionItem& item, int32_t kv_head, AttentionArgs& args) {
  if (item.num_members > 0) {
    attend_shared_segment(phase, step, item, kv_head, args);
    return;
  }
  kernels_->attention(&args);
  if (item.segment < 0) finish_attention(phase, item.tile, kv_head);
  else end_segment(phase, step, item.split, kv_head, args.scratch);
}

// The tokens of several sequences over blocks that all of them have; each has its own partial result and its own merge.
void Executor::attend_shared_segment(const Phase& phase, const Step& step, const AttentionItem& item, int32_t kv_head, AttentionArgs& args) {
  const AttentionItems& work = attention_items(plan_.ops[phase.first]);
  AttentionMember members[kAttentionRows];
  for (int32_t i = 0; i < item.num_members; i++) {
    const AttentionSplit& split = work.split(work.member(item, i));
    members[i] = {split.tile.first_row - item.tile.first_row, partial_offset(split, args, kv_head, item.segment)};
  }
  args.num_tokens = item.num_members;
  args.members = members;
  kernels_->attention(&args);
  for (int32_t i = 0; i < item.num_members; i++) end_segment(phase, step, work.member(item, i), kv_head, args.scratch);
}

// Whoever ends the last segment of a split merges all of them, in order.
void Executor::end_segment(const Phase& phase, const Step& step, int32_t split_index, int32_t kv_head, float* scratch) {
  const Op& op = plan_.ops[phase.first];
  const AttentionSplit& split = attention_items(op).split(split_index);
  std::atomic<int32_t>& done = split_done_[static_cast<size_t>(split_index) * plan_.kv.num_kv_heads + kv_head];
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < split.num_segments) return;
  done.store(0, std::memory_order_relaxed);
  AttentionArgs args = attention_args(op, step, split.tile, kv_head, scratch);
  args.partial = partials_.floats() + partial_offset(split, args, kv_head, split.first_segment);
  kernels_->merge_attention(&args, split.num_segments);
  finish_attention(phase, split.tile, kv_head);
}

// These heads of these tokens are complete: brings them into the form of the next product.
void Executor::finish_attention(const Phase& phase, const AttentionTile& tile, int32_t kv_head) {
  if (phase.tail != Tail::Form) return;
  const Op& form = plan_.ops[phase.last];
  const int32_t cols = form.cols / plan_.kv.num_kv_heads;
  kernels_->quantize_rows(&quantized_[form.q], row(form.in, form.cols, 0), form.cols, tile.first_row, tile.first_row + tile.num_tokens, kv_head * cols, (kv_head + 1) * cols);
}

}  // namespace pagoda
