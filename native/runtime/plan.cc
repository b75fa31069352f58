#include "runtime/plan.h"

#include <stdexcept>

namespace pagoda {

size_t KvSpec::head_bytes() const {
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t vector_bytes = type == KvType::F32 ? dim * 4 : type == KvType::Int8 ? dim + 4 : dim * 2;
  return 2 * vector_bytes * static_cast<size_t>(block_size);
}

namespace {

class Checker {
 public:
  Checker(const Plan& plan, const WeightStore& weights, const Kernels& kernels) : plan_(plan), weights_(weights), kernels_(kernels) {}

  void check(int index) {
    index_ = index;
    const Op& op = plan_.ops[index];
    switch (op.kind) {
      case OpKind::Embed:
        per_logit_row_ = false;
        buffer(op.out, op.cols);
        matrix(op.weight, plan_.vocab_size, op.cols, 1);
        return;
      case OpKind::AddPosition:
        per_logit_row_ = false;
        buffer(op.out, op.cols);
        check(op.offset >= 0, "offset");
        matrix(op.weight, plan_.limits.max_model_len + op.offset, op.cols, 1, true);
        return;
      case OpKind::RmsNorm:
        side(op.in);
        buffer(op.in, op.cols);
        buffer(op.out, op.cols);
        check(op.group_cols > 0 && op.cols % op.group_cols == 0, "group columns");
        vector(op.weight, op.group_cols);
        return;
      case OpKind::LayerNorm:
        side(op.in);
        buffer(op.in, op.cols);
        buffer(op.out, op.cols);
        vector(op.weight, op.cols);
        if (op.bias >= 0) vector(op.bias, op.cols);
        return;
      case OpKind::Quantize:
        side(op.in);
        buffer(op.in, op.cols);
        quantized(op.q, op.cols);
        return;
      case OpKind::Rope:
        per_logit_row_ = false;
        heads(op, op.cols);
        buffer(op.in, op.cols);
        check(op.rotary_dim > 0 && op.rotary_dim <= op.head_dim && op.rotary_dim % 2 == 0, "rotary dimension");
        check(op.table >= 0 && op.table < static_cast<int>(plan_.tables.size()), "rope table");
        check(static_cast<int>(plan_.tables[op.table].inverse_frequencies.size()) == op.rotary_dim / 2, "rope table size");
        return;
      case OpKind::KvWrite:
        per_logit_row_ = false;
        layer(op.layer);
        buffer(op.in, plan_.kv.num_kv_heads * plan_.kv.head_dim);
        buffer(op.in2, plan_.kv.num_kv_heads * plan_.kv.head_dim);
        return;
      case OpKind::GatedActivation:
      case OpKind::Add:
        side(op.in);
        buffer(op.in, op.cols);
        buffer(op.in2, op.cols);
        buffer(op.out, op.cols);
        return;
      case OpKind::Activation:
        side(op.in);
        buffer(op.in, op.cols);
        buffer(op.out, op.cols);
        return;
      case OpKind::Softcap:
        side(op.in);
        buffer(op.in, op.cols);
        check(op.cap > 0, "cap");
        return;
      case OpKind::Rescore:
        side(op.in);
        buffer(op.in, op.cols);
        matrix(op.weight, plan_.vocab_size, op.cols, 1);
        buffer(op.out, plan_.vocab_size);
        if (op.bias >= 0) vector(op.bias, plan_.vocab_size);
        return;
      case OpKind::SelectRows:
        per_logit_row_ = false;
        buffer(op.in, op.cols);
        per_logit_row_ = true;
        buffer(op.out, op.cols);
        return;
      case OpKind::Linear:
        check_linear(op);
        return;
      case OpKind::Attention:
        side(op.in);
        layer(op.layer);
        check(op.head_dim == plan_.kv.head_dim && op.num_heads > 0 && op.num_heads % plan_.kv.num_kv_heads == 0, "heads");
        buffer(op.in, op.num_heads * op.head_dim);
        buffer(op.out, op.num_heads * op.head_dim);
        return;
      case OpKind::Moe:
        check_moe(op);
        return;
      case OpKind::Sample:
        per_logit_row_ = true;
        check(op.cols == plan_.vocab_size, "vocabulary");
        buffer(op.in, op.cols);
        return;
    }
    check(false, "kind");
  }

 private:
  void check(bool ok, const char* what) const {
    if (!ok) throw std::runtime_error("plan op " + std::to_string(index_) + " has a wrong " + what);
  }
  const BufferSpec& spec(int buffer) const {
    check(buffer >= 0 && buffer < static_cast<int>(plan_.buffers.size()), "buffer");
    return plan_.buffers[buffer];
  }
  void side(int buffer) { per_logit_row_ = spec(buffer).per_logit_row; }
  void buffer(int index, int cols) const {
    const BufferSpec& b = spec(index);
    check(b.form == RowForm::Float && b.per_logit_row == per_logit_row_ && cols > 0 && cols <= b.cols, "buffer");
  }
  void quantized(int index, int cols) const {
    const BufferSpec& b = spec(index);
    check(b.form != RowForm::Float && b.per_logit_row == per_logit_row_ && b.cols == cols, "quantized buffer");
  }
  void matrix(int index, int rows, int cols, int parts, bool at_least = false) const {
    check(index >= 0 && index < static_cast<int>(weights_.num_weights()), "weight");
    const Matrix& m = weights_.matrix(index);
    check(m.parts.size() == static_cast<size_t>(parts) && (at_least ? m.rows >= rows : m.rows == rows) && m.cols == cols, "weight shape");
  }
  void vector(int index, int cols) const {
    check(index >= 0 && index < static_cast<int>(weights_.num_weights()), "vector");
    const float* v = weights_.vector(index);
    check(v != nullptr && weights_.vector_size(index) == cols, "vector size");
  }
  void heads(const Op& op, int cols) const {
    check(op.num_heads > 0 && op.head_dim > 0 && static_cast<int64_t>(op.num_heads) * op.head_dim == cols, "heads");
  }
  void layer(int index) const { check(index >= 0 && index < static_cast<int>(plan_.kv.layer_group.size()), "layer"); }

  void check_linear(const Op& op) {
    side(op.in >= 0 ? op.in : op.q);
    check(op.weight >= 0 && op.weight < static_cast<int>(weights_.num_weights()) && weights_.matrix(op.weight).parts.size() == 1, "weight");
    const Matrix& m = weights_.matrix(op.weight);
    check(m.cols == op.cols, "weight shape");
    if (op.q >= 0) {
      quantized(op.q, op.cols);
      check(kernels_.row_form(m.format) == spec(op.q).form, "quantized input");
    } else {
      buffer(op.in, op.cols);
    }
    buffer(op.out, m.rows);
    if (op.bias >= 0) vector(op.bias, m.rows);
  }

  void check_moe(const Op& op) {
    side(op.in);
    const MoeSpec& moe = op.moe;
    buffer(op.in, op.cols);
    buffer(op.out, op.cols);
    check(moe.num_experts > 0 && moe.top_k > 0 && moe.top_k <= moe.num_experts && moe.num_experts <= 1024 && moe.expert_cols > 0, "expert count");
    matrix(moe.router, moe.num_experts, op.cols, 1);
    matrix(moe.gate, moe.num_experts * moe.expert_cols, op.cols, moe.num_experts);
    matrix(moe.up, moe.num_experts * moe.expert_cols, op.cols, moe.num_experts);
    matrix(moe.down, moe.num_experts * op.cols, moe.expert_cols, moe.num_experts);
    if (moe.shared_cols == 0) return;
    matrix(moe.shared_gate, moe.shared_cols, op.cols, 1);
    matrix(moe.shared_up, moe.shared_cols, op.cols, 1);
    matrix(moe.shared_down, op.cols, moe.shared_cols, 1);
    if (moe.shared_gate_weight >= 0) vector(moe.shared_gate_weight, op.cols);
  }

  const Plan& plan_;
  const WeightStore& weights_;
  const Kernels& kernels_;
  int index_ = 0;
  bool per_logit_row_ = false;

 public:
  bool per_logit_row() const { return per_logit_row_; }
};

void check_kv(const KvSpec& kv) {
  const bool ok = kv.num_kv_heads > 0 && kv.num_kv_heads <= 1024 && kv.head_dim > 0 && kv.head_dim <= 256 && kv.head_dim % 8 == 0 && kv.block_size > 0 &&
                  kv.block_size <= 1024 && kv.block_size % 16 == 0 && kv.layers_per_group > 0 && !kv.groups.empty() && kv.layer_group.size() == kv.layer_index.size();
  if (!ok) throw std::runtime_error("the KV layout is not supported: head dimension must be a multiple of 8 up to 256, block size a multiple of 16");
  for (size_t i = 0; i < kv.layer_group.size(); i++) {
    if (kv.layer_group[i] < 0 || kv.layer_group[i] >= static_cast<int>(kv.groups.size()) || kv.layer_index[i] < 0 || kv.layer_index[i] >= kv.layers_per_group) {
      throw std::runtime_error("the KV layout places a layer outside its group");
    }
  }
}

}  // namespace

void check_plan(Plan& plan, const WeightStore& weights, const Kernels& kernels) {
  const LimitsSpec& limits = plan.limits;
  if (limits.max_tokens < 1 || limits.max_seqs < 1 || limits.max_model_len < 1 || limits.logit_rows < 1) throw std::runtime_error("limits must be at least 1");
  if (plan.vocab_size < 1 || plan.ops.empty() || plan.ops.back().kind != OpKind::Sample) throw std::runtime_error("the plan is incomplete");
  check_kv(plan.kv);
  for (const BufferSpec& buffer : plan.buffers) {
    if (buffer.cols < 1) throw std::runtime_error("a buffer of the plan has no columns");
  }
  Checker checker(plan, weights, kernels);
  plan.phases.clear();
  plan.num_token_phases = 0;
  for (int i = 0; i < static_cast<int>(plan.ops.size()); i++) {
    checker.check(i);
    const bool per_logit_row = checker.per_logit_row();
    const Op& op = plan.ops[i];
    const bool same = i > 0 && op.phase == plan.ops[i - 1].phase;
    if (same) {
      const Op& before = plan.ops[i - 1];
      const bool fits = (is_row_op(op.kind) && is_row_op(before.kind)) || (op.kind == OpKind::Linear && before.kind == OpKind::Linear);
      if (!fits || plan.phases.back().per_logit_row != per_logit_row) throw std::runtime_error("plan op " + std::to_string(i) + " cannot share its phase");
      plan.phases.back().last = i + 1;
      continue;
    }
    if (!plan.phases.empty() && plan.phases.back().per_logit_row && !per_logit_row) throw std::runtime_error("plan op " + std::to_string(i) + " comes after the rows were selected");
    plan.phases.push_back({i, i + 1, per_logit_row});
    if (!per_logit_row) plan.num_token_phases++;
  }
}

}  // namespace pagoda
