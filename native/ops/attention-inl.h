// Paged attention; see attention.h for the layout and the order of arithmetic.
#pragma once
#include "attention-tile-inl.h"
#include "attention.h"
#include "elementwise-inl.h"
#include "kernels.h"
#include "simd.h"
#include "vector-math-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr float kMinusInfinity = -__builtin_inff();

PAGODA_INLINE float exp1(float x) {
  alignas(64) float lanes[16];
  store(lanes, exp(splat(x)));
  return lanes[0];
}

// Running state of one row inside a segment.
struct RowState {
  float max, sum;
};

// Scales and caps one row's scores in place; -> the largest. Tokens outside [first, last) of the tile become -infinity; without kMasked the tile is
// whole and all of it is visible.
template <bool kMasked>
PAGODA_INLINE float scale_scores(const AttentionArgs& args, const TileView& tile, int first, int last, float* scores) {
  alignas(64) static const int32_t kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  [[maybe_unused]] const i32x16 lanes = load_i32(kLane);
  const f32x16 scale = splat(args.scale);
  f32x16 best = splat(kMinusInfinity);
  PAGODA_UNROLL for (int i = 0; i < kSubs; i++) {
    f32x16 x = splat(kMinusInfinity);
    if (!kMasked || i < tile.num_subs) {
      x = load(scores + i * 16);
      if (tile.k_scale[i]) x = x * load(tile.k_scale[i]);
      x = x * scale;
      if (args.softcap > 0) x = softcap_vector(x, splat(args.softcap), splat(1.0f / args.softcap));
      if constexpr (kMasked) {
        const i32x16 token = lanes + splat_i32(i * 16);
        const i32x16 hidden = (token < splat_i32(first)) | (splat_i32(last - 1) < token);
        x = select(hidden, splat(kMinusInfinity), x);
      }
    }
    best = max(x, best);
    store(scores + i * 16, x);
  }
  return reduce_max(best);
}

// Turns one row's scaled scores into weights relative to `max`, in place, as inputs of the product with the values; -> their sum.
template <typename Kv>
PAGODA_INLINE float weigh_scores(const TileView& tile, float max, float* scores) {
  f32x16 s[kSubs];
  const f32x16 m = splat(max);
  PAGODA_UNROLL for (int i = 0; i < kSubs; i++) s[i] = Kv::weights(load(scores + i * 16) - m);
  const float sum = reduce_add((s[0] + s[1]) + (s[2] + s[3]));
  PAGODA_UNROLL for (int i = 0; i < kSubs; i++) {
    if (tile.v_scale[i]) {
      // The scale of a token that is not visible may be anything: its weight must stay 0.
      const f32x16 weighted = s[i] * load(tile.v_scale[i]);
      s[i] = select(s[i] == zero(), zero(), weighted);
    }
    store_inputs(reinterpret_cast<typename Kv::Input*>(scores) + i * 16, s[i]);
  }
  return sum;
}

// Everything a call shares between its tiles.
struct Work {
  const AttentionArgs* args;
  int num_rows;
  int32_t padded;  // head_dim in whole vectors
  const void* q;     // [rows][q_stride] inputs of the product with the keys
  size_t q_stride;
  float* scores;     // [rows][64]
  float* sums;       // [rows][padded], this segment
  float* merged;     // [rows][padded], all segments so far
  RowState* state;   // this segment
  RowState* total;   // all segments so far
  float* tile_max;   // [rows] largest score of the tile
  float* wide_k;     // one tile as float32
  float* wide_v;
};

PAGODA_INLINE TileView view_tile(const AttentionArgs& args, int32_t tile_start, int num_subs) {
  TileView view;
  view.num_subs = num_subs;
  view.value_stride = args.head_dim;
  view.next_to_second_level = waits_for_few_lines();
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

// Visible part of a tile for a query at `position`, relative to the tile; empty when first >= last.
PAGODA_INLINE void visible_range(const AttentionArgs& args, int32_t position, int32_t tile_start, int* first, int* last) {
  const int32_t low = args.window > 0 && position - args.window + 1 > 0 ? position - args.window + 1 : 0;
  *first = low > tile_start ? low - tile_start : 0;
  *last = position + 1 - tile_start < kAttentionTile ? position + 1 - tile_start : kAttentionTile;
}

// Segments and tiles that a call goes through.
struct TileRange {
  int32_t first_visible, last_position, segment_begin, segment_end;
};

PAGODA_INLINE TileRange tile_range(const AttentionArgs& args) {
  TileRange range;
  range.last_position = args.position + args.num_tokens - 1;
  range.first_visible = args.window > 0 && args.position - args.window + 1 > 0 ? args.position - args.window + 1 : 0;
  range.segment_begin = args.partial ? args.segment_begin : range.first_visible / kAttentionSegment;
  range.segment_end = args.partial ? args.segment_end : range.last_position / kAttentionSegment + 1;
  return range;
}

// First tile of a segment that anything is visible of.
PAGODA_INLINE int32_t first_tile(const TileRange& range, int32_t segment) {
  const int32_t visible = range.first_visible / kAttentionTile * kAttentionTile;
  return segment * kAttentionSegment < visible ? visible : segment * kAttentionSegment;
}

PAGODA_INLINE TileView view_visible(const AttentionArgs& args, int32_t tile_start, int32_t last_position) {
  const int num_subs = (last_position + 1 - tile_start + 15) / 16;
  return view_tile(args, tile_start, num_subs < kSubs ? num_subs : kSubs);
}

// A run of 16 tokens that nothing else asks for in time.
PAGODA_INLINE void prefetch_run(const uint8_t* k, const uint8_t* v, size_t bytes, bool to_second_level) {
  for (size_t i = 0; i < bytes; i += 64) {
    prefetch(k + i, to_second_level);
    prefetch(v + i, to_second_level);
  }
}

// The tile that is read after the one at `tile_start`; without one, `tile` itself.
PAGODA_INLINE TileView view_next(const AttentionArgs& args, const TileRange& range, int32_t next_start, const TileView& tile) {
  if (next_start <= range.last_position && next_start < range.segment_end * kAttentionSegment) return view_visible(args, next_start, range.last_position);
  if (args.ahead == nullptr) return tile;
  const TileRange ahead = tile_range(*args.ahead);
  return view_visible(*args.ahead, first_tile(ahead, ahead.segment_begin), ahead.last_position);
}

// Takes the tile's maxima into the rows' running ones, and brings what was summed before to them. A pass of its own: whether a maximum changed is hard
// to predict, and here nothing waits behind it.
static void rescale_rows(const Work& work, int begin, int end) {
  for (int first = begin; first < end; first += 16) {
    const int count = end - first < 16 ? end - first : 16;
    alignas(64) float factors[16] = {};
    for (int i = 0; i < count; i++) {
      const float max = work.state[first + i].max, tile_max = work.tile_max[first + i];
      factors[i] = tile_max > max ? max - tile_max : 0.0f;
      work.state[first + i].max = tile_max > max ? tile_max : max;
    }
    store(factors, exp(load(factors)));
    for (int i = 0; i < count; i++) {
      if (factors[i] == 1.0f) continue;
      work.state[first + i].sum *= factors[i];
      float* sums = work.sums + static_cast<size_t>(first + i) * work.padded;
      for (int32_t c = 0; c < work.padded; c += 16) store(sums + c, load(sums + c) * splat(factors[i]));
    }
  }
}

// Rows [first_token, end_token) * group of the call against a tile, of which each token sees some.
template <typename Kv>
static void attend_tile(const Work& work, const TileView& tile, int32_t tile_start, int32_t first_token, int32_t end_token) {
  const AttentionArgs& args = *work.args;
  const int first_row = first_token * args.group, num_rows = (end_token - first_token) * args.group;
  const typename Kv::Input* q = static_cast<const typename Kv::Input*>(work.q) + first_row * work.q_stride;
  score_tile<Kv>(q, num_rows, work.q_stride, tile, args.head_dim, work.scores + first_row * kAttentionTile);
  int union_first = kAttentionTile, union_last = 0;
  for (int32_t token = first_token; token < end_token; token++) {
    int first, last;
    visible_range(args, args.position + token, tile_start, &first, &last);
    if (first < union_first) union_first = first;
    if (last > union_last) union_last = last;
    const bool is_whole = first == 0 && last == kAttentionTile;
    for (int row = token * args.group; row < (token + 1) * args.group; row++) {
      float* scores = work.scores + row * kAttentionTile;
      work.tile_max[row] = is_whole ? scale_scores<false>(args, tile, first, last, scores) : scale_scores<true>(args, tile, first, last, scores);
    }
  }
  rescale_rows(work, first_row, first_row + num_rows);
  for (int row = first_row; row < first_row + num_rows; row++) work.state[row].sum += weigh_scores<Kv>(tile, work.state[row].max, work.scores + row * kAttentionTile);
  value_tile<Kv>(work.scores + first_row * kAttentionTile, num_rows, tile, union_first, union_last, work.padded, work.sums + static_cast<size_t>(first_row) * work.padded, work.padded);
}

template <typename Kv>
static void do_tile(const Work& work, const TileRange& range, int32_t tile_start) {
  const AttentionArgs& args = *work.args;
  TileView tile = view_visible(args, tile_start, range.last_position);
  const TileView next = view_next(args, range, tile_start + kAttentionTile, tile);
  for (int s = 0; s < kSubs; s++) {
    tile.next_k[s] = next.k[s] ? next.k[s] : tile.k[s];
    tile.next_v[s] = next.v[s] ? next.v[s] : tile.v[s];
    if (s >= tile.num_subs && next.k[s]) prefetch_run(next.k[s], next.v[s], args.head_dim * 16 * Kv::kElement, tile.next_to_second_level);
  }
  // Query tokens before the tile see nothing of it; tokens past the window neither.
  const int32_t first_token = tile_start - args.position > 0 ? tile_start - args.position : 0;
  int32_t end_token = args.num_tokens;
  if (args.window > 0) {
    const int32_t beyond = tile_start + kAttentionTile - 1 + args.window - args.position;  // first token whose window starts after the tile
    if (beyond < end_token) end_token = beyond;
  }
  if (first_token >= end_token) return;
  if constexpr (Kv::kWidens) {
    if ((end_token - first_token) * args.group > 8) {
      TileView wide;
      widen_tile<Kv>(tile, args.head_dim, work.padded, work.wide_k, work.wide_v, &wide);
      return attend_tile<KvWide>(work, wide, tile_start, first_token, end_token);
    }
  }
  attend_tile<Kv>(work, tile, tile_start, first_token, end_token);
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

PAGODA_INLINE const float* token_queries(const AttentionArgs& args, int32_t t) { return args.q + (args.members ? args.members[t].token : t) * args.q_stride; }

// The rows' queries, head by head; *stride elements between rows.
PAGODA_INLINE const float* pack_queries(const AttentionArgs& args, float* packed, size_t* stride) {
  *stride = args.head_dim;
  if (args.num_tokens == 1 && !args.members) return args.q;  // heads of one token already lie side by side
  const size_t token_values = static_cast<size_t>(args.group) * args.head_dim;
  for (int32_t t = 0; t < args.num_tokens; t++) memcpy(packed + t * token_values, token_queries(args, t), token_values * sizeof(float));
  return packed;
}

PAGODA_INLINE const uint16_t* pack_queries(const AttentionArgs& args, uint16_t* packed, size_t* stride) {
  *stride = args.head_dim;
  const int32_t token_values = args.group * args.head_dim;
  for (int32_t t = 0; t < args.num_tokens; t++) round_to_bf16(token_queries(args, t), token_values, packed + static_cast<size_t>(t) * token_values);
  return packed;
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
  work.tile_max = p; p += rows + 16 - rows % 16;
  work.wide_k = p; p += kAttentionTile * work.padded;
  work.wide_v = p;
  work.q = pack_queries(args, reinterpret_cast<typename Kv::Input*>(packed_q), &work.q_stride);
  for (int r = 0; r < work.num_rows; r++) work.total[r] = {kMinusInfinity, 0.0f};

  const TileRange range = tile_range(args);
  for (int32_t segment = range.segment_begin; segment < range.segment_end; segment++) {
    reset_segment(work);
    const int32_t end = (segment + 1) * kAttentionSegment, stop = end < range.last_position + 1 ? end : range.last_position + 1;
    for (int32_t tile_start = first_tile(range, segment); tile_start < stop; tile_start += kAttentionTile) do_tile<Kv>(work, range, tile_start);
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

static bool has_bf16_attention() {
#ifdef PAGODA_HAS_BF16
  return cpu_has_fast_bf16();
#else
  return false;
#endif
}

static void attention(const AttentionArgs* args) {
  switch (args->type) {
    case KvType::F32: return attend<KvF32>(*args);
    case KvType::F16: return attend<KvF16>(*args);
    case KvType::BF16:
#ifdef PAGODA_HAS_BF16
      if (has_bf16_attention()) return attend<KvBf16Pairs>(*args);
#endif
      return attend<KvBf16>(*args);
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

static void fill_attention(Kernels& kernels) {
  kernels.attention = attention;
  kernels.has_bf16_attention = has_bf16_attention;
  kernels.merge_attention = merge_attention;
  kernels.kv_write = kv_write;
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
