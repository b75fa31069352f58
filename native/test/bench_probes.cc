// The peaks a kernel is held against: register-only loops with enough independent chains to keep every pipe full, and plain reads.
#include <cstring>

#include "bench_common.h"
#include "runtime/cpu-features.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagoda::bench {

#if defined(__x86_64__)
namespace {
#define CLOBBERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define LOOP(body) asm volatile("vzeroall\n1:\n" body "dec %0\n jnz 1b\n" : "+r"(turns)::CLOBBERS)
#define EIGHT(op) op("0") op("1") op("2") op("3") op("4") op("5") op("6") op("7")
#define TWELVE(op) EIGHT(op) op("8") op("9") op("10") op("11")

#define VNNI(a) "vpdpbusd %%zmm14, %%zmm15, %%zmm" a "\n"
#define DPBF16(a) "vdpbf16ps %%zmm14, %%zmm15, %%zmm" a "\n"
#define FMA512(a) "vfmadd231ps %%zmm14, %%zmm15, %%zmm" a "\n"
#define FMA256(a) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" a "\n"
#define FOUR_BIT(a) "vpmaddubsw %%ymm14, %%ymm15, %%ymm12\n vpaddw %%ymm12, %%ymm" a ", %%ymm" a "\n"
#define EIGHT_BIT(a) "vpsignb %%ymm14, %%ymm15, %%ymm12\n vpmaddubsw %%ymm12, %%ymm15, %%ymm12\n vpmaddwd %%ymm12, %%ymm13, %%ymm12\n vpaddd %%ymm12, %%ymm" a ", %%ymm" a "\n"
void vnni_loop(long turns) { LOOP(TWELVE(VNNI)); }
void dpbf16_loop(long turns) { LOOP(TWELVE(DPBF16)); }
void fma512_loop(long turns) { LOOP(TWELVE(FMA512)); }
void fma256_loop(long turns) { LOOP(TWELVE(FMA256)); }
void four_bit_loop(long turns) { LOOP(EIGHT(FOUR_BIT)); }
void eight_bit_loop(long turns) { LOOP(EIGHT(EIGHT_BIT)); }

__attribute__((target("avx512f"))) uint64_t read512(const uint8_t* data, size_t bytes) {
  __m512i sums[4] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) sums[j] = _mm512_xor_si512(sums[j], _mm512_loadu_si512(data + i + 64 * j));
  }
  alignas(64) uint64_t all[8];
  _mm512_store_si512(all, _mm512_or_si512(_mm512_or_si512(sums[0], sums[1]), _mm512_or_si512(sums[2], sums[3])));
  return all[0] ^ all[7];
}
__attribute__((target("avx2"))) uint64_t read256(const uint8_t* data, size_t bytes) {
  __m256i sums[4] = {};
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    for (int j = 0; j < 4; ++j) sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + i + 32 * j)));
  }
  const __m256i all = _mm256_or_si256(_mm256_or_si256(sums[0], sums[1]), _mm256_or_si256(sums[2], sums[3]));
  return static_cast<uint64_t>(_mm256_extract_epi64(all, 0) ^ _mm256_extract_epi64(all, 3));
}
}  // namespace
#endif

uint64_t read_bytes(const uint8_t* data, size_t bytes) {
#if defined(__x86_64__)
  static const CpuFeatures features = detect_cpu_features();
  if (features.avx512) return read512(data, bytes);
  if (features.avx2) return read256(data, bytes);
#endif
  uint64_t sums[8] = {}, value;
  for (size_t i = 0; i + 64 <= bytes; i += 64) {
    for (int j = 0; j < 8; ++j) std::memcpy(&value, data + i + 8 * j, 8), sums[j] ^= value;
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

Peak peak_of(const std::string& isa, PeakKind kind) {
#if defined(__x86_64__)
  if (isa == "amx" || isa == "avx512") {  // amx too: its share of vpdpbusd says what it gains
    if (kind == PeakKind::FourBit || kind == PeakKind::EightBit) return {"vpdpbusd", vnni_loop, 12 * 64};
    if (kind == PeakKind::Bf16 && detect_cpu_features().avx512_bf16) return {"vdpbf16ps", dpbf16_loop, 12 * 32};
    return {"vfmadd zmm", fma512_loop, 12 * 16};
  }
  if (isa == "avx2") {
    if (kind == PeakKind::FourBit) return {"4-bit loop", four_bit_loop, 8 * 32};
    if (kind == PeakKind::EightBit) return {"8-bit loop", eight_bit_loop, 8 * 32};
    return {"vfmadd ymm", fma256_loop, 12 * 8};
  }
#endif
  (void)isa, (void)kind;
  return {nullptr, nullptr, 0};
}

}  // namespace pagoda::bench
