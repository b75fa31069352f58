// What this machine can do at most, on one line of JSON: multiply-accumulates per second of each kind of product and bytes per second
// read from memory, on N threads at once. Each figure is the best of many windows of a few milliseconds, so that a busy neighbour
// lowers it only if it never pauses. Usage: peak_probe THREADS [SECONDS per figure]
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "bench_common.h"
#include "runtime/cpu-features.h"

using namespace pagoda;
using namespace pagoda::bench;

namespace {

// `macs` multiply-accumulates per turn of the loop.
struct Kind {
  const char* name;
  double macs;
  void (*loop)(long turns);
};

#if defined(__x86_64__) && defined(__linux__) && (defined(__clang__) || __GNUC__ >= 11)
#define HAS_TILES 1
struct TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};
__attribute__((target("amx-tile,amx-int8"))) void int8_amx(long n) {
  alignas(64) TileConfig config;
  for (int t = 0; t < 6; ++t) config.bytes[t] = 64, config.rows[t] = 16;
  // The intrinsic names eight bytes of its operand only; without this the other stores may be dropped.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(4);
  _tile_zero(5);
  for (; n > 0; --n) {
    _tile_dpbusd(0, 4, 5);
    _tile_dpbusd(1, 4, 5);
    _tile_dpbusd(2, 4, 5);
    _tile_dpbusd(3, 4, 5);
  }
  _tile_release();
}
#endif

// The loops are those of kernel_bench; AMX has one of its own, since no kernel is held against it.
std::vector<Kind> kinds() {
  const CpuFeatures features = detect_cpu_features();
  std::vector<Kind> found;
  const auto add = [&](const char* name, const char* isa, PeakKind kind) {
    const Peak peak = peak_of(isa, kind);
    if (peak.loop != nullptr) found.push_back({name, peak.macs_per_turn, peak.loop});
  };
  if (features.avx2) {
    add("fmaAvx2", "avx2", PeakKind::Fma);
    add("int8Avx2", "avx2", PeakKind::EightBit);
    add("int4Avx2", "avx2", PeakKind::FourBit);
  }
  if (features.avx512) {
    add("fmaAvx512", "avx512", PeakKind::Fma);
    add("int8Vnni", "avx512", PeakKind::EightBit);
    if (features.avx512_bf16) add("bf16Avx512", "avx512", PeakKind::Bf16);
  }
#if defined(HAS_TILES)
  if (features.amx) found.push_back({"int8Amx", 4 * 16 * 16 * 64, int8_amx});
#endif
  return found;
}

// The best sum over the threads of their rates in one window: `work(thread)` returns what it did in about a few milliseconds. All
// threads begin a window together, so that they compete for clock and memory as they do in a step.
template <class Work>
double best_rate(int threads, double seconds, Work work) {
  const double end = now() + seconds;
  double best = 0;
  std::vector<double> rates(threads);
  do {
    std::atomic<int> waiting{threads};
    std::vector<std::thread> team;
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&, t] {
        waiting.fetch_sub(1);
        while (waiting.load() > 0) std::this_thread::yield();
        for (int window = 0; window < 8; ++window) {
          const double start = now();
          const double done = work(t);
          rates[t] = std::max(window == 0 ? 0.0 : rates[t], done / (now() - start));
        }
      });
    for (auto& thread : team) thread.join();
    double sum = 0;
    for (double rate : rates) sum += rate;
    best = std::max(best, sum);
  } while (now() < end);
  return best;
}

double read_bandwidth(int threads, double seconds) {
  constexpr size_t kBytes = size_t{256} << 20, kWindow = size_t{16} << 20;
  std::vector<std::vector<uint8_t>> memory(threads);
  std::vector<size_t> at(threads, 0);
  for (auto& part : memory) part.assign(kBytes, 1);
  static std::atomic<uint64_t> sink{0};
  return best_rate(threads, seconds, [&](int t) {
    sink.fetch_xor(read_bytes(memory[t].data() + at[t], kWindow), std::memory_order_relaxed);
    at[t] = (at[t] + kWindow) % kBytes;
    return static_cast<double>(kWindow);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  if (threads < 1 || seconds <= 0) {
    std::fprintf(stderr, "usage: peak_probe THREADS [SECONDS]\n");
    return 2;
  }
  std::printf("{\"threads\":%d,\"macsPerSecond\":{", threads);
  const char* comma = "";
  for (const Kind& kind : kinds()) {
    // Turns for about two milliseconds, from the best of a few short runs.
    double turn = 1;
    for (int i = 0; i < 5; ++i) {
      const double start = now();
      kind.loop(2000);
      turn = std::min(turn, (now() - start) / 2000);
    }
    const long turns = std::max(1000L, static_cast<long>(0.002 / turn));
    const double rate = best_rate(threads, seconds, [&](int) {
      kind.loop(turns);
      return kind.macs * static_cast<double>(turns);
    });
    std::printf("%s\"%s\":%.4g", comma, kind.name, rate);
    comma = ",";
  }
  std::printf("},\"bytesPerSecond\":%.4g}\n", read_bandwidth(threads, seconds));
  return 0;
}
