// Sampling from the best logits and from the sums of chunks, which the items of the output layer keep, against sampling from all logits in
// memory. Run by `npm run test:native`. Prints "N passed, N failed".
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "ops/top-values.h"
#include "runtime/choose-in-chunks.h"
#include "runtime/device.h"
#include "runtime/nucleus.h"
#include "test/checks.h"
#include "test/plans.h"

using namespace pagoda;
using namespace pagoda::test;

namespace {

uint32_t random_below(uint32_t n) { return random_bits() % n; }

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// --- the list of best values ---

// Of a row in pieces, taken in any order and shared among three lists, against sorting.
void test_top_values(const Kernels& kernels, uint32_t seed) {
  random_state = seed;
  const int32_t n = 1 + static_cast<int32_t>(random_below(700)), capacity = 1 + static_cast<int32_t>(random_below(kMaxTopValues));
  const uint32_t num_distinct = seed % 3 == 0 ? 1000000 : 1 + random_below(9);
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(random_below(num_distinct)) - 3;
  const bool finite = seed % 5 != 0;
  if (!finite) x[random_below(n)] = seed % 2 == 0 ? -kInfinity : seed % 4 == 1 ? kInfinity : std::numeric_limits<float>::quiet_NaN();
  TopValues lists[3];
  for (TopValues& list : lists) clear_top(&list, capacity);
  std::vector<int32_t> starts;
  const int32_t piece = 16 * (1 + static_cast<int32_t>(random_below(8)));
  for (int32_t start = 0; start < n; start += piece) starts.push_back(start);
  for (size_t i = starts.size(); i > 1; i--) std::swap(starts[i - 1], starts[random_below(static_cast<uint32_t>(i))]);
  for (int32_t start : starts) kernels.keep_top(x.data() + start, std::min(piece, n - start), start, &lists[random_below(3)]);
  for (int l = 1; l < 3; l++) {
    for (int32_t i = 0; i < lists[l].count; i++) offer_value(&lists[0], lists[l].values[i], lists[l].ids[i]);
    lists[0].finite = lists[0].finite && lists[l].finite;
  }
  const std::string name = std::string(kernels.isa) + ", row " + std::to_string(seed);
  check(lists[0].finite == finite, "whether all values are finite: " + name);
  if (!finite) return;
  std::vector<int32_t> order(n);
  for (int32_t i = 0; i < n; i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
  bool equal = lists[0].count == std::min(n, capacity);
  for (int32_t i = 0; equal && i < lists[0].count; i++) equal = lists[0].ids[i] == order[i] && lists[0].values[i] == x[order[i]];
  check(equal, "the best values: " + name);
}

// --- the choice in chunks ---

float uniform_float() { return static_cast<float>(random_below(1 << 24)) / (1 << 24); }

// Sums of chunks and weights must have the same bits everywhere: every device chooses the same token.
void test_chunk_sums(const Kernels& kernels, uint32_t seed) {
  random_state = seed;
  const int32_t n = 1 + static_cast<int32_t>(random_below(3 * kChoiceChunk)), num_chunks = num_choice_chunks(n);
  const float scale = power_scale(seed % 3 == 0 ? 0.01 : 0.1 + 3 * uniform_float());
  std::vector<float> x(n);
  for (float& value : x) value = 40 * uniform_float() - 20;
  for (int32_t i = 0; i < static_cast<int32_t>(seed % 4); i++) x[random_below(n)] = -kInfinity;
  if (seed % 7 == 0) std::fill_n(x.begin(), std::min(n, kChoiceChunk), -kInfinity);
  std::vector<ChunkSum> chunks(num_chunks);
  kernels.sum_chunks(x.data(), n, scale, chunks.data());
  bool equal = true;
  for (int32_t c = 0; c < num_chunks; c++) {
    const int32_t first = c * kChoiceChunk, end = std::min(first + kChoiceChunk, n);
    const float max = *std::max_element(x.begin() + first, x.begin() + end);
    std::vector<float> weights(end - first), others(end - first);
    kernels.chunk_weights(x.data() + first, end - first, max, scale, weights.data());
    kernels_portable()->chunk_weights(x.data() + first, end - first, max, scale, others.data());
    float lanes[16] = {};
    for (int32_t i = first; i < end; i++) {
      const float weight = max == -kInfinity ? 0 : weights[i - first];
      const double near = max == -kInfinity ? 0 : std::exp2((static_cast<double>(x[i]) - max) * scale);
      equal = equal && weights[i - first] == others[i - first] && std::abs(weight - near) <= 1e-5 * near + 1e-37;
      lanes[(i - first) % 16] += weight;
    }
    for (int width = 8; width > 0; width /= 2) for (int l = 0; l < width; l++) lanes[l] += lanes[l + width];
    equal = equal && chunks[c].max == max && chunks[c].sum == lanes[0];
  }
  check(equal, "chunks have the sums of their definition: " + std::string(kernels.isa) + ", row " + std::to_string(seed));
}

// Corrected sums choose what the sums of the replaced logits choose, also where the target lies at the border between two tokens.
void test_replaced_logits(const Kernels& kernels, uint32_t seed) {
  random_state = seed;
  const int32_t n = 10 + static_cast<int32_t>(random_below(2000));
  const double temperature = seed % 4 == 0 ? 0.01 : 0.05 + 2 * uniform_float();
  std::vector<float> before(n);
  for (float& value : before) value = 12 * uniform_float() * uniform_float();
  TopValues best;
  clear_top(&best, kRescored);
  kernels.keep_top(before.data(), n, 0, &best);
  std::vector<float> after = before;
  RescoredLogits rescored;
  rescored.count = best.count;
  for (int32_t i = 0; i < best.count; i++) {
    rescored.ids[i] = best.ids[i];
    rescored.before[i] = best.values[i];
    rescored.after[i] = after[best.ids[i]] = best.values[i] + 0.3f * (uniform_float() - 0.5f);
  }
  const auto choose = [&](const std::vector<float>& logits, const RescoredLogits& replaced, double u) {
    std::vector<ChunkSum> chunks(num_choice_chunks(n));
    kernels.sum_chunks(logits.data(), n, power_scale(temperature), chunks.data());
    std::vector<double> scratch;
    ChunkedRow row{chunks.data(), n, replaced, [&](int32_t first, int32_t count, float* out) { std::copy_n(logits.data() + first, count, out); }};
    return choose_in_chunks(kernels, row, temperature, u, scratch);
  };
  std::vector<double> cumulative;
  double total = 0;
  const float max = *std::max_element(after.begin(), after.end());
  for (float value : after) cumulative.push_back(total += std::exp((static_cast<double>(value) - max) / temperature));
  bool equal = true, near = true;
  for (int i = 0; i < 60; i++) {
    double u = uniform_float();
    if (i % 2 == 0) u = std::clamp(cumulative[random_below(n)] / total + 1e-7 * (uniform_float() - 0.5), 0.0, 1 - 1e-15);
    const int32_t token = choose(after, {}, u);
    equal = equal && choose(before, rescored, u) == token;
    const double low = token > 0 ? cumulative[token - 1] / total : 0, high = cumulative[token] / total;
    near = near && u > low - 1e-5 && u < high + 1e-5;
  }
  check(equal, "replaced logits: " + std::string(kernels.isa) + ", row " + std::to_string(seed));
  check(near, "a choice by probability: " + std::string(kernels.isa) + ", row " + std::to_string(seed));
}

// --- top_p ---

// Against sorting everything; many equal values, few, or none.
void test_nucleus(const Kernels& kernels, uint32_t seed) {
  random_state = seed;
  const int32_t n = 1 + static_cast<int32_t>(random_below(seed % 4 == 0 ? 100 : 6000));
  const uint32_t num_distinct = seed % 3 == 0 ? 1u << 24 : 1 + random_below(40);
  const double spread = seed % 5 == 0 ? 60 : 6 * uniform_float();
  const double top_p = seed % 7 == 0 ? 1 - 1e-9 : seed % 7 == 1 ? 1e-9 : static_cast<double>(uniform_float());
  std::vector<double> x(n), weights(n);
  for (double& value : x) value = spread * random_below(num_distinct) / num_distinct;
  const double max = *std::max_element(x.begin(), x.end());
  for (int32_t i = 0; i < static_cast<int32_t>(seed % 4); i++) {
    double& value = x[random_below(n)];
    if (value < max) value = -static_cast<double>(kInfinity);
  }
  kernels.exact_weights(x.data(), n, max, 1, weights.data());
  std::vector<int32_t> order(n);
  for (int32_t i = 0; i < n; i++) order[i] = i;
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a > b; });
  const auto rounded = [&](int32_t i) { return std::nearbyint(std::ldexp(weights[i], 34)); };
  double total = 0, above = 0;
  for (int32_t i = 0; i < n; i++) total += rounded(i);
  std::vector<int32_t> wanted;
  for (int32_t id : order) {
    if (!wanted.empty() && above >= top_p * total) break;
    wanted.push_back(id);
    above += rounded(id);
  }
  std::sort(wanted.begin(), wanted.end());
  NucleusScratch scratch;
  std::vector<Kept> kept, some;
  for (int32_t i = 0; i < n; i++) some.push_back({i, x[i], weights[i]});
  keep_nucleus(kernels, x.data(), weights.data(), n, top_p, scratch, kept);
  keep_nucleus(top_p, scratch, some);
  const auto equal = [&](const std::vector<Kept>& found) {
    bool same = found.size() == wanted.size();
    for (size_t i = 0; same && i < wanted.size(); i++) same = found[i].token == wanted[i] && found[i].x == x[wanted[i]] && found[i].weight == weights[wanted[i]];
    return same;
  };
  check(equal(kept), "top_p keeps what sorting keeps: " + std::string(kernels.isa) + ", row " + std::to_string(seed));
  check(equal(some), "top_p of some keeps what sorting keeps: " + std::string(kernels.isa) + ", row " + std::to_string(seed));
}

// --- steps ---

constexpr int32_t kHidden = 64, kBlockSize = 16, kMaxLength = 64;

struct Model {
  std::string isa;
  int num_threads;
  int32_t vocab_size, logit_rows, max_seqs;
  bool int8;
  int32_t num_distinct;  // rows of the output layer that differ: the others repeat them
  float spoilt;          // if not 0, the bias of one token
};

// The output layer as Q8_0: blocks of a float16 scale of 2^-6 and 32 codes.
std::string write_codes(const std::vector<int8_t>& codes) {
  char path[] = "/tmp/pagoda-sampling-test-XXXXXX";
  FILE* file = fdopen(mkstemp(path), "wb");
  for (size_t i = 0; i < codes.size(); i += 32) {
    const uint8_t scale[2] = {0x00, 0x24};
    fwrite(scale, 1, 2, file);
    fwrite(codes.data() + i, 1, 32, file);
  }
  fclose(file);
  return path;
}

// The logits of a token depend on it alone: embedding, output layer, choice.
Plan plan_of(const Model& model) {
  Plan plan;
  plan.limits = {model.max_seqs, model.max_seqs, kMaxLength, model.logit_rows};
  plan.kv.num_kv_heads = 1;
  plan.kv.head_dim = 16;
  plan.kv.block_size = kBlockSize;
  plan.kv.layers_per_group = 1;
  plan.kv.groups = {{0}};
  plan.kv.layer_group = {0};
  plan.kv.layer_index = {0};
  plan.vocab_size = model.vocab_size;
  plan.int8 = model.int8;
  // 0 residual, 1 selected, 2 logits, 3 selected in int8
  plan.buffers = {{false, RowForm::Float, kHidden}, {true, RowForm::Float, kHidden}, {true, RowForm::Float, model.vocab_size}};
  if (model.int8) plan.buffers.push_back({true, RowForm::Int8, kHidden});
  const auto op = [&](OpKind kind, int32_t phase, int32_t in, int32_t out, int32_t weight) -> Op& { return add_op(plan, kind, phase, in, out, weight, kHidden); };
  op(OpKind::Embed, 0, -1, 0, 0);
  op(OpKind::SelectRows, 1, 0, 1, -1);
  if (model.int8) op(OpKind::Quantize, 1, 1, -1, -1).q = 3;
  Op& product = op(OpKind::Linear, 2, model.int8 ? -1 : 1, 2, 1);
  product.bias = 2;
  if (model.int8) {
    product.q = 3;
    op(OpKind::Rescore, 3, 1, 2, 1).bias = 2;
  }
  op(OpKind::Sample, 4, 2, -1, -1).cols = model.vocab_size;
  return plan;
}

class LoadedModel {
 public:
  explicit LoadedModel(const Model& model) : device_(model.isa, model.num_threads) {
    WeightSource embedding, output, bias;
    embedding.rows = output.rows = bias.cols = model.vocab_size;
    embedding.cols = output.cols = kHidden;
    bias.rows = 1;
    bias.is_vector = true;
    std::vector<int8_t> codes;
    for (int32_t row = 0; row < model.vocab_size; row++) {
      const int32_t same = row % model.num_distinct;
      for (int32_t col = 0; col < kHidden; col++) {
        embedding.values.push_back((static_cast<float>(random_below(256)) - 127.5f) / 128);
        codes.push_back(static_cast<int8_t>(same < row ? codes[static_cast<size_t>(same) * kHidden + col] : static_cast<int32_t>(random_below(255)) - 127));
      }
      bias.values.push_back(same < row ? bias.values[same] : static_cast<float>(random_below(64)) / 64);
    }
    std::string path;
    if (model.int8) {
      path = write_codes(codes);
      output.format = Format::Q8_0;
      output.pieces = {{path, 0, kHidden / 32 * 34, model.vocab_size}};
    } else {
      for (int8_t code : codes) output.values.push_back(static_cast<float>(code) / 64);
    }
    if (model.spoilt != 0) bias.values[random_below(static_cast<uint32_t>(model.vocab_size))] = model.spoilt;
    for (WeightSource* source : {&embedding, &output, &bias}) {
      device_.queue_load(std::move(*source), done());
      wait();
    }
    if (!path.empty()) unlink(path.c_str());
    device_.queue_plan(plan_of(model), done());
    wait();
    device_.executor()->allocate_kv(1 + model.max_seqs);
  }

  void add(const SamplingSpec& sampling) {
    SlotInit init;
    init.slot = seqs_++;
    init.tokens = {static_cast<int32_t>(5 + sampling.seed % 3)};
    init.num_prompt_tokens = 1;
    init.sampling = sampling;
    device_.queue_add(std::move(init));
  }

  // One token of each sequence.
  const StepOutput& step(int32_t computed) {
    StepInput& in = device_.step(0).in;
    in.num_seqs = in.num_tokens = seqs_;
    in.token_ids.assign(seqs_, -1);
    in.num_computed.assign(seqs_, computed);
    in.logit_rows.assign(seqs_, 1);
    in.samples.assign(seqs_, 1);
    in.token_start.assign(1, 0);
    in.block_table_start.assign(1, 0);
    in.slot.clear();
    in.block_tables.clear();
    for (int32_t s = 0; s < seqs_; s++) {
      in.slot.push_back(s);
      in.token_start.push_back(s + 1);
      for (int32_t b = 0; b < kMaxLength / kBlockSize; b++) in.block_tables.push_back(0);
      in.block_table_start.push_back((s + 1) * kMaxLength / kBlockSize);
    }
    device_.queue_step(0, done());
    wait();
    return device_.step(0).out;
  }

  const std::string& error() const { return error_; }

 private:
  Device::Done done() {
    return [this](const std::string& error) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (error_.empty()) error_ = error;
      is_done_ = true;
      changed_.notify_all();
    };
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return is_done_; });
    is_done_ = false;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::string error_;
  Device device_;
  int32_t seqs_ = 0;
};

std::vector<SamplingSpec> kinds_of_sampling() {
  std::vector<SamplingSpec> kinds;
  const auto kind = [&](double temperature, int32_t top_k, double top_p) -> SamplingSpec& {
    SamplingSpec sampling;
    sampling.temperature = temperature;
    sampling.top_k = top_k;
    sampling.top_p = top_p;
    sampling.seed = kinds.size();
    kinds.push_back(sampling);
    return kinds.back();
  };
  kind(0, 0, 1);
  kind(0, 0, 1);
  kind(0, 20, 0.9);
  for (int32_t k : {1, 2, 5, 40, kMaxBestK, kMaxBestK + 1}) kind(1.5, k, 1);
  kind(0.7, 20, 0.8);
  kind(50, 30, 0.95);
  kind(1, 0, 1);
  kind(0.05, 0, 1);
  kind(6, 0, 1);
  kind(1, 0, 0.9);
  kind(3, 0, 0.98);
  kind(1, 10, 1).min_p = 0.05;
  SamplingSpec& late = kind(0, 0, 1);  // all logits at first, the best ones later
  late.min_tokens = 6;
  for (int32_t token = 0; token < 40; token++) late.end_tokens.push_back(token);
  return kinds;
}

std::string name_of(const Model& model) {
  return model.isa + ", " + std::to_string(model.num_threads) + " threads, vocabulary of " + std::to_string(model.vocab_size) + (model.int8 ? ", int8" : ", float") + ", " +
         std::to_string(model.num_distinct) + " different rows, one bias " + std::to_string(model.spoilt);
}

// Each kind twice: with a logprob, which takes all logits in memory, and without.
void test_equal_choices(const Model& model) {
  LoadedModel loaded(model);
  const std::vector<SamplingSpec> kinds = kinds_of_sampling();
  for (const SamplingSpec& kind : kinds) {
    loaded.add(kind);
    SamplingSpec with_logprob = kind;
    with_logprob.num_logprobs = 0;
    loaded.add(with_logprob);
  }
  bool equal = true, faults = true;
  for (int32_t i = 0; i < 20; i++) {
    const StepOutput& out = loaded.step(i);
    for (size_t k = 0; k < kinds.size(); k++) {
      const bool same = out.rows[2 * k].token == out.rows[2 * k + 1].token;
      if (!same && equal) printf("step %d, kind %zu: %d, in memory %d\n", i, k, out.rows[2 * k].token, out.rows[2 * k + 1].token);
      equal = equal && same;
      for (size_t s = 2 * k; s < 2 * k + 2; s++) faults = faults && out.faults[s] == (model.spoilt != 0) && (out.rows[s].token < 0) == (model.spoilt != 0);
    }
  }
  check(loaded.error().empty(), "steps succeed: " + name_of(model) + " " + loaded.error());
  check(equal, "the best logits choose what all logits choose: " + name_of(model));
  check(faults, "faults are where logits are not finite: " + name_of(model));
}

size_t resident_bytes() {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  const int found = fscanf(file, "%*s %ld", &pages);
  fclose(file);
  return found == 1 ? static_cast<size_t>(pages) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

// Memory for logits is touched only where a row takes all of them.
void test_memory(bool int8) {
  if (resident_bytes() == 0) return;
  constexpr int32_t kRows = 32, kVocabulary = 65536;
  LoadedModel loaded({"portable", 1, kVocabulary, kRows, kRows, int8, kVocabulary, 0});
  for (int32_t s = 0; s < kRows; s++) {
    SamplingSpec sampling;
    sampling.temperature = s % 2 == 0 ? 0 : 1;
    sampling.top_k = s % 4 == 1 ? kMaxBestK : 0;
    sampling.seed = static_cast<uint64_t>(s);
    loaded.add(sampling);
  }
  const size_t before = resident_bytes();
  loaded.step(0);
  const size_t after = resident_bytes();
  check(loaded.error().empty(), "a step of a large vocabulary");
  const size_t logits = sizeof(float) * kRows * kVocabulary;
  check(after - std::min(before, after) < logits / 2, "no memory for " + std::to_string(logits >> 10) + " KiB of logits: " + std::to_string((after - std::min(before, after)) >> 10) + " KiB more");
}

}  // namespace

int main() {
  for (const std::string& isa : usable_isas()) {
    for (uint32_t seed = 0; seed < 300; seed++) {
      test_top_values(*choose_kernels(isa), seed);
      test_chunk_sums(*choose_kernels(isa), seed);
      test_replaced_logits(*choose_kernels(isa), seed);
      test_nucleus(*choose_kernels(isa), seed);
    }
    for (bool int8 : {false, true}) {
      for (int32_t num_distinct : {300, 40, 3}) test_equal_choices({isa, num_distinct % 2 == 0 ? 1 : 3, 300, 7, 64, int8, num_distinct, 0});
      test_equal_choices({isa, 2, 6000, 64, 64, int8, 5000, 0});
    }
  }
  for (float spoilt : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (int i = 0; i < 6; i++) test_equal_choices({"portable", 2, 300, 7, 64, i % 2 == 0, 300, spoilt});
  }
  for (bool int8 : {false, true}) test_memory(int8);
  return end_checks();
}
