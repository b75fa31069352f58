// What the parts of the kernel bench share: the peaks of this machine, the clock, the threads and the form of a result.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ops/kernels.h"

namespace pagoda::bench {

double now();  // seconds

// Threads that wait spinning, so that a window of a fraction of a millisecond starts on all of them at once.
class Team {
 public:
  explicit Team(int num_threads);
  ~Team();
  int size() const { return num_threads_; }
  // Runs work(thread) on all threads; seconds from the common start to the end of the slowest.
  double run(const std::function<void(int)>& work);

 private:
  void serve(int thread);
  const int num_threads_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<int64_t> turn_{0};
  std::atomic<int> num_arrived_{0}, num_done_{0};
  std::vector<double> seconds_;
  std::vector<std::thread> others_;
};

// A loop of nothing but one instruction sequence, on registers.
struct Peak {
  const char* name;          // null: nothing to compare with on this path
  void (*loop)(long turns);
  double macs_per_turn;      // multiply-adds
};
enum class PeakKind { FourBit, EightBit, Bf16, Fma };
// FourBit and EightBit are the shortest exact loops of the path: vpdpbusd for both where there is VNNI, vpmaddubsw + vpaddw and
// vpsignb + vpmaddubsw + vpmaddwd + vpaddd on AVX2.
Peak peak_of(const std::string& isa, PeakKind kind);
// Reads every byte with the widest loads there are. The value keeps the loads from being left out.
uint64_t read_bytes(const uint8_t* data, size_t bytes);

struct Result {
  std::string kind, path, format, shape;  // kind: gemm | decode | prefill
  int m, threads;
  const char* unit;  // GMAC/s | GB/s
  const char* peak_name;
  double bound;      // least share of the peak; 0: measured, not held against anything
};
// Takes kernel and peak in turns for a fixed time, windows of a fraction of a millisecond each; the best of each counts. Both
// callbacks give a rate. Prints one line of JSON.
void measure(const Result& result, const std::function<double()>& kernel_rate, const std::function<double()>& peak_rate);
// One window of a peak loop on all threads, GMAC/s.
double loop_rate(Team& team, const Peak& peak);

void bench_gemm(const Kernels& kernels, Format format, int cols, int rows, int m, Team& team);
void bench_decode(const Kernels& kernels, KvType type, int group, int num_kv_heads, Team& team);
void bench_prefill(const Kernels& kernels, KvType type, int group, int num_kv_heads, Team& team);

extern const char* const kFormatNames[kNumFormats];

}  // namespace pagoda::bench
