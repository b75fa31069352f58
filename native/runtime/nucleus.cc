#include "runtime/nucleus.h"

#include <algorithm>
#include <cmath>

namespace pagoda {
namespace {

constexpr int32_t kFewTokens = 256;         // so many are sorted rather than halved again
constexpr double kLikelyLeast = 0x1p-10;    // most often the border lies above it
constexpr double kNarrow = 1 + 1e-6;        // between such weights there may be any number of equal ones
constexpr double kLeastWeight = 0x1p-34;    // that is not 0

double rounded(double weight) { return (weight + kWeightRounding) - kWeightRounding; }

bool better(const Kept& a, const Kept& b) { return a.x > b.x || (a.x == b.x && a.token > b.token); }

// Sorts the border, of which some are kept, and drops the others from `kept`; those better than the border have `sum`.
void cut(std::vector<Kept>& border, double sum, double goal, std::vector<Kept>& kept) {
  std::sort(border.begin(), border.end(), better);
  size_t last = 0;
  for (; last + 1 < border.size(); last++) {
    sum += rounded(border[last].weight);
    if (!(sum < goal)) break;
  }
  const Kept end = border[last];
  kept.erase(std::remove_if(kept.begin(), kept.end(), [&](const Kept& k) { return better(end, k); }), kept.end());
}

}  // namespace

void keep_nucleus(const Kernels& kernels, const double* x, const double* weights, int32_t n, double top_p, NucleusScratch& scratch, std::vector<Kept>& kept) {
  // Tokens of at least `least` reach the goal, those of at least `most` do not.
  WeightsAbove low = kernels.weights_above(weights, n, kLeastWeight), high = {};
  double least = kLeastWeight, most = 2;
  const double goal = top_p * low.sum;
  for (double middle = kLikelyLeast; low.count - high.count > kFewTokens && most > least * kNarrow; middle = std::sqrt(least * most)) {
    const WeightsAbove above = kernels.weights_above(weights, n, middle);
    if (above.sum < goal) {
      high = above;
      most = middle;
    } else {
      low = above;
      least = middle;
    }
  }
  // Without a branch: none could foretell which tokens these are.
  scratch.ids.resize(n + 1);
  int32_t* const ids = scratch.ids.data();
  int32_t count = 0;
  for (int32_t token = 0; token < n; token++) {
    ids[count] = token;
    count += rounded(weights[token]) >= least;
  }
  kept.clear();
  scratch.border.clear();
  for (int32_t i = 0; i < count; i++) {
    const Kept k{ids[i], x[ids[i]], weights[ids[i]]};
    kept.push_back(k);
    if (rounded(k.weight) < most) scratch.border.push_back(k);
  }
  cut(scratch.border, high.sum, goal, kept);
}

void keep_nucleus(double top_p, NucleusScratch& scratch, std::vector<Kept>& kept) {
  scratch.border.assign(kept.begin(), kept.end());
  double total = 0;
  for (const Kept& k : kept) total += rounded(k.weight);
  cut(scratch.border, 0, top_p * total, kept);
}

}  // namespace pagoda
