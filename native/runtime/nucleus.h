// top_p: the smallest set of best tokens whose weights reach a share of all weights; the set of src/device/reference/sample.ts. Weights count
// as multiples of 2^-34, so that their sums are exact in every order: the border is found by halving, and only what lies around it is sorted.
#pragma once
#include <cstdint>
#include <vector>

#include "ops/kernels.h"

namespace pagoda {

// A token that is still in the race: its adjusted logit and unnormalised probability, that of the best token being 1.
struct Kept {
  int32_t token;
  double x, weight;
};

struct NucleusScratch {
  std::vector<int32_t> ids;
  std::vector<Kept> border;
};

// Of all tokens, x and weights [n], into `kept`, in order of id.
void keep_nucleus(const Kernels& kernels, const double* x, const double* weights, int32_t n, double top_p, NucleusScratch& scratch, std::vector<Kept>& kept);
// Of some, which stay in their order.
void keep_nucleus(double top_p, NucleusScratch& scratch, std::vector<Kept>& kept);

}  // namespace pagoda
