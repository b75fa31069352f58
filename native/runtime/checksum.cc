#include "runtime/checksum.h"

#include <cstring>

namespace pagoda {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ull, kPrime2 = 0xC2B2AE3D27D4EB4Full, kPrime3 = 0x165667B19E3779F9ull;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63ull, kPrime5 = 0x27D4EB2F165667C5ull;

uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }
uint64_t read64(const uint8_t* p) { uint64_t v; std::memcpy(&v, p, 8); return v; }
uint32_t read32(const uint8_t* p) { uint32_t v; std::memcpy(&v, p, 4); return v; }
uint64_t mix(uint64_t lane, uint64_t input) { return rotate(lane + input * kPrime2, 31) * kPrime1; }
uint64_t join(uint64_t hash, uint64_t lane) { return (hash ^ mix(0, lane)) * kPrime1 + kPrime4; }

}  // namespace

uint64_t checksum(const void* data, size_t bytes, uint64_t seed) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  const uint8_t* const end = p + bytes;
  uint64_t hash = seed + kPrime5;
  if (bytes >= 32) {
    uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    for (; end - p >= 32; p += 32) {
      a = mix(a, read64(p));
      b = mix(b, read64(p + 8));
      c = mix(c, read64(p + 16));
      d = mix(d, read64(p + 24));
    }
    hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    hash = join(join(join(join(hash, a), b), c), d);
  }
  hash += bytes;
  for (; end - p >= 8; p += 8) hash = rotate(hash ^ mix(0, read64(p)), 27) * kPrime1 + kPrime4;
  if (end - p >= 4) {
    hash = rotate(hash ^ (read32(p) * kPrime1), 23) * kPrime2 + kPrime3;
    p += 4;
  }
  for (; p < end; p++) hash = rotate(hash ^ (*p * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace pagoda
