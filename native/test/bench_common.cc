#include "bench_common.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace pagoda::bench {

const char* const kFormatNames[kNumFormats] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

Team::Team(int num_threads) : num_threads_(num_threads), seconds_(num_threads) {
  for (int t = 1; t < num_threads; ++t) others_.emplace_back([this, t] { serve(t); });
}
Team::~Team() {
  work_ = nullptr;
  turn_.fetch_add(1);
  for (auto& other : others_) other.join();
}
void Team::serve(int thread) {
  for (int64_t turn = 1;; ++turn) {
    while (turn_.load(std::memory_order_acquire) < turn) {}
    if (work_ == nullptr) return;
    num_arrived_.fetch_add(1);
    while (num_arrived_.load() < num_threads_) {}
    const double start = now();
    (*work_)(thread);
    seconds_[thread] = now() - start;
    num_done_.fetch_add(1);
  }
}
double Team::run(const std::function<void(int)>& work) {
  work_ = &work;
  num_arrived_ = 0;
  num_done_ = 1;
  turn_.fetch_add(1, std::memory_order_release);
  num_arrived_.fetch_add(1);
  while (num_arrived_.load() < num_threads_) {}
  const double start = now();
  work(0);
  seconds_[0] = now() - start;
  while (num_done_.load() < num_threads_) {}
  return *std::max_element(seconds_.begin(), seconds_.end());
}

double loop_rate(Team& team, const Peak& peak) {
  constexpr long kTurns = 50000;  // 0.1 to 0.3 ms
  const double seconds = team.run([&](int) { peak.loop(kTurns); });
  return team.size() * kTurns * peak.macs_per_turn / seconds * 1e-9;
}

void measure(const Result& r, const std::function<double()>& kernel_rate, const std::function<double()>& peak_rate) {
  constexpr double kSeconds = 0.6;
  constexpr int kLeastTurns = 8;
  double rate = 0, peak = peak_rate();
  const double start = now();
  for (int turn = 0; turn < kLeastTurns || now() - start < kSeconds; ++turn) {
    for (int i = 0; i < 3; ++i) rate = std::max(rate, kernel_rate());
    for (int i = 0; i < 3; ++i) peak = std::max(peak, peak_rate());
  }
  std::printf("{\"kind\":\"%s\",\"path\":\"%s\",\"format\":\"%s\",\"shape\":\"%s\",\"m\":%d,\"threads\":%d,\"rate\":%.2f,\"unit\":\"%s\",\"peakName\":\"%s\",\"peak\":%.2f,\"bound\":%.2f}\n", r.kind.c_str(),
              r.path.c_str(), r.format.c_str(), r.shape.c_str(), r.m, r.threads, rate, r.unit, r.peak_name ? r.peak_name : "", peak, r.bound);
  std::fflush(stdout);
}

}  // namespace pagoda::bench
