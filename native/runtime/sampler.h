// Choosing tokens: one state per slot (known tokens, parameters), one row of logits at a time. Reproduces
// src/device/reference/sample.ts.
#pragma once
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/kernels.h"
#include "ops/top-values.h"
#include "runtime/choose-in-chunks.h"
#include "runtime/nucleus.h"
#include "runtime/step.h"

namespace pagoda {

struct SamplingSpec {
  double temperature = 1, top_p = 1, min_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int32_t top_k = 0;
  int32_t min_tokens = 0;
  uint64_t seed = 0;
  int32_t num_logprobs = -2;         // -2 = none, -1 = the whole vocabulary
  int32_t num_prompt_logprobs = -2;  // likewise
  std::vector<std::pair<int32_t, double>> logit_bias;
  bool has_allowed = false;
  std::vector<int32_t> allowed;  // sorted
  std::vector<std::vector<int32_t>> bad_words;
  std::vector<int32_t> end_tokens;  // eos and stop ids, masked until min_tokens
};

struct SlotInit {
  int32_t slot = 0;
  std::vector<int32_t> tokens;
  int32_t num_prompt_tokens = 0;
  SamplingSpec sampling;
};

// Up to this k, top-k sampling looks at the best logits alone: k of them, and room for some that are equal to the last.
constexpr int32_t kMaxBestK = 64, kTieRoom = 8;

// Working memory of one thread.
struct SamplerScratch {
  std::vector<double> x, weights;  // [vocabulary]
  std::vector<Kept> kept;
  NucleusScratch nucleus;
  std::vector<double> heap, factors;
  std::vector<int32_t> order;
  std::vector<float> adjusted;
  std::vector<ChunkSum> chunks;
};

class Sampler {
 public:
  Sampler(const Kernels* kernels, int32_t max_seqs, int32_t max_model_len, int32_t vocab_size, int num_threads);

  void add(SlotInit&& init);
  void remove(int32_t slot) { slots_[slot].reset(); }
  bool has(int32_t slot) const { return slots_[slot] != nullptr; }
  int32_t last_token(int32_t slot) const { return slots_[slot]->tokens.back(); }
  int32_t num_known(int32_t slot) const { return static_cast<int32_t>(slots_[slot]->tokens.size()); }
  bool wants_prompt_logprobs(int32_t slot) const { return slots_[slot]->sampling.num_prompt_logprobs != -2; }
  // The prompt token at `position`, or -1 past the prompt.
  int32_t prompt_token(int32_t slot, int32_t position) const {
    return position < slots_[slot]->num_prompt_tokens ? slots_[slot]->tokens[position] : -1;
  }

  // Logits are finite, and `best` has at least the best of them. `sample` chooses the next token of `slot` and remembers it;
  // `score_prompt_token` gives logprob, rank and alternatives of a known token.
  void sample(int thread, int32_t slot, const float* logits, const TopValues& best, SampledRow* out);
  void score_prompt_token(int thread, int32_t slot, const float* logits, const TopValues& best, PromptRow* row);
  // How many of the best logits choose the next tokens of `slot`, now and for the rest of its output; 0 = it takes all logits.
  int32_t num_best(int32_t slot) const;
  // As `sample`, from the num_best (or more) best logits alone; no other one is above `others`. False when they do not suffice, since
  // others may be equal to the last one that top-k keeps; then nothing has happened.
  bool sample_best(int thread, int32_t slot, const TopValues& best, float others, SampledRow* out);
  // What the logits of `slot` are multiplied with where the sums of their chunks choose its next tokens, now and for the rest of its output;
  // 0 = they do not.
  float chunk_scale(int32_t slot) const;
  // As `sample`, from the sums of the chunks.
  void sample_in_chunks(int thread, int32_t slot, ChunkedRow& row, SampledRow* out);

 private:
  struct Slot {
    std::vector<int32_t> tokens;
    int32_t num_prompt_tokens = 0;
    SamplingSpec sampling;
    bool has_penalties = false;
    // Only with penalties: how often a token was generated; 0 for one that stands in the prompt alone.
    std::unordered_map<int32_t, int32_t> counts;
    int32_t num_outputs() const { return static_cast<int32_t>(tokens.size()) - num_prompt_tokens; }
    bool output_ends_with(const int32_t* ids, size_t count) const;
    bool is_plain() const;  // nothing changes the logits now
    bool is_greedy() const;
    double temperature() const;  // of a random choice
    double uniform() const;      // the random number of the next output
  };

  void adjust(const Slot& slot, const float* logits, double* x) const;
  int32_t last_resort(const Slot& slot, const float* logits) const;
  bool has_filter(const SamplingSpec& sampling) const;
  int32_t choose(const Slot& slot, const float* logits, const TopValues& best, SamplerScratch& scratch) const;
  int32_t choose_unfiltered(const Slot& slot, const float* x, SamplerScratch& scratch) const;
  int32_t choose_filtered(const Slot& slot, double max, SamplerScratch& scratch) const;
  double weigh(double x, double max, double temperature) const;
  // The kept tokens in order of id, weights included; there is a filter.
  void filter(const SamplingSpec& sampling, double temperature, double max, SamplerScratch& scratch) const;
  double log_sum_exp(const float* logits, float max, SamplerScratch& scratch) const;
  void best_tokens(const float* logits, int32_t count, double lse, SamplerScratch& scratch, std::vector<int32_t>* tokens, std::vector<float>* logprobs) const;

  const Kernels* kernels_;
  const int32_t max_model_len_, vocab_size_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<SamplerScratch> scratch_;
};

}  // namespace pagoda
