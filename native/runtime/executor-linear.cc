// The phase of products: claimed items of a few panels and some rows, which go on with what follows on their columns.
#include "runtime/executor.h"

#include <algorithm>

namespace pagoda {

GemmArgs Executor::linear_args(const Op& op, int32_t num_rows) const {
  const PackedWeight& weight = weights_->matrix(op.weight).parts[0];
  GemmArgs args{};
  args.weight = &weight;
  args.x = op.q >= 0 ? nullptr : row(op.in, op.cols, 0);
  args.x_stride = op.cols;
  args.q = op.q >= 0 ? &quantized_[op.q] : nullptr;
  args.row_end = num_rows;
  args.panel_end = weight.num_panels;
  args.out = row(op.out, weight.rows, 0);
  args.out_stride = weight.rows;
  args.bias = op.bias >= 0 ? weights_->vector(op.bias) : nullptr;
  args.accumulate = op.accumulate;
  return args;
}

void Executor::linear_phase(Walker& walker, const Phase& phase, const Step& step, int32_t num_rows) {
  const Claims claims = begin_phase(walker);
  GemmPhase& gemm = thread_gemm_[walker.thread];
  const int num_threads = pool_->num_threads();
  Upcoming* const upcoming = kv_prefetch_[walker.thread].upcoming();
  gemm.clear();
  switch (phase.tail) {
    case Tail::Activation: {
      const Op &activation = plan_.ops[phase.last], &first = plan_.ops[phase.first], &last = plan_.ops[phase.last - 1];
      const bool in_order = first.out == activation.in;
      const GemmArgs gate = linear_args(in_order ? first : last, num_rows), up = linear_args(in_order ? last : first, num_rows);
      gemm.add_tiled(gate, activation.kind == OpKind::GatedActivation ? &up : nullptr, num_threads, walker.tile);
      gemm.run(claims, walker.scratch, upcoming, [&](size_t, const GemmArgs& item) { activate_item(phase, item, walker.tile); });
      break;
    }
    case Tail::Heads:
      for (int32_t i = phase.first; i < phase.last; i++) gemm.add(linear_args(plan_.ops[i], num_rows), num_threads, plan_.kv.head_dim / kPanelRows);
      gemm.run(claims, walker.scratch, upcoming, [&](size_t job, const GemmArgs& item) { finish_heads(phase, plan_.ops[phase.first + static_cast<int32_t>(job)], step, item); });
      break;
    case Tail::Best:
      for (int32_t r = 0; r < num_rows; r++) clear_top(top_logits(walker.thread) + r, logit_rows_[chunk_first_ + r].num_top);
      gemm.add_tiled(linear_args(plan_.ops[phase.first], num_rows), nullptr, num_threads, walker.tile, kChoiceChunk);
      gemm.run(claims, walker.scratch, upcoming, [&](size_t, const GemmArgs& item) { keep_of_logits(plan_.ops[phase.first], item, walker); });
      break;
    default:
      for (int32_t i = phase.first; i < phase.last; i++) gemm.add(linear_args(plan_.ops[i], num_rows), num_threads);
      gemm.run(claims, walker.scratch, upcoming);
  }
  end_phase(walker);
}

// A few rows at a time, so that the values are still in the first-level cache when they are brought into the form of the next product.
void Executor::activate_item(const Phase& phase, const GemmArgs& item, float* tile) {
  const Op& activation = plan_.ops[phase.last];
  const Op* form = phase.tail_last - phase.last > 1 ? &plan_.ops[phase.last + 1] : nullptr;
  const int32_t cols = static_cast<int32_t>(item.out_stride), first_col = item.panel_begin * kPanelRows;
  constexpr int32_t kRowsTogether = 16;
  for (int32_t first = item.row_begin, last; first < item.row_end; first = last) {
    last = std::min(first + kRowsTogether, item.row_end);
    const size_t at = item.out_stride * static_cast<size_t>(first - item.row_begin);
    // The rows of a tile follow each other without a gap.
    const auto activate = [&](int32_t num_rows, size_t from, float* out) {
      float* gate = tile + from;
      if (activation.kind == OpKind::GatedActivation) kernels_->gated_activation(gate, gate + kGemmTileFloats / 2, out, num_rows * cols, activation.activation);
      else kernels_->activation(gate, out, num_rows * cols, activation.activation);
    };
    if (form != nullptr) {
      activate(last - first, at, tile + at);
      const float* row_zero = tile - item.out_stride * static_cast<ptrdiff_t>(item.row_begin) - first_col;
      kernels_->quantize_rows(&quantized_[form->q], row_zero, item.out_stride, first, last, first_col, first_col + cols);
    } else {
      for (int32_t r = first; r < last; r++) activate(1, at + item.out_stride * static_cast<size_t>(r - first), row(activation.out, activation.cols, r) + first_col);
    }
  }
}

void Executor::finish_heads(const Phase& phase, const Op& product, const Step& step, const GemmArgs& item) {
  const int32_t head_dim = plan_.kv.head_dim, first_col = item.panel_begin * kPanelRows;
  const int32_t first_head = first_col / head_dim, num_heads = (item.panel_end - item.panel_begin) * kPanelRows / head_dim;
  for (int32_t r = item.row_begin; r < item.row_end; r++) {
    int32_t buffer = product.out;  // of these columns' newest values
    for (int32_t i = phase.last; i < phase.tail_last; i++) {
      const Op& op = plan_.ops[i];
      if (op.kind == OpKind::KvWrite) {
        const int32_t width = plan_.kv.num_kv_heads * head_dim;
        if (op.in == buffer) write_kv(op, step, r, row(buffer, width, r) + first_col, nullptr, first_head, num_heads);
        if (op.in2 == buffer) write_kv(op, step, r, nullptr, row(buffer, width, r) + first_col, first_head, num_heads);
      } else if (op.in != buffer) {
        continue;
      } else if (op.kind == OpKind::RmsNorm) {
        kernels_->rms_norm(row(op.in, op.cols, r) + first_col, row(op.out, op.cols, r) + first_col, weights_->vector(op.weight), num_heads * head_dim, op.group_cols, op.eps);
        buffer = op.out;
      } else {
        rotate(op, r, row(op.in, op.cols, r) + first_col, num_heads);
      }
    }
  }
}

void Executor::rotate(const Op& op, int32_t r, float* heads, int32_t num_heads) const {
  const RopeTable& table = tables_[op.table];
  const size_t at = static_cast<size_t>(position_[r]) * table.pairs;
  kernels_->rope(heads, num_heads, op.head_dim, op.rotary_dim, op.interleaved, table.cos.floats() + at, table.sin.floats() + at);
}

void Executor::write_kv(const Op& op, const Step& step, int32_t r, const float* keys, const float* values, int32_t first_head, int32_t num_heads) const {
  const KvSpec& kv = plan_.kv;
  const StepInput& in = step.in;
  const int32_t* blocks = in.block_tables.data() + in.block_table_start[token_seq_[r] * num_groups_ + kv.layer_group[op.layer]];
  const size_t block = static_cast<size_t>(blocks[position_[r] / kv.block_size]);
  uint8_t* place = const_cast<uint8_t*>(step_kv_) + block * kv.block_bytes() + kv.layer_index[op.layer] * kv.layer_bytes() + first_head * kv.head_bytes();
  kernels_->kv_write(place, kv.block_size, position_[r] % kv.block_size, keys, values, num_heads, kv.head_dim, kv.type);
}

}  // namespace pagoda
