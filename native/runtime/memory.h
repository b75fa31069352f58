// Large aligned memory for weights, KV blocks and activations: zeroed, 64-byte aligned, huge pages where the system gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pagoda {

// Owns one anonymous mapping. Throws std::bad_alloc.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Hands out 64-byte aligned pieces of large buffers; everything is freed together.
class Arena {
 public:
  uint8_t* allocate(size_t bytes);
  size_t used_bytes() const { return used_bytes_; }

 private:
  std::vector<AlignedBuffer> chunks_;
  size_t chunk_used_ = 0;
  size_t used_bytes_ = 0;
};

}  // namespace pagoda
