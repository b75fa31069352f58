// The memory of the KV cache: [layers of a group][blocks][KV heads][K part | V part] (ops/attention.h). What one layer's attention reads lies in one
// region, and neighbouring blocks of a sequence lie side by side in it.
#pragma once
#include <cstdint>

#include "runtime/memory.h"
#include "runtime/plan.h"

namespace pagoda {

class KvPool {
 public:
  KvPool() = default;
  KvPool(const KvSpec& spec, int64_t num_blocks)
      : memory_(static_cast<size_t>(num_blocks) * spec.block_bytes() + kPadding), num_blocks_(num_blocks), layer_bytes_(static_cast<size_t>(num_blocks) * spec.layer_bytes()) {}

  int64_t num_blocks() const { return num_blocks_; }
  // The blocks of layer `index` of any group, KvSpec::layer_bytes() each.
  uint8_t* layer(int32_t index) { return memory_.data() + layer_bytes_ * index; }
  const uint8_t* layer(int32_t index) const { return memory_.data() + layer_bytes_ * index; }

 private:
  static constexpr size_t kPadding = 64;  // the last head's vectors are read to the end of a 16-lane register

  AlignedBuffer memory_;
  int64_t num_blocks_ = 0;
  size_t layer_bytes_ = 0;
};

}  // namespace pagoda
