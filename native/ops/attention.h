// Paged attention of a few query tokens over one KV head: neighbours in one sequence, or of several sequences over blocks that
// they share. The arithmetic of a (query token, head) row is fixed by
// absolute positions alone: keys come in tiles of 64 tokens, tiles in segments of 512; a segment starts from nothing and gives
// (maximum, sum, weighted values); segments are merged in order. So results do not depend on chunking, batch mates, block size,
// threads, or on which rows share a call.
//
// KV block of one layer and head: K part, then V part. K [block_size / 16][head_dim][16 tokens], V [block_size][head_dim]; bf16 in pairs that one
// instruction multiplies: K [block_size / 16][head_dim / 2][16 tokens][2], V [block_size / 2][head_dim][2]. int8 adds one float32 scale per
// token after each part.
//
// With a bf16 cache, CPUs that are fast at pairs of bf16 (vdpbf16ps) round queries and weights to bf16, too; all else is float32.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace pagoda {

constexpr int32_t kAttentionTile = 64;
constexpr int32_t kAttentionSegment = 512;
constexpr int32_t kAttentionRows = 96;  // query rows (tokens x heads of the group) of one call, at least one token

// A query token of any sequence; all those of a call see the whole segment.
struct AttentionMember {
  int32_t token;        // q of its first head at q + token * q_stride
  int64_t partial;      // floats; its first row at partial + this
};

struct AttentionArgs {
  const float* q;   // first query token, first head of the group; head h of token t at q + t * q_stride + h * head_dim
  size_t q_stride;  // floats between tokens
  float* out;       // same shape as q
  size_t out_stride;
  int32_t num_tokens, group, head_dim;
  int32_t position;  // of the first query token
  int32_t window;    // 0 = all before
  float scale, softcap;
  const int32_t* block_table;  // of the sequence
  const uint8_t* kv;           // pool; this layer and head of block b at kv + b * block_bytes
  size_t block_bytes;
  int32_t block_size;
  KvType type;
  // Segments to do; all of those that the rows see when `partial` is null. Otherwise (m, l, o[head_dim]) of each row of exactly
  // one segment goes to `partial`, partial_stride floats per row, and `out` is not written.
  int32_t segment_begin, segment_end;
  float* partial;
  size_t partial_stride;
  const AttentionMember* members;  // num_tokens of them; null = one sequence's neighbours. Only with `partial`; `position` is past the segment
  float* scratch;  // attention_scratch_floats(), 64-byte aligned
  // What this thread most likely does next: its first keys and values are prefetched while this call ends. Null = nothing.
  const AttentionArgs* ahead;
};

constexpr int32_t round_up_16(int32_t n) { return (n + 15) & ~15; }

// (m, l) and the padded values.
constexpr size_t attention_partial_floats(int32_t head_dim) { return static_cast<size_t>(round_up_16(head_dim)) + 16; }

inline size_t attention_scratch_floats(int32_t group, int32_t head_dim) {
  const size_t rows = static_cast<size_t>(group > kAttentionRows ? group : kAttentionRows);
  const size_t dim = static_cast<size_t>(round_up_16(head_dim));
  return rows * (3 * dim + kAttentionTile + 64) + 2 * kAttentionTile * dim + 64;
}

}  // namespace pagoda
