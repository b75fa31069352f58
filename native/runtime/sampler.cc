#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/random.h"

namespace pagoda {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr double kGreedyTemperature = 1e-5, kMinTemperature = 0.01, kMaxBias = 100;
constexpr int32_t kSumChunk = kWeightChunk;
constexpr int32_t kMaxHeap = 2048;  // above it a top-k limit is found by partial sorting

double join_lanes(const double* l) { return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7])); }

// End of the run of kept tokens that lie in the chunk of kept[first].
size_t chunk_end(const std::vector<Kept>& kept, size_t first) {
  const int32_t limit = (kept[first].token / kSumChunk + 1) * kSumChunk;
  size_t end = first;
  while (end < kept.size() && kept[end].token < limit) end++;
  return end;
}

double lane_sum(const std::vector<Kept>& kept, size_t first, size_t end) {
  double lanes[8] = {};
  for (size_t i = first; i < end; i++) lanes[kept[i].token & 7] += kept[i].weight;
  return join_lanes(lanes);
}

double chunked_sum(const std::vector<Kept>& kept) {
  double total = 0;
  for (size_t first = 0; first < kept.size();) {
    const size_t end = chunk_end(kept, first);
    total += lane_sum(kept, first, end);
    first = end;
  }
  return total;
}

int32_t last_weighted(const std::vector<Kept>& kept, size_t end) {
  while (end > 0 && !(kept[end - 1].weight > 0)) end--;
  return end > 0 ? kept[end - 1].token : 0;
}

int32_t choose_sparse(const std::vector<Kept>& kept, double u) {
  const double target = u * chunked_sum(kept);
  double running = 0;
  for (size_t first = 0; first < kept.size();) {
    const size_t end = chunk_end(kept, first);
    const double next = running + lane_sum(kept, first, end);
    if (next > target) {
      double sum = running;
      for (size_t i = first; i < end; i++) {
        sum += kept[i].weight;
        if (kept[i].weight > 0 && sum > target) return kept[i].token;
      }
      return last_weighted(kept, end);
    }
    running = next;
    first = end;
  }
  return last_weighted(kept, kept.size());
}

// The k-th largest of x; `heap` holds the k largest so far, the smallest first.
double kth_largest(const std::vector<double>& x, int32_t k, std::vector<double>& heap) {
  const auto greater = [](double a, double b) { return a > b; };
  if (k > kMaxHeap) {
    heap.assign(x.begin(), x.end());
    std::nth_element(heap.begin(), heap.begin() + (k - 1), heap.end(), greater);
    return heap[k - 1];
  }
  heap.assign(x.begin(), x.begin() + k);
  std::make_heap(heap.begin(), heap.end(), greater);
  for (size_t i = static_cast<size_t>(k); i < x.size(); i++) {
    if (!(x[i] > heap.front())) continue;
    std::pop_heap(heap.begin(), heap.end(), greater);
    heap.back() = x[i];
    std::push_heap(heap.begin(), heap.end(), greater);
  }
  return heap.front();
}

void sort_by_token(std::vector<Kept>& kept) {
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.token < b.token; });
}

}  // namespace

Sampler::Sampler(const Kernels* kernels, int32_t max_seqs, int32_t max_model_len, int32_t vocab_size, int num_threads)
    : kernels_(kernels), max_model_len_(max_model_len), vocab_size_(vocab_size), slots_(max_seqs), scratch_(num_threads) {
  // Room that steps need is there from the start: they allocate nothing. Memory that is only reserved takes none.
  for (SamplerScratch& scratch : scratch_) {
    for (std::vector<double>* values : {&scratch.x, &scratch.weights, &scratch.heap}) values->reserve(vocab_size);
    scratch.adjusted.reserve(vocab_size);
    scratch.chunks.reserve(num_choice_chunks(vocab_size));
    scratch.factors.reserve(2 * num_choice_chunks(vocab_size));
    for (std::vector<Kept>* kept : {&scratch.kept, &scratch.nucleus.border}) kept->reserve(vocab_size);
    scratch.nucleus.ids.reserve(vocab_size + 1);
    scratch.order.reserve(vocab_size);
  }
}

void Sampler::add(SlotInit&& init) {
  auto slot = std::make_unique<Slot>();
  slot->tokens.reserve(std::max<size_t>(init.tokens.size(), max_model_len_) + 1);
  slot->tokens.assign(init.tokens.begin(), init.tokens.end());
  slot->num_prompt_tokens = init.num_prompt_tokens;
  slot->sampling = std::move(init.sampling);
  const SamplingSpec& sampling = slot->sampling;
  slot->has_penalties = sampling.repetition_penalty != 1 || sampling.frequency_penalty != 0 || sampling.presence_penalty != 0;
  if (slot->has_penalties) {
    for (int32_t i = 0; i < static_cast<int32_t>(slot->tokens.size()); i++) slot->counts[slot->tokens[i]] += i >= slot->num_prompt_tokens ? 1 : 0;
  }
  slots_[init.slot] = std::move(slot);
}

bool Sampler::Slot::output_ends_with(const int32_t* ids, size_t count) const {
  if (count > static_cast<size_t>(std::max(num_outputs(), 0))) return false;
  return std::equal(ids, ids + count, tokens.end() - static_cast<std::ptrdiff_t>(count));
}

bool Sampler::Slot::is_plain() const {
  return !sampling.has_allowed && sampling.bad_words.empty() && sampling.logit_bias.empty() && !has_penalties && num_outputs() >= sampling.min_tokens;
}

void Sampler::adjust(const Slot& slot, const float* logits, double* x) const {
  const SamplingSpec& sampling = slot.sampling;
  if (sampling.has_allowed) {
    std::fill_n(x, vocab_size_, kMinusInfinity);
    for (int32_t token : sampling.allowed) x[token] = logits[token];
  } else {
    std::copy_n(logits, vocab_size_, x);
  }
  for (const std::vector<int32_t>& word : sampling.bad_words) {
    if (slot.output_ends_with(word.data(), word.size() - 1)) x[word.back()] = kMinusInfinity;
  }
  if (slot.num_outputs() < sampling.min_tokens) {
    for (int32_t token : sampling.end_tokens) x[token] = kMinusInfinity;
  }
  for (const auto& [token, bias] : sampling.logit_bias) x[token] += std::clamp(bias, -kMaxBias, kMaxBias);
  const double repetition = sampling.repetition_penalty;
  for (const auto& [token, count] : slot.counts) {
    if (repetition != 1) x[token] = x[token] > 0 ? x[token] / repetition : x[token] * repetition;
    if (count > 0) x[token] = x[token] - sampling.frequency_penalty * count - sampling.presence_penalty;
  }
}

// When masks leave no token at all: the best raw logit among the allowed ones; min tokens and bad words give way.
int32_t Sampler::last_resort(const Slot& slot, const float* logits) const {
  int32_t best = -1;
  const auto consider = [&](int32_t token) {
    if (best < 0 || logits[token] > logits[best] || (logits[token] == logits[best] && token < best)) best = token;
  };
  if (slot.sampling.has_allowed && !slot.sampling.allowed.empty()) {
    for (int32_t token : slot.sampling.allowed) consider(token);
  } else {
    for (int32_t token = 0; token < vocab_size_; token++) consider(token);
  }
  return best;
}

bool Sampler::Slot::is_greedy() const { return sampling.temperature < kGreedyTemperature; }
double Sampler::Slot::temperature() const { return std::max(sampling.temperature, kMinTemperature); }
double Sampler::Slot::uniform() const { return random_uniform(sampling.seed, static_cast<uint64_t>(num_outputs())); }

bool Sampler::has_filter(const SamplingSpec& sampling) const {
  return sampling.min_p > 0 || sampling.top_p < 1 || (sampling.top_k > 0 && sampling.top_k < vocab_size_);
}

double Sampler::weigh(double x, double max, double temperature) const {
  double weight = 0;
  kernels_->exact_weights(&x, 1, max, temperature, &weight);
  return weight;
}

void Sampler::filter(const SamplingSpec& sampling, double temperature, double max, SamplerScratch& scratch) const {
  const std::vector<double>& x = scratch.x;
  std::vector<Kept>& kept = scratch.kept;
  const bool uses_top_k = sampling.top_k > 0 && sampling.top_k < vocab_size_;
  bool sparse = false;
  if (sampling.min_p > 0) {
    // A cheap bound first, a little too low; then the exact comparison.
    const double bound = max + temperature * std::log(sampling.min_p) - 1e-6 * (std::abs(max) + temperature + 1);
    kept.clear();
    for (int32_t token = 0; token < vocab_size_; token++) {
      if (x[token] < bound) continue;
      const double weight = weigh(x[token], max, temperature);
      if (!(weight < sampling.min_p) && x[token] > kMinusInfinity) kept.push_back({token, x[token], weight});
    }
    sparse = true;
    if (uses_top_k && sampling.top_k < static_cast<int32_t>(kept.size())) {
      scratch.heap.clear();
      for (const Kept& k : kept) scratch.heap.push_back(k.x);
      std::nth_element(scratch.heap.begin(), scratch.heap.begin() + (sampling.top_k - 1), scratch.heap.end(), [](double a, double b) { return a > b; });
      const double limit = scratch.heap[sampling.top_k - 1];
      kept.erase(std::remove_if(kept.begin(), kept.end(), [&](const Kept& k) { return k.x < limit; }), kept.end());
    }
  } else if (uses_top_k) {
    const double limit = kth_largest(x, sampling.top_k, scratch.heap);
    kept.clear();
    for (int32_t token = 0; token < vocab_size_; token++) {
      if (x[token] >= limit && x[token] > kMinusInfinity) kept.push_back({token, x[token], weigh(x[token], max, temperature)});
    }
    sparse = true;
  }
  if (!(sampling.top_p < 1)) return;
  if (sparse) return keep_nucleus(sampling.top_p, scratch.nucleus, kept);
  std::vector<double>& weights = scratch.weights;
  weights.resize(vocab_size_);
  kernels_->exact_weights(x.data(), vocab_size_, max, temperature, weights.data());
  keep_nucleus(*kernels_, x.data(), weights.data(), vocab_size_, sampling.top_p, scratch.nucleus, kept);
}

int32_t Sampler::choose_filtered(const Slot& slot, double max, SamplerScratch& scratch) const {
  filter(slot.sampling, slot.temperature(), max, scratch);
  return choose_sparse(scratch.kept, slot.uniform());
}

int32_t Sampler::choose_unfiltered(const Slot& slot, const float* x, SamplerScratch& scratch) const {
  scratch.chunks.resize(num_choice_chunks(vocab_size_));
  kernels_->sum_chunks(x, vocab_size_, power_scale(slot.temperature()), scratch.chunks.data());
  ChunkedRow row{scratch.chunks.data(), vocab_size_, {}, [x](int32_t first, int32_t count, float* out) { std::copy_n(x + first, count, out); }};
  return choose_in_chunks(*kernels_, row, slot.temperature(), slot.uniform(), scratch.factors);
}

int32_t Sampler::num_best(int32_t slot_index) const {
  const Slot& slot = *slots_[slot_index];
  const SamplingSpec& sampling = slot.sampling;
  if (sampling.num_logprobs != -2 || !slot.is_plain()) return 0;
  if (slot.is_greedy()) return 1;
  // min_p comes before top-k, and often keeps more than there is room for: making all logits after that costs more than having them.
  const bool is_top_k = sampling.top_k > 0 && sampling.top_k < vocab_size_ && !(sampling.min_p > 0);
  return is_top_k && sampling.top_k <= kMaxBestK ? sampling.top_k + kTieRoom : 0;
}

bool Sampler::sample_best(int thread, int32_t slot_index, const TopValues& best, float others, SampledRow* out) {
  Slot& slot = *slots_[slot_index];
  const SamplingSpec& sampling = slot.sampling;
  int32_t token = best.ids[0];
  if (!slot.is_greedy()) {
    // What is equal to the last of the k stays, too.
    const float limit = best.values[sampling.top_k - 1];
    if (!(limit > others)) return false;
    SamplerScratch& scratch = scratch_[thread];
    scratch.kept.clear();
    for (int32_t i = 0; i < best.count && best.values[i] >= limit; i++) {
      scratch.kept.push_back({best.ids[i], best.values[i], weigh(best.values[i], best.values[0], slot.temperature())});
    }
    sort_by_token(scratch.kept);
    if (sampling.top_p < 1) keep_nucleus(sampling.top_p, scratch.nucleus, scratch.kept);
    token = choose_sparse(scratch.kept, slot.uniform());
  }
  slot.tokens.push_back(token);
  out->token = token;
  return true;
}

float Sampler::chunk_scale(int32_t slot_index) const {
  const Slot& slot = *slots_[slot_index];
  const bool chooses = slot.sampling.num_logprobs == -2 && slot.is_plain() && !slot.is_greedy() && !has_filter(slot.sampling);
  return chooses ? power_scale(slot.temperature()) : 0;
}

void Sampler::sample_in_chunks(int thread, int32_t slot_index, ChunkedRow& row, SampledRow* out) {
  Slot& slot = *slots_[slot_index];
  out->token = choose_in_chunks(*kernels_, row, slot.temperature(), slot.uniform(), scratch_[thread].factors);
  slot.tokens.push_back(out->token);
}

int32_t Sampler::choose(const Slot& slot, const float* logits, const TopValues& best, SamplerScratch& scratch) const {
  const bool is_plain = slot.is_plain(), has_choice = !slot.is_greedy();
  if (is_plain && !has_choice) return best.ids[0];
  if (is_plain && !has_filter(slot.sampling)) return choose_unfiltered(slot, logits, scratch);
  std::vector<double>& x = scratch.x;
  x.resize(vocab_size_);
  if (is_plain) {
    std::copy_n(logits, vocab_size_, x.data());
    return choose_filtered(slot, best.values[0], scratch);
  }
  adjust(slot, logits, x.data());
  // The lowest id of the largest value.
  const auto max = std::max_element(x.begin(), x.end());
  if (*max == kMinusInfinity) return last_resort(slot, logits);
  if (!has_choice) return static_cast<int32_t>(max - x.begin());
  if (has_filter(slot.sampling)) return choose_filtered(slot, *max, scratch);
  scratch.adjusted.assign(x.begin(), x.end());
  return choose_unfiltered(slot, scratch.adjusted.data(), scratch);
}

void Sampler::sample(int thread, int32_t slot_index, const float* logits, const TopValues& best, SampledRow* out) {
  Slot& slot = *slots_[slot_index];
  SamplerScratch& scratch = scratch_[thread];
  const int32_t token = choose(slot, logits, best, scratch);
  slot.tokens.push_back(token);
  if (slot.has_penalties) slot.counts[token]++;
  out->token = token;
  if (slot.sampling.num_logprobs == -2) return;
  const double lse = log_sum_exp(logits, best.values[0], scratch);
  out->logprob = static_cast<float>(logits[token] - lse);
  out->rank = 1 + static_cast<int32_t>(std::count_if(logits, logits + vocab_size_, [&](float l) { return l > logits[token]; }));
  best_tokens(logits, slot.sampling.num_logprobs, lse, scratch, &out->top_tokens, &out->top_logprobs);
}

void Sampler::score_prompt_token(int thread, int32_t slot_index, const float* logits, const TopValues& best, PromptRow* row) {
  SamplerScratch& scratch = scratch_[thread];
  const double lse = log_sum_exp(logits, best.values[0], scratch);
  row->logprob = static_cast<float>(logits[row->token] - lse);
  row->rank = 1 + static_cast<int32_t>(std::count_if(logits, logits + vocab_size_, [&](float l) { return l > logits[row->token]; }));
  best_tokens(logits, slots_[slot_index]->sampling.num_prompt_logprobs, lse, scratch, &row->top_tokens, &row->top_logprobs);
}

double Sampler::log_sum_exp(const float* logits, float max, SamplerScratch& scratch) const {
  std::vector<double>& sums = scratch.weights;
  sums.resize((vocab_size_ + kSumChunk - 1) / kSumChunk);
  kernels_->weight_sums(logits, vocab_size_, max, 1, sums.data());
  double total = 0;
  for (double sum : sums) total += sum;
  return max + std::log(total);
}

// Best first, ties to the lower id.
void Sampler::best_tokens(const float* logits, int32_t count, double lse, SamplerScratch& scratch, std::vector<int32_t>* tokens, std::vector<float>* logprobs) const {
  const int32_t wanted = count < 0 ? vocab_size_ : std::min(count, vocab_size_);
  const auto before = [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); };
  std::vector<int32_t>& best = scratch.order;
  best.clear();
  if (wanted > 256) {
    best.resize(vocab_size_);
    for (int32_t i = 0; i < vocab_size_; i++) best[i] = i;
    std::partial_sort(best.begin(), best.begin() + wanted, best.end(), before);
    best.resize(wanted);
  } else {
    for (int32_t token = 0; token < vocab_size_ && wanted > 0; token++) {
      if (static_cast<int32_t>(best.size()) == wanted) {
        if (!(logits[token] > logits[best.back()])) continue;
        best.pop_back();
      }
      best.insert(std::upper_bound(best.begin(), best.end(), token, before), token);
    }
  }
  tokens->assign(best.begin(), best.end());
  logprobs->clear();
  for (int32_t token : best) logprobs->push_back(static_cast<float>(logits[token] - lse));
}

}  // namespace pagoda
