#include "runtime/choose-in-chunks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pagoda {
namespace {

struct Chosen {
  int32_t token;
  double gap;  // from the target to the nearest border of the token's range
};

class Chooser {
 public:
  Chooser(const Kernels& kernels, ChunkedRow& row, double temperature, std::vector<double>& scratch)
      : kernels_(kernels), row_(row), temperature_(temperature), scale_(power_scale(temperature)), num_chunks_(num_choice_chunks(row.vocab_size)) {
    scratch.resize(2 * num_chunks_);
    factors_ = scratch.data();
    shares_ = factors_ + num_chunks_;
  }

  Chosen choose(double u) {
    weigh_chunks();
    double total = 0;
    for (int32_t c = 0; c < num_chunks_; c++) total += shares_[c];
    const double target = u * total;
    double running = 0;
    int32_t last = 0;
    for (int32_t c = 0; c < num_chunks_; c++) {
      if (running + shares_[c] > target) return choose_in(c, running, target);
      running += shares_[c];
      if (shares_[c] > 0) last = c;
    }
    return {choose_in(last, 0, std::numeric_limits<double>::infinity()).token, 0};
  }

  // Of the sums as they are, and of what replaced logits add.
  double magnitude() const {
    double sum = 0;
    for (int32_t c = 0; c < num_chunks_; c++) sum += row_.sums[c].sum * factors_[c] + shares_[c];
    return sum;
  }

  // Afterwards the sums are those of the logits with the replaced ones.
  void sum_anew() {
    const RescoredLogits& rescored = row_.rescored;
    for (int32_t i = 0; i < rescored.count; i++) {
      const int32_t chunk = rescored.ids[i] / kChoiceChunk;
      const int32_t count = read(chunk);
      kernels_.sum_chunks(logits_, count, scale_, &row_.sums[chunk]);
    }
    is_exact_ = true;
  }

 private:
  void weigh_chunks() {
    for (int32_t c = 0; c < num_chunks_; c++) factors_[c] = row_.sums[c].max;
    max_ = *std::max_element(factors_, factors_ + num_chunks_);
    kernels_.exact_weights(factors_, num_chunks_, max_, temperature_, factors_);
    for (int32_t c = 0; c < num_chunks_; c++) shares_[c] = row_.sums[c].sum * factors_[c];
    for (int32_t i = 0; !is_exact_ && i < row_.rescored.count; i++) {
      const int32_t chunk = row_.rescored.ids[i] / kChoiceChunk;
      float before;
      kernels_.chunk_weights(&row_.rescored.before[i], 1, row_.sums[chunk].max, scale_, &before);
      shares_[chunk] = std::max(0.0, shares_[chunk] - before * factors_[chunk]) + weight_after(i);
    }
  }

  double weight_after(int32_t rescored) const {
    constexpr double kLargest = 700;  // of what exp takes here
    const double x = std::min<double>(row_.rescored.after[rescored], max_ + kLargest * temperature_);
    double weight;
    kernels_.exact_weights(&x, 1, max_, temperature_, &weight);
    return weight;
  }

  // The chunk's logits with the replaced ones, in logits_; returns how many.
  int32_t read(int32_t chunk) {
    const int32_t first = chunk * kChoiceChunk, count = std::min(kChoiceChunk, row_.vocab_size - first);
    row_.read(first, count, logits_);
    for (int32_t i = 0; i < row_.rescored.count; i++) {
      if (row_.rescored.ids[i] / kChoiceChunk == chunk) logits_[row_.rescored.ids[i] - first] = row_.rescored.after[i];
    }
    return count;
  }

  Chosen choose_in(int32_t chunk, double running, double target) {
    const int32_t first = chunk * kChoiceChunk, count = read(chunk);
    float powers[kChoiceChunk];
    kernels_.chunk_weights(logits_, count, row_.sums[chunk].max, scale_, powers);
    double weights[kChoiceChunk];
    for (int32_t i = 0; i < count; i++) weights[i] = powers[i] * factors_[chunk];
    for (int32_t i = 0; !is_exact_ && i < row_.rescored.count; i++) {
      if (row_.rescored.ids[i] / kChoiceChunk == chunk) weights[row_.rescored.ids[i] - first] = weight_after(i);
    }
    int32_t last = 0;
    double sum = running;
    for (int32_t i = 0; i < count; i++) {
      if (!(weights[i] > 0)) continue;
      last = i;
      const double before = sum;
      sum += weights[i];
      if (sum > target) return {first + i, std::min(target - before, sum - target)};
    }
    return {first + last, 0};
  }

  const Kernels& kernels_;
  ChunkedRow& row_;
  const double temperature_;
  const float scale_;
  const int32_t num_chunks_;
  double* factors_;  // of each chunk: exp((its largest - the largest of all) / temperature)
  double* shares_;
  double max_ = 0;
  bool is_exact_ = row_.rescored.count == 0;
  float logits_[kChoiceChunk];
};

}  // namespace

float power_scale(double temperature) { return static_cast<float>(1.4426950408889634 / temperature); }

int32_t choose_in_chunks(const Kernels& kernels, ChunkedRow& row, double temperature, double u, std::vector<double>& scratch, double margin) {
  Chooser chooser(kernels, row, temperature, scratch);
  const Chosen chosen = chooser.choose(u);
  if (row.rescored.count == 0 || chosen.gap > margin * chooser.magnitude()) return chosen.token;
  chooser.sum_anew();
  return chooser.choose(u).token;
}

}  // namespace pagoda
