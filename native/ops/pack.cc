// From the file's row layout to panels, and back to floats for one row (embedding look-up). Runs at load time and once per
// token, so it is plain C++; compiled without instruction-set flags. File layouts: ggml's block structures (ggml-common.h).
#include <string.h>

#include "packed-format.h"

namespace pagoda {
namespace {

uint16_t read_u16(const uint8_t* p) { uint16_t v; memcpy(&v, p, 2); return v; }
uint32_t read_u32(const uint8_t* p) { uint32_t v; memcpy(&v, p, 4); return v; }
void write_u16(uint8_t* p, uint16_t v) { memcpy(p, &v, 2); }
void write_u32(uint8_t* p, uint32_t v) { memcpy(p, &v, 4); }
float float_of_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
uint32_t bits_of(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

float float_of_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13) | (magnitude > 0x7c00u ? 0x400000u : 0));
  return float_of_bits(sign | bits_of(float_of_bits(magnitude << 13) * 0x1p112f));
}

// One block of 32 codes of one row, with its scales, independent of both layouts.
struct Block {
  alignas(16) uint8_t codes[32];
  uint8_t scales[4];     // as many as ScaleKind says, in packed order
  uint16_t d, m;         // F16, F16Min: per block
  uint16_t super[2];     // d, dmin of the super-block
};

void split_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = packed[i] & 15;
    codes[16 + i] = packed[i] >> 4;
  }
}
void add_high_bits(const uint8_t* bits, uint8_t* codes) {
  const uint32_t high = read_u32(bits);
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (((high >> i) & 1) << 4));
}
// The 6-bit scales and minimums of Q4_K and Q5_K.
void k_scale_min(int j, const uint8_t* packed, uint8_t* scale, uint8_t* min) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *min = packed[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4));
    *min = static_cast<uint8_t>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4));
  }
}
int q3_scale(const uint8_t* packed, int i) {
  const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
  const int high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
  return (low | high << 4) - 32;
}

// `block` counts 32 columns; super-block formats hold 8 of them per source block.
template <Format F>
void unpack_block(const uint8_t* row, int block, Block* out) {
  constexpr FormatFacts facts = facts_of(F);
  const uint8_t* p = row + static_cast<size_t>(facts.super_blocks() ? block / 8 : block) * facts.source_block_bytes;
  const int s = block % 8;  // of the super-block
  if constexpr (F == Format::Q8_0) {
    out->d = read_u16(p);
    for (int i = 0; i < 32; ++i) out->codes[i] = p[2 + i] ^ 0x80;
  } else if constexpr (F == Format::Q4_0 || F == Format::IQ4_NL) {
    out->d = read_u16(p);
    split_nibbles(p + 2, out->codes);
  } else if constexpr (F == Format::MXFP4) {
    out->scales[0] = p[0];
    split_nibbles(p + 1, out->codes);
  } else if constexpr (F == Format::Q4_1) {
    out->d = read_u16(p);
    out->m = read_u16(p + 2);
    split_nibbles(p + 4, out->codes);
  } else if constexpr (F == Format::Q5_0) {
    out->d = read_u16(p);
    split_nibbles(p + 6, out->codes);
    add_high_bits(p + 2, out->codes);
  } else if constexpr (F == Format::Q5_1) {
    out->d = read_u16(p);
    out->m = read_u16(p + 2);
    split_nibbles(p + 8, out->codes);
    add_high_bits(p + 4, out->codes);
  } else if constexpr (F == Format::Q2_K) {
    const uint8_t* codes = p + 16 + (s / 4) * 32;
    for (int i = 0; i < 32; ++i) out->codes[i] = (codes[i] >> (2 * (s % 4))) & 3;
    for (int h = 0; h < 2; ++h) {
      out->scales[h] = p[2 * s + h] & 15;
      out->scales[2 + h] = p[2 * s + h] >> 4;
    }
    out->super[0] = read_u16(p + 80);
    out->super[1] = read_u16(p + 82);
  } else if constexpr (F == Format::Q3_K) {
    const uint8_t* codes = p + 32 + (s / 4) * 32;
    for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<uint8_t>(((codes[i] >> (2 * (s % 4))) & 3) | (((p[i] >> s) & 1) << 2));
    for (int h = 0; h < 2; ++h) out->scales[h] = static_cast<uint8_t>(q3_scale(p + 96, 2 * s + h));
    out->super[0] = read_u16(p + 108);
  } else if constexpr (F == Format::Q4_K || F == Format::Q5_K) {
    constexpr int kHigh = F == Format::Q5_K ? 32 : 0;
    const uint8_t* codes = p + 16 + kHigh + (s / 2) * 32;
    for (int i = 0; i < 32; ++i) out->codes[i] = (codes[i] >> (4 * (s % 2))) & 15;
    if (kHigh) for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<uint8_t>(out->codes[i] | (((p[16 + i] >> s) & 1) << 4));
    k_scale_min(s, p + 4, &out->scales[0], &out->scales[1]);
    out->super[0] = read_u16(p);
    out->super[1] = read_u16(p + 2);
  } else if constexpr (F == Format::Q6_K) {
    const uint8_t* low = p + (s / 4) * 64 + (s % 2) * 32;
    const uint8_t* high = p + 128 + (s / 4) * 32;
    const int q = s % 4;
    for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<uint8_t>(((low[i] >> (4 * (q / 2))) & 15) | (((high[i] >> (2 * q)) & 3) << 4));
    for (int h = 0; h < 2; ++h) out->scales[h] = p[192 + 2 * s + h];
    out->super[0] = read_u16(p + 208);
  } else if constexpr (F == Format::IQ4_XS) {
    split_nibbles(p + 8 + s * 16, out->codes);
    const int low = (p[4 + s / 2] >> (4 * (s % 2))) & 15, high = (read_u16(p + 2) >> (2 * s)) & 3;
    out->scales[0] = static_cast<uint8_t>((low | high << 4) - 32);
    out->super[0] = read_u16(p);
  }
}

template <Format F>
void write_block(const Block& block, uint8_t* panel, const PanelLayout& layout, int index, int lane, bool signed_bytes) {
  constexpr FormatFacts facts = facts_of(F);
  uint8_t* codes = panel + static_cast<size_t>(index) * facts.code_bytes() + lane * 4;
  uint32_t chunks[8];
  memcpy(chunks, block.codes, 32);
  if constexpr (facts.bytes) {
    const uint32_t flip = signed_bytes ? 0x80808080u : 0;
    for (int t = 0; t < 8; ++t) write_u32(codes + t * 64, chunks[t] ^ flip);
  }
  if constexpr (facts.nibbles) {
    for (int j = 0; j < 4; ++j) write_u32(codes + j * 64, (chunks[j] & 0x0f0f0f0fu) | (chunks[j + 4] & 0x0f0f0f0fu) << 4);
  }
  if constexpr (facts.two_bits) {
    for (int h = 0; h < 2; ++h) {
      uint32_t line = 0;
      for (int j = 0; j < 4; ++j) line |= ((chunks[4 * h + j] >> facts.two_bits_shift()) & 0x03030303u) << (2 * j);
      write_u32(codes + facts.two_bits_at() + h * 64, line);
    }
  }
  if constexpr (facts.one_bit) {
    uint32_t line = 0;
    for (int t = 0; t < 8; ++t) line |= ((chunks[t] >> facts.one_bit_shift()) & 0x01010101u) << t;
    write_u32(codes + facts.one_bit_at(), line);
  }
  uint8_t* scales = panel + layout.scales + static_cast<size_t>(index) * facts.scale_bytes();
  if constexpr (facts.scales == ScaleKind::F16 || facts.scales == ScaleKind::F16Min) {
    write_u16(scales + 2 * lane, block.d);
    if (facts.has_min()) write_u16(scales + 32 + 2 * lane, block.m);
  } else {
    for (int i = 0; i < facts.scale_bytes() / 16; ++i) scales[16 * i + lane] = block.scales[i];
  }
  if constexpr (facts.super_blocks()) {
    uint8_t* supers = panel + layout.supers + static_cast<size_t>(index / 8) * facts.super_bytes();
    write_u16(supers + 2 * lane, block.super[0]);
    if (facts.has_min()) write_u16(supers + 32 + 2 * lane, block.super[1]);
  }
}

template <Format F>
void read_block(Block* block, const uint8_t* panel, const PanelLayout& layout, int index, int lane, bool signed_bytes) {
  constexpr FormatFacts facts = facts_of(F);
  const uint8_t* codes = panel + static_cast<size_t>(index) * facts.code_bytes() + lane * 4;
  uint32_t chunks[8] = {};
  if constexpr (facts.bytes) {
    const uint32_t flip = signed_bytes ? 0x80808080u : 0;
    for (int t = 0; t < 8; ++t) chunks[t] = read_u32(codes + t * 64) ^ flip;
  }
  if constexpr (facts.nibbles) {
    for (int t = 0; t < 8; ++t) chunks[t] = (read_u32(codes + (t % 4) * 64) >> (t / 4 * 4)) & 0x0f0f0f0fu;
  }
  if constexpr (facts.two_bits) {
    for (int t = 0; t < 8; ++t) chunks[t] |= ((read_u32(codes + facts.two_bits_at() + (t / 4) * 64) >> (2 * (t % 4))) & 0x03030303u) << facts.two_bits_shift();
  }
  if constexpr (facts.one_bit) {
    for (int t = 0; t < 8; ++t) chunks[t] |= ((read_u32(codes + facts.one_bit_at()) >> t) & 0x01010101u) << facts.one_bit_shift();
  }
  memcpy(block->codes, chunks, 32);
  const uint8_t* scales = panel + layout.scales + static_cast<size_t>(index) * facts.scale_bytes();
  if constexpr (facts.scales == ScaleKind::F16 || facts.scales == ScaleKind::F16Min) {
    block->d = read_u16(scales + 2 * lane);
    if (facts.has_min()) block->m = read_u16(scales + 32 + 2 * lane);
  } else {
    for (int i = 0; i < facts.scale_bytes() / 16; ++i) block->scales[i] = scales[16 * i + lane];
  }
  if constexpr (facts.super_blocks()) {
    const uint8_t* supers = panel + layout.supers + static_cast<size_t>(index / 8) * facts.super_bytes();
    block->super[0] = read_u16(supers + 2 * lane);
    if (facts.has_min()) block->super[1] = read_u16(supers + 32 + 2 * lane);
  }
}

// The file's own value of each code: the multiplications in ggml's order, without fused rounding.
template <Format F>
void dequantize_block(const Block& block, float* out) {
  constexpr FormatFacts facts = facts_of(F);
  for (int half = 0; half < 2; ++half) {
    float scale, min = 0;
    if constexpr (facts.scales == ScaleKind::F16 || facts.scales == ScaleKind::F16Min) {
      scale = float_of_f16(block.d);
      if (facts.has_min()) min = float_of_f16(block.m);
    } else if constexpr (facts.scales == ScaleKind::F32Exp) {
      const uint32_t e = block.scales[0];
      scale = float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    } else {
      const int at = facts.sixteens() ? half : 0;
      const float d = float_of_f16(block.super[0]);
      scale = d * static_cast<float>(facts.has_min() ? static_cast<int>(block.scales[at]) : static_cast<int8_t>(block.scales[at]));
      if (facts.has_min()) min = -(float_of_f16(block.super[1]) * static_cast<float>(block.scales[facts.sixteens() ? 2 + half : 1]));
    }
    for (int i = 16 * half; i < 16 * half + 16; ++i) {
      int value;
      if constexpr (facts.table == CodeTable::Iq4) value = kIq4Values[block.codes[i]];
      else if constexpr (facts.table == CodeTable::Mxfp4) value = kMxfp4Values[block.codes[i]];
      else value = block.codes[i] - facts.offset;
      const float product = scale * static_cast<float>(value);
      out[i] = facts.has_min() ? product + min : product;
    }
  }
}

template <Format F>
void pack_row(const uint8_t* source, uint8_t* panel, const PanelLayout& layout, int lane, int32_t cols, bool signed_bytes) {
  if constexpr (F == Format::F32) {
    for (int32_t k = 0; k < cols; ++k) memcpy(panel + static_cast<size_t>(k) * 64 + lane * 4, source + static_cast<size_t>(k) * 4, 4);
  } else if constexpr (F == Format::F16) {
    for (int32_t k = 0; k < cols; ++k) memcpy(panel + static_cast<size_t>(k) * 32 + lane * 2, source + static_cast<size_t>(k) * 2, 2);
  } else if constexpr (F == Format::BF16) {
    for (int32_t k = 0; k < cols; ++k) memcpy(panel + static_cast<size_t>(k / 2) * 64 + lane * 4 + (k & 1) * 2, source + static_cast<size_t>(k) * 2, 2);
  } else {
    const int blocks = num_blocks(cols);
    for (int b = 0; b < blocks; ++b) {
      Block block;
      unpack_block<F>(source, b, &block);
      write_block<F>(block, panel, layout, b, lane, signed_bytes);
    }
  }
}

template <Format F>
void unpack_row(const uint8_t* panel, const PanelLayout& layout, int lane, int32_t cols, bool signed_bytes, float* out) {
  if constexpr (F == Format::F32) {
    for (int32_t k = 0; k < cols; ++k) memcpy(out + k, panel + static_cast<size_t>(k) * 64 + lane * 4, 4);
  } else if constexpr (F == Format::F16) {
    for (int32_t k = 0; k < cols; ++k) out[k] = float_of_f16(read_u16(panel + static_cast<size_t>(k) * 32 + lane * 2));
  } else if constexpr (F == Format::BF16) {
    for (int32_t k = 0; k < cols; ++k) out[k] = float_of_bits(static_cast<uint32_t>(read_u16(panel + static_cast<size_t>(k / 2) * 64 + lane * 4 + (k & 1) * 2)) << 16);
  } else {
    const int blocks = num_blocks(cols);
    for (int b = 0; b < blocks; ++b) {
      Block block;
      read_block<F>(&block, panel, layout, b, lane, signed_bytes);
      dequantize_block<F>(block, out + static_cast<size_t>(b) * 32);
    }
  }
}

template <typename Visit>
void visit_format(Format format, Visit&& visit) {
#define PAGODA_CASE(F) case Format::F: return visit([] { return Format::F; })
  switch (format) {
    PAGODA_CASE(F32); PAGODA_CASE(F16); PAGODA_CASE(BF16); PAGODA_CASE(Q8_0); PAGODA_CASE(Q4_0); PAGODA_CASE(Q4_1);
    PAGODA_CASE(Q5_0); PAGODA_CASE(Q5_1); PAGODA_CASE(Q2_K); PAGODA_CASE(Q3_K); PAGODA_CASE(Q4_K); PAGODA_CASE(Q5_K);
    PAGODA_CASE(Q6_K); PAGODA_CASE(IQ4_NL); PAGODA_CASE(IQ4_XS); PAGODA_CASE(MXFP4);
  }
#undef PAGODA_CASE
}

}  // namespace

size_t source_row_bytes(Format format, int64_t cols) {
  const FormatFacts& facts = facts_of(format);
  if (cols < 0 || cols % facts.source_block != 0) return 0;
  return static_cast<size_t>(cols / facts.source_block) * static_cast<size_t>(facts.source_block_bytes);
}

void pack_panels(PackedWeight* weight, const uint8_t* const* source_rows, int32_t panel_begin, int32_t panel_end, bool signed_bytes) {
  const PanelLayout layout = panel_layout(weight->format, weight->cols);
  for (int32_t p = panel_begin; p < panel_end; ++p) {
    uint8_t* panel = weight->data + static_cast<size_t>(p) * weight->panel_bytes;
    memset(panel, 0, weight->panel_bytes);
    for (int lane = 0; lane < kPanelRows; ++lane) {
      if (static_cast<int64_t>(p) * kPanelRows + lane >= weight->rows) break;
      const uint8_t* source = source_rows[static_cast<size_t>(p - panel_begin) * kPanelRows + lane];
      if (source == nullptr) continue;
      visit_format(weight->format, [&](auto format) { pack_row<format()>(source, panel, layout, lane, weight->cols, signed_bytes); });
    }
  }
}

void dequantize_row(const PackedWeight* weight, int32_t row, float* out, bool signed_bytes) {
  const PanelLayout layout = panel_layout(weight->format, weight->cols);
  const uint8_t* panel = weight->data + static_cast<size_t>(row / kPanelRows) * weight->panel_bytes;
  visit_format(weight->format, [&](auto format) { unpack_row<format()>(panel, layout, row % kPanelRows, weight->cols, signed_bytes, out); });
}

}  // namespace pagoda
