// Rates of the kernels as shares of peaks probed between their runs, one line of JSON per measurement; scripts/bench-kernels.mjs
// builds it, chooses what to measure and holds the lines against their bounds. Arguments, each a list a,b,c:
//   part=gemm,decode,prefill,paths (the paths this CPU can run)  path=amx,avx512,avx2,portable  format=Q4_1,…  shape=576x1536,… (cols x rows)  m=1,32  threads=1,2  kv=f16,bf16,int8,f32
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "bench_common.h"
#include "runtime/cpu-features.h"

using namespace pagoda;
using namespace pagoda::bench;

int main(int argc, char** argv) {
  std::map<std::string, std::vector<std::string>> lists;
  for (int i = 1; i < argc; ++i) {
    const char* equals = std::strchr(argv[i], '=');
    if (equals == nullptr) return std::fprintf(stderr, "argument %s: key=a,b,c expected\n", argv[i]), 2;
    std::stringstream text(equals + 1);
    for (std::string item; std::getline(text, item, ',');) lists[std::string(argv[i], static_cast<size_t>(equals - argv[i]))].push_back(item);
  }
  for (const std::string& part : lists["part"]) {
    if (part != "paths") continue;
    for (const std::string& path : usable_isas()) std::printf("%s\n", path.c_str());
  }
  std::vector<KvType> kv_types;
  for (const std::string& kv : lists["kv"]) kv_types.push_back(kv == "f16" ? KvType::F16 : kv == "bf16" ? KvType::BF16 : kv == "int8" ? KvType::Int8 : KvType::F32);
  for (const std::string& thread_count : lists["threads"]) {
    Team team(std::atoi(thread_count.c_str()));
    for (const std::string& path : lists["path"]) {
      const Kernels& kernels = *choose_kernels(path);
      for (const std::string& part : lists["part"]) {
        for (const auto& [group, kv_heads] : std::vector<std::pair<int, int>>{{3, 3}, {7, 2}, {4, 8}}) {  // SmolLM2-135M, Qwen2.5-0.5B, Llama-3.2-1B
          for (KvType type : kv_types) {
            if (part == "decode") bench_decode(kernels, type, group, kv_heads, team);
            if (part == "prefill") bench_prefill(kernels, type, group, kv_heads, team);
          }
        }
        if (part != "gemm") continue;
        for (int f = 0; f < kNumFormats; ++f) {
          for (const std::string& format : lists["format"]) {
            if (format != kFormatNames[f]) continue;
            for (const std::string& shape : lists["shape"]) {
              int cols = 0, rows = 0;
              if (std::sscanf(shape.c_str(), "%dx%d", &cols, &rows) != 2 || cols < 1 || rows < 1) return std::fprintf(stderr, "shape %s: COLSxROWS expected\n", shape.c_str()), 2;
              for (const std::string& m : lists["m"]) bench_gemm(kernels, static_cast<Format>(f), cols, rows, std::atoi(m.c_str()), team);
            }
          }
        }
      }
    }
  }
  return 0;
}
