#include "runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace pagoda {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunkBytes = size_t{32} << 20;
// Smaller buffers (activations, of which a step seldom touches all rows) would waste most of their huge pages.
constexpr size_t kLeastForHugePages = size_t{16} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(size_t bytes) {
  if (bytes == 0) return;
  if (bytes > SIZE_MAX - 2 * kHugePage) throw std::bad_alloc();
  // Map a little more than asked for, then cut both ends so that large buffers start on a huge page.
  const size_t alignment = bytes >= kLeastForHugePages ? kHugePage : 4096;
  const size_t rounded = (bytes + 4095) & ~size_t{4095};
  const size_t mapped = rounded + (alignment > 4096 ? alignment : 0);
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw std::bad_alloc();
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + alignment - 1) & ~(alignment - 1);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t tail = aligned + rounded;
  if (start + mapped > tail) munmap(reinterpret_cast<void*>(tail), start + mapped - tail);
  data_ = reinterpret_cast<uint8_t*>(aligned);
  bytes_ = rounded;
#if defined(MADV_HUGEPAGE)
  if (alignment == kHugePage) madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
}

AlignedBuffer::~AlignedBuffer() {
  if (data_) munmap(data_, bytes_);
}

uint8_t* Arena::allocate(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + 63) & ~size_t{63};
  if (chunks_.empty() || chunk_used_ + rounded > chunks_.back().bytes()) {
    chunks_.emplace_back(std::max(rounded, kChunkBytes));
    chunk_used_ = 0;
  }
  uint8_t* piece = chunks_.back().data() + chunk_used_;
  chunk_used_ += rounded;
  used_bytes_ += rounded;
  return piece;
}

}  // namespace pagoda
