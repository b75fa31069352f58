// What a packed panel looks like, per format: the one description that packing, dequantization and every kernel read.
// A panel holds 16 output rows. Per 32 columns ("block") the codes lie in planes of 64-byte lines; in a line, bytes 4r..4r+3
// belong to row r. Chunk t (0..7) of a block is the columns 4t..4t+3.
//   bytes     8 lines: line t = chunk t (unsigned codes w + 128, or signed where the instruction set wants it)
//   nibbles   4 lines: line j = chunk j in the low halves, chunk j + 4 in the high halves
//   two bits  2 lines: line h, bits 2j..2j+1 = chunk 4h + j
//   one bit   1 line : bit t = chunk t
// Wider codes are nibbles | two bits | one bit, the lowest bits in the first plane. After the codes of all blocks come the
// scales of all blocks, then the super-block scales, each part starting on a 64-byte line.
#pragma once
#include "kernels.h"

namespace pagoda {

enum class ScaleKind : uint8_t {
  None,      // float formats
  F16,       // f16 d[16] per block:              w = (code - offset) * d
  F16Min,    // f16 d[16], m[16] per block:       w = code * d + m
  F32Exp,    // u8 e[16] per block (MXFP4):       w = table[code] * 2^(e - 128)
  K,         // i8 s[16] per block, f16 d[16] per 8 blocks:                    w = (d * s) * table[code]
  KMin,      // u8 s[16], m[16] per block, f16 d[16], dmin[16] per 8 blocks:   w = (d * s) * code - dmin * m
  K16,       // i8 s[2][16] per block (16 columns each), f16 d[16] per 8:      w = (d * s) * (code - offset)
  K16Min,    // u8 s[2][16], m[2][16] per block, f16 d[16], dmin[16] per 8:    w = (d * s) * code - dmin * m
};
enum class CodeTable : uint8_t { None, Iq4, Mxfp4 };

struct FormatFacts {
  int16_t source_block;        // columns per block of the file's layout
  int16_t source_block_bytes;  // and its bytes
  bool bytes, nibbles, two_bits, one_bit;
  CodeTable table;
  uint8_t offset;
  ScaleKind scales;

  constexpr bool quantized() const { return scales != ScaleKind::None; }
  constexpr bool super_blocks() const { return scales == ScaleKind::K || scales == ScaleKind::KMin || scales == ScaleKind::K16 || scales == ScaleKind::K16Min; }
  constexpr bool sixteens() const { return scales == ScaleKind::K16 || scales == ScaleKind::K16Min; }
  constexpr bool has_min() const { return scales == ScaleKind::F16Min || scales == ScaleKind::KMin || scales == ScaleKind::K16Min; }
  // Bytes per panel and block of 32 columns.
  constexpr int code_bytes() const { return (bytes ? 512 : 0) + (nibbles ? 256 : 0) + (two_bits ? 128 : 0) + (one_bit ? 64 : 0); }
  constexpr int two_bits_at() const { return nibbles ? 256 : 0; }
  constexpr int one_bit_at() const { return two_bits_at() + (two_bits ? 128 : 0); }
  constexpr int two_bits_shift() const { return nibbles ? 4 : 0; }  // position of the plane's bits in the code
  constexpr int one_bit_shift() const { return two_bits_shift() + (two_bits ? 2 : 0); }
  constexpr int scale_bytes() const {
    return scales == ScaleKind::F16Min || scales == ScaleKind::K16Min ? 64
         : scales == ScaleKind::F16 || scales == ScaleKind::KMin || scales == ScaleKind::K16 ? 32
         : scales == ScaleKind::F32Exp || scales == ScaleKind::K ? 16 : 0;
  }
  constexpr int super_bytes() const { return !super_blocks() ? 0 : has_min() ? 64 : 32; }  // per panel and 256 columns
};

//                                               block bytes  8      4      2      1      table            offset scales
constexpr FormatFacts kFormatFacts[kNumFormats] = {
    /* F32    */ {1, 4, false, false, false, false, CodeTable::None, 0, ScaleKind::None},
    /* F16    */ {1, 2, false, false, false, false, CodeTable::None, 0, ScaleKind::None},
    /* BF16   */ {1, 2, false, false, false, false, CodeTable::None, 0, ScaleKind::None},
    /* Q8_0   */ {32, 34, true, false, false, false, CodeTable::None, 128, ScaleKind::F16},
    /* Q4_0   */ {32, 18, false, true, false, false, CodeTable::None, 8, ScaleKind::F16},
    /* Q4_1   */ {32, 20, false, true, false, false, CodeTable::None, 0, ScaleKind::F16Min},
    /* Q5_0   */ {32, 22, false, true, false, true, CodeTable::None, 16, ScaleKind::F16},
    /* Q5_1   */ {32, 24, false, true, false, true, CodeTable::None, 0, ScaleKind::F16Min},
    /* Q2_K   */ {256, 84, false, false, true, false, CodeTable::None, 0, ScaleKind::K16Min},
    /* Q3_K   */ {256, 110, false, false, true, true, CodeTable::None, 4, ScaleKind::K16},
    /* Q4_K   */ {256, 144, false, true, false, false, CodeTable::None, 0, ScaleKind::KMin},
    /* Q5_K   */ {256, 176, false, true, false, true, CodeTable::None, 0, ScaleKind::KMin},
    /* Q6_K   */ {256, 210, false, true, true, false, CodeTable::None, 32, ScaleKind::K16},
    /* IQ4_NL */ {32, 18, false, true, false, false, CodeTable::Iq4, 128, ScaleKind::F16},
    /* IQ4_XS */ {256, 136, false, true, false, false, CodeTable::Iq4, 128, ScaleKind::K},
    /* MXFP4  */ {32, 17, false, true, false, false, CodeTable::Mxfp4, 128, ScaleKind::F32Exp},
};
static inline constexpr const FormatFacts& facts_of(Format format) { return kFormatFacts[static_cast<int>(format)]; }

// The values of 4-bit codes that index a table (ggml's kvalues_iq4nl; MXFP4's E2M1 values doubled).
constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline constexpr size_t round_up_64(size_t n) { return (n + 63) & ~static_cast<size_t>(63); }
static inline constexpr int num_blocks(int32_t cols) { return (cols + 31) / 32; }

// Byte offsets inside one panel.
struct PanelLayout {
  size_t scales, supers, bytes;
};
static inline constexpr PanelLayout panel_layout(Format format, int32_t cols) {
  const FormatFacts& facts = facts_of(format);
  if (format == Format::F32) return {0, 0, static_cast<size_t>(cols) * 64};               // [cols][16] f32
  if (format == Format::F16) return {0, 0, round_up_64(static_cast<size_t>(cols) * 32)};  // [cols][16] f16
  if (format == Format::BF16) return {0, 0, (static_cast<size_t>(cols) + 1) / 2 * 64};    // [cols / 2][16][2] bf16, an odd last column padded with 0
  const size_t blocks = static_cast<size_t>(num_blocks(cols));
  const size_t scales = blocks * facts.code_bytes();
  const size_t supers = round_up_64(scales + blocks * facts.scale_bytes());
  return {scales, supers, round_up_64(supers + (blocks + 7) / 8 * facts.super_bytes())};
}

// Instruction-set independent work (pack.cc). `signed_bytes`: the bytes plane holds signed values instead of w + 128.
void pack_panels(PackedWeight* weight, const uint8_t* const* source_rows, int32_t panel_begin, int32_t panel_end, bool signed_bytes);
void dequantize_row(const PackedWeight* weight, int32_t row, float* out, bool signed_bytes);

}  // namespace pagoda
