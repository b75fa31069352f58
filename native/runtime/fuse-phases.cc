#include "runtime/fuse-phases.h"

#include <map>
#include <set>

namespace pagoda {
namespace {

bool reads(const Op& op, int32_t buffer) {
  return op.in == buffer || op.in2 == buffer || (op.kind != OpKind::Quantize && op.q == buffer) || (op.out == buffer && (op.accumulate || op.kind == OpKind::AddPosition));
}
bool overwrites(const Op& op, int32_t buffer) { return (op.out == buffer && !op.accumulate) || (op.kind == OpKind::Quantize && op.q == buffer); }

// Nothing from op `from` on reads what the buffer holds now.
bool is_dead(const Plan& plan, int32_t buffer, int32_t from) {
  for (int32_t i = from; i < static_cast<int32_t>(plan.ops.size()); i++) {
    if (reads(plan.ops[i], buffer)) return false;
    if (overwrites(plan.ops[i], buffer)) return true;
  }
  return true;
}

// What `after` writes is nothing that items of `before` may still read.
bool keeps_inputs(const Plan& plan, const Phase& before, const Phase& after) {
  std::set<int32_t> inputs;
  for (int32_t i = before.first; i < before.last; i++) inputs.insert({plan.ops[i].in, plan.ops[i].in2, plan.ops[i].q});
  for (int32_t i = after.first; i < after.last; i++) {
    const Op& op = plan.ops[i];
    if (op.out >= 0 && inputs.count(op.out)) return false;
    if (op.kind == OpKind::Quantize && inputs.count(op.q)) return false;
  }
  return true;
}

bool all_linear(const Plan& plan, const Phase& phase) {
  for (int32_t i = phase.first; i < phase.last; i++) {
    if (plan.ops[i].kind != OpKind::Linear || plan.ops[i].accumulate) return false;
  }
  return true;
}

// gate and up (or one product), activation, and the form of the next product where one is asked for.
bool is_activated(const Plan& plan, const Phase& products, const Phase& rows) {
  const Op& activation = plan.ops[rows.first];
  const int32_t num_products = products.last - products.first, num_rows = rows.last - rows.first;
  if (num_rows > 2 || activation.cols % 32 != 0) return false;
  const Op &a = plan.ops[products.first], &b = plan.ops[products.last - 1];
  if (activation.kind == OpKind::GatedActivation) {
    const bool found = num_products == 2 && ((activation.in == a.out && activation.in2 == b.out) || (activation.in == b.out && activation.in2 == a.out));
    if (!found || a.q != b.q || a.in != b.in) return false;
  } else if (activation.kind != OpKind::Activation || num_products != 1 || activation.in != a.out) {
    return false;
  }
  if (num_rows == 2) {
    const Op& form = plan.ops[rows.first + 1];
    if (form.kind != OpKind::Quantize || form.in != activation.out || form.cols != activation.cols || !is_dead(plan, activation.out, rows.last)) return false;
  }
  for (int32_t i = products.first; i < products.last; i++) {
    if (plan.ops[i].out != activation.out && !is_dead(plan, plan.ops[i].out, rows.last)) return false;
  }
  return true;
}

// Products whose columns are heads, followed by nothing but what is done head by head.
bool is_by_heads(const Plan& plan, const Phase& products, const Phase& rows) {
  const int32_t head = plan.kv.head_dim;
  if (head % kPanelRows != 0) return false;
  std::map<int32_t, int32_t> source;  // buffer -> product whose columns it has
  for (int32_t i = products.first; i < products.last; i++) source[plan.ops[i].out] = i;
  for (int32_t i = rows.first; i < rows.last; i++) {
    const Op& op = plan.ops[i];
    if (!source.count(op.in)) return false;
    switch (op.kind) {
      case OpKind::RmsNorm:
        if (op.group_cols != head || op.cols % head != 0) return false;
        source[op.out] = source[op.in];
        break;
      case OpKind::Rope:
        if (op.head_dim != head) return false;
        break;
      case OpKind::KvWrite:
        if (!source.count(op.in2) || source[op.in] == source[op.in2]) return false;
        break;
      default:
        return false;
    }
  }
  return true;
}

bool is_attention_and_form(const Plan& plan, const Phase& attention, const Phase& rows) {
  const Op &op = plan.ops[attention.first], &form = plan.ops[rows.first];
  if (op.kind != OpKind::Attention || rows.last - rows.first != 1 || form.kind != OpKind::Quantize || form.in != op.out) return false;
  return op.num_heads / plan.kv.num_kv_heads * op.head_dim % 32 == 0 && form.cols == op.num_heads * op.head_dim;
}

// The output layer, if sampling reads its columns as they are, but for a rescore.
bool makes_logits(const Plan& plan, const Phase& product, const Phase& sampling) {
  const Op &op = plan.ops[product.first], &sample = plan.ops.back();
  if (op.kind != OpKind::Linear || op.accumulate || product.last - product.first != 1 || op.out != sample.in) return false;
  if (sampling.tail != Tail::Sample) return plan.ops[sampling.first].kind == OpKind::Sample;
  return sampling.last - sampling.first == 1 && plan.ops[sampling.first].kind == OpKind::Rescore;
}

Tail tail_of(const Plan& plan, const Phase& before, const Phase& after) {
  if (before.per_logit_row != after.per_logit_row || !keeps_inputs(plan, before, after)) return Tail::None;
  if (plan.ops[after.first].kind == OpKind::Sample) return is_row_op(plan.ops[before.first].kind) ? Tail::Sample : Tail::None;
  if (is_attention_and_form(plan, before, after)) return Tail::Form;
  if (!all_linear(plan, before)) return Tail::None;
  return is_activated(plan, before, after) ? Tail::Activation : is_by_heads(plan, before, after) ? Tail::Heads : Tail::None;
}

}  // namespace

void fuse_phases(Plan& plan) {
  std::vector<Phase> fused;
  int32_t num_token_phases = 0;
  for (size_t p = 0; p < plan.phases.size(); p++) {
    Phase phase = plan.phases[p];
    if (p + 1 < plan.phases.size()) phase.tail = tail_of(plan, phase, plan.phases[p + 1]);
    if (phase.tail != Tail::None) phase.tail_last = plan.phases[++p].last;
    fused.push_back(phase);
    if (!phase.per_logit_row) num_token_phases++;
  }
  if (fused.size() > 1 && makes_logits(plan, fused[fused.size() - 2], fused.back())) {
    Phase& product = fused[fused.size() - 2];
    product.tail = Tail::Best;
    product.tail_last = product.last;
  }
  plan.phases = std::move(fused);
  plan.num_token_phases = num_token_phases;
}

}  // namespace pagoda
