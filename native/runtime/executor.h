// Runs a plan: all threads walk through the phases of a step together, claim work inside a phase and meet at a barrier after it.
// The phases after the rows that need logits were selected run once per chunk of `logit_rows` of them. Only the leader thread calls it.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/attention-items.h"
#include "runtime/claims.h"
#include "runtime/gemm-phase.h"
#include "runtime/kv-prefetch.h"
#include "runtime/memory.h"
#include "runtime/moe.h"
#include "runtime/pages-ahead.h"
#include "runtime/plan.h"
#include "runtime/rescore.h"
#include "runtime/sampler.h"
#include "runtime/step.h"
#include "runtime/thread-pool.h"
#include "runtime/weight-store.h"

namespace pagoda {

class Executor {
 public:
  // The plan has been checked against the weights.
  Executor(const Kernels* kernels, ThreadPool* pool, const WeightStore* weights, Plan plan, Sampler* sampler);

  const Plan& plan() const { return plan_; }
  void allocate_kv(int64_t num_blocks);
  int64_t num_blocks() const { return num_blocks_; }
  // Runs one step; the input has been checked against the limits and the KV pool.
  void run(Step& step);
  // Logits [T, vocabulary] of a prompt run in a cache of its own.
  void run_logits(const std::vector<int32_t>& tokens, std::vector<float>* out);

 private:
  // A thread's way through the phases; all threads count alike.
  struct Walker {
    int thread;
    uint32_t phase = 0;
    float* scratch;
    float* tile;  // results of an item that this thread goes on with
    double linear = 0, attention = 0, sampling = 0, rows = 0, serial = 0;
  };
  struct LogitRow {
    int32_t seq, token;  // token: row of the step
    int32_t prompt_row;  // index of the prompt row it fills, or -1
    int32_t result;  // row of the results that its sample fills, or -1
    int32_t draft;   // the sequence's next token in the step: sampling goes on while it is the sampled one; -1 = none
    int32_t num_top;  // how many of its best logits are kept
    float chunk_scale;  // of the sums of its chunks that it is sampled from; 0 = it is not
    bool in_memory;   // all of its logits are wanted
  };

  // Of one row, rescored.
  struct BestLogits {
    TopValues top;
    float others;  // no other logit is above it
    RescoredLogits rescored;
  };

  Claims begin_phase(Walker& walker);
  // Runs f on thread 0 while the others wait for the next barrier, and counts its time.
  template <typename F>
  void alone(Walker& walker, F f);
  void end_phase(Walker& walker) { pool_->barrier(walker.thread); }
  template <typename F>
  void for_rows(Walker& walker, int32_t num_rows, F f);

  void allocate_buffers();
  void make_rope_tables();
  bool prepare(Step& step, const uint8_t* kv);
  void collect_logit_rows(Step& step);
  void list_attention(const StepInput& in);
  void begin_chunk(const StepInput& in, int32_t first);
  void make_room_for_splits(const AttentionItems& work);
  const AttentionItems& attention_items(const Op& op) const {
    const bool of_chunk = plan_.buffers[op.in].per_logit_row && !all_rows_in_chunk_;
    return (of_chunk ? chunk_attention_ : attention_)[plan_.kv.layer_group[op.layer]];
  }
  void ask_for_kv_pages(const StepInput& in);
  void walk_all(int thread, Step& step);
  void walk(Walker& walker, Step& step);
  void run_phase(Walker& walker, Step& step, const Phase& phase);
  void row_op(const Op& op, const Step& step, int32_t row, float* scratch);
  void linear_phase(Walker& walker, const Phase& phase, const Step& step, int32_t num_rows);
  GemmArgs linear_args(const Op& op, int32_t num_rows) const;
  void activate_item(const Phase& phase, const GemmArgs& item, float* tile);
  void finish_heads(const Phase& phase, const Op& product, const Step& step, const GemmArgs& item);
  void rotate(const Op& op, int32_t row, float* heads, int32_t num_heads) const;
  void write_kv(const Op& op, const Step& step, int32_t row, const float* keys, const float* values, int32_t first_head, int32_t num_heads) const;
  void attention_phase(Walker& walker, const Phase& phase, const Step& step);
  void prefetch_next_attention(const Walker& walker, const Step& step, int32_t first_op);
  AttentionArgs attention_args(const Op& op, const Step& step, const AttentionTile& tile, int32_t kv_head, float* scratch) const;
  int64_t partial_offset(const AttentionSplit& split, const AttentionArgs& args, int32_t kv_head, int32_t segment) const;
  AttentionArgs item_args(const Op& op, const Step& step, const AttentionItem& item, int32_t kv_head, float* scratch) const;
  void attend_item(const Phase& phase, const Step& step, const AttentionItem& item, int32_t kv_head, AttentionArgs& args);
  void attend_shared_segment(const Phase& phase, const Step& step, const AttentionItem& item, int32_t kv_head, AttentionArgs& args);
  void end_segment(const Phase& phase, const Step& step, int32_t split, int32_t kv_head, float* scratch);
  void finish_attention(const Phase& phase, const AttentionTile& tile, int32_t kv_head);
  TopValues* top_logits(int thread) { return top_logits_.data() + static_cast<size_t>(thread) * plan_.limits.logit_rows; }
  ChunkSum* chunk_sums(int32_t chunk_row) { return chunk_sums_.data() + static_cast<size_t>(chunk_row) * num_choice_chunks(plan_.vocab_size); }
  void keep_of_logits(const Op& product, const GemmArgs& item, const Walker& walker);
  void sample_phase(Walker& walker, const Phase& phase, Step& step);
  bool samples_with_row_before(int32_t chunk_row) const;
  void take_logits(const Walker& walker, const Phase& phase, Step& step, int32_t chunk_row);
  BestLogits best_logits(const Walker& walker, const Phase& phase, const Step& step, int32_t chunk_row);
  bool sample_without_memory(const Walker& walker, int32_t chunk_row, int32_t slot, const BestLogits& best, SampledRow* out);
  void join_top_logits(int32_t chunk_row, TopValues* best);
  void make_logits(int32_t chunk_row, int32_t panel_begin, int32_t panel_end, float* out, float* scratch) const;
  LogitSource logit_source(const Op& rescore, int32_t chunk_row, float* scratch) const;
  void moe_phase(Walker& walker, const Op& op, int32_t num_rows);
  void gather_expert_rows(Walker& walker, const Op& op, int32_t num_rows);
  void add_expert_products(const Op& op, int32_t num_rows, bool down);
  void activate_expert_rows(Walker& walker, const Op& op, int32_t num_rows);
  void combine_experts(Walker& walker, const Op& op, int32_t num_rows);

  float* row(int buffer, int32_t cols, int32_t index) const { return buffers_[buffer].floats() + static_cast<size_t>(index) * cols; }
  bool int8(int weight) const { return plan_.int8 && kernels_->row_form(weights_->matrix(weight).format) == RowForm::Int8; }

  const Kernels* kernels_;
  ThreadPool* pool_;
  const WeightStore* weights_;
  Plan plan_;
  Sampler* sampler_;

  std::vector<AlignedBuffer> buffers_;
  std::vector<QuantizedRows> quantized_;  // same indexes; data null for float buffers
  AlignedBuffer scratch_;
  size_t scratch_floats_ = 0;  // per thread: what kernels need, then a tile of kGemmTileFloats
  struct RopeTable {
    AlignedBuffer cos, sin;  // [max_model_len][pairs]
    int32_t pairs;
  };
  std::vector<RopeTable> tables_;
  MoeBuffers moe_;
  
  AlignedBuffer kv_;
  std::unique_ptr<PagesAhead> kv_pages_;  // of kv_
  int64_t num_blocks_ = 0;

  // Of the running step.
  const uint8_t* step_kv_ = nullptr;
  int32_t num_groups_ = 1;
  std::vector<int32_t> token_ids_, position_, token_seq_;
  std::vector<LogitRow> logit_rows_;
  std::vector<uint8_t> sampling_ended_;  // [S] a sample differed from its draft, or there was a fault
  int32_t chunk_first_ = 0, chunk_rows_ = 0;
  bool all_rows_in_chunk_ = false;         // every token needs logits, and there is one chunk
  std::vector<QueryRun> runs_;             // of the step, then of the chunk
  std::vector<AttentionItems> attention_;        // of the step, per KV group
  std::vector<AttentionItems> chunk_attention_;  // of the chunk, for the attention ops on rows that need logits
  std::vector<uint8_t> attends_in_chunks_;       // whether a KV group has such ops
  std::vector<int32_t> group_heads_;             // query heads per KV head, per KV group
  std::unique_ptr<std::atomic<int32_t>[]> split_done_;
  int64_t split_capacity_ = 0;
  AlignedBuffer partials_;
  const uint8_t* step_kv_override_ = nullptr;  // the private cache of run_logits
  GemmPhase gemm_;                              // of the experts, filled by thread 0
  std::vector<KvPrefetch> kv_prefetch_;         // of each thread
  std::vector<GemmPhase> thread_gemm_;          // of plain products, filled by each thread for itself
  const Op* logits_product_ = nullptr;          // whose items keep the best logits
  bool rescores_best_ = false;                  // some of them are computed once more
  std::vector<TopValues> top_logits_;           // [threads][logit_rows] the best of those that a thread has made
  std::vector<ChunkSum> chunk_sums_;            // [logit_rows][chunks], of rows that are sampled from them
  QuantizedRows moe_q_[4];                      // expert input, expert hidden, shared input, shared hidden
  std::vector<float>* logits_out_ = nullptr;
  std::unique_ptr<std::atomic<int64_t>[]> counters_;  // of three phases in turn, kClaimStride per thread
};

template <typename F>
void Executor::alone(Walker& walker, F f) {
  if (walker.thread != 0) return;
  const auto started = std::chrono::steady_clock::now();
  f();
  walker.serial += std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

// Calls f(row) for every row, in claimed runs of some; a phase of its own.
template <typename F>
void Executor::for_rows(Walker& walker, int32_t num_rows, F f) {
  const Claims claims = begin_phase(walker);
  const int32_t grain = std::clamp(num_rows / (4 * pool_->num_threads()), 1, 16);
  const int64_t num_items = (num_rows + grain - 1) / grain;
  for (int64_t item = claims.next(num_items); item >= 0; item = claims.next(num_items)) {
    const int32_t last = static_cast<int32_t>(std::min<int64_t>((item + 1) * grain, num_rows));
    for (int32_t row = static_cast<int32_t>(item * grain); row < last; row++) f(row);
  }
  end_phase(walker);
}

}  // namespace pagoda
