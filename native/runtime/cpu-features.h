// Which instruction sets this CPU and operating system can run, and the choice among them.
#pragma once
#include <string>
#include <vector>

#include "ops/kernels.h"

namespace pagoda {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C, and the OS saves ymm registers
  bool avx512 = false;  // AVX-512 F, BW, DQ, VL, VNNI, and the OS saves zmm registers
  bool amx = false;     // all of that and AMX int8 tiles, and the kernel lets this process use them
  bool avx512_bf16 = false;
};

CpuFeatures detect_cpu_features();

// Names of the kernel tables that were compiled in and that this CPU can run, fastest first; always ends in "portable".
std::vector<std::string> usable_isas();

// The table for `requested` ("auto" = the fastest). Throws std::runtime_error that names the usable ones.
const Kernels* choose_kernels(const std::string& requested);

}  // namespace pagoda
