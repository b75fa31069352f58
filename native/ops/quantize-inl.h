// Activations as int8: per row and 32 columns one float scale = max|x| / 127, values rounded to nearest even. The same
// numbers on every instruction set. Stored in groups of rows, row-group major, one record per 32 columns, so that every operand
// of a tile sits at a constant distance from one pointer per group.
#pragma once
#include "gemm-traits-inl.h"
#include "packed-format.h"
#include "simd.h"

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

// 32 columns of one row: a cache line of its own, so that threads which quantize neighbouring rows do not share lines.
struct RowBlock {
  int8_t a[32];
  float d;          // scale
  float sa;         // scale * sum of a: for weights with a minimum
  int32_t n8;       // -8 * sum
  int32_t n128;     // -128 * sum
  int32_t n16;      // -16 * sum
  int32_t n32lo;    // -32 * sum over columns 0..15
  int32_t n32hi;    // -32 * sum over columns 16..31
  int16_t pair[2];  // -sum over columns 0..15, 16..31
};
struct Record {
  RowBlock rows[kGroupRows];
  uint8_t apart[64];  // or a row's blocks would lie 1 KiB apart, and share four sets of a first-level cache with 64
};
static_assert(sizeof(RowBlock) == 64, "a row's block is one cache line");

static size_t int8_bytes(int32_t max_rows, int32_t cols) {
  const size_t groups = ((size_t)max_rows + kGroupRows - 1) / kGroupRows;
  return groups * (size_t)num_blocks(cols) * sizeof(Record);
}

#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
// Eight dwords, each the sum of four codes.
PAGODA_INLINE void store_sums(RowBlock* block, float scale, __m256i dwords) {
  __m128i halves = _mm_hadd_epi32(_mm256_castsi256_si128(dwords), _mm256_extracti128_si256(dwords, 1));
  halves = _mm_hadd_epi32(halves, halves);  // of columns 0..15, 16..31, and again
  const __m128i sum = _mm_add_epi32(halves, _mm_shuffle_epi32(halves, 0xb1)), none = _mm_setzero_si128(), negative = _mm_sub_epi32(none, halves);
  const __m128i whole = _mm_sub_epi32(none, _mm_sllv_epi32(sum, _mm_setr_epi32(0, 0, 3, 7)));
  const __m128i parts = _mm_sub_epi32(none, _mm_sllv_epi32(_mm_blend_epi32(_mm_shuffle_epi32(halves, 0x50), sum, 1), _mm_setr_epi32(4, 5, 5, 0)));
  const __m128 d = _mm_set1_ps(scale), sa = _mm_mul_ps(d, _mm_cvtepi32_ps(sum));
  _mm_storeu_si128((__m128i*)&block->d, _mm_blend_epi32(whole, _mm_castps_si128(_mm_unpacklo_ps(d, sa)), 3));
  _mm_storeu_si128((__m128i*)&block->n16, _mm_blend_epi32(parts, _mm_packs_epi32(negative, negative), 8));
}
#else
// Codes of what is no number are the smallest integer: sums of them may wrap, the scale makes the result NaN whatever they are.
PAGODA_INLINE void store_sums(RowBlock* block, float scale, uint32_t first, uint32_t second) {
  const uint32_t sum = first + second;
  block->d = scale;
  block->sa = scale * (float)(int32_t)sum;
  block->n8 = (int32_t)(0u - 8 * sum);
  block->n128 = (int32_t)(0u - 128 * sum);
  block->n16 = (int32_t)(0u - 16 * sum);
  block->n32lo = (int32_t)(0u - 32 * first);
  block->n32hi = (int32_t)(0u - 32 * second);
  block->pair[0] = (int16_t)(0u - first);
  block->pair[1] = (int16_t)(0u - second);
}
#endif

// amax / 127 and 127 / amax, in one division where there are vectors.
PAGODA_INLINE void scales_of(float amax, float* scale, float* inverse) {
#if defined(PAGODA_ISA_AVX512) || defined(PAGODA_ISA_AVX2)
  const __m128 quotients = _mm_div_ps(_mm_setr_ps(amax, 127.0f, 1.0f, 1.0f), _mm_setr_ps(127.0f, amax, 1.0f, 1.0f));
  *scale = _mm_cvtss_f32(quotients);
  *inverse = _mm_cvtss_f32(_mm_movehdup_ps(quotients));
#else
  *scale = amax / 127.0f;
  *inverse = 127.0f / amax;
#endif
}

PAGODA_INLINE void quantize_block(RowBlock* block, const float* x, int count) {
  const f32x16 x0 = count >= 16 ? load(x) : load_n(x, count), x1 = count >= 32 ? load(x + 16) : count > 16 ? load_n(x + 16, count - 16) : zero();
  // The maximum is taken over the bits, where a NaN is larger than everything: NaN and infinity end up in the scale and so in
  // every output. A block below 1e-30 counts as zeros, because 127 / amax would overflow.
  const i32x16 magnitude = splat_i32(0x7fffffff);
  const float amax = f32_of_bits((uint32_t)reduce_max(max(bits_of(x0) & magnitude, bits_of(x1) & magnitude)));
  float scale, inverse;
  scales_of(amax, &scale, &inverse);
  if (!(amax > 1e-30f)) inverse = 0.0f;
  const i32x16 q0 = round_to_int(x0 * splat(inverse)), q1 = round_to_int(x1 * splat(inverse));
  int8_t* a = block->a;
#ifdef PAGODA_ISA_AVX512
  const __m256i codes = _mm256_set_m128i(_mm512_cvtsepi32_epi8((__m512i)q1.v[0]), _mm512_cvtsepi32_epi8((__m512i)q0.v[0]));
  _mm256_storeu_si256((__m256i*)a, codes);
  store_sums(block, scale, _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), codes));
#elif defined(PAGODA_ISA_AVX2)
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i codes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(_mm256_packs_epi32((__m256i)q0.v[0], (__m256i)q0.v[1]), _mm256_packs_epi32((__m256i)q1.v[0], (__m256i)q1.v[1])), order);
  _mm256_storeu_si256((__m256i*)a, codes);
  store_sums(block, scale, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes), _mm256_set1_epi16(1)));
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
  store_sums(block, scale, (uint32_t)lo, (uint32_t)hi);
#endif
}

#ifdef PAGODA_ISA_AVX512
// Two neighbouring blocks of a row: 64 columns share vectors, each block is stored as one line. All pairs of a batch go through one stage
// after the other: the stages of one pair wait for each other, and the CPU sees only a few pairs at once.
constexpr int kPairBatch = 32;
struct PairBatch {
  const float* x[kPairBatch];
  RowBlock* blocks[kPairBatch];   // the first of the two
  bool both[kPairBatch];          // or the second is beyond the columns
  alignas(64) float maxima[2 * kPairBatch], scales[2 * kPairBatch], inverses[2 * kPairBatch];
  alignas(64) float rest[kPairBatch][64];  // columns at the end of a row, zeros after them
  int count, num_rests;
};

// Of 16 values each: the largest magnitude's bits in all lanes of the lower and of the upper half.
PAGODA_INLINE __m512i largest_of_pair(const float* x) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  const auto bits = [&](int i) { return _mm512_and_si512(_mm512_loadu_si512(x + 16 * i), magnitude); };
  const __m512i first = _mm512_max_epi32(bits(0), bits(1)), second = _mm512_max_epi32(bits(2), bits(3));
  return _mm512_max_epi32(_mm512_shuffle_i64x2(first, second, 0x44), _mm512_shuffle_i64x2(first, second, 0xee));
}
PAGODA_INLINE void find_maxima(PairBatch& batch) {
  for (int i = 0; i < batch.count; i += 2) {
    const __m512i here = largest_of_pair(batch.x[i]), next = largest_of_pair(batch.x[i + 1 < batch.count ? i + 1 : i]);
    __m512i largest = _mm512_max_epi32(_mm512_shuffle_i64x2(here, next, 0x88), _mm512_shuffle_i64x2(here, next, 0xdd));
    largest = _mm512_max_epi32(largest, _mm512_shuffle_epi32(largest, _MM_PERM_BADC));
    largest = _mm512_max_epi32(largest, _mm512_shuffle_epi32(largest, _MM_PERM_CDAB));
    _mm_store_si128((__m128i*)(batch.maxima + 2 * i), _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, largest)));
  }
}
PAGODA_INLINE void find_scales(PairBatch& batch) {
  const __m512 most = _mm512_set1_ps(127.0f);
  for (int i = 0; i < 2 * batch.count; i += 16) {
    const __m512 amax = _mm512_load_ps(batch.maxima + i);
    _mm512_store_ps(batch.scales + i, _mm512_div_ps(amax, most));
    _mm512_store_ps(batch.inverses + i, _mm512_maskz_div_ps(_mm512_cmp_ps_mask(amax, _mm512_set1_ps(1e-30f), _CMP_GT_OQ), most, amax));
  }
}
PAGODA_INLINE void store_pair(const PairBatch& batch, int i) {
  const float* x = batch.x[i];
  const auto codes_of = [&](int at, __m512 inverse) { return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + at), inverse)); };
  const __m512 inverse0 = _mm512_set1_ps(batch.inverses[2 * i]), inverse1 = _mm512_set1_ps(batch.inverses[2 * i + 1]);
  const __m512i words0 = _mm512_packs_epi32(codes_of(0, inverse0), codes_of(16, inverse0)), words1 = _mm512_packs_epi32(codes_of(32, inverse1), codes_of(48, inverse1));
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512i codes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words0, words1));
  // The first dword of each quarter becomes the sum of its 16 codes.
  const __m512i eights = _mm512_sad_epu8(_mm512_xor_si512(codes, _mm512_set1_epi8((char)0x80)), _mm512_setzero_si512());
  const __m512i halves = _mm512_sub_epi32(_mm512_add_epi32(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC)), _mm512_set1_epi32(16 * 128)), none = _mm512_setzero_si512();
  // Where a whole block's sum belongs both are added: sa, n8, n128, n16.
  const __m512i low = _mm512_maskz_permutexvar_epi32(0x3e3e, _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8), halves);
  const __m512i high = _mm512_maskz_permutexvar_epi32(0x5e5e, _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 12, 12, 12, 12, 12, 12, 12, 12), halves);
  const __m512i sums = _mm512_add_epi32(low, high);
  const __m512i integers = _mm512_sub_epi32(none, _mm512_sllv_epi32(sums, _mm512_setr_epi32(0, 0, 3, 7, 4, 5, 5, 0, 0, 0, 3, 7, 4, 5, 5, 0)));
  const __m512i words = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 8 << 16, 0, 0, 0, 0, 0, 0, 0, 24 << 16 | 16);
  const __m512i with_pairs = _mm512_mask_permutexvar_epi16(integers, 0xc000c000, words, _mm512_sub_epi32(none, halves));
  const __m512 scale = _mm512_insertf32x8(_mm512_set1_ps(batch.scales[2 * i]), _mm256_set1_ps(batch.scales[2 * i + 1]), 1);
  const __m512 with_sums = _mm512_mask_mul_ps(_mm512_castsi512_ps(with_pairs), 0x0202, scale, _mm512_cvtepi32_ps(sums));
  const __m512i rest = _mm512_castps_si512(_mm512_mask_mov_ps(with_sums, 0x0101, scale));
  _mm512_store_si512(batch.blocks[i], _mm512_shuffle_i64x2(codes, rest, 0x44));
  if (batch.both[i]) _mm512_store_si512((uint8_t*)batch.blocks[i] + sizeof(Record), _mm512_shuffle_i64x2(codes, rest, 0xee));
}
static void quantize_pairs(PairBatch& batch) {
  find_maxima(batch);
  find_scales(batch);
  for (int i = 0; i < batch.count; i++) store_pair(batch, i);
  batch.count = batch.num_rests = 0;
}

static void quantize_rows_to_int8(QuantizedRows* q, const float* x, size_t x_stride, int32_t row_begin, int32_t row_end, int32_t column_begin, int32_t column_end) {
  const int blocks = num_blocks(q->cols);
  PairBatch batch;
  batch.count = batch.num_rests = 0;
  for (int32_t row = row_begin; row < row_end; ++row) {
    const float* source = x + (size_t)row * x_stride;
    Record* record = reinterpret_cast<Record*>(q->data) + (size_t)(row / kGroupRows) * blocks;
    for (int32_t c = column_begin; c < column_end; c += 64) {
      const int32_t left = column_end - c;
      const int i = batch.count++;
      batch.x[i] = source + c;
      if (left < 64) {
        float* rest = batch.rest[batch.num_rests++];
        for (int v = 0; v < 4; v++) store(rest + 16 * v, left >= 16 * v + 16 ? load(source + c + 16 * v) : left > 16 * v ? load_n(source + c + 16 * v, left - 16 * v) : zero());
        batch.x[i] = rest;
      }
      batch.blocks[i] = record[c / 32].rows + row % kGroupRows;
      batch.both[i] = left > 32;
      if (batch.count == kPairBatch) quantize_pairs(batch);
    }
  }
  if (batch.count > 0) quantize_pairs(batch);
}
#else
static void quantize_rows_to_int8(QuantizedRows* q, const float* x, size_t x_stride, int32_t row_begin, int32_t row_end, int32_t column_begin, int32_t column_end) {
  const int blocks = num_blocks(q->cols);
  for (int32_t row = row_begin; row < row_end; ++row) {
    const float* source = x + (size_t)row * x_stride;
    Record* record = reinterpret_cast<Record*>(q->data) + (size_t)(row / kGroupRows) * blocks;
    for (int32_t c = column_begin; c < column_end; c += 32) quantize_block(record[c / 32].rows + row % kGroupRows, source + c, column_end - c);
  }
}
#endif

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
