// XXH64 of one piece of memory (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md): finds damage, at memory speed. No
// protection against somebody who wants two contents to look alike.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pagoda {

uint64_t checksum(const void* data, size_t bytes, uint64_t seed = 0);

}  // namespace pagoda
