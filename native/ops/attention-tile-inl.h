// The two products of attention over one tile of keys and values: scores, and sums of values by weights.
#pragma once
#include "attention-kv-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr int kSubs = kAttentionTile / 16;  // runs of 16 tokens in a tile: never cut by a block border
constexpr int kMaxTileRows = 6;
// Runs of tokens, and vectors of columns, that a block of rows takes at once. Pairs with few rows take two: they are done so soon that four streams of
// prefetches at a time come in bursts (docs/log.md).
#ifdef PAGODA_ISA_AVX512
template <typename Kv> constexpr int at_once(int rows) { return Kv::kUnit > Kv::kParts && rows <= 4 ? 2 : 4; }
#else
template <typename Kv> constexpr int at_once(int rows) { return rows <= 3 ? 2 : 1; }
#endif

// One tile of keys and values as 16-token runs.
struct TileView {
  const uint8_t* k[kSubs];
  const uint8_t* v[kSubs];
  const float* k_scale[kSubs];  // int8 only
  const float* v_scale[kSubs];
  int num_subs;
  size_t value_stride;  // elements from one value to the next
  // The keys and values of the tile after this one, prefetched while this one is computed; this one's where there is none.
  const uint8_t* next_k[kSubs];
  const uint8_t* next_v[kSubs];
  bool next_to_second_level;
};

template <typename Kv, int kPart, int kRows, int kNumSubs>
PAGODA_INLINE void add_scores(const typename Kv::Input* q, size_t q_stride, const uint8_t* const* k, size_t offset, f32x16 (&sums)[kRows][kNumSubs]) {
  decltype(Kv::template load_part<kPart>(nullptr)) keys[kNumSubs];
  PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) keys[s] = Kv::template load_part<kPart>(k[s] + offset);
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) {
    const auto query = Kv::spread(q + r * q_stride + kPart);
    PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) sums[r][s] = Kv::multiply_add(query, keys[s], sums[r][s]);
  }
}

// scores[r][sub * 16 + t] = sum over d, in order, of q[r][d] * k[sub][d][t].
template <typename Kv, int kRows, int kNumSubs>
PAGODA_INLINE void score_block(const typename Kv::Input* q, size_t q_stride, const TileView& tile, int sub, int32_t head_dim, float* scores) {
  constexpr size_t kBytes = kVectorBytes<Kv>;
  const uint8_t *const *k = tile.k + sub, *const *next_k = tile.next_k + sub;
  f32x16 sums[kRows][kNumSubs];
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) sums[r][s] = zero();
  size_t offset = 0;
  for (int32_t d = 0; d < head_dim; d += Kv::kUnit, offset += kBytes) {
    if (Kv::kPrefetches && offset % 64 == 0) PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) prefetch(next_k[s] + offset, tile.next_to_second_level);
    add_scores<Kv, 0>(q + d, q_stride, k, offset, sums);
    if constexpr (Kv::kParts == 2) add_scores<Kv, 1>(q + d, q_stride, k, offset, sums);
  }
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) store(scores + r * kAttentionTile + s * 16, sums[r][s]);
}

template <typename Kv, int kRows>
PAGODA_NOINLINE void score_rows(const typename Kv::Input* q, size_t q_stride, const TileView& tile, int32_t head_dim, float* scores) {
  constexpr int kNumSubs = at_once<Kv>(kRows);
  int s = 0;
  for (; s + kNumSubs <= tile.num_subs; s += kNumSubs) score_block<Kv, kRows, kNumSubs>(q, q_stride, tile, s, head_dim, scores + s * 16);
  for (; s < tile.num_subs; s++) score_block<Kv, kRows, 1>(q, q_stride, tile, s, head_dim, scores + s * 16);
}

template <typename Kv, int kPart, int kRows, int kNumVectors>
PAGODA_INLINE void add_values(const typename Kv::Input* p, const uint8_t* values, f32x16 (&sums)[kRows][kNumVectors]) {
  constexpr int kStride = kAttentionTile * sizeof(float) / sizeof(typename Kv::Input);
  decltype(Kv::template load_part<kPart>(nullptr)) v[kNumVectors];
  PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) v[i] = Kv::template load_part<kPart>(values + i * kVectorBytes<Kv>);
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) {
    const auto weight = Kv::spread(p + r * kStride + kPart);
    PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) sums[r][i] = Kv::multiply_add(weight, v[i], sums[r][i]);
  }
}

// Of a pair of tokens the first (0) or the second (1) alone: the other may be anything, NaN too.
template <typename Kv, int kRows, int kNumVectors>
PAGODA_INLINE void add_one_of_pair(const typename Kv::Input* p, const uint8_t* values, int which, f32x16 (&sums)[kRows][kNumVectors]) {
  if constexpr (Kv::kParts == 2) {
    if (which == 0) add_values<Kv, 0>(p, values, sums);
    else add_values<Kv, 1>(p, values, sums);
  } else {
    alignas(64) uint8_t kept[kNumVectors * kVectorBytes<Kv>];
    const i32x16 mask = splat_i32(which == 0 ? 0xffff : static_cast<int32_t>(0xffff0000u));
    PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) store_i32(kept + i * kVectorBytes<Kv>, load_i32(values + i * kVectorBytes<Kv>) & mask);
    add_values<Kv, 0>(p, kept, sums);
  }
}

// out[r] += sum over tokens, in order, of p[r][t] * v[t]; tokens [first, last) of the tile, kNumVectors * 16 columns.
template <typename Kv, int kRows, int kNumVectors>
PAGODA_INLINE void value_block(const typename Kv::Input* p, const TileView& tile, int first, int last, int32_t column, float* out, size_t out_stride) {
  constexpr int kBytes = kNumVectors * kVectorBytes<Kv>;
  const size_t row_bytes = tile.value_stride * Kv::kUnit * Kv::kElement;
  f32x16 sums[kRows][kNumVectors];
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) sums[r][i] = load(out + r * out_stride + column + i * 16);
  for (int s = first / 16; s * 16 < last; s++) {
    const int begin = first > s * 16 ? first : s * 16;
    const int end = last < s * 16 + 16 ? last : s * 16 + 16;
    const int first_unit = begin / Kv::kUnit * Kv::kUnit;
    size_t offset = static_cast<size_t>((first_unit - s * 16) / Kv::kUnit) * row_bytes + static_cast<size_t>(column) * Kv::kUnit * Kv::kElement;
    for (int t = first_unit; t < end; t += Kv::kUnit, offset += row_bytes) {
      if (Kv::kPrefetches) PAGODA_UNROLL for (int i = 0; i < kBytes; i += 64) prefetch(tile.next_v[s] + offset + i, tile.next_to_second_level);
      const uint8_t* values = tile.v[s] + offset;
      if constexpr (Kv::kUnit == 2) {
        if (t < begin || t + 2 > end) {
          add_one_of_pair<Kv>(p + t, values, t < begin, sums);
          continue;
        }
      }
      add_values<Kv, 0>(p + t, values, sums);
      if constexpr (Kv::kParts == 2) add_values<Kv, 1>(p + t, values, sums);
    }
  }
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) store(out + r * out_stride + column + i * 16, sums[r][i]);
}

template <typename Kv, int kRows>
PAGODA_NOINLINE void value_rows(const typename Kv::Input* p, const TileView& tile, int first, int last, int32_t padded, float* out, size_t out_stride) {
  constexpr int kNumVectors = at_once<Kv>(kRows);
  int32_t column = 0;
  for (; column + kNumVectors * 16 <= padded; column += kNumVectors * 16) value_block<Kv, kRows, kNumVectors>(p, tile, first, last, column, out, out_stride);
  for (; column < padded; column += 16) value_block<Kv, kRows, 1>(p, tile, first, last, column, out, out_stride);
}

template <typename Kv>
static void score_tile(const typename Kv::Input* q, int num_rows, size_t q_stride, const TileView& tile, int32_t head_dim, float* scores) {
  for (int row = 0; row < num_rows; row += kMaxTileRows) {
    const typename Kv::Input* queries = q + row * q_stride;
    float* out = scores + row * kAttentionTile;
    switch (num_rows - row) {
      case 1: score_rows<Kv, 1>(queries, q_stride, tile, head_dim, out); break;
      case 2: score_rows<Kv, 2>(queries, q_stride, tile, head_dim, out); break;
      case 3: score_rows<Kv, 3>(queries, q_stride, tile, head_dim, out); break;
      case 4: score_rows<Kv, 4>(queries, q_stride, tile, head_dim, out); break;
      case 5: score_rows<Kv, 5>(queries, q_stride, tile, head_dim, out); break;
      default: score_rows<Kv, 6>(queries, q_stride, tile, head_dim, out); break;
    }
  }
}

// `weights`: [num_rows][64] inputs, each row where its scores were.
template <typename Kv>
static void value_tile(const float* weights, int num_rows, const TileView& tile, int first, int last, int32_t padded, float* out, size_t out_stride) {
  for (int row = 0; row < num_rows; row += kMaxTileRows) {
    const typename Kv::Input* p = reinterpret_cast<const typename Kv::Input*>(weights + row * kAttentionTile);
    float* sums = out + row * out_stride;
    switch (num_rows - row) {
      case 1: value_rows<Kv, 1>(p, tile, first, last, padded, sums, out_stride); break;
      case 2: value_rows<Kv, 2>(p, tile, first, last, padded, sums, out_stride); break;
      case 3: value_rows<Kv, 3>(p, tile, first, last, padded, sums, out_stride); break;
      case 4: value_rows<Kv, 4>(p, tile, first, last, padded, sums, out_stride); break;
      case 5: value_rows<Kv, 5>(p, tile, first, last, padded, sums, out_stride); break;
      default: value_rows<Kv, 6>(p, tile, first, last, padded, sums, out_stride); break;
    }
  }
}

// Widens a tile once when many rows share it; exact, so the results are those of the direct path.
template <typename Kv>
static void widen_tile(const TileView& tile, int32_t head_dim, int32_t padded, float* wide_k, float* wide_v, TileView* wide) {
  constexpr size_t kBytes = kVectorBytes<Kv>;
  *wide = tile;
  wide->value_stride = padded;
  for (int s = 0; s < tile.num_subs; s++) {
    float* k_out = wide_k + static_cast<size_t>(s) * 16 * head_dim;
    for (int32_t d = 0; d < head_dim; d += Kv::kUnit) {
      const size_t offset = d / Kv::kUnit * kBytes;
      prefetch(tile.next_k[s] + offset);
      store(k_out + d * 16, Kv::template load_part<0>(tile.k[s] + offset));
      if constexpr (Kv::kParts == 2) store(k_out + (d + 1) * 16, Kv::template load_part<1>(tile.k[s] + offset));
    }
    float* v_out = wide_v + static_cast<size_t>(s) * 16 * padded;
    for (int t = 0; t < 16; t += Kv::kUnit) {
      for (int32_t c = 0; c < padded; c += 16) {
        const size_t offset = (static_cast<size_t>(t) * head_dim + c * Kv::kUnit) * Kv::kElement;
        prefetch(tile.next_v[s] + offset);
        store(v_out + t * padded + c, Kv::template load_part<0>(tile.v[s] + offset));
        if constexpr (Kv::kParts == 2) store(v_out + (t + 1) * padded + c, Kv::template load_part<1>(tile.v[s] + offset));
      }
    }
    wide->k[s] = reinterpret_cast<const uint8_t*>(k_out);
    wide->v[s] = reinterpret_cast<const uint8_t*>(v_out);
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
