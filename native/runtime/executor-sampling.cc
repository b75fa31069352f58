// From the output layer to the token. Rows that need only their best logits keep those from the items of the product, while the columns
// are in the cache: their logits never are in memory. Which thread made which columns makes no difference to what is best in the end.
#include <algorithm>
#include <cstring>
#include <limits>

#include "runtime/executor.h"

namespace pagoda {

static_assert(kMaxBestK + kTieRoom + kRescored <= kMaxTopValues, "the best logits of a row have room");

int32_t Executor::num_top_logits(int32_t slot) const {
  const int32_t num_best = logits_product_ != nullptr ? sampler_->num_best(slot) : 0;
  // However low the rescored ones end, there are num_best at or above the lowest that is kept.
  return num_best > 0 && plan_.phases.back().tail == Tail::Sample ? num_best + kRescored : num_best;
}

// Of this thread, for the rows of the chunk; false when all of them take all logits.
bool Executor::clear_top_logits(int thread) {
  bool found = false;
  for (int32_t r = 0; r < chunk_rows_; r++) {
    const int32_t num_top = logit_rows_[chunk_first_ + r].num_top;
    clear_top(&top_logits_[static_cast<size_t>(thread) * plan_.limits.logit_rows + r], num_top);
    found = found || num_top > 0;
  }
  return found;
}

void Executor::keep_top_logits(const Op& product, const GemmArgs& item, const Walker& walker) {
  const int32_t first_col = item.panel_begin * kPanelRows, cols = std::min(item.panel_end * kPanelRows, plan_.vocab_size) - first_col;
  TopValues* const top = top_logits_.data() + static_cast<size_t>(walker.thread) * plan_.limits.logit_rows;
  for (int32_t r = item.row_begin; r < item.row_end; r++) {
    const float* logits = walker.tile + item.out_stride * static_cast<size_t>(r - item.row_begin);
    if (logit_rows_[chunk_first_ + r].num_top > 0) kernels_->keep_top(logits, cols, first_col, &top[r]);
    else std::memcpy(row(product.out, plan_.vocab_size, r) + first_col, logits, sizeof(float) * static_cast<size_t>(cols));
  }
}

// The best logits among those of all threads.
TopValues& Executor::join_top_logits(int32_t chunk_row) {
  TopValues& best = top_logits_[chunk_row];
  for (int t = 1; t < pool_->num_threads(); t++) {
    const TopValues& other = top_logits_[static_cast<size_t>(t) * plan_.limits.logit_rows + chunk_row];
    for (int32_t i = 0; i < other.count; i++) offer_value(&best, other.values[i], other.ids[i]);
    best.finite = best.finite && other.finite;
  }
  return best;
}

LogitSource Executor::logit_source(const Op& rescore, int32_t chunk_row, float* scratch) const {
  const float* bias = rescore.bias >= 0 ? weights_->vector(rescore.bias) : nullptr;
  return {&weights_->matrix(rescore.weight).parts[0], row(rescore.in, rescore.cols, chunk_row), bias, scratch};
}

// One row of the output layer in memory, after all.
void Executor::make_logits(int32_t chunk_row, float* scratch) {
  GemmArgs args = linear_args(*logits_product_, chunk_rows_);
  args.row_begin = chunk_row;
  args.row_end = chunk_row + 1;
  args.panel_ahead = args.panel_end;
  args.scratch = scratch;
  kernels_->gemm(&args);
}

// What follows the output layer row by row; once per row.
float* Executor::finish_logits(const Walker& walker, const Phase& phase, const Step& step, int32_t chunk_row) {
  if (phase.tail == Tail::Sample) for (int32_t i = phase.first; i < phase.last; i++) row_op(plan_.ops[i], step, chunk_row, walker.scratch);
  return row(plan_.ops.back().in, plan_.vocab_size, chunk_row);
}

void Executor::sample_phase(Walker& walker, const Phase& phase, Step& step) {
  for_rows(walker, chunk_rows_, [&](int32_t r) {
    const LogitRow& info = logit_rows_[chunk_first_ + r];
    if (logits_out_) {
      float* out = logits_out_->data() + static_cast<size_t>(position_[info.token]) * plan_.vocab_size;
      std::memcpy(out, finish_logits(walker, phase, step, r), sizeof(float) * plan_.vocab_size);
      return;
    }
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
  const int32_t slot = step.in.slot[info.seq];
  const bool samples = info.result >= 0 && !sampling_ended_[info.seq];
  bool finite = true;
  if (samples && info.num_top > 0) {
    finite = sample_top(walker, phase, step, chunk_row);
  } else if (samples || info.prompt_row >= 0) {
    const float* logits = finish_logits(walker, phase, step, chunk_row);
    if (info.prompt_row >= 0) finite = sampler_->score_prompt_token(walker.thread, slot, logits, &step.out.prompt_rows[info.prompt_row]);
    if (samples) finite = finite && sampler_->sample(walker.thread, slot, logits, &step.out.rows[info.result]);
  }
  if (!finite) step.out.faults[info.seq] = 1;
  if (samples) sampling_ended_[info.seq] = !finite || step.out.rows[info.result].token != info.draft;
}

// False when the logits are not finite.
bool Executor::sample_top(const Walker& walker, const Phase& phase, Step& step, int32_t chunk_row) {
  const LogitRow& info = logit_rows_[chunk_first_ + chunk_row];
  const int32_t slot = step.in.slot[info.seq];
  SampledRow& out = step.out.rows[info.result];
  TopValues& best = join_top_logits(chunk_row);
  const float others = is_full(best) ? best.values[best.count - 1] : -std::numeric_limits<float>::infinity();
  if (phase.tail == Tail::Sample) rescore(*kernels_, logit_source(plan_.ops[phase.first], chunk_row, walker.scratch), &best);
  if (!best.finite) return false;
  if (sampler_->sample_best(walker.thread, slot, best, others, &out)) return true;
  make_logits(chunk_row, walker.scratch);
  return sampler_->sample(walker.thread, slot, finish_logits(walker, phase, step, chunk_row), &out);
}

}  // namespace pagoda
