// The lowered program: what src/device/cpu/lower.ts made of a model, checked once against the weights and buffers, so that the
// executor can trust every index and shape.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/kernels.h"
#include "runtime/weight-store.h"

namespace pagoda {

// The order is that of OP_KINDS in src/device/cpu/addon.ts.
enum class OpKind : int32_t {
  Embed, AddPosition, RmsNorm, LayerNorm, Quantize, Rope, KvWrite, GatedActivation, Activation, Add, SelectRows, Rescore, Softcap,  // row by row
  Linear, Attention, Moe, Sample,
};
constexpr int kNumOpKinds = 17;
inline bool is_row_op(OpKind kind) { return kind <= OpKind::Softcap; }

// One activation buffer: rows [capacity, cols] of one form. T buffers have max_tokens rows, R buffers (rows that need logits)
// `logit_rows`.
struct BufferSpec {
  bool per_logit_row = false;
  RowForm form = RowForm::Float;
  int32_t cols = 0;
};

struct RopeTableSpec {
  std::vector<double> inverse_frequencies;
  double magnitude = 1;
};

// Weight indexes of a mixture of experts; gate, up and down are cut into num_experts parts. -1 = absent.
struct MoeSpec {
  int32_t router = -1, gate = -1, up = -1, down = -1;
  int32_t num_experts = 0, top_k = 0, expert_cols = 0;
  bool renormalise = false;
  int32_t shared_gate = -1, shared_up = -1, shared_down = -1, shared_gate_weight = -1, shared_cols = 0;
};

// A superset of what the kinds need; buffers and weights are indexes, -1 = none.
struct Op {
  OpKind kind = OpKind::Embed;
  int32_t phase = 0;  // ops of one phase run without a barrier between them
  int32_t in = -1, in2 = -1, out = -1, q = -1;
  int32_t weight = -1, bias = -1;
  int32_t cols = 0;  // of `in` (of `out` where there is no `in`)
  int32_t group_cols = 0;
  int32_t num_heads = 0, head_dim = 0, rotary_dim = 0, table = -1, layer = -1, offset = 0;
  bool interleaved = false, accumulate = false;
  ActivationKind activation = ActivationKind::Silu;
  float scale = 1, eps = 0, cap = 0;
  MoeSpec moe;
};

struct KvGroupSpec {
  int32_t window = 0;
};

struct KvSpec {
  int32_t num_kv_heads = 0, head_dim = 0, block_size = 0, layers_per_group = 0;
  KvType type = KvType::F16;
  std::vector<KvGroupSpec> groups;
  std::vector<int32_t> layer_group, layer_index;  // per attention layer
  size_t head_bytes() const;                      // K and V of one head in one block
  size_t layer_bytes() const { return head_bytes() * num_kv_heads; }
  size_t block_bytes() const { return layer_bytes() * layers_per_group; }
};

struct LimitsSpec {
  int32_t max_tokens = 0, max_seqs = 0, max_model_len = 0;
  int32_t logit_rows = 0;  // rows that go through the output layer at a time
};

// What the items of a phase go on with, on the columns they have made (fuse-phases.h).
enum class Tail : uint8_t {
  None,
  Activation,  // products: activation of gate and up, and the form of the next product
  Heads,       // products: norm and rotation of heads, keys and values into the cache
  Form,        // attention: the form of the next product
  Best,        // the output layer: the best logits of each row
  Sample,      // rows: the choice of the token
};

struct Phase {
  int32_t first = 0, last = 0;  // ops [first, last)
  bool per_logit_row = false;
  Tail tail = Tail::None;
  int32_t tail_last = 0;  // ops [last, tail_last) are the tail
};

struct Plan {
  LimitsSpec limits;
  KvSpec kv;
  int32_t vocab_size = 0;
  bool int8 = false;  // products take their activations in the form of fewer bits that the weight's format allows, not in float32
  std::vector<BufferSpec> buffers;
  std::vector<RopeTableSpec> tables;
  std::vector<Op> ops;
  std::vector<Phase> phases;  // made by check_plan, joined by fuse_phases
  int32_t num_token_phases = 0;
};

// Fills `phases` and checks everything; throws std::runtime_error that names the op.
void check_plan(Plan& plan, const WeightStore& weights, const Kernels& kernels);

}  // namespace pagoda
