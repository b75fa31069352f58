// Rates of the GEMM kernels in GMAC/s (and GB/s of weights), as a share of a peak probed in the same process between the runs.
//   node scripts/bench-kernels.mjs [isa=amx|avx512|avx2|portable] [format=Q4_1] [threads=1] [m=1,8,32,512] [shape=576x1536]
// Weights cycle through copies of 64 MB in all, so that small M reads them from memory. Best of many short runs: on a shared
// machine only the best says what the code can do.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ops/kernels.h"
#include "runtime/cpu-features.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace pagoda;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
const char* kNames[kNumFormats] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};

// Runs `work(thread)` on all threads at once; seconds of the slowest.
template <typename Work> double together(int threads, Work&& work) {
  std::atomic<int> ready{0};
  std::vector<double> seconds(threads);
  const auto body = [&](int t) {
    ready.fetch_add(1);
    while (ready.load() < threads) {}
    const double start = now();
    work(t);
    seconds[t] = now() - start;
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
  for (auto& other : others) other.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

#if defined(__x86_64__)
#define FOUR(op, reg, a, b, c, d) op " %%" reg "30, %%" reg "31, %%" reg a "\n" op " %%" reg "30, %%" reg "31, %%" reg b "\n" op " %%" reg "30, %%" reg "31, %%" reg c "\n" op " %%" reg "30, %%" reg "31, %%" reg d "\n"
#define SIXTEEN(op, reg) FOUR(op, reg, "0", "1", "2", "3") FOUR(op, reg, "4", "5", "6", "7") FOUR(op, reg, "8", "9", "10", "11") FOUR(op, reg, "12", "13", "14", "15")
#define CLOBBERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
__attribute__((target("avx512f,avx512vnni"))) void vnni_loop(long n) { asm volatile("1:\n" SIXTEEN("vpdpbusd", "zmm") "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBERS); }
__attribute__((target("avx512f"))) void fma512_loop(long n) { asm volatile("1:\n" SIXTEEN("vfmadd231ps", "zmm") "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBERS); }
#define PAIR(m, a) "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n vpaddw %%ymm12, %%ymm" a ", %%ymm" a "\n"
#define PAIR2(m, a) "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n vpaddw %%ymm13, %%ymm" a ", %%ymm" a "\n"
__attribute__((target("avx2"))) void maddubs_loop(long n) {
  asm volatile("1:\n" PAIR("", "0") PAIR2("", "1") PAIR("", "2") PAIR2("", "3") PAIR("", "4") PAIR2("", "5") PAIR("", "6") PAIR2("", "7") "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBERS);
}
__attribute__((target("fma"))) void fma256_loop(long n) {
#define ONE(a) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" a "\n"
  asm volatile("1:\n" ONE("0") ONE("1") ONE("2") ONE("3") ONE("4") ONE("5") ONE("6") ONE("7") ONE("8") ONE("9") "dec %0\n jnz 1b\n" : "+r"(n)::CLOBBERS);
}
#endif

struct Peak { const char* name; double gmacs; };
double best_of_loop(void (*loop)(long), double macs_per_turn, int threads, double best) {
  for (int i = 0; i < 20; ++i) {
    const double seconds = together(threads, [&](int) { loop(2000); });
    best = std::max(best, threads * 2000 * macs_per_turn / seconds * 1e-9);
  }
  return best;
}
void probe(const Kernels& kernels, bool integer, int threads, Peak* peak) {
#if defined(__x86_64__)
  if (strcmp(kernels.isa, "avx512") == 0 || strcmp(kernels.isa, "amx") == 0) {  // amx too: its share of vpdpbusd says what it gains
    peak->name = integer ? "vpdpbusd" : "vfmadd zmm";
    peak->gmacs = integer ? best_of_loop(vnni_loop, 16 * 64, threads, peak->gmacs) : best_of_loop(fma512_loop, 16 * 16, threads, peak->gmacs);
  } else if (strcmp(kernels.isa, "avx2") == 0) {
    peak->name = integer ? "vpmaddubsw + vpaddw" : "vfmadd ymm";
    peak->gmacs = integer ? best_of_loop(maddubs_loop, 8 * 32, threads, peak->gmacs) : best_of_loop(fma256_loop, 10 * 8, threads, peak->gmacs);
  }
#else
  (void)kernels, (void)integer, (void)threads;
#endif
  if (peak->name == nullptr) *peak = {"no probe", 0};
}

void* aligned(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, bytes + 4096) != 0) abort();
  memset(p, 0, bytes + 4096);
  return p;
}
double stream_gbs(int threads) {
  const size_t bytes = size_t{64} << 20;
  auto* data = static_cast<uint64_t*>(aligned(bytes * threads));
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    const double seconds = together(threads, [&](int t) {
      uint64_t sums[8] = {};
      const uint64_t* p = data + bytes / 8 * t;
      for (size_t k = 0; k < bytes / 8; k += 8) for (int j = 0; j < 8; ++j) sums[j] ^= p[k + j];
      for (uint64_t s : sums) sink.fetch_xor(s);
    });
    best = std::max(best, threads * static_cast<double>(bytes) / seconds * 1e-9);
  }
  free(data);
  return best;
}

void bench(const Kernels& kernels, Format format, int rows, int cols, const std::vector<int>& ms, int threads) {
  const size_t row_bytes = source_row_bytes(format, cols);
  if (row_bytes == 0) return;
  const int panels = (rows + 15) / 16;
  const size_t panel_bytes = kernels.packed_panel_bytes(format, cols), bytes = panel_bytes * panels;
  const int copies = static_cast<int>(std::max<size_t>(1, (size_t{64} << 20) / bytes));
  auto* data = static_cast<uint8_t*>(aligned(bytes * copies));
  // Packing zeros and ones would do for speed, but not subnormal floats: scales get a plain value.
  std::vector<uint8_t> source(row_bytes);
  for (size_t i = 0; i < row_bytes; ++i) source[i] = static_cast<uint8_t>(0x20 + i * 7 % 11);
  const std::vector<const uint8_t*> pointers(16, source.data());
  for (int c = 0; c < copies; ++c) {
    PackedWeight weight = {format, rows, cols, panels, panel_bytes, data + bytes * c};
    for (int p = 0; p < panels; ++p) kernels.pack_panels(&weight, pointers.data(), p, p + 1);
  }
  for (int m : ms) {
    auto* x = static_cast<float*>(aligned(sizeof(float) * m * cols));
    for (int i = 0; i < m * cols; ++i) x[i] = static_cast<float>(i * 7919 % 2001 - 1000) * 0.001f;
    auto* out = static_cast<float*>(aligned(sizeof(float) * m * panels * 16));
    QuantizedRows q = {static_cast<uint8_t*>(aligned(kernels.quantized_bytes(m, cols))), m, cols};
    const bool integer = kernels.uses_int8(format);
    if (integer) kernels.quantize_rows(&q, x, cols, 0, m);
    std::vector<float*> scratch;
    for (int t = 0; t < threads; ++t) scratch.push_back(static_cast<float*>(aligned(sizeof(float) * kernels.gemm_scratch_floats(cols))));
    Peak peak = {nullptr, 0};
    double best = 1e9;
    const double macs = static_cast<double>(m) * rows * cols;
    const double budget = now() + 1.0;
    for (int i = 0; i < 5 || (i < 2000 && now() < budget); ++i) {
      if (i % 20 == 0) probe(kernels, integer, threads, &peak);
      const PackedWeight weight = {format, rows, cols, panels, panel_bytes, data + bytes * (i % copies)};
      best = std::min(best, together(threads, [&](int t) {
        GemmArgs args = {&weight, x, static_cast<size_t>(cols), integer ? &q : nullptr, 0, m, panels * t / threads, panels * (t + 1) / threads, out, static_cast<size_t>(panels * 16), nullptr, false, scratch[t]};
        kernels.gemm(&args);
      }));
    }
    printf("%-8s %-6s %5d x %-6d M %-4d %8.1f GMAC/s  %6.1f GB/s  %.3f of %s %.0f\n", kernels.isa, kNames[static_cast<int>(format)], cols, rows, m, macs / best * 1e-9, static_cast<double>(bytes) / best * 1e-9,
           peak.gmacs > 0 ? macs / best * 1e-9 / peak.gmacs : 0, peak.name, peak.gmacs);
    fflush(stdout);
    free(x);
    free(out);
    free(q.data);
    for (float* s : scratch) free(s);
  }
  free(data);
}

}  // namespace

int main(int argc, char** argv) {
  std::string isa, format = "Q4_1", shape;
  std::vector<int> ms = {1, 4, 8, 32, 512};
  int threads = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&](const char* key) { return arg.compare(0, strlen(key), key) == 0 ? arg.c_str() + strlen(key) : nullptr; };
    if (const char* v = value("isa=")) isa = v;
    else if (const char* v = value("format=")) format = v;
    else if (const char* v = value("shape=")) shape = v;
    else if (const char* v = value("threads=")) threads = atoi(v);
    else if (const char* v = value("m=")) {
      ms.clear();
      for (const char* p = v; *p != 0; ++p) {
        if (p == v || p[-1] == ',') ms.push_back(atoi(p));
      }
    } else {
      fprintf(stderr, "unknown argument %s (isa= format= shape=KxN threads= m=)\n", argv[i]);
      return 2;
    }
  }
  std::vector<const Kernels*> tables;
  for (const std::string& name : usable_isas()) tables.push_back(choose_kernels(name));
  std::vector<std::pair<int, int>> shapes = {{576, 960}, {576, 3072}, {1536, 576}, {576, 49152}};  // SmolLM2-135M: cols x rows
  int k = 0, n = 0;
  if (!shape.empty()) {
    if (sscanf(shape.c_str(), "%dx%d", &k, &n) != 2 || k < 1 || n < 1) { fprintf(stderr, "shape=KxN\n"); return 2; }
    shapes = {{k, n}};
  }
  printf("read bandwidth, %d thread%s: %.1f GB/s\n", threads, threads == 1 ? "" : "s", stream_gbs(threads));
  for (const Kernels* kernels : tables) {
    if (isa.empty() ? kernels != tables[0] : isa != kernels->isa) continue;
    for (int f = 0; f < kNumFormats; ++f) {
      if (format != "all" && format != kNames[f]) continue;
      for (const auto& [cols, out_rows] : shapes) bench(*kernels, static_cast<Format>(f), out_rows, cols, ms, threads);
    }
  }
  return 0;
}
