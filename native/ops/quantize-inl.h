// Activations as int8: per row and 32 columns one float scale = max|x| / 127, values rounded to nearest even. The same
// numbers on every instruction set. Stored in groups of rows, row-group major, one record per 32 columns, so that every operand
// of a tile sits at a constant distance from one pointer per group.
#pragma once
#include "gemm-traits-inl.h"
#include "packed-format.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

struct Record {
  int8_t a[kGroupRows][32];
  float d[kGroupRows];          // scale
  float sa[kGroupRows];         // scale * sum of a: for weights with a minimum
  int32_t n8[kGroupRows];       // -8 * sum
  int32_t n128[kGroupRows];     // -128 * sum
  int32_t n16[kGroupRows];      // -16 * sum
  int32_t n32lo[kGroupRows];    // -32 * sum over columns 0..15
  int32_t n32hi[kGroupRows];    // -32 * sum over columns 16..31
  int16_t pair[kGroupRows][2];  // -sum over columns 0..15, 16..31
};
static_assert(sizeof(Record) == 64 * kGroupRows, "records are whole cache lines");

static size_t quantized_bytes(int32_t max_rows, int32_t cols) {
  const size_t groups = ((size_t)max_rows + kGroupRows - 1) / kGroupRows;
  return groups * (size_t)num_blocks(cols) * sizeof(Record);
}

PAGODA_INLINE void quantize_block(Record* record, int row, const float* x, int count) {
  const f32x16 x0 = count >= 16 ? load(x) : load_n(x, count), x1 = count >= 32 ? load(x + 16) : count > 16 ? load_n(x + 16, count - 16) : zero();
  // The maximum is taken over the bits, where a NaN is larger than everything: NaN and infinity end up in the scale and so in
  // every output. A block below 1e-30 counts as zeros, because 127 / amax would overflow.
  const i32x16 magnitude = splat_i32(0x7fffffff);
  const float amax = f32_of_bits((uint32_t)reduce_max(max(bits_of(x0) & magnitude, bits_of(x1) & magnitude)));
  const float scale = amax / 127.0f, inverse = amax > 1e-30f ? 127.0f / amax : 0.0f;
  const i32x16 q0 = round_to_int(x0 * splat(inverse)), q1 = round_to_int(x1 * splat(inverse));
  int8_t* a = record->a[row];
#ifdef PAGODA_ISA_AVX512
  _mm_storeu_si128((__m128i*)a, _mm512_cvtsepi32_epi8((__m512i)q0.v[0]));
  _mm_storeu_si128((__m128i*)(a + 16), _mm512_cvtsepi32_epi8((__m512i)q1.v[0]));
  const int32_t lo = _mm512_reduce_add_epi32((__m512i)q0.v[0]), hi = _mm512_reduce_add_epi32((__m512i)q1.v[0]);
#elif defined(PAGODA_ISA_AVX2)
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32((__m256i)q0.v[0], (__m256i)q0.v[1]), _mm256_packs_epi32((__m256i)q1.v[0], (__m256i)q1.v[1])), order);
  _mm256_storeu_si256((__m256i*)a, packed);
  const __m256i dwords = _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), packed), _mm256_set1_epi16(1));
  __m128i low = _mm256_castsi256_si128(dwords), high = _mm256_extracti128_si256(dwords, 1);
  low = _mm_hadd_epi32(low, high);
  low = _mm_hadd_epi32(low, low);
  const int32_t lo = _mm_cvtsi128_si32(low), hi = _mm_extract_epi32(low, 1);
#else
  int32_t lo = 0, hi = 0;
  alignas(64) int32_t t[32];
  store_i32(t, q0);
  store_i32(t + 16, q1);
  for (int i = 0; i < 32; ++i) {
    const int32_t q = t[i] < -128 ? -128 : t[i] > 127 ? 127 : t[i];
    a[i] = (int8_t)q;
    (i < 16 ? lo : hi) += q;
  }
#endif
  // Codes of what is no number are the smallest integer: sums of them may wrap, the scale makes the result NaN whatever they are.
  const uint32_t first = (uint32_t)lo, second = (uint32_t)hi, sum = first + second;
  record->d[row] = scale;
  record->sa[row] = scale * (float)(int32_t)sum;
  record->n8[row] = (int32_t)(0u - 8 * sum);
  record->n128[row] = (int32_t)(0u - 128 * sum);
  record->n16[row] = (int32_t)(0u - 16 * sum);
  record->n32lo[row] = (int32_t)(0u - 32 * first);
  record->n32hi[row] = (int32_t)(0u - 32 * second);
  record->pair[row][0] = (int16_t)(0u - first);
  record->pair[row][1] = (int16_t)(0u - second);
}

static void quantize_rows(QuantizedRows* q, const float* x, size_t x_stride, int32_t row_begin, int32_t row_end) {
  const int blocks = num_blocks(q->cols);
  for (int32_t row = row_begin; row < row_end; ++row) {
    const float* source = x + (size_t)row * x_stride;
    Record* record = reinterpret_cast<Record*>(q->data) + (size_t)(row / kGroupRows) * blocks;
    for (int b = 0; b < blocks; ++b) quantize_block(record + b, row % kGroupRows, source + (size_t)b * 32, q->cols - b * 32);
  }
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
