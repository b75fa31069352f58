// int8 products on AMX tiles: 16 rows of activations x 16 outputs x 32 columns in one instruction, exact like vpdpbusd, so that
// results are those of the AVX-512 path to the bit. A panel is unpacked once per call to signed bytes and float scales
// (cpu-kernels.md 4.0: a chunk of a panel already is a row of an AMX operand); then row tiles run over it. The tile unit works on
// the next blocks while the vector unit scales the integer sums of the last ones.
#pragma once
#include "gemm-int8-avx512-inl.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

constexpr int kTileRows = 16;
static_assert(kGroupRows == kTileRows, "a group of rows is a tile");

// One block of 32 columns of a panel, ready for the tiles.
struct UnpackedBlock {
  int8_t codes[8][64];
  float scale[16], min[16];
};

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

static void configure_tiles() {
  TileConfig config;
  for (int sum = 0; sum < 4; ++sum) config.row_bytes[sum] = 64, config.rows[sum] = kTileRows;
  config.row_bytes[4] = 32, config.rows[4] = kTileRows;  // activations: 16 rows x 32 columns
  config.row_bytes[5] = 64, config.rows[5] = 8;          // weights: 8 chunks of 16 outputs x 4 columns
  config.row_bytes[6] = 32, config.rows[6] = kTileRows;
  config.row_bytes[7] = 64, config.rows[7] = 8;
  _tile_loadconfig(&config);
}

template <Format F> PAGODA_INLINE __m512i signed_chunk(const uint8_t* block, int t, __m512i table) {
  constexpr FormatFacts facts = facts_of(F);
  const __m512i codes = unsigned_chunk<F>(block, t, table);
  if constexpr (facts.offset == 128) return _mm512_xor_si512(codes, _mm512_set1_epi8((char)0x80));
  if constexpr (facts.offset != 0) return _mm512_sub_epi8(codes, _mm512_set1_epi8((char)facts.offset));
  return codes;
}

template <Format F> static void unpack_panel(const TileJob& job, UnpackedBlock* out) {
  constexpr FormatFacts facts = facts_of(F);
  const uint8_t *codes = job.codes, *scales = job.scales, *supers = job.supers;
  const __m512i table = code_table<F>();
  f32x16 super_scale = zero(), super_min = zero();
  for (int b = 0; b < job.blocks; ++b, ++out) {
    for (int i = 0; i < facts.code_bytes(); i += 64) prefetch(codes + 2048 + i);
    if constexpr (facts.super_blocks()) {
      if ((b & 7) == 0) {
        const uint16_t* s = reinterpret_cast<const uint16_t*>(supers);
        super_scale = load_f16(s);
        if constexpr (facts.has_min()) super_min = -load_f16(s + 16);
        supers += facts.super_bytes();
      }
    }
    PAGODA_UNROLL for (int t = 0; t < 8; ++t) _mm512_store_si512(out->codes[t], signed_chunk<F>(codes, t, table));
    const BlockScales block = block_scales<F>(scales, super_scale, super_min);
    store(out->scale, block.scale);
    if constexpr (facts.has_min()) store(out->min, block.min);
    codes += facts.code_bytes();
    scales += facts.scale_bytes();
  }
}

#define PAGODA_TILE_SUMS(SUM, A, B, block)  \
  _tile_zero(SUM);                          \
  _tile_loadd(A, records[block].rows, 64);  \
  _tile_loadd(B, weights[block].codes, 64); \
  _tile_dpbssd(SUM, A, B);                  \
  _tile_stored(SUM, sums[SUM], 64)

template <bool kHasMin> PAGODA_INLINE void add_block(f32x16* acc, const int32_t* sums, const Record& record, const UnpackedBlock& weights) {
  const f32x16 scale = load(weights.scale);
  f32x16 min = zero();
  if constexpr (kHasMin) min = load(weights.min);
  PAGODA_UNROLL for (int m = 0; m < kTileRows; ++m) {
    const f32x16 value = {{(f32n)_mm512_cvtepi32_ps(_mm512_load_si512(sums + m * 16))}};
    acc[m] = fma(value, scale * splat(record.rows[m].d), acc[m]);
    if constexpr (kHasMin) acc[m] = fma(min, splat(record.rows[m].sa), acc[m]);
  }
}

// 16 rows against one unpacked panel.
template <bool kHasMin> PAGODA_NOINLINE void amx_tile(const Record* records, const UnpackedBlock* weights, int blocks, f32x16* out) {
  alignas(64) int32_t sums[2][kTileRows * 16];
  f32x16 acc[kTileRows];
  PAGODA_UNROLL for (int m = 0; m < kTileRows; ++m) acc[m] = zero();
  PAGODA_TILE_SUMS(0, 4, 5, 0);
  int b = 0;
  for (; b + 2 < blocks; b += 2) {
    PAGODA_TILE_SUMS(1, 6, 7, b + 1);
    add_block<kHasMin>(acc, sums[0], records[b], weights[b]);
    PAGODA_TILE_SUMS(0, 4, 5, b + 2);
    add_block<kHasMin>(acc, sums[1], records[b + 1], weights[b + 1]);
  }
  if (b + 1 < blocks) { PAGODA_TILE_SUMS(1, 6, 7, b + 1); }
  add_block<kHasMin>(acc, sums[0], records[b], weights[b]);
  if (b + 1 < blocks) add_block<kHasMin>(acc, sums[1], records[b + 1], weights[b + 1]);
  PAGODA_UNROLL for (int m = 0; m < kTileRows; ++m) out[m] = acc[m];
}
#undef PAGODA_TILE_SUMS

template <Format F> static void amx_gemm_of(const GemmArgs& args) {
  const PackedWeight& weight = *args.weight;
  const PanelLayout layout = panel_layout(weight.format, weight.cols);
  TileJob job = {};
  job.blocks = num_blocks(weight.cols);
  auto* const panel = reinterpret_cast<UnpackedBlock*>(args.scratch);
  configure_tiles();
  for (int32_t p = args.panel_begin; p < args.panel_end; ++p) {
    point_at_panel(job, weight, layout, p);
    unpack_panel<F>(job, panel);
    asm volatile("" ::: "memory");  // tile loads name no memory: the panel has to be there before them
    for (int32_t first = args.row_begin / kTileRows * kTileRows; first < args.row_end; first += kTileRows) {
      const Record* records = reinterpret_cast<const Record*>(args.q->data) + (size_t)(first / kGroupRows) * job.blocks;
      f32x16 sums[kTileRows];
      prefetch_sums<kTileRows, 1>(args, first, p);
      amx_tile<facts_of(F).has_min()>(records, panel, job.blocks, sums);
      // A tile computes all its rows; those outside the range belong to somebody else or to nobody.
      const int32_t begin = std::max(first, args.row_begin), end = std::min(first + kTileRows, args.row_end);
      write_tile(args, begin, end - begin, p, 1, sums + (begin - first));
    }
  }
  _tile_release();
}

using AmxGemm = void (*)(const GemmArgs& args);
static AmxGemm amx_gemm(Format format) {
  switch (format) {
    case Format::Q8_0: return amx_gemm_of<Format::Q8_0>;
    case Format::Q4_0: return amx_gemm_of<Format::Q4_0>;
    case Format::Q4_1: return amx_gemm_of<Format::Q4_1>;
    case Format::Q5_0: return amx_gemm_of<Format::Q5_0>;
    case Format::Q5_1: return amx_gemm_of<Format::Q5_1>;
    case Format::Q4_K: return amx_gemm_of<Format::Q4_K>;
    case Format::Q5_K: return amx_gemm_of<Format::Q5_K>;
    case Format::IQ4_NL: return amx_gemm_of<Format::IQ4_NL>;
    case Format::IQ4_XS: return amx_gemm_of<Format::IQ4_XS>;
    case Format::MXFP4: return amx_gemm_of<Format::MXFP4>;
    default: return nullptr;  // a scale per 16 columns, or floats
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
