// Paged attention and the KV cache's write side; see attention.h for the layout and the order of arithmetic.
#pragma once
#include <algorithm>

#include "attention.h"
#include "elementwise-inl.h"
#include "kernels.h"
#include "simd.h"
#include "vector-math-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// --- element types of the cache ---
struct KvF32 {
  typedef float type;
  PAGODA_INLINE f32x16 load16(const type* p) { return load(p); }
};
struct KvF16 {
  typedef uint16_t type;
  PAGODA_INLINE f32x16 load16(const type* p) { return load_f16(p); }
};
struct KvBf16 {
  typedef uint16_t type;
  PAGODA_INLINE f32x16 load16(const type* p) { return load_bf16(p); }
};
struct KvInt8 {
  typedef int8_t type;
  PAGODA_INLINE f32x16 load16(const type* p) { return to_float(load_i8(p)); }
};

constexpr int kSubs = kAttentionTile / 16;  // runs of 16 tokens in a tile: never cut by a block border
constexpr float kMinusInfinity = -__builtin_inff();
#ifdef PAGODA_ISA_AVX512
constexpr int kMaxTileRows = 6;
constexpr int subs_at_once(int) { return 4; }
constexpr int vectors_at_once(int) { return 4; }
#else
constexpr int kMaxTileRows = 6;
constexpr int subs_at_once(int rows) { return rows <= 3 ? 2 : 1; }
constexpr int vectors_at_once(int rows) { return rows <= 3 ? 2 : 1; }
#endif

// One tile of keys and values as 16-token runs.
struct TileView {
  const uint8_t* k[kSubs];
  const uint8_t* v[kSubs];
  const float* k_scale[kSubs];  // int8 only
  const float* v_scale[kSubs];
  int num_subs;
  // The keys and values of the tile after this one, prefetched while this one is computed; this one's where there is none.
  const uint8_t* next_k[kSubs];
  const uint8_t* next_v[kSubs];
};

// scores[r][sub * 16 + t] = sum over d, in order, of q[r][d] * k[sub][d][t].
template <typename Kv, int kRows, int kNumSubs>
PAGODA_INLINE void score_block(const float* q, size_t q_stride, const uint8_t* const* k, const uint8_t* const* next_k, int32_t head_dim, float* scores) {
  constexpr int32_t kBytes = 16 * sizeof(typename Kv::type), kEvery = kBytes < 64 ? 64 / kBytes : 1;  // a line every so many dimensions
  f32x16 sums[kRows][kNumSubs];
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) sums[r][s] = zero();
  for (int32_t d = 0; d < head_dim; d++) {
    f32x16 keys[kNumSubs];
    if (d % kEvery == 0) PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) prefetch(next_k[s] + d * kBytes);
    PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) keys[s] = Kv::load16(reinterpret_cast<const typename Kv::type*>(k[s]) + d * 16);
    PAGODA_UNROLL for (int r = 0; r < kRows; r++) {
      const f32x16 query = splat(q[r * q_stride + d]);
      PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) sums[r][s] = fma(query, keys[s], sums[r][s]);
    }
  }
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int s = 0; s < kNumSubs; s++) store(scores + r * kAttentionTile + s * 16, sums[r][s]);
}

template <typename Kv, int kRows>
PAGODA_NOINLINE void score_rows(const float* q, size_t q_stride, const TileView& tile, int32_t head_dim, float* scores) {
  constexpr int kNumSubs = subs_at_once(kRows);
  int s = 0;
  for (; s + kNumSubs <= tile.num_subs; s += kNumSubs) score_block<Kv, kRows, kNumSubs>(q, q_stride, tile.k + s, tile.next_k + s, head_dim, scores + s * 16);
  for (; s < tile.num_subs; s++) score_block<Kv, kRows, 1>(q, q_stride, tile.k + s, tile.next_k + s, head_dim, scores + s * 16);
}

// out[r] += sum over tokens, in order, of p[r][t] * v[t]; tokens [first, last) of the tile, kNumVectors * 16 columns.
template <typename Kv, int kRows, int kNumVectors>
PAGODA_INLINE void value_block(const float* p, const TileView& tile, int first, int last, int32_t head_dim, int32_t column, float* out, size_t out_stride) {
  f32x16 sums[kRows][kNumVectors];
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) sums[r][i] = load(out + r * out_stride + column + i * 16);
  for (int s = first / 16; s * 16 < last; s++) {
    const int begin = first > s * 16 ? first : s * 16;
    const int end = last < s * 16 + 16 ? last : s * 16 + 16;
    const typename Kv::type* values = reinterpret_cast<const typename Kv::type*>(tile.v[s]) + column;
    const uint8_t* next = tile.next_v[s] + column * sizeof(typename Kv::type);
    for (int t = begin; t < end; t++) {
      f32x16 v[kNumVectors];
      PAGODA_UNROLL for (int i = 0; i < kNumVectors * 16 * static_cast<int>(sizeof(typename Kv::type)); i += 64) prefetch(next + static_cast<size_t>(t - s * 16) * head_dim * sizeof(typename Kv::type) + i);
      PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) v[i] = Kv::load16(values + static_cast<size_t>(t - s * 16) * head_dim + i * 16);
      PAGODA_UNROLL for (int r = 0; r < kRows; r++) {
        const f32x16 weight = splat(p[r * kAttentionTile + t]);
        PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) sums[r][i] = fma(weight, v[i], sums[r][i]);
      }
    }
  }
  PAGODA_UNROLL for (int r = 0; r < kRows; r++) PAGODA_UNROLL for (int i = 0; i < kNumVectors; i++) store(out + r * out_stride + column + i * 16, sums[r][i]);
}

template <typename Kv, int kRows>
PAGODA_NOINLINE void value_rows(const float* p, const TileView& tile, int first, int last, int32_t head_dim, float* out, size_t out_stride) {
  constexpr int kNumVectors = vectors_at_once(kRows);
  int32_t column = 0;
  const int32_t padded = round_up_16(head_dim);
  for (; column + kNumVectors * 16 <= padded; column += kNumVectors * 16) value_block<Kv, kRows, kNumVectors>(p, tile, first, last, head_dim, column, out, out_stride);
  for (; column < padded; column += 16) value_block<Kv, kRows, 1>(p, tile, first, last, head_dim, column, out, out_stride);
}

template <typename Kv>
static void score_tile(const float* q, int num_rows, size_t q_stride, const TileView& tile, int32_t head_dim, float* scores) {
  for (int row = 0; row < num_rows; row += kMaxTileRows) {
    const float* queries = q + row * q_stride;
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

template <typename Kv>
static void value_tile(const float* p, int num_rows, const TileView& tile, int first, int last, int32_t head_dim, float* out, size_t out_stride) {
  for (int row = 0; row < num_rows; row += kMaxTileRows) {
    const float* weights = p + row * kAttentionTile;
    float* sums = out + row * out_stride;
    switch (num_rows - row) {
      case 1: value_rows<Kv, 1>(weights, tile, first, last, head_dim, sums, out_stride); break;
      case 2: value_rows<Kv, 2>(weights, tile, first, last, head_dim, sums, out_stride); break;
      case 3: value_rows<Kv, 3>(weights, tile, first, last, head_dim, sums, out_stride); break;
      case 4: value_rows<Kv, 4>(weights, tile, first, last, head_dim, sums, out_stride); break;
      case 5: value_rows<Kv, 5>(weights, tile, first, last, head_dim, sums, out_stride); break;
      default: value_rows<Kv, 6>(weights, tile, first, last, head_dim, sums, out_stride); break;
    }
  }
}

PAGODA_INLINE float exp1(float x) {
  alignas(64) float lanes[16];
  store(lanes, exp(splat(x)));
  return lanes[0];
}

// Running state of one row inside a segment.
struct RowState {
  float max, sum;
};

// Turns one row's scores into weights relative to the running maximum; rescales what was summed before. Tokens outside
// [first, last) of the tile get weight 0; without kMasked the tile is whole and all of it is visible.
template <bool kMasked> PAGODA_INLINE void softmax_row(const AttentionArgs& args, const TileView& tile, int first, int last, float* scores, RowState* state, float* out) {
  alignas(64) static const int32_t kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  [[maybe_unused]] const i32x16 lanes = load_i32(kLane);
  f32x16 s[kSubs];
  f32x16 best = splat(kMinusInfinity);
  const f32x16 scale = splat(args.scale);
  PAGODA_UNROLL for (int i = 0; i < kSubs; i++) {
    s[i] = splat(kMinusInfinity);
    if (kMasked && i >= tile.num_subs) continue;
    f32x16 x = load(scores + i * 16);
    if (tile.k_scale[i]) x = x * load(tile.k_scale[i]);
    x = x * scale;
    if (args.softcap > 0) x = softcap_vector(x, splat(args.softcap), splat(1.0f / args.softcap));
    s[i] = x;
    if constexpr (kMasked) {
      const i32x16 token = lanes + splat_i32(i * 16);
      const i32x16 hidden = (token < splat_i32(first)) | (splat_i32(last - 1) < token);
      s[i] = select(hidden, splat(kMinusInfinity), x);
    }
    best = max(s[i], best);
  }
  const float tile_max = reduce_max(best);
  const float new_max = tile_max > state->max ? tile_max : state->max;
  const f32x16 m = splat(new_max);
  PAGODA_UNROLL for (int i = 0; i < kSubs; i++) s[i] = exp(s[i] - m);
  const float sum = reduce_add((s[0] + s[1]) + (s[2] + s[3]));
  if (new_max != state->max) {
    const float factor = exp1(state->max - new_max);
    state->sum *= factor;
    const int32_t padded = round_up_16(args.head_dim);
    for (int32_t c = 0; c < padded; c += 16) store(out + c, load(out + c) * splat(factor));
  }
  state->max = new_max;
  state->sum += sum;
  PAGODA_UNROLL for (int i = 0; i < kSubs; i++) {
    if (kMasked && i >= tile.num_subs) continue;
    if (tile.v_scale[i]) {
      // The scale of a token that is not visible may be anything: its weight must stay 0.
      const f32x16 weighted = s[i] * load(tile.v_scale[i]);
      s[i] = select(s[i] == zero(), zero(), weighted);
    }
    store(scores + i * 16, s[i]);
  }
}

// Everything a call shares between its tiles.
struct Work {
  const AttentionArgs* args;
  int num_rows;
  int32_t padded;  // head_dim in whole vectors
  const float* q;
  size_t q_stride;
  float* scores;     // [rows][64]
  float* sums;       // [rows][padded], this segment
  float* merged;     // [rows][padded], all segments so far
  RowState* state;   // this segment
  RowState* total;   // all segments so far
  float* wide_k;     // one tile as float32
  float* wide_v;
};

PAGODA_INLINE size_t element_bytes(KvType type) { return type == KvType::F32 ? 4 : type == KvType::Int8 ? 1 : 2; }

PAGODA_INLINE TileView view_tile(const AttentionArgs& args, int32_t tile_start, int num_subs) {
  TileView view;
  view.num_subs = num_subs;
  const size_t element = element_bytes(args.type);
  const size_t part = static_cast<size_t>(args.block_size) * args.head_dim * element;
  const size_t scales = args.type == KvType::Int8 ? static_cast<size_t>(args.block_size) * 4 : 0;
  for (int s = 0; s < kSubs; s++) {
    view.k[s] = view.v[s] = nullptr;
    view.k_scale[s] = view.v_scale[s] = nullptr;
    if (s >= num_subs) continue;
    const int32_t token = tile_start + s * 16;
    const int32_t offset = token % args.block_size;
    const uint8_t* block = args.kv + static_cast<size_t>(args.block_table[token / args.block_size]) * args.block_bytes;
    view.k[s] = block + static_cast<size_t>(offset) * args.head_dim * element;
    view.v[s] = block + part + scales + static_cast<size_t>(offset) * args.head_dim * element;
    if (scales) {
      view.k_scale[s] = reinterpret_cast<const float*>(block + part) + offset;
      view.v_scale[s] = reinterpret_cast<const float*>(block + 2 * part + scales) + offset;
    }
  }
  return view;
}

// Widens a tile once when many rows share it; exact, so the results are those of the direct path.
template <typename Kv>
static void widen_tile(const TileView& tile, int32_t head_dim, int32_t padded, float* wide_k, float* wide_v, TileView* wide) {
  *wide = tile;
  for (int s = 0; s < tile.num_subs; s++) {
    const typename Kv::type* k = reinterpret_cast<const typename Kv::type*>(tile.k[s]);
    float* k_out = wide_k + static_cast<size_t>(s) * 16 * head_dim;
    for (int32_t d = 0; d < head_dim; d++) store(k_out + d * 16, Kv::load16(k + d * 16));
    const typename Kv::type* v = reinterpret_cast<const typename Kv::type*>(tile.v[s]);
    float* v_out = wide_v + static_cast<size_t>(s) * 16 * padded;
    for (int t = 0; t < 16; t++) {
      for (int32_t c = 0; c < padded; c += 16) store(v_out + t * padded + c, Kv::load16(v + static_cast<size_t>(t) * head_dim + c));
    }
    wide->k[s] = reinterpret_cast<const uint8_t*>(k_out);
    wide->v[s] = reinterpret_cast<const uint8_t*>(v_out);
  }
}

// Visible part of a tile for a query at `position`, relative to the tile; empty when first >= last.
PAGODA_INLINE void visible_range(const AttentionArgs& args, int32_t position, int32_t tile_start, int* first, int* last) {
  const int32_t low = args.window > 0 && position - args.window + 1 > 0 ? position - args.window + 1 : 0;
  *first = low > tile_start ? low - tile_start : 0;
  *last = position + 1 - tile_start < kAttentionTile ? position + 1 - tile_start : kAttentionTile;
}

template <typename Kv>
static void do_tile(const Work& work, int32_t tile_start, int32_t next_start) {
  const AttentionArgs& args = *work.args;
  const int32_t last_position = args.position + args.num_tokens - 1;
  int unused, tile_last;
  visible_range(args, last_position, tile_start, &unused, &tile_last);
  TileView tile = view_tile(args, tile_start, (tile_last + 15) / 16);
  const bool has_next = next_start >= 0;
  const TileView next = has_next ? view_tile(args, next_start, std::min(kSubs, (last_position + 1 - next_start + 15) / 16)) : tile;
  for (int s = 0; s < kSubs; s++) {
    tile.next_k[s] = next.k[s] ? next.k[s] : tile.k[s];
    tile.next_v[s] = next.v[s] ? next.v[s] : tile.v[s];
  }
  // Query tokens before the tile see nothing of it; tokens past the window neither.
  int32_t first_token = tile_start - args.position > 0 ? tile_start - args.position : 0;
  int32_t end_token = args.num_tokens;
  if (args.window > 0) {
    const int32_t beyond = tile_start + kAttentionTile - 1 + args.window - args.position;  // first token whose window starts after the tile
    if (beyond < end_token) end_token = beyond;
  }
  if (first_token >= end_token) return;
  const int first_row = first_token * args.group;
  const int num_rows = (end_token - first_token) * args.group;
  float* scores = work.scores + first_row * kAttentionTile;
  float* sums = work.sums + static_cast<size_t>(first_row) * work.padded;
  const float* q = work.q + first_row * work.q_stride;
  const bool widen = num_rows > 8 && sizeof(typename Kv::type) < 4;
  int32_t value_stride = args.head_dim;
  if (widen) {
    widen_tile<Kv>(tile, args.head_dim, work.padded, work.wide_k, work.wide_v, &tile);
    value_stride = work.padded;
    score_tile<KvF32>(q, num_rows, work.q_stride, tile, args.head_dim, scores);
  } else {
    score_tile<Kv>(q, num_rows, work.q_stride, tile, args.head_dim, scores);
  }
  int union_first = kAttentionTile, union_last = 0;
  for (int32_t token = first_token; token < end_token; token++) {
    int first, last;
    visible_range(args, args.position + token, tile_start, &first, &last);
    if (first < union_first) union_first = first;
    if (last > union_last) union_last = last;
    const bool is_whole = first == 0 && last == kAttentionTile;
    for (int g = 0; g < args.group; g++) {
      const int row = token * args.group + g;
      float* row_scores = work.scores + row * kAttentionTile;
      float* row_sums = work.sums + static_cast<size_t>(row) * work.padded;
      if (is_whole) softmax_row<false>(args, tile, first, last, row_scores, work.state + row, row_sums);
      else softmax_row<true>(args, tile, first, last, row_scores, work.state + row, row_sums);
    }
  }
  if (widen) value_tile<KvF32>(scores, num_rows, tile, union_first, union_last, value_stride, sums, work.padded);
  else value_tile<Kv>(scores, num_rows, tile, union_first, union_last, value_stride, sums, work.padded);
}

PAGODA_INLINE void reset_segment(const Work& work) {
  for (int r = 0; r < work.num_rows; r++) work.state[r] = {kMinusInfinity, 0.0f};
  for (size_t i = 0; i < static_cast<size_t>(work.num_rows) * work.padded; i += 16) store(work.sums + i, zero());
}

// (total, merged) of a row takes in one more segment; both start as (-inf, 0). Segments must come in order.
PAGODA_INLINE void merge_row(RowState* total, float* merged, RowState segment, const float* sums, int32_t padded) {
  if (segment.max == kMinusInfinity && segment.sum == 0.0f) return;
  if (total->max == kMinusInfinity && total->sum == 0.0f) {
    *total = segment;
    for (int32_t c = 0; c < padded; c += 16) store(merged + c, load(sums + c));
    return;
  }
  const float m = segment.max > total->max ? segment.max : total->max;
  const float a = exp1(total->max - m), b = exp1(segment.max - m);
  total->max = m;
  total->sum = fma1(segment.sum, b, total->sum * a);
  for (int32_t c = 0; c < padded; c += 16) store(merged + c, fma(load(sums + c), splat(b), load(merged + c) * splat(a)));
}

PAGODA_INLINE void finish_row(const RowState& total, const float* merged, int32_t head_dim, float* out) {
  const f32x16 inverse = splat(1.0f / total.sum);
  for (int32_t c = 0; c < head_dim; c += 16) {
    const int count = head_dim - c < 16 ? head_dim - c : 16;
    store_n(out + c, load(merged + c) * inverse, count);
  }
}

template <typename Kv>
static void attend(const AttentionArgs& args) {
  Work work;
  work.args = &args;
  work.num_rows = args.num_tokens * args.group;
  work.padded = round_up_16(args.head_dim);
  const size_t rows = static_cast<size_t>(work.num_rows), matrix = rows * work.padded;
  float* p = args.scratch;
  float* packed_q = p; p += matrix;
  work.sums = p; p += matrix;
  work.merged = p; p += matrix;
  work.scores = p; p += rows * kAttentionTile;
  work.state = reinterpret_cast<RowState*>(p); p += rows * 2 + 16 - rows * 2 % 16;
  work.total = reinterpret_cast<RowState*>(p); p += rows * 2 + 16 - rows * 2 % 16;
  work.wide_k = p; p += kAttentionTile * work.padded;
  work.wide_v = p;
  work.q = args.q;
  work.q_stride = args.head_dim;
  if (args.num_tokens > 1 || args.members) {  // heads of one token already lie side by side
    const size_t token_floats = static_cast<size_t>(args.group) * args.head_dim;
    for (int32_t t = 0; t < args.num_tokens; t++) memcpy(packed_q + t * token_floats, args.q + (args.members ? args.members[t].token : t) * args.q_stride, token_floats * sizeof(float));
    work.q = packed_q;
  }
  for (int r = 0; r < work.num_rows; r++) work.total[r] = {kMinusInfinity, 0.0f};

  const int32_t last_position = args.position + args.num_tokens - 1;
  const int32_t first_visible = args.window > 0 && args.position - args.window + 1 > 0 ? args.position - args.window + 1 : 0;
  int32_t segment_begin = first_visible / kAttentionSegment, segment_end = last_position / kAttentionSegment + 1;
  if (args.partial) {
    segment_begin = args.segment_begin;
    segment_end = args.segment_end;
  }
  for (int32_t segment = segment_begin; segment < segment_end; segment++) {
    reset_segment(work);
    int32_t tile_start = segment * kAttentionSegment;
    if (tile_start < first_visible / kAttentionTile * kAttentionTile) tile_start = first_visible / kAttentionTile * kAttentionTile;
    const int32_t stop = (segment + 1) * kAttentionSegment < last_position + 1 ? (segment + 1) * kAttentionSegment : last_position + 1;
    for (; tile_start < stop; tile_start += kAttentionTile) {
      const int32_t next = tile_start + kAttentionTile;
      do_tile<Kv>(work, tile_start, next < stop || (segment + 1 < segment_end && next <= last_position) ? next : -1);
    }
    if (args.partial) continue;
    for (int r = 0; r < work.num_rows; r++) merge_row(work.total + r, work.merged + static_cast<size_t>(r) * work.padded, work.state[r], work.sums + static_cast<size_t>(r) * work.padded, work.padded);
  }
  for (int r = 0; r < work.num_rows; r++) {
    if (args.partial) {
      const size_t first = args.members ? args.members[r / args.group].partial : 0;
      float* slot = args.partial + first + static_cast<size_t>(args.members ? r % args.group : r) * args.partial_stride;
      slot[0] = work.state[r].max;
      slot[1] = work.state[r].sum;
      memcpy(slot + 16, work.sums + static_cast<size_t>(r) * work.padded, sizeof(float) * work.padded);
    } else {
      finish_row(work.total[r], work.merged + static_cast<size_t>(r) * work.padded, args.head_dim, args.out + static_cast<size_t>(r / args.group) * args.out_stride + static_cast<size_t>(r % args.group) * args.head_dim);
    }
  }
}

static void attention(const AttentionArgs* args) {
  switch (args->type) {
    case KvType::F32: return attend<KvF32>(*args);
    case KvType::F16: return attend<KvF16>(*args);
    case KvType::BF16: return attend<KvBf16>(*args);
    case KvType::Int8: return attend<KvInt8>(*args);
  }
}

// Merges `num_segments` partial results per row, in order; row r of segment s at partial + (s * num_rows + r) * stride.
static void merge_attention(const AttentionArgs* args, int32_t num_segments) {
  const int32_t padded = round_up_16(args->head_dim);
  const int num_rows = args->num_tokens * args->group;
  float* merged = args->scratch;
  for (int r = 0; r < num_rows; r++) {
    RowState total = {kMinusInfinity, 0.0f};
    for (int32_t s = 0; s < num_segments; s++) {
      const float* slot = args->partial + (static_cast<size_t>(s) * num_rows + r) * args->partial_stride;
      merge_row(&total, merged, {slot[0], slot[1]}, slot + 16, padded);
    }
    finish_row(total, merged, args->head_dim, args->out + static_cast<size_t>(r / args->group) * args->out_stride + static_cast<size_t>(r % args->group) * args->head_dim);
  }
}

// --- writing the cache ---

constexpr int kMaxHeadDim = 256;  // runtime/plan.cc refuses larger ones
PAGODA_INLINE float clamp_f16(float x) { return x > 65504.0f ? 65504.0f : x < -65504.0f ? -65504.0f : x; }

// Int8 of one head's vector; NaN or infinity in it makes the scale NaN, so that it is seen in the logits.
PAGODA_INLINE float quantize_vector(const float* x, int32_t n, int8_t* out, int32_t stride) {
  float largest = 0, bad = 0;
  for (int32_t i = 0; i < n; i++) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    largest = a > largest ? a : largest;
    bad += x[i] * 0.0f;
  }
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const bool ok = bad == 0.0f;
  for (int32_t i = 0; i < n; i++) out[i * stride] = ok ? static_cast<int8_t>(__builtin_rintf(x[i] * inverse)) : 0;
  return ok ? largest / 127.0f : __builtin_nanf("");
}

// One vector to `out`, elements `stride` apart.
PAGODA_INLINE void write_vector(const float* x, int32_t n, KvType type, uint8_t* out, int32_t stride) {
  if (type == KvType::F32) {
    float* p = reinterpret_cast<float*>(out);
    for (int32_t i = 0; i < n; i++) p[i * stride] = x[i];
    return;
  }
  uint16_t values[kMaxHeadDim];
  int32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const f32x16 v = load(x + i), most = splat(65504.0f);
    if (type == KvType::BF16) store_bf16(values + i, v);
    else store_f16(values + i, select(most < v, most, select(v < -most, -most, v)));
  }
  for (; i < n; i++) values[i] = type == KvType::BF16 ? f32_to_bf16(x[i]) : f32_to_f16(clamp_f16(x[i]));
  uint16_t* p = reinterpret_cast<uint16_t*>(out);
  if (stride == 1) memcpy(p, values, sizeof(uint16_t) * static_cast<size_t>(n));
  else for (i = 0; i < n; i++) p[i * stride] = values[i];
}

// Either of k and v may be null: then the other is written alone.
static void kv_write(uint8_t* block_layer, int32_t block_size, int32_t offset, const float* k, const float* v, int32_t num_kv_heads, int32_t head_dim, KvType type) {
  const size_t element = element_bytes(type);
  const size_t part = static_cast<size_t>(block_size) * head_dim * element;
  const size_t scales = type == KvType::Int8 ? static_cast<size_t>(block_size) * 4 : 0;
  for (int32_t h = 0; h < num_kv_heads; h++) {
    uint8_t* head = block_layer + static_cast<size_t>(h) * 2 * (part + scales);
    uint8_t* k_out = head + (static_cast<size_t>(offset / 16) * 16 * head_dim + offset % 16) * element;
    uint8_t* v_out = head + part + scales + static_cast<size_t>(offset) * head_dim * element;
    const float* key = k == nullptr ? nullptr : k + static_cast<size_t>(h) * head_dim;
    const float* value = v == nullptr ? nullptr : v + static_cast<size_t>(h) * head_dim;
    if (type == KvType::Int8) {
      if (key) reinterpret_cast<float*>(head + part)[offset] = quantize_vector(key, head_dim, reinterpret_cast<int8_t*>(k_out), 16);
      if (value) reinterpret_cast<float*>(head + 2 * part + scales)[offset] = quantize_vector(value, head_dim, reinterpret_cast<int8_t*>(v_out), 1);
    } else {
      if (key) write_vector(key, head_dim, type, k_out, 16);
      if (value) write_vector(value, head_dim, type, v_out, 1);
    }
  }
}

static void fill_attention(Kernels& kernels) {
  kernels.attention = attention;
  kernels.merge_attention = merge_attention;
  kernels.kv_write = kv_write;
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
