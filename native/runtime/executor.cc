#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>

namespace pagoda {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// One result row for each row that is sampled from, at least one per sequence.
void reset_rows(const StepInput& in, StepOutput* out) {
  out->row_start.resize(in.num_seqs + 1);
  out->row_start[0] = 0;
  for (int32_t s = 0; s < in.num_seqs; s++) out->row_start[s + 1] = out->row_start[s] + std::max<int32_t>(1, in.samples[s]);
  const size_t num_rows = out->row_start[in.num_seqs];
  if (out->rows.size() < num_rows) out->rows.resize(num_rows);
  for (size_t r = 0; r < num_rows; r++) {
    SampledRow& row = out->rows[r];
    row.token = -1;
    row.logprob = 0;
    row.rank = 0;
    row.top_tokens.clear();
    row.top_logprobs.clear();
  }
}

// For so many tokens, within so many bytes, the KV pool always has pages before they are needed; for twice as many at most.
constexpr size_t kTokensAhead = 24 << 10, kMostBytesAhead = size_t{512} << 20;

// Vectors of the last head may be read to the end of a 16-lane register.
constexpr size_t kKvPadding = 64;

}  // namespace

Executor::Executor(const Kernels* kernels, ThreadPool* pool, const WeightStore* weights, Plan plan, Sampler* sampler)
    : kernels_(kernels), pool_(pool), weights_(weights), plan_(std::move(plan)), sampler_(sampler), gemm_(kernels) {
  num_groups_ = static_cast<int32_t>(plan_.kv.groups.size());
  attention_.resize(num_groups_);
  chunk_attention_.resize(num_groups_);
  attends_in_chunks_.assign(num_groups_, 0);
  group_heads_.assign(num_groups_, 1);
  for (const Op& op : plan_.ops) {
    if (op.kind != OpKind::Attention) continue;
    group_heads_[plan_.kv.layer_group[op.layer]] = op.num_heads / plan_.kv.num_kv_heads;
    if (plan_.buffers[op.in].per_logit_row) attends_in_chunks_[plan_.kv.layer_group[op.layer]] = 1;
  }
  for (const Op& op : plan_.ops) {
    if (op.kind == OpKind::Attention && group_heads_[plan_.kv.layer_group[op.layer]] != op.num_heads / plan_.kv.num_kv_heads) {
      throw std::runtime_error("layers of one KV group differ in their number of heads");
    }
  }
  allocate_buffers();
  make_rope_tables();
}

void Executor::allocate_buffers() {
  const size_t max_tokens = static_cast<size_t>(plan_.limits.max_tokens);
  for (const BufferSpec& spec : plan_.buffers) {
    const size_t rows = spec.per_logit_row ? static_cast<size_t>(plan_.limits.logit_rows) : max_tokens;
    if (spec.form != RowForm::Float) {
      buffers_.emplace_back(kernels_->quantized_bytes(spec.form, static_cast<int32_t>(rows), spec.cols));
      quantized_.push_back({buffers_.back().data(), static_cast<int32_t>(rows), (spec.cols + 31) / 32 * 32, spec.form});
    } else {
      buffers_.emplace_back(rows * spec.cols * sizeof(float));
      quantized_.push_back({nullptr, 0, 0, RowForm::Float});
    }
  }
  for (const Op& op : plan_.ops) {
    const int32_t cols = std::max({op.cols, op.moe.expert_cols, op.moe.shared_cols, 16});
    scratch_floats_ = std::max({scratch_floats_, kernels_->gemm_scratch_floats(cols), static_cast<size_t>(cols)});
    if (op.kind == OpKind::Attention) {
      scratch_floats_ = std::max(scratch_floats_, attention_scratch_floats(op.num_heads / plan_.kv.num_kv_heads, op.head_dim));
    }
  }
  scratch_floats_ = (scratch_floats_ + 63) / 64 * 64 + kGemmTileFloats;
  scratch_ = AlignedBuffer(scratch_floats_ * sizeof(float) * pool_->num_threads());
  for (const Phase& phase : plan_.phases) {
    if (phase.tail != Tail::Best) continue;
    logits_product_ = &plan_.ops[phase.first];
    rescores_best_ = plan_.phases.back().tail == Tail::Sample;
    top_logits_.resize(static_cast<size_t>(pool_->num_threads()) * plan_.limits.logit_rows);
    chunk_sums_.resize(static_cast<size_t>(plan_.limits.logit_rows) * num_choice_chunks(plan_.vocab_size));
  }
  moe_.allocate(plan_, *weights_, *kernels_, plan_.int8);
  token_ids_.resize(max_tokens);
  position_.resize(max_tokens);
  token_seq_.resize(max_tokens);
  thread_gemm_.assign(pool_->num_threads(), GemmPhase(kernels_));
  counters_.reset(new std::atomic<int64_t>[3 * pool_->num_threads() * kClaimStride]);
  // Nothing may be allocated while the threads walk.
  for (GemmPhase& gemm : thread_gemm_) gemm.reserve(plan_.ops.size());
  kv_prefetch_.resize(pool_->num_threads());
  for (KvPrefetch& prefetch : kv_prefetch_) prefetch.reserve(plan_, *weights_, *kernels_, pool_->num_threads());
  size_t experts = 0;
  for (const Op& op : plan_.ops) experts = std::max(experts, static_cast<size_t>(op.moe.num_experts));
  gemm_.reserve(2 * experts + 4);
}

void Executor::make_rope_tables() {
  const size_t rows = static_cast<size_t>(plan_.limits.max_model_len);
  for (const RopeTableSpec& spec : plan_.tables) {
    const size_t pairs = spec.inverse_frequencies.size();
    RopeTable table{AlignedBuffer(rows * pairs * sizeof(float)), AlignedBuffer(rows * pairs * sizeof(float)), static_cast<int32_t>(pairs)};
    std::atomic<size_t> next{0};
    pool_->parallel([&](int) {
      for (size_t first = next.fetch_add(64); first < rows; first = next.fetch_add(64)) {
        for (size_t position = first; position < std::min(first + 64, rows); position++) {
          for (size_t i = 0; i < pairs; i++) {
            const float angle = static_cast<float>(position) * static_cast<float>(spec.inverse_frequencies[i]);  // float32, as in training
            table.cos.floats()[position * pairs + i] = static_cast<float>(std::cos(static_cast<double>(angle)) * spec.magnitude);
            table.sin.floats()[position * pairs + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * spec.magnitude);
          }
        }
      }
    });
    tables_.push_back(std::move(table));
  }
}

void Executor::allocate_kv(int64_t num_blocks) {
  kv_pages_.reset();
  kv_ = AlignedBuffer(static_cast<size_t>(num_blocks) * plan_.kv.block_bytes() + kKvPadding);
  num_blocks_ = num_blocks;
  const size_t ahead = std::min(kTokensAhead / plan_.kv.block_size * plan_.kv.block_bytes() * num_groups_, kMostBytesAhead);
  kv_pages_ = std::make_unique<PagesAhead>(kv_.data(), kv_.bytes(), ahead, 2 * ahead);
  kv_pages_->reach(0);
}

// Resolves tokens and positions and lists the work; false with step.out.error when the step cannot run.
bool Executor::prepare(Step& step, const uint8_t* kv) {
  const StepInput& in = step.in;
  step.out.error.clear();
  step.out.times = {};
  step.out.num_prompt_rows = 0;
  step.out.faults.assign(in.num_seqs, 0);
  sampling_ended_.assign(in.num_seqs, 0);
  reset_rows(in, &step.out);
  step_kv_ = kv;
  for (int32_t s = 0; s < in.num_seqs; s++) {
    if (!logits_out_ && !sampler_->has(in.slot[s])) {
      step.out.error = "slot " + std::to_string(in.slot[s]) + " holds no sequence";
      return false;
    }
    for (int32_t t = in.token_start[s]; t < in.token_start[s + 1]; t++) {
      token_ids_[t] = in.token_ids[t] >= 0 ? in.token_ids[t] : sampler_->last_token(in.slot[s]);
      position_[t] = in.num_computed[s] + (t - in.token_start[s]);
      token_seq_[t] = s;
    }
  }
  collect_logit_rows(step);
  if (!step_kv_override_) ask_for_kv_pages(in);
  list_attention(in);
  begin_chunk(in, 0);
  for (int i = 0; i < 3 * pool_->num_threads() * kClaimStride; i++) counters_[i].store(0, std::memory_order_relaxed);
  return true;
}

void Executor::list_attention(const StepInput& in) {
  runs_.clear();
  for (int32_t s = 0; s < in.num_seqs; s++) runs_.push_back({s, in.token_start[s], in.token_start[s + 1] - in.token_start[s], in.num_computed[s]});
  for (int32_t g = 0; g < num_groups_; g++) {
    attention_[g].build(runs_, in, plan_, g, group_heads_[g], pool_->num_threads());
    make_room_for_splits(attention_[g]);
  }
}

// The rows from `first` on that go through the phases of rows that need logits together.
void Executor::begin_chunk(const StepInput& in, int32_t first) {
  const int32_t num_rows = static_cast<int32_t>(logit_rows_.size());
  chunk_first_ = first;
  chunk_rows_ = std::min(plan_.limits.logit_rows, num_rows - first);
  all_rows_in_chunk_ = chunk_rows_ == in.num_tokens;
  if (all_rows_in_chunk_) return;
  runs_.clear();
  for (int32_t r = 0; r < chunk_rows_; r++) {
    const LogitRow* row = &logit_rows_[first + r];
    if (r > 0 && row->seq == row[-1].seq && row->token == row[-1].token + 1) runs_.back().num_tokens++;
    else runs_.push_back({row->seq, r, 1, position_[row->token]});
  }
  for (int32_t g = 0; g < num_groups_; g++) {
    if (!attends_in_chunks_[g]) continue;
    chunk_attention_[g].build(runs_, in, plan_, g, group_heads_[g], pool_->num_threads());
    make_room_for_splits(chunk_attention_[g]);
  }
}

void Executor::make_room_for_splits(const AttentionItems& work) {
  int64_t wanted = static_cast<int64_t>(work.num_splits()) * plan_.kv.num_kv_heads;
  if (wanted > split_capacity_) {
    wanted = std::max(wanted, 2 * split_capacity_);  // contexts grow: seldom, not in every step
    split_done_.reset(new std::atomic<int32_t>[wanted]);
    for (int64_t i = 0; i < wanted; i++) split_done_[i].store(0);
    split_capacity_ = wanted;
  }
  const size_t partial_bytes = static_cast<size_t>(work.partial_floats()) * sizeof(float);
  if (partial_bytes > partials_.bytes()) partials_ = AlignedBuffer(std::max(partial_bytes, 2 * partials_.bytes()));
}

// Unused blocks are taken in order: the largest of the last blocks of the tables tells how far the pool is in use.
void Executor::ask_for_kv_pages(const StepInput& in) {
  int32_t last = -1;
  for (size_t t = 0; t + 1 < in.block_table_start.size(); t++) {
    if (in.block_table_start[t] < in.block_table_start[t + 1]) last = std::max(last, in.block_tables[in.block_table_start[t + 1] - 1]);
  }
  kv_pages_->reach(static_cast<size_t>(last + 1) * plan_.kv.block_bytes());
}

void Executor::collect_logit_rows(Step& step) {
  const StepInput& in = step.in;
  logit_rows_.clear();
  for (int32_t s = 0; s < in.num_seqs; s++) {
    const int32_t end = in.token_start[s + 1];
    const int32_t first_sampled = end - in.samples[s];
    const bool all = in.logit_rows[s] == 2;
    const bool keeps_some = logits_product_ != nullptr && !logits_out_;
    const int32_t num_best = keeps_some ? sampler_->num_best(in.slot[s]) : 0;
    const float chunk_scale = keeps_some ? sampler_->chunk_scale(in.slot[s]) : 0;
    for (int32_t t = all ? in.token_start[s] : first_sampled; t < end; t++) {
      LogitRow row{s, t, -1, -1, t + 1 < end ? token_ids_[t + 1] : -1, 0, 0, true};
      if (t >= first_sampled) row.result = step.out.row_start[s] + (t - first_sampled);
      if (all && !logits_out_ && sampler_->wants_prompt_logprobs(in.slot[s])) {
        const int32_t next = sampler_->prompt_token(in.slot[s], position_[t] + 1);
        if (next >= 0) {
          row.prompt_row = static_cast<int32_t>(step.out.num_prompt_rows++);
          if (step.out.prompt_rows.size() < step.out.num_prompt_rows) step.out.prompt_rows.emplace_back();
          PromptRow& prompt = step.out.prompt_rows[row.prompt_row];
          prompt.seq = s;
          prompt.position = position_[t] + 1;
          prompt.token = next;
          prompt.rank = 0;
          prompt.top_tokens.clear();
          prompt.top_logprobs.clear();
        }
      }
      row.in_memory = (num_best == 0 && chunk_scale == 0) || row.prompt_row >= 0;
      if (!row.in_memory) row.chunk_scale = chunk_scale;
      // However low the rescored ones end, num_best others are not below the last one kept.
      row.num_top = std::max(num_best, 1) + (rescores_best_ ? kRescored : 0);
      if (row.result >= 0 || row.prompt_row >= 0 || logits_out_) logit_rows_.push_back(row);
    }
  }
}

void Executor::run(Step& step) {
  const double started = now();
  if (!prepare(step, step_kv_override_ ? step_kv_override_ : kv_.data())) return;
  const double prepared = now();
  // Two captures fit the function object: nothing is allocated per step.
  if (kv_pages_) kv_pages_->begin_step();
  pool_->parallel([this, &step](int thread) { walk_all(thread, step); });
  if (kv_pages_) kv_pages_->end_step();
  step.out.times.serial += prepared - started;
  step.out.times.total = now() - started;
}

void Executor::walk_all(int thread, Step& step) {
  float* scratch = scratch_.floats() + scratch_floats_ * thread;
  Walker walker{thread, 0, scratch, scratch + scratch_floats_ - kGemmTileFloats};
  walk(walker, step);
  if (thread != 0) return;
  step.out.times.linear = walker.linear;
  step.out.times.attention = walker.attention;
  step.out.times.sampling = walker.sampling;
  step.out.times.rows = walker.rows;
  step.out.times.serial = walker.serial;
}

void Executor::run_logits(const std::vector<int32_t>& tokens, std::vector<float>* out) {
  const KvSpec& kv = plan_.kv;
  const int32_t num_tokens = static_cast<int32_t>(tokens.size());
  const int32_t blocks = (num_tokens + kv.block_size - 1) / kv.block_size;
  AlignedBuffer pool(static_cast<size_t>(blocks) * num_groups_ * kv.block_bytes() + kKvPadding);
  out->resize(static_cast<size_t>(num_tokens) * plan_.vocab_size);
  Step step;
  StepInput& in = step.in;
  in.num_seqs = 1;
  in.slot = {0};
  in.logit_rows = {2};
  in.samples = {0};
  for (int32_t g = 0; g < num_groups_; g++) {
    in.block_table_start.push_back(g * blocks);
    for (int32_t b = 0; b < blocks; b++) in.block_tables.push_back(g * blocks + b);
  }
  in.block_table_start.push_back(num_groups_ * blocks);
  logits_out_ = out;
  step_kv_override_ = pool.data();
  for (int32_t first = 0; first < num_tokens; first += plan_.limits.max_tokens) {
    in.num_tokens = std::min(plan_.limits.max_tokens, num_tokens - first);
    in.token_ids.assign(tokens.begin() + first, tokens.begin() + first + in.num_tokens);
    in.token_start = {0, in.num_tokens};
    in.num_computed = {first};
    run(step);
  }
  logits_out_ = nullptr;
  step_kv_override_ = nullptr;
}

Claims Executor::begin_phase(Walker& walker) {
  // Three sets of counters in turn: while a phase runs, nobody can still be in the phase two before it, whose counters come next.
  const uint32_t phase = walker.phase++;
  const int num_threads = pool_->num_threads(), stride = num_threads * kClaimStride;
  if (walker.thread == 0) {
    for (int t = 0; t < num_threads; t++) counters_[(phase + 1) % 3 * stride + t * kClaimStride].store(0, std::memory_order_relaxed);
  }
  return {counters_.get() + phase % 3 * stride, walker.thread, num_threads};
}

void Executor::walk(Walker& walker, Step& step) {
  prefetch_next_attention(walker, step, 0);
  for (int32_t p = 0; p < plan_.num_token_phases; p++) run_phase(walker, step, plan_.phases[p]);
  const int32_t num_rows = static_cast<int32_t>(logit_rows_.size());
  for (int32_t first = 0; first < num_rows; first += plan_.limits.logit_rows) {
    if (first > 0) {  // the first chunk is ready
      alone(walker, [&] { begin_chunk(step.in, first); });
      pool_->barrier(walker.thread);
    }
    for (size_t p = plan_.num_token_phases; p < plan_.phases.size(); p++) run_phase(walker, step, plan_.phases[p]);
  }
}

void Executor::run_phase(Walker& walker, Step& step, const Phase& phase) {
  const Op& op = plan_.ops[phase.first];
  const int32_t num_rows = phase.per_logit_row ? chunk_rows_ : step.in.num_tokens;
  const double started = walker.thread == 0 ? now() : 0;
  const double serial_before = walker.serial;
  double* bucket = &walker.rows;
  switch (phase.tail == Tail::Sample ? OpKind::Sample : op.kind) {
    case OpKind::Linear:
      linear_phase(walker, phase, step, num_rows);
      bucket = &walker.linear;
      break;
    case OpKind::Attention:
      attention_phase(walker, phase, step);
      bucket = &walker.attention;
      break;
    case OpKind::Moe:
      moe_phase(walker, op, num_rows);
      bucket = &walker.linear;
      break;
    case OpKind::Sample:
      sample_phase(walker, phase, step);
      bucket = &walker.sampling;
      break;
    default:
      for_rows(walker, num_rows, [&](int32_t r) {
        for (int32_t i = phase.first; i < phase.last; i++) row_op(plan_.ops[i], step, r, walker.scratch);
      });
  }
  if (walker.thread == 0) *bucket += now() - started - (walker.serial - serial_before);
}

void Executor::row_op(const Op& op, const Step& step, int32_t r, float* scratch) {
  const int32_t cols = op.cols;
  switch (op.kind) {
    case OpKind::Embed: {
      float* out = row(op.out, cols, r);
      kernels_->dequantize_row(&weights_->matrix(op.weight).parts[0], token_ids_[r], out);
      if (op.scale != 1.0f) for (int32_t c = 0; c < cols; c++) out[c] *= op.scale;
      return;
    }
    case OpKind::AddPosition: {
      kernels_->dequantize_row(&weights_->matrix(op.weight).parts[0], position_[r] + op.offset, scratch);
      kernels_->add(row(op.out, cols, r), scratch, row(op.out, cols, r), cols);
      return;
    }
    case OpKind::RmsNorm:
      return kernels_->rms_norm(row(op.in, cols, r), row(op.out, cols, r), weights_->vector(op.weight), cols, op.group_cols, op.eps);
    case OpKind::LayerNorm:
      return kernels_->layer_norm(row(op.in, cols, r), row(op.out, cols, r), weights_->vector(op.weight), op.bias >= 0 ? weights_->vector(op.bias) : nullptr, cols, op.eps);
    case OpKind::Quantize:
      return kernels_->quantize_rows(&quantized_[op.q], row(op.in, cols, 0), cols, r, r + 1, 0, cols);
    case OpKind::Rope:
      return rotate(op, r, row(op.in, cols, r), op.num_heads);
    case OpKind::KvWrite: {
      const int32_t heads = plan_.kv.num_kv_heads, width = heads * plan_.kv.head_dim;
      return write_kv(op, step, r, row(op.in, width, r), row(op.in2, width, r), 0, heads);
    }
    case OpKind::GatedActivation:
      return kernels_->gated_activation(row(op.in, cols, r), row(op.in2, cols, r), row(op.out, cols, r), cols, op.activation);
    case OpKind::Activation:
      return kernels_->activation(row(op.in, cols, r), row(op.out, cols, r), cols, op.activation);
    case OpKind::Add:
      return kernels_->add(row(op.in, cols, r), row(op.in2, cols, r), row(op.out, cols, r), cols);
    case OpKind::SelectRows:
      std::memcpy(row(op.out, cols, r), row(op.in, cols, logit_rows_[chunk_first_ + r].token), sizeof(float) * cols);
      return;
    case OpKind::Rescore:
      return rescore(*kernels_, logit_source(op, r, scratch), row(op.out, plan_.vocab_size, r));
    case OpKind::Softcap:
      return kernels_->softcap(row(op.in, cols, r), cols, op.cap);
    default:
      return;
  }
}

}  // namespace pagoda
