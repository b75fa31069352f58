// From the output layer to the token. While an item's columns are in the cache it keeps the best logits of each row, and sums the chunks of
// rows that are sampled from all tokens; rows that need no more never have logits in memory. Which thread made which columns makes no
// difference to what is best in the end.
#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/executor.h"

namespace pagoda {

static_assert(kMaxBestK + kTieRoom + kRescored <= kMaxTopValues, "the best logits of a row have room");

void Executor::keep_of_logits(const Op& product, const GemmArgs& item, const Walker& walker) {
  const int32_t first_col = item.panel_begin * kPanelRows, cols = std::min(item.panel_end * kPanelRows, plan_.vocab_size) - first_col;
  for (int32_t r = item.row_begin; r < item.row_end; r++) {
    const LogitRow& info = logit_rows_[chunk_first_ + r];
    const float* logits = walker.tile + item.out_stride * static_cast<size_t>(r - item.row_begin);
    kernels_->keep_top(logits, cols, first_col, top_logits(walker.thread) + r);
    if (info.chunk_scale > 0) kernels_->sum_chunks(logits, cols, info.chunk_scale, chunk_sums(r) + first_col / kChoiceChunk);
    if (info.in_memory) std::memcpy(row(product.out, plan_.vocab_size, r) + first_col, logits, sizeof(float) * static_cast<size_t>(cols));
  }
}

// The best logits among those of all threads.
void Executor::join_top_logits(int32_t chunk_row, TopValues* best) {
  *best = top_logits(0)[chunk_row];
  for (int t = 1; t < pool_->num_threads(); t++) {
    const TopValues& other = top_logits(t)[chunk_row];
    for (int32_t i = 0; i < other.count; i++) offer_value(best, other.values[i], other.ids[i]);
    best->finite = best->finite && other.finite;
  }
}

LogitSource Executor::logit_source(const Op& rescore, int32_t chunk_row, float* scratch) const {
  const float* bias = rescore.bias >= 0 ? weights_->vector(rescore.bias) : nullptr;
  return {&weights_->matrix(rescore.weight).parts[0], row(rescore.in, rescore.cols, chunk_row), bias, scratch};
}

// Columns of the output layer for one row, after all.
void Executor::make_logits(int32_t chunk_row, int32_t panel_begin, int32_t panel_end, float* out, float* scratch) const {
  GemmArgs args = linear_args(*logits_product_, chunk_rows_);
  args.row_begin = chunk_row;
  args.row_end = chunk_row + 1;
  args.panel_begin = panel_begin;
  args.panel_end = args.panel_ahead = panel_end;
  // Row 0 and column 0, were they there.
  args.out = out - static_cast<ptrdiff_t>(args.out_stride) * chunk_row - static_cast<ptrdiff_t>(panel_begin) * kPanelRows;
  args.scratch = scratch;
  kernels_->gemm(&args);
}

// Does what comes between the output layer and sampling, once per row.
Executor::BestLogits Executor::best_logits(const Walker& walker, const Phase& phase, const Step& step, int32_t chunk_row) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  BestLogits best;
  best.others = kInfinity;
  if (logits_product_ == nullptr) {
    if (phase.tail == Tail::Sample) for (int32_t i = phase.first; i < phase.last; i++) row_op(plan_.ops[i], step, chunk_row, walker.scratch);
    clear_top(&best.top, 1);
    kernels_->keep_top(row(plan_.ops.back().in, plan_.vocab_size, chunk_row), plan_.vocab_size, 0, &best.top);
    return best;
  }
  join_top_logits(chunk_row, &best.top);
  best.others = is_full(best.top) ? best.top.values[best.top.count - 1] : -kInfinity;
  if (rescores_best_) best.rescored = rescore(*kernels_, logit_source(plan_.ops[phase.first], chunk_row, walker.scratch), &best.top);
  return best;
}

// False: it takes all logits.
bool Executor::sample_without_memory(const Walker& walker, int32_t chunk_row, int32_t slot, const BestLogits& best, SampledRow* out) {
  const LogitRow& info = logit_rows_[chunk_first_ + chunk_row];
  if (info.in_memory || !best.top.finite) return false;
  if (info.chunk_scale == 0) return sampler_->sample_best(walker.thread, slot, best.top, best.others, out);
  struct {
    const Executor* executor;
    int32_t chunk_row;
    float* scratch;
  } source{this, chunk_row, walker.scratch};
  ChunkedRow row{chunk_sums(chunk_row), plan_.vocab_size, best.rescored, [&source](int32_t first, int32_t count, float* out) {
    const int32_t panels = (count + kPanelRows - 1) / kPanelRows;
    source.executor->make_logits(source.chunk_row, first / kPanelRows, first / kPanelRows + panels, out, source.scratch);
  }};
  sampler_->sample_in_chunks(walker.thread, slot, row, out);
  return true;
}

void Executor::sample_phase(Walker& walker, const Phase& phase, Step& step) {
  for_rows(walker, chunk_rows_, [&](int32_t r) {
    const LogitRow& info = logit_rows_[chunk_first_ + r];
    if (samples_with_row_before(r)) return;
    try {
      // What one row samples, the next has to know: whoever has the first row takes those after it, too.
      do take_logits(walker, phase, step, r++);
      while (r < chunk_rows_ && samples_with_row_before(r));
    } catch (...) {  // out of memory: this sequence ends in an error, the others go on
      step.out.faults[info.seq] = 1;
      sampling_ended_[info.seq] = 1;
    }
  });
}

// Whether the row before samples for the same sequence.
bool Executor::samples_with_row_before(int32_t chunk_row) const {
  if (chunk_row == 0) return false;
  const LogitRow* row = &logit_rows_[chunk_first_ + chunk_row];
  return row[-1].seq == row->seq && row[-1].result >= 0;
}

// Scores the prompt token of the row, samples from it, or both. Rows after a sample that differs from its draft give none, also in the
// next chunk.
void Executor::take_logits(const Walker& walker, const Phase& phase, Step& step, int32_t chunk_row) {
  const LogitRow& info = logit_rows_[chunk_first_ + chunk_row];
  const bool samples = info.result >= 0 && !sampling_ended_[info.seq];
  if (!samples && info.prompt_row < 0 && !logits_out_) return;
  const int32_t slot = step.in.slot[info.seq];
  SampledRow* const out = samples ? &step.out.rows[info.result] : nullptr;
  const BestLogits kept = best_logits(walker, phase, step, chunk_row);
  const TopValues& best = kept.top;
  if (!sample_without_memory(walker, chunk_row, slot, kept, out) && (best.finite || logits_out_)) {
    float* logits = row(plan_.ops.back().in, plan_.vocab_size, chunk_row);
    if (!info.in_memory) make_logits(chunk_row, 0, (plan_.vocab_size + kPanelRows - 1) / kPanelRows, logits, walker.scratch);
    for (int32_t i = 0; i < best.count; i++) logits[best.ids[i]] = best.values[i];
    if (logits_out_) std::copy_n(logits, plan_.vocab_size, logits_out_->data() + static_cast<size_t>(position_[info.token]) * plan_.vocab_size);
    if (info.prompt_row >= 0) sampler_->score_prompt_token(walker.thread, slot, logits, best, &step.out.prompt_rows[info.prompt_row]);
    if (samples) sampler_->sample(walker.thread, slot, logits, best, out);
  }
  if (!best.finite) step.out.faults[info.seq] = 1;
  if (samples) sampling_ended_[info.seq] = !best.finite || out->token != info.draft;
}

}  // namespace pagoda
