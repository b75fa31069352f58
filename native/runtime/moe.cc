#include "runtime/moe.h"

#include <algorithm>
#include <cmath>

namespace pagoda {

void MoeBuffers::allocate(const Plan& plan, const WeightStore& weights, const Kernels& kernels, bool int8) {
  int32_t experts = 0, top_k = 0, cols = 0, expert_cols = 0, shared_cols = 0;
  for (const Op& op : plan.ops) {
    if (op.kind != OpKind::Moe) continue;
    experts = std::max(experts, op.moe.num_experts);
    top_k = std::max(top_k, op.moe.top_k);
    cols = std::max(cols, op.cols);
    expert_cols = std::max(expert_cols, op.moe.expert_cols);
    shared_cols = std::max(shared_cols, op.moe.shared_cols);
  }
  if (experts == 0) return;
  (void)weights;
  const size_t tokens = static_cast<size_t>(plan.limits.max_tokens);
  const size_t rows = tokens * top_k;
  max_rows = static_cast<int32_t>(rows);
  expert.resize(rows);
  share.resize(rows);
  place.resize(rows);
  source.resize(rows);
  first_row.resize(experts + 1);
  cursor.resize(experts + 1);
  scores = AlignedBuffer(tokens * experts * sizeof(float));
  gathered = AlignedBuffer(rows * cols * sizeof(float));
  gate = AlignedBuffer(rows * expert_cols * sizeof(float));
  up = AlignedBuffer(rows * expert_cols * sizeof(float));
  down = AlignedBuffer(rows * cols * sizeof(float));
  if (int8) {
    gathered_q = AlignedBuffer(kernels.quantized_bytes(RowForm::Int8, max_rows, cols));
    hidden_q = AlignedBuffer(kernels.quantized_bytes(RowForm::Int8, max_rows, expert_cols));
  }
  if (shared_cols == 0) return;
  shared_gate = AlignedBuffer(tokens * shared_cols * sizeof(float));
  shared_up = AlignedBuffer(tokens * shared_cols * sizeof(float));
  shared_down = AlignedBuffer(tokens * cols * sizeof(float));
  if (int8) {
    shared_in_q = AlignedBuffer(kernels.quantized_bytes(RowForm::Int8, plan.limits.max_tokens, cols));
    shared_hidden_q = AlignedBuffer(kernels.quantized_bytes(RowForm::Int8, plan.limits.max_tokens, shared_cols));
  }
}

void choose_experts(float* scores, const MoeSpec& moe, int32_t* expert, float* share) {
  float largest = scores[0];
  for (int32_t e = 1; e < moe.num_experts; e++) largest = std::max(largest, scores[e]);
  float sum = 0;
  for (int32_t e = 0; e < moe.num_experts; e++) {
    scores[e] = std::exp(scores[e] - largest);
    sum += scores[e];
  }
  for (int32_t e = 0; e < moe.num_experts; e++) scores[e] /= sum;
  float chosen_sum = 0;
  for (int32_t j = 0; j < moe.top_k; j++) {
    int32_t best = -1;
    for (int32_t e = 0; e < moe.num_experts; e++) {
      bool taken = false;
      for (int32_t i = 0; i < j; i++) taken |= expert[i] == e;
      if (!taken && (best < 0 || scores[e] > scores[best])) best = e;
    }
    expert[j] = best;
    share[j] = scores[best];
    chosen_sum += scores[best];
  }
  if (!moe.renormalise) return;
  for (int32_t j = 0; j < moe.top_k; j++) share[j] /= chosen_sum;
}

void group_by_expert(MoeBuffers& buffers, const MoeSpec& moe, int32_t num_tokens) {
  const int32_t rows = num_tokens * moe.top_k;
  std::fill_n(buffers.first_row.begin(), moe.num_experts + 1, 0);
  for (int32_t i = 0; i < rows; i++) buffers.first_row[buffers.expert[i] + 1]++;
  for (int32_t e = 0; e < moe.num_experts; e++) buffers.first_row[e + 1] += buffers.first_row[e];
  std::copy_n(buffers.first_row.begin(), moe.num_experts, buffers.cursor.begin());
  for (int32_t i = 0; i < rows; i++) {
    const int32_t row = buffers.cursor[buffers.expert[i]]++;
    buffers.place[i] = row;
    buffers.source[row] = i / moe.top_k;
  }
}

}  // namespace pagoda
