#include "runtime/cpu-features.h"

#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagoda {

#if defined(__x86_64__)
static uint64_t read_xcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// The kernel gives the large tile state only to processes that ask for it (arch_prctl ARCH_REQ_XCOMP_PERM, feature 18); once
// given, every thread has it.
static bool may_use_tiles() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
#else
  return false;
#endif
}
#endif

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__)
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
  const bool osxsave = (c >> 27) & 1, fma = (c >> 12) & 1, f16c = (c >> 29) & 1, avx = (c >> 28) & 1;
  if (!osxsave || !avx) return features;
  const uint64_t xcr0 = read_xcr0();
  const bool saves_ymm = (xcr0 & 0x6) == 0x6;
  const bool saves_zmm = (xcr0 & 0xe6) == 0xe6, saves_tiles = (xcr0 & 0x60000) == 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
  const uint32_t max_subleaf = a;
  const bool avx2 = (b >> 5) & 1, bmi2 = (b >> 8) & 1;
  const bool f = (b >> 16) & 1, dq = (b >> 17) & 1, bw = (b >> 30) & 1, vl = (b >> 31) & 1, vnni = (c >> 11) & 1;
  const bool amx_tile = (d >> 24) & 1, amx_int8 = (d >> 25) & 1;
  features.avx2 = saves_ymm && avx2 && fma && f16c && bmi2;
  features.avx512 = features.avx2 && saves_zmm && f && dq && bw && vl && vnni;
  features.amx = features.avx512 && saves_tiles && amx_tile && amx_int8 && may_use_tiles();
  if (features.avx512 && max_subleaf >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) features.avx512_bf16 = (a >> 5) & 1;
#endif
  return features;
}

static const Kernels* table(const std::string& isa, const CpuFeatures& features) {
  if (isa == "amx") return features.amx && kernels_avx512() ? kernels_amx() : nullptr;
  if (isa == "avx512") return features.avx512 ? kernels_avx512() : nullptr;
  if (isa == "avx2") return features.avx2 ? kernels_avx2() : nullptr;
  if (isa == "portable") return kernels_portable();
  return nullptr;
}

std::vector<std::string> usable_isas() {
  const CpuFeatures features = detect_cpu_features();
  std::vector<std::string> names;
  for (const char* isa : {"amx", "avx512", "avx2", "portable"}) {
    if (table(isa, features)) names.emplace_back(isa);
  }
  return names;
}

const Kernels* choose_kernels(const std::string& requested) {
  const CpuFeatures features = detect_cpu_features();
  const std::vector<std::string> names = usable_isas();
  const Kernels* kernels = table(requested == "auto" ? names.front() : requested, features);
  if (kernels) return kernels;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  throw std::runtime_error("instruction set '" + requested + "' is unknown or not available on this CPU; available: " + list);
}

}  // namespace pagoda
