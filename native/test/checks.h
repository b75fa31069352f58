// What the test programs share: counted checks, and random numbers that are the same in every run.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace pagoda::test {

inline int passed = 0, failed = 0;
constexpr int kMostShown = 40;

inline void check(bool ok, const std::string& what) {
  if (ok) ++passed;
  else if (++failed <= kMostShown) std::printf("FAILED %s\n", what.c_str());
}

// Prints "N passed, N failed"; -> exit status.
inline int end_checks() {
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

// May be set, to repeat a case alone.
inline uint64_t random_state = 1;

// 31 bits (the upper half of Knuth's MMIX generator).
inline uint32_t random_bits() {
  random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<uint32_t>(random_state >> 33);
}

}  // namespace pagoda::test
