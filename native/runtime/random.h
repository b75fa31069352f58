// The counter-based random numbers of src/rng.ts, bit for bit.
#pragma once
#include <cstdint>

namespace pagoda {

inline uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Uniform in [0, 1) for output `index` of a request.
inline double random_uniform(uint64_t seed, uint64_t index) {
  const uint64_t bits = mix64(mix64(seed) + (index + 1) * 0x9e3779b97f4a7c15ull);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace pagoda
