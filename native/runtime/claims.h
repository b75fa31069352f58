// How the threads of a phase share its items: each has a run of neighbouring ones, taken in order, so that what comes next can be
// prefetched; who is done helps the others.
#pragma once
#include <atomic>
#include <cstdint>

namespace pagoda {

constexpr int kClaimStride = 8;  // counters lie in cache lines of their own

struct Claims {
  std::atomic<int64_t>* counters;  // [num_threads * kClaimStride], 0 at the start of the phase: items taken of each thread's run
  int thread, num_threads;

  int64_t run_begin(int64_t total, int t) const { return total * t / num_threads; }
  // First item after this thread's own run.
  int64_t own_end(int64_t total) const { return run_begin(total, thread + 1); }
  // The next item, or -1.
  int64_t next(int64_t total) const {
    for (int i = 0; i < num_threads; i++) {
      const int t = thread + i < num_threads ? thread + i : thread + i - num_threads;
      std::atomic<int64_t>& taken = counters[t * kClaimStride];
      const int64_t begin = run_begin(total, t), count = run_begin(total, t + 1) - begin;
      if (taken.load(std::memory_order_relaxed) >= count) continue;
      const int64_t index = taken.fetch_add(1, std::memory_order_relaxed);
      if (index < count) return begin + index;
    }
    return -1;
  }
};

}  // namespace pagoda
