// Float GEMM on panels: every output is one chain acc = fma(w, x, acc) over k = 0, 1, ... whatever the tile.
// F32, F16 and BF16 panels are read as they are; a quantized panel is first dequantized into the scratch, exactly.
#pragma once
#include "gemm-traits-inl.h"
#include "packed-format.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Scale (and minimum) of 16 lanes for one block; `half` picks the 16 columns of formats that have a scale per 16. The facts
// are run-time values here, so that there is one copy of this code for all formats; inlined with constant facts it folds.
PAGODA_INLINE f32x16 block_scale(const FormatFacts& facts, const uint8_t* scales, const uint8_t* supers, int half) {
  if (facts.scales == ScaleKind::F16 || facts.scales == ScaleKind::F16Min) return load_f16(reinterpret_cast<const uint16_t*>(scales));
  if (facts.scales == ScaleKind::F32Exp) {
    // 2^(e - 128): e = 0 and 1 are subnormal floats.
    const i32x16 e = load_u8(scales);
    const i32x16 tiny = shift_left<21>(e + splat_i32(1)), normal = shift_left<23>(e - splat_i32(1));
    return float_of_bits(select(e < splat_i32(2), tiny, normal));
  }
  const uint8_t* s = scales + (facts.sixteens() ? 16 * half : 0);
  return load_f16(reinterpret_cast<const uint16_t*>(supers)) * to_float(facts.has_min() ? load_u8(s) : load_i8(reinterpret_cast<const int8_t*>(s)));
}
// What is added to code * scale: m of Q4_1 and Q5_1, -dmin * m of the K formats.
PAGODA_INLINE f32x16 block_min(const FormatFacts& facts, const uint8_t* scales, const uint8_t* supers, int half) {
  if (facts.scales == ScaleKind::F16Min) return load_f16(reinterpret_cast<const uint16_t*>(scales + 32));
  return -(load_f16(reinterpret_cast<const uint16_t*>(supers + 32)) * to_float(load_u8(scales + (facts.sixteens() ? 32 + 16 * half : 16))));
}

// Codes of all 8 chunks of a block (16 rows x 4 columns a chunk, one byte each), as stored: no table, no offset.
static void block_codes(const FormatFacts& facts, const uint8_t* block, i32x16* codes) {
  if (facts.bytes) {
    for (int t = 0; t < 8; ++t) codes[t] = load_i32(block + t * 64) ^ splat_i32(kSignedBytes ? (int32_t)0x80808080 : 0);
    return;
  }
  for (int t = 0; t < 8; ++t) codes[t] = splat_i32(0);
  if (facts.nibbles) {
    for (int j = 0; j < 4; ++j) {
      const i32x16 line = load_i32(block + j * 64);
      codes[j] = line & splat_i32(0x0f0f0f0f);
      codes[j + 4] = shift_right<4>(line) & splat_i32(0x0f0f0f0f);
    }
  }
  if (facts.two_bits) {
    for (int h = 0; h < 2; ++h) {
      i32x16 line = load_i32(block + facts.two_bits_at() + h * 64);
      for (int j = 0; j < 4; ++j, line = shift_right<2>(line)) {
        const i32x16 bits = line & splat_i32(0x03030303);
        codes[4 * h + j] = codes[4 * h + j] | (facts.nibbles ? shift_left<4>(bits) : bits);
      }
    }
  }
  if (facts.one_bit) {
    i32x16 line = load_i32(block + facts.one_bit_at());
    for (int t = 0; t < 8; ++t, line = shift_right<1>(line)) {
      const i32x16 bit = line & splat_i32(0x01010101);
      codes[t] = codes[t] | (facts.nibbles ? shift_left<4>(bit) : shift_left<2>(bit));
    }
  }
}
// Signed values of the codes, 16 bits each: even[t] holds columns 4t, 4t + 2 of every row, odd[t] columns 4t + 1, 4t + 3.
static void block_values(const FormatFacts& facts, const uint8_t* block, i32x16* even, i32x16* odd) {
  alignas(64) i32x16 codes[8];
  block_codes(facts, block, codes);
  int offset = facts.offset;
  if (facts.table != CodeTable::None) {
    const int8_t* table = facts.table == CodeTable::Iq4 ? kIq4Values : kMxfp4Values;
    uint8_t* bytes = reinterpret_cast<uint8_t*>(codes);
    for (int i = 0; i < 512; ++i) bytes[i] = (uint8_t)(table[bytes[i]] + 128);
    offset = 128;
  }
  const i32x16 low = splat_i32(0x00ff00ff), offsets = splat_i32(offset * 0x10001);
  for (int t = 0; t < 8; ++t) {
    even[t] = codes[t] & low;
    odd[t] = shift_right<8>(codes[t]) & low;
    PAGODA_EACH {
      even[t].v[n] = (i32n)((i16n)even[t].v[n] - (i16n)offsets.v[n]);
      odd[t].v[n] = (i32n)((i16n)odd[t].v[n] - (i16n)offsets.v[n]);
    }
  }
}

// out[k][16] for the panel: the file's dequantized values, bit for bit.
static void dequantize_panel(const FormatFacts& facts, const uint8_t* panel, const PanelLayout& layout, int32_t cols, float* out) {
  const int blocks = num_blocks(cols);
  for (int b = 0; b < blocks; ++b, out += 512) {
    const uint8_t* scales = panel + layout.scales + (size_t)b * facts.scale_bytes();
    const uint8_t* supers = panel + layout.supers + (size_t)(b / 8) * facts.super_bytes();
    i32x16 values[2][8];  // even columns, odd columns
    block_values(facts, panel + (size_t)b * facts.code_bytes(), values[0], values[1]);
    for (int half = 0; half < 2; ++half) {
      const f32x16 scale = block_scale(facts, scales, supers, half);
      const f32x16 min = facts.has_min() ? block_min(facts, scales, supers, half) : zero();
      for (int t = 4 * half; t < 4 * half + 4; ++t) {
        for (int parity = 0; parity < 2; ++parity) {
          f32x16 low = scale * to_float(shift_right_signed<16>(shift_left<16>(values[parity][t])));
          f32x16 high = scale * to_float(shift_right_signed<16>(values[parity][t]));
          if (facts.has_min()) low = low + min, high = high + min;
          store(out + (4 * t + parity) * 16, low);
          store(out + (4 * t + parity + 2) * 16, high);
        }
      }
    }
  }
}

// The odd columns of 16 pairs of bf16. On AVX2 a tile has 15 of 16 registers for sums, weights and a broadcast: there the pairs are
// read again and the mask stays in memory, where a compiler would keep both in registers and spill sums.
PAGODA_INLINE f32x16 load_odd_bf16(const uint8_t* pairs) {
#ifdef PAGODA_ISA_AVX2
  alignas(32) static const uint32_t kHighHalves[8] = {0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000, 0xffff0000};
  f32x16 odd;
  PAGODA_EACH {
    __m256 bits;
    asm("vmovups %1, %0\n\tvandps %2, %0, %0" : "=&x"(bits) : "m"(*reinterpret_cast<const f32n_u*>(pairs + 32 * n)), "m"(kHighHalves));
    odd.v[n] = (f32n)bits;
  }
  return odd;
#else
  return float_of_bits(load_i32(pairs) & splat_i32((int32_t)0xffff0000));
#endif
}

enum class FloatSource { F32, F16, BF16 };
constexpr size_t float_source_bytes(FloatSource s) { return s == FloatSource::F32 ? 64 : 32; }  // per k

// One tile: kRows rows of x against kPanels panels at `w`, `panel_bytes` apart.
template <FloatSource S, int kRows, int kPanels>
PAGODA_INLINE void float_tile(const uint8_t* w, size_t panel_bytes, const float* x, size_t x_stride, int32_t cols, bool first, f32x16 (&acc)[kRows][kPanels]) {
  // Not `acc` itself: its address leaves the function, and then every load through `w` might be of it, so it is stored each time.
  f32x16 sums[kRows][kPanels];
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) sums[m][p] = zero();
  const auto step = [&](int32_t k, const f32x16 (&v)[kPanels]) __attribute__((always_inline)) {
    PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
      const f32x16 value = splat(x[(size_t)m * x_stride + k]);
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) sums[m][p] = fma(v[p], value, sums[m][p]);
    }
  };
  if constexpr (S == FloatSource::BF16) {
    f32x16 v[kPanels];
    const auto load_even = [&]() __attribute__((always_inline)) {
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) v[p] = float_of_bits(shift_left<16>(load_i32(w + p * panel_bytes)));
    };
    int32_t k = 0;
    for (; k + 2 <= cols; k += 2, w += 64) {
      if (first) {
        PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) prefetch(w + p * panel_bytes + 2048);
      }
      load_even();
      step(k, v);
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) v[p] = load_odd_bf16(w + p * panel_bytes);
      step(k + 1, v);
    }
    if (k < cols) {
      load_even();
      step(k, v);
    }
  } else {
    for (int32_t k = 0; k < cols; ++k, w += float_source_bytes(S)) {
      f32x16 v[kPanels];
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) {
        if (first) prefetch(w + p * panel_bytes + 2048);
        if constexpr (S == FloatSource::F32) v[p] = load(reinterpret_cast<const float*>(w + p * panel_bytes));
        else v[p] = load_f16(reinterpret_cast<const uint16_t*>(w + p * panel_bytes));
      }
      step(k, v);
    }
  }
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) acc[m][p] = sums[m][p];
}

// The one place where results leave a tile: + bias, + what is there already, only lanes that exist. values[row][panel].
PAGODA_NOINLINE void write_tile(const GemmArgs& args, int32_t row, int rows, int32_t panel, int panels, const f32x16* values) {
  for (int m = 0; m < rows; ++m) {
    for (int p = 0; p < panels; ++p) {
      f32x16 value = values[m * panels + p];
      const int32_t column = (panel + p) * kPanelRows;
      float* out = args.out + (size_t)(row + m) * args.out_stride + (size_t)column;
      const int lanes = args.weight->rows - column;
      if (lanes >= kPanelRows) {
        if (args.bias != nullptr) value = value + load(args.bias + column);
        if (args.accumulate) value = load(out) + value;
        store(out, value);
      } else if (lanes > 0) {
        if (args.bias != nullptr) value = value + load_n(args.bias + column, lanes);
        if (args.accumulate) value = load_n(out, lanes) + value;
        store_n(out, value, lanes);
      }
    }
  }
}

// Where a tile's results are added to what is there, possibly by another thread: it comes meanwhile.
template <int kRows, int kPanels> PAGODA_INLINE void prefetch_sums(const GemmArgs& args, int32_t row, int32_t panel) {
  if (!args.accumulate) return;
  const float* out = args.out + (size_t)row * args.out_stride + (size_t)panel * kPanelRows;
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m, out += args.out_stride) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) prefetch_to_write(out + p * kPanelRows);
}

// The same from registers, where the lanes all exist and there is no bias, as almost always.
template <int kRows, int kPanels> PAGODA_INLINE void write_sums(const GemmArgs& args, int32_t row, int32_t panel, const f32x16 (&sums)[kRows * kPanels]) {
  if (args.bias != nullptr || (panel + kPanels) * kPanelRows > args.weight->rows) {
    f32x16 values[kRows * kPanels];  // a copy: what has an address is kept in memory all along
    PAGODA_UNROLL for (int i = 0; i < kRows * kPanels; ++i) values[i] = sums[i];
    return write_tile(args, row, kRows, panel, kPanels, values);
  }
  float* out = args.out + (size_t)row * args.out_stride + (size_t)panel * kPanelRows;
  if (args.accumulate) {
    PAGODA_UNROLL for (int m = 0; m < kRows; ++m, out += args.out_stride) {
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) store(out + p * kPanelRows, load(out + p * kPanelRows) + sums[m * kPanels + p]);
    }
  } else {
    PAGODA_UNROLL for (int m = 0; m < kRows; ++m, out += args.out_stride) {
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) store(out + p * kPanelRows, sums[m * kPanels + p]);
    }
  }
}

template <FloatSource S, int kRows, int kPanels>
PAGODA_NOINLINE void float_tile_out(const GemmArgs& args, const uint8_t* w, size_t panel_bytes, int32_t row, int32_t panel) {
  f32x16 acc[kRows][kPanels];
  const float* x = args.x + (size_t)row * args.x_stride;
  prefetch_sums<kRows, kPanels>(args, row, panel);
  float_tile<S, kRows, kPanels>(w, panel_bytes, x, args.x_stride, args.weight->cols, row == args.row_begin, acc);
  write_tile(args, row, kRows, panel, kPanels, &acc[0][0]);
}

// All rows against kPanels panels; the tallest tile that fits first.
template <FloatSource S, int kPanels>
PAGODA_INLINE void float_rows(const GemmArgs& args, const uint8_t* w, size_t panel_bytes, int32_t panel) {
  int32_t row = args.row_begin;
  while (row < args.row_end) {
    const int32_t left = args.row_end - row;
    if (left >= kFloatTileRows) {
      float_tile_out<S, kFloatTileRows, kPanels>(args, w, panel_bytes, row, panel);
      row += kFloatTileRows;
      continue;
    }
    if constexpr (kFloatTileRows > 4) {
      if (left >= 4) {
        float_tile_out<S, 4, kPanels>(args, w, panel_bytes, row, panel);
        row += 4;
        continue;
      }
    }
    if constexpr (kFloatTileRows > 2) {
      if (left >= 2) {
        float_tile_out<S, 2, kPanels>(args, w, panel_bytes, row, panel);
        row += 2;
        continue;
      }
    }
    float_tile_out<S, 1, kPanels>(args, w, panel_bytes, row, panel);
    row += 1;
  }
}

template <FloatSource S> static void float_gemm(const GemmArgs& args) {
  const size_t panel_bytes = args.weight->panel_bytes;
  int32_t panel = args.panel_begin;
  for (; panel + kFloatTilePanels <= args.panel_end; panel += kFloatTilePanels) float_rows<S, kFloatTilePanels>(args, args.weight->data + (size_t)panel * panel_bytes, panel_bytes, panel);
  if constexpr (kFloatTilePanels > 1) {
    for (; panel < args.panel_end; ++panel) float_rows<S, 1>(args, args.weight->data + (size_t)panel * panel_bytes, panel_bytes, panel);
  }
}

static void dequantized_gemm(const GemmArgs& args) {
  const Format format = args.weight->format;
  const PanelLayout layout = panel_layout(format, args.weight->cols);
  for (int32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    dequantize_panel(facts_of(format), args.weight->data + (size_t)panel * args.weight->panel_bytes, layout, args.weight->cols, args.scratch);
    float_rows<FloatSource::F32, 1>(args, reinterpret_cast<const uint8_t*>(args.scratch), 0, panel);
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
