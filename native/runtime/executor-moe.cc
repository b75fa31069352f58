// The mixture-of-experts op as sub-phases: scores, choice and grouping, gate and up, activation, down, combination. Each token's
// result is summed in the order of its choices, whatever the grouping.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/executor.h"

namespace pagoda {

void Executor::moe_phase(Walker& walker, const Op& op, int32_t num_rows) {
  const MoeSpec& moe = op.moe;
  const auto products = [&](auto fill) {
    const Claims claims = begin_phase(walker);
    alone(walker, [&] {
      gemm_.clear();
      fill();
    });
    pool_->barrier(walker.thread);
    gemm_.run(claims, walker.scratch, kv_prefetch_[walker.thread].upcoming());
    end_phase(walker);
  };
  products([&] {
    const PackedWeight& router = weights_->matrix(moe.router).parts[0];
    GemmArgs args{};
    args.weight = &router;
    args.x = row(op.in, op.cols, 0);
    args.x_stride = op.cols;
    args.row_end = num_rows;
    args.panel_end = router.num_panels;
    args.out = moe_.scores.floats();
    args.out_stride = moe.num_experts;
    gemm_.add(args, pool_->num_threads());
  });
  for_rows(walker, num_rows, [&](int32_t t) {
    const size_t first = static_cast<size_t>(t) * moe.top_k;
    choose_experts(moe_.scores.floats() + static_cast<size_t>(t) * moe.num_experts, moe, moe_.expert.data() + first, moe_.share.data() + first);
  });
  alone(walker, [&] { group_by_expert(moe_, moe, num_rows); });
  pool_->barrier(walker.thread);
  gather_expert_rows(walker, op, num_rows);
  products([&] { add_expert_products(op, num_rows, false); });
  activate_expert_rows(walker, op, num_rows);
  products([&] { add_expert_products(op, num_rows, true); });
  combine_experts(walker, op, num_rows);
}

void Executor::gather_expert_rows(Walker& walker, const Op& op, int32_t num_rows) {
  const MoeSpec& moe = op.moe;
  QuantizedRows gathered{moe_.gathered_q.data(), moe_.max_rows, (op.cols + 31) / 32 * 32, RowForm::Int8};
  QuantizedRows shared{moe_.shared_in_q.data(), plan_.limits.max_tokens, (op.cols + 31) / 32 * 32, RowForm::Int8};
  const int32_t expert_rows = num_rows * moe.top_k;
  for_rows(walker, expert_rows + (moe.shared_cols > 0 ? num_rows : 0), [&](int32_t r) {
    if (r >= expert_rows) {
      if (int8(moe.shared_gate) || int8(moe.shared_up)) kernels_->quantize_rows(&shared, row(op.in, op.cols, 0), op.cols, r - expert_rows, r - expert_rows + 1, 0, op.cols);
      return;
    }
    float* out = moe_.gathered.floats() + static_cast<size_t>(r) * op.cols;
    std::memcpy(out, row(op.in, op.cols, moe_.source[r]), sizeof(float) * op.cols);
    if (int8(moe.gate) || int8(moe.up)) kernels_->quantize_rows(&gathered, moe_.gathered.floats(), op.cols, r, r + 1, 0, op.cols);
  });
}

void Executor::add_expert_products(const Op& op, int32_t num_rows, bool down) {
  const MoeSpec& moe = op.moe;
  const auto add = [&](const PackedWeight& weight, const QuantizedRows* q, const float* x, int32_t first, int32_t last, float* out) {
    GemmArgs args{};
    args.weight = &weight;
    args.x = q ? nullptr : x;
    args.x_stride = weight.cols;
    args.q = q;
    args.row_begin = first;
    args.row_end = last;
    args.panel_end = weight.num_panels;
    args.out = out;
    args.out_stride = weight.rows;
    gemm_.add(args, pool_->num_threads());
  };
  const auto padded = [](int32_t cols) { return (cols + 31) / 32 * 32; };
  moe_q_[0] = {moe_.gathered_q.data(), moe_.max_rows, padded(op.cols), RowForm::Int8};
  moe_q_[1] = {moe_.hidden_q.data(), moe_.max_rows, padded(moe.expert_cols), RowForm::Int8};
  moe_q_[2] = {moe_.shared_in_q.data(), plan_.limits.max_tokens, padded(op.cols), RowForm::Int8};
  moe_q_[3] = {moe_.shared_hidden_q.data(), plan_.limits.max_tokens, padded(moe.shared_cols), RowForm::Int8};
  for (int32_t e = 0; e < moe.num_experts; e++) {
    const int32_t first = moe_.first_row[e], last = moe_.first_row[e + 1];
    if (first == last) continue;
    if (down) {
      add(weights_->matrix(moe.down).parts[e], int8(moe.down) ? &moe_q_[1] : nullptr, moe_.gate.floats(), first, last, moe_.down.floats());
    } else {
      add(weights_->matrix(moe.gate).parts[e], int8(moe.gate) ? &moe_q_[0] : nullptr, moe_.gathered.floats(), first, last, moe_.gate.floats());
      add(weights_->matrix(moe.up).parts[e], int8(moe.up) ? &moe_q_[0] : nullptr, moe_.gathered.floats(), first, last, moe_.up.floats());
    }
  }
  if (moe.shared_cols == 0) return;
  if (down) {
    add(weights_->matrix(moe.shared_down).parts[0], int8(moe.shared_down) ? &moe_q_[3] : nullptr, moe_.shared_gate.floats(), 0, num_rows, moe_.shared_down.floats());
  } else {
    add(weights_->matrix(moe.shared_gate).parts[0], int8(moe.shared_gate) ? &moe_q_[2] : nullptr, row(op.in, op.cols, 0), 0, num_rows, moe_.shared_gate.floats());
    add(weights_->matrix(moe.shared_up).parts[0], int8(moe.shared_up) ? &moe_q_[2] : nullptr, row(op.in, op.cols, 0), 0, num_rows, moe_.shared_up.floats());
  }
}

void Executor::activate_expert_rows(Walker& walker, const Op& op, int32_t num_rows) {
  const MoeSpec& moe = op.moe;
  const int32_t expert_rows = num_rows * moe.top_k;
  const auto activate = [&](float* gate, const float* up, int32_t cols, int32_t r, const QuantizedRows& q, bool quantize) {
    float* hidden = gate + static_cast<size_t>(r) * cols;
    kernels_->gated_activation(hidden, up + static_cast<size_t>(r) * cols, hidden, cols, op.activation);
    if (quantize) {
      QuantizedRows rows = q;
      kernels_->quantize_rows(&rows, gate, cols, r, r + 1, 0, cols);
    }
  };
  for_rows(walker, expert_rows + (moe.shared_cols > 0 ? num_rows : 0), [&](int32_t r) {
    if (r < expert_rows) activate(moe_.gate.floats(), moe_.up.floats(), moe.expert_cols, r, moe_q_[1], int8(moe.down));
    else activate(moe_.shared_gate.floats(), moe_.shared_up.floats(), moe.shared_cols, r - expert_rows, moe_q_[3], int8(moe.shared_down));
  });
}

void Executor::combine_experts(Walker& walker, const Op& op, int32_t num_rows) {
  const MoeSpec& moe = op.moe;
  for_rows(walker, num_rows, [&](int32_t t) {
    float* out = row(op.out, op.cols, t);
    for (int32_t j = 0; j < moe.top_k; j++) {
      const size_t choice = static_cast<size_t>(t) * moe.top_k + j;
      const float share = moe_.share[choice];
      const float* values = moe_.down.floats() + static_cast<size_t>(moe_.place[choice]) * op.cols;
      for (int32_t c = 0; c < op.cols; c++) out[c] = j == 0 ? share * values[c] : out[c] + share * values[c];
    }
    if (moe.shared_cols == 0) return;
    float share = 1.0f;
    if (moe.shared_gate_weight >= 0) {
      const float* x = row(op.in, op.cols, t);
      const float* w = weights_->vector(moe.shared_gate_weight);
      float dot = 0;
      for (int32_t c = 0; c < op.cols; c++) dot += x[c] * w[c];
      share = 1.0f / (1.0f + std::exp(-dot));
    }
    const float* values = moe_.shared_down.floats() + static_cast<size_t>(t) * op.cols;
    for (int32_t c = 0; c < op.cols; c++) out[c] += share * values[c];
  });
}

}  // namespace pagoda
