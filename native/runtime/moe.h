// Working memory of the mixture-of-experts op, shared by all such layers of a plan.
#pragma once
#include <cstdint>
#include <vector>

#include "ops/kernels.h"
#include "runtime/memory.h"
#include "runtime/plan.h"
#include "runtime/weight-store.h"

namespace pagoda {

// Rows are (token, choice) pairs sorted by expert: row place[token * top_k + j] holds choice j of the token.
struct MoeBuffers {
  int32_t max_rows = 0;       // max_tokens * top_k
  std::vector<int32_t> expert;  // [T * top_k]
  std::vector<float> share;     // [T * top_k] weight of the choice
  std::vector<int32_t> place;   // [T * top_k]
  std::vector<int32_t> source;  // [rows] token of the row
  std::vector<int32_t> first_row;  // [experts + 1]
  std::vector<int32_t> cursor;
  AlignedBuffer scores, gathered, gate, up, down;
  AlignedBuffer gathered_q, hidden_q;                      // int8 activations
  AlignedBuffer shared_gate, shared_up, shared_down;
  AlignedBuffer shared_in_q, shared_hidden_q;

  void allocate(const Plan& plan, const WeightStore& weights, const Kernels& kernels, bool int8);
};

// Softmax of `scores` [experts] in place, then the top_k best in falling order, ties to the lower index.
void choose_experts(float* scores, const MoeSpec& moe, int32_t* expert, float* share);

// Sorts the (token, choice) pairs by expert, keeping their order.
void group_by_expert(MoeBuffers& buffers, const MoeSpec& moe, int32_t num_tokens);

}  // namespace pagoda
