// A file with packed weights, so that the next start reads instead of packing. Nothing in it is believed: head, header, table and
// every piece of content have checksums, the header (made by src/device/cpu/packed-cache.ts: which checkpoint, which layout, which
// matrices) must be the expected one, byte by byte, and the content is read into memory of our own, so that what was checked is
// what is used. Files are replaced whole (temporary file, rename), by one process at a time (a lock on the folder's `lock` file).
//
//   head (64 bytes), header (text), zeros up to a multiple of 4096, content, zeros up to a multiple of 8,
//   checksum of each piece of 4 MiB of the content, checksum of these
#pragma once
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/kernels.h"
#include "runtime/memory.h"
#include "runtime/thread-pool.h"

namespace pagoda {

constexpr uint32_t kPackedCacheVersion = 1;  // of the file's own structure; layouts have an id of their own

// Why a file cannot be used, as the end of a sentence.
struct UnusableCache : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ContentPart {
  const uint8_t* data;
  size_t bytes;
};

// The header, when the file is whole as far as one can tell without its content. Throws UnusableCache.
std::string read_packed_header(const std::string& path);

// The content, checked, in memory of our own with 4096 spare bytes; `content_bytes` gets its size. Only from a pool job; all threads read.
// Throws UnusableCache, also for another header than the expected one, and std::bad_alloc.
AlignedBuffer read_packed_cache(const std::string& path, const std::string& expected_header, ThreadPool* pool, size_t* content_bytes);

enum class CacheWrite { Written, Busy, Cancelled, TooLarge };

// Writes the file beside its final name and renames it, unless another process writes in the folder (Busy). Removes what was used least
// recently until the folder's packed files take at most `max_bytes`, and leftovers of processes that died. Throws std::runtime_error.
CacheWrite write_packed_cache(const std::string& path, const std::string& header, const std::vector<ContentPart>& parts, uint64_t max_bytes, const std::atomic<bool>& cancelled);

// Equal exactly when two kernel tables (of any two builds) pack alike: a checksum of small matrices packed in every format.
uint64_t packed_layout_id(const Kernels& kernels);

// Bytes of one weight of `num_parts` equal matrices. 0 when the shape is impossible.
uint64_t packed_weight_bytes(const Kernels& kernels, Format format, int64_t rows, int32_t cols, int32_t num_parts);

}  // namespace pagoda
