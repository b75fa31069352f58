// Float GEMM on panels: every output is one chain acc = fma(w, x, acc) over k = 0, 1, ... whatever the tile.
// F32, F16 and BF16 panels are read as they are; a quantized panel is first dequantized into the scratch, exactly.
#pragma once
#include "packed-format.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// Scale (and minimum) of 16 lanes for one block; `half` picks the 16 columns of formats that have a scale per 16.
template <Format F> PAGODA_INLINE f32x16 block_scale(const uint8_t* scales, const uint8_t* supers, int half) {
  constexpr FormatFacts facts = facts_of(F);
  if constexpr (facts.scales == ScaleKind::F16 || facts.scales == ScaleKind::F16Min) {
    return load_f16(reinterpret_cast<const uint16_t*>(scales));
  } else if constexpr (facts.scales == ScaleKind::F32Exp) {
    // 2^(e - 128): e = 0 and 1 are subnormal floats.
    const i32x16 e = load_u8(scales);
    const i32x16 tiny = shift_left<21>(e + splat_i32(1)), normal = shift_left<23>(e - splat_i32(1));
    return float_of_bits(select(e < splat_i32(2), tiny, normal));
  } else {
    const uint8_t* s = scales + (facts.sixteens() ? 16 * half : 0);
    const i32x16 code = facts.has_min() ? load_u8(s) : load_i8(reinterpret_cast<const int8_t*>(s));
    return load_f16(reinterpret_cast<const uint16_t*>(supers)) * to_float(code);
  }
}
// What is added to code * scale: m of Q4_1 and Q5_1, -dmin * m of the K formats.
template <Format F> PAGODA_INLINE f32x16 block_min(const uint8_t* scales, const uint8_t* supers, int half) {
  constexpr FormatFacts facts = facts_of(F);
  if constexpr (facts.scales == ScaleKind::F16Min) {
    return load_f16(reinterpret_cast<const uint16_t*>(scales + 32));
  } else if constexpr (facts.has_min()) {
    return -(load_f16(reinterpret_cast<const uint16_t*>(supers + 32)) * to_float(load_u8(scales + (facts.sixteens() ? 32 + 16 * half : 16))));
  } else {
    return zero();
  }
}

// Codes of chunk t (16 rows x 4 columns, one byte each) as they are stored, without table or offset.
template <Format F> PAGODA_INLINE i32x16 chunk_codes(const uint8_t* block, int t) {
  constexpr FormatFacts facts = facts_of(F);
  i32x16 codes = splat_i32(0);
  if constexpr (facts.bytes) codes = load_i32(block + t * 64) ^ splat_i32(kSignedBytes ? (int32_t)0x80808080 : 0);
  if constexpr (facts.nibbles) {
    const i32x16 line = load_i32(block + (t & 3) * 64);
    codes = (t < 4 ? line : shift_right<4>(line)) & splat_i32(0x0f0f0f0f);
  }
  if constexpr (facts.two_bits) {
    i32x16 line = load_i32(block + facts.two_bits_at() + (t >> 2) * 64);
    line = (t & 3) == 0 ? line : (t & 3) == 1 ? shift_right<2>(line) : (t & 3) == 2 ? shift_right<4>(line) : shift_right<6>(line);
    codes = codes | shift_left<facts.two_bits_shift()>(line & splat_i32(0x03030303));
  }
  if constexpr (facts.one_bit) {
    i32x16 line = load_i32(block + facts.one_bit_at());
    PAGODA_EACH line.v[n] = (i32n)((u32n)line.v[n] >> t);
    codes = codes | shift_left<facts.one_bit_shift()>(line & splat_i32(0x01010101));
  }
  return codes;
}

// out[k][16] for the panel: the file's dequantized values, bit for bit.
template <Format F> PAGODA_NOINLINE void dequantize_panel(const uint8_t* panel, const PanelLayout& layout, int32_t cols, float* out) {
  constexpr FormatFacts facts = facts_of(F);
  const int blocks = num_blocks(cols);
  for (int b = 0; b < blocks; ++b) {
    const uint8_t* block = panel + (size_t)b * facts.code_bytes();
    const uint8_t* scales = panel + layout.scales + (size_t)b * facts.scale_bytes();
    const uint8_t* supers = panel + layout.supers + (size_t)(b / 8) * facts.super_bytes();
    f32x16 scale = zero(), min = zero();
    PAGODA_NO_UNROLL for (int t = 0; t < 8; ++t) {
      if (t == 0 || (facts.sixteens() && t == 4)) {
        scale = block_scale<F>(scales, supers, t / 4);
        min = block_min<F>(scales, supers, t / 4);
      }
      const i32x16 codes = chunk_codes<F>(block, t);
      float* to = out + ((size_t)b * 32 + (size_t)t * 4) * 16;
      const i32x16 bytes[4] = {codes & splat_i32(255), shift_right<8>(codes) & splat_i32(255), shift_right<16>(codes) & splat_i32(255), shift_right<24>(codes)};
      PAGODA_NO_UNROLL for (int i = 0; i < 4; ++i) {
        f32x16 value;
        if constexpr (facts.table != CodeTable::None) {
          constexpr const int8_t* table = facts.table == CodeTable::Iq4 ? kIq4Values : kMxfp4Values;
          alignas(64) int32_t lanes[16];
          store_i32(lanes, bytes[i]);
          for (int r = 0; r < 16; ++r) lanes[r] = table[lanes[r]];
          value = to_float(load_i32(lanes));
        } else {
          value = to_float(bytes[i] - splat_i32(facts.offset));
        }
        value = scale * value;
        store(to + i * 16, facts.has_min() ? value + min : value);
      }
    }
  }
}

enum class FloatSource { F32, F16, BF16 };
constexpr size_t float_source_bytes(FloatSource s) { return s == FloatSource::F32 ? 64 : 32; }  // per k

// One tile: kRows rows of x against kPanels panels at `w`, `panel_bytes` apart.
template <FloatSource S, int kRows, int kPanels>
PAGODA_INLINE void float_tile(const uint8_t* w, size_t panel_bytes, const float* x, size_t x_stride, int32_t cols, bool first, f32x16 (&acc)[kRows][kPanels]) {
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) acc[m][p] = zero();
  const auto step = [&](int32_t k, const f32x16 (&v)[kPanels]) __attribute__((always_inline)) {
    PAGODA_UNROLL for (int m = 0; m < kRows; ++m) {
      const f32x16 value = splat(x[(size_t)m * x_stride + k]);
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) acc[m][p] = fma(v[p], value, acc[m][p]);
    }
  };
  if constexpr (S == FloatSource::BF16) {
    for (int32_t k = 0; k < cols; k += 2, w += 64) {
      f32x16 even[kPanels], odd[kPanels];
      PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) {
        if (first) prefetch(w + p * panel_bytes + 2048);
        const i32x16 pair = load_i32(w + p * panel_bytes);
        even[p] = float_of_bits(shift_left<16>(pair));
        odd[p] = float_of_bits(pair & splat_i32((int32_t)0xffff0000));
      }
      step(k, even);
      if (k + 1 < cols) step(k + 1, odd);
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
}

// The one place where results leave a tile: + bias, + what is there already, only lanes that exist.
PAGODA_INLINE void write_lanes(const GemmArgs& args, int32_t row, int32_t panel, f32x16 value) {
  float* out = args.out + (size_t)row * args.out_stride + (size_t)panel * kPanelRows;
  const int lanes = args.weight->rows - panel * kPanelRows;
  if (lanes >= kPanelRows) {
    if (args.bias != nullptr) value = value + load(args.bias + (size_t)panel * kPanelRows);
    if (args.accumulate) value = load(out) + value;
    store(out, value);
  } else if (lanes > 0) {
    if (args.bias != nullptr) value = value + load_n(args.bias + (size_t)panel * kPanelRows, lanes);
    if (args.accumulate) value = load_n(out, lanes) + value;
    store_n(out, value, lanes);
  }
}

template <FloatSource S, int kRows, int kPanels>
PAGODA_NOINLINE void float_tile_out(const GemmArgs& args, const uint8_t* w, size_t panel_bytes, int32_t row, int32_t panel) {
  f32x16 acc[kRows][kPanels];
  const float* x = args.x + (size_t)row * args.x_stride;
  if (row == args.row_begin) float_tile<S, kRows, kPanels>(w, panel_bytes, x, args.x_stride, args.weight->cols, true, acc);
  else float_tile<S, kRows, kPanels>(w, panel_bytes, x, args.x_stride, args.weight->cols, false, acc);
  PAGODA_UNROLL for (int m = 0; m < kRows; ++m) PAGODA_UNROLL for (int p = 0; p < kPanels; ++p) write_lanes(args, row + m, panel + p, acc[m][p]);
}

// All rows against kPanels panels; the tallest tile that fits first.
template <FloatSource S, int kPanels>
PAGODA_INLINE void float_rows(const GemmArgs& args, const uint8_t* w, size_t panel_bytes, int32_t panel) {
  int32_t row = args.row_begin;
  while (row < args.row_end) {
    const int32_t left = args.row_end - row;
    if (left >= kFloatTileRows) { float_tile_out<S, kFloatTileRows, kPanels>(args, w, panel_bytes, row, panel); row += kFloatTileRows; }
    else if (left >= 4) { float_tile_out<S, 4, kPanels>(args, w, panel_bytes, row, panel); row += 4; }
    else if (left >= 2) { float_tile_out<S, 2, kPanels>(args, w, panel_bytes, row, panel); row += 2; }
    else { float_tile_out<S, 1, kPanels>(args, w, panel_bytes, row, panel); row += 1; }
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

template <Format F> static void dequantized_gemm(const GemmArgs& args) {
  const PanelLayout layout = panel_layout(F, args.weight->cols);
  for (int32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    dequantize_panel<F>(args.weight->data + (size_t)panel * args.weight->panel_bytes, layout, args.weight->cols, args.scratch);
    float_rows<FloatSource::F32, 1>(args, reinterpret_cast<const uint8_t*>(args.scratch), 0, panel);
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
