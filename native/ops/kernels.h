// The kernel table: every hot loop behind plain function pointers, one table per instruction set, chosen once at load.
// Kernels know shapes, never models, threads or Node. All of them are deterministic per (row, output): results do not depend
// on how many rows or panels one call covers, so any split over threads or steps gives identical bits.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pagoda {

enum class Format : int32_t {
  F32 = 0, F16 = 1, BF16 = 2, Q8_0 = 3, Q4_0 = 4, Q4_1 = 5, Q5_0 = 6, Q5_1 = 7,
  Q2_K = 8, Q3_K = 9, Q4_K = 10, Q5_K = 11, Q6_K = 12, IQ4_NL = 13, IQ4_XS = 14, MXFP4 = 15,
};
constexpr int kNumFormats = 16;
constexpr int32_t kWeightChunk = 256;  // weights of the vocabulary are summed in chunks of so many ids
constexpr int32_t kChoiceChunk = 192;  // the choice among all tokens goes by chunks of so many ids: 12 panels, whole items of the output layer
constexpr int kPanelRows = 16;  // output rows per panel, on every instruction set

// Bytes of one row of `cols` values in the file's own layout; 0 when cols is no multiple of the format's block.
size_t source_row_bytes(Format format, int64_t cols);

// A weight matrix [rows, cols] in panels of 16 output rows, K-major inside (cpu-kernels.md 4.0 "P16"). Rows beyond `rows` are zero.
struct PackedWeight {
  Format format;
  int32_t rows, cols;
  int32_t num_panels;
  size_t panel_bytes;  // one panel, its scales included; a multiple of 64
  uint8_t* data;       // 64-byte aligned, num_panels * panel_bytes; owned by the caller
};

// In which form a product takes its activations.
//   Int8  in [-127, 127], one float scale per 32 columns (llama.cpp's Q8_0 with a float32 scale), with the block sums that
//         unsigned weights and weights with a minimum need
//   Bf16  rounded to nearest even
enum class RowForm : int32_t { Float = 0, Int8 = 1, Bf16 = 2 };

// Activations in a form of fewer bits. Storage layout is the kernels' own business: the caller only allocates
// quantized_bytes(form, max_rows, cols) (64-byte aligned) and passes it around.
struct QuantizedRows {
  uint8_t* data;
  int32_t max_rows;
  int32_t cols;  // padded to a multiple of 32 with zeros
  RowForm form;
};

// What a thread needs after the products that it computes: their tiles bring it into the second-level cache meanwhile.
struct Upcoming {
  struct Run {
    const uint8_t* data;
    int64_t lines;  // of 64 bytes
  };
  Run *next, *end;  // taken from the front
  int32_t lines_per_block;  // that a tile takes while it works on a block of 32 columns
};

struct GemmArgs {
  const PackedWeight* weight;
  const float* x;             // [m, cols] float activations, used when `q` is null
  size_t x_stride;            // floats between rows of x
  const QuantizedRows* q;     // activations in the form that the weight's format takes, or null for float32 arithmetic
  int32_t row_begin, row_end;  // rows of x / q
  int32_t panel_begin, panel_end;
  int32_t panel_ahead;        // weights up to this panel may be prefetched: the caller goes on with them; at least panel_end
  float* out;                 // out[row * out_stride + panel * 16 + lane]; lanes beyond weight->rows are not written
  size_t out_stride;
  const float* bias;          // [rows] or null, added once after the sum over K
  bool accumulate;            // out += result instead of out = result (residual)
  float* scratch;             // per-thread, gemm_scratch_floats(cols) floats, 64-byte aligned
  Upcoming* upcoming;         // of this thread, or null
};

enum class ActivationKind : int32_t { Silu = 0, Gelu = 1, GeluTanh = 2, Relu = 3 };
enum class KvType : int32_t { F32 = 0, F16 = 1, BF16 = 2, Int8 = 3 };

// Of kChoiceChunk logits: the largest, and the sum of 2^((logit - max) * scale).
struct ChunkSum {
  float max, sum;
};

// Of the weights that are not below a bound, each as a multiple of 2^-34: adding kWeightRounding and taking it away again makes it one.
struct WeightsAbove {
  double sum;  // exact
  int32_t count;
};
constexpr double kWeightRounding = 393216;  // 1.5 * 2^18

struct AttentionArgs;  // attention.h
struct TopValues;      // top-values.h

struct Kernels {
  const char* isa;  // "amx" | "avx512" | "avx2" | "portable"

  // --- gemm (native/ops/gemm*) ---
  // The form that products with this format take where float32 is not asked for: int8 for quantized weights, bf16 for BF16 weights
  // where the CPU is fast at that, else float.
  RowForm (*row_form)(Format format);
  // How many panels the fastest tiles take at once: items of a multiple of them are the best.
  int32_t (*panels_together)(Format format);
  size_t (*packed_panel_bytes)(Format format, int32_t cols);
  // source_rows[r - panel_begin*16] points at row r in the file's layout (null = zero row), for rows of panels [begin, end).
  void (*pack_panels)(PackedWeight* weight, const uint8_t* const* source_rows, int32_t panel_begin, int32_t panel_end);
  // Exact dequantization of one row of a packed weight (embedding look-up), equal to the file's values.
  void (*dequantize_row)(const PackedWeight* weight, int32_t row, float* out);
  size_t (*quantized_bytes)(RowForm form, int32_t max_rows, int32_t cols);
  // Columns [begin, end) of some rows of x: `begin` a multiple of 32, `end` too or the number of columns.
  void (*quantize_rows)(QuantizedRows* q, const float* x, size_t x_stride, int32_t row_begin, int32_t row_end, int32_t column_begin, int32_t column_end);
  size_t (*gemm_scratch_floats)(int32_t cols);
  void (*gemm)(const GemmArgs* args);

  // --- elementwise, attention, sampling (native/ops/elementwise*, attention*, sampling*) ---
  void (*rms_norm)(const float* x, float* out, const float* weight, int32_t cols, int32_t group_cols, float eps);  // one row
  void (*layer_norm)(const float* x, float* out, const float* weight, const float* bias, int32_t cols, float eps);
  void (*gated_activation)(const float* gate, const float* up, float* out, int32_t cols, ActivationKind kind);
  void (*activation)(const float* x, float* out, int32_t cols, ActivationKind kind);
  void (*add)(const float* a, const float* b, float* out, int32_t cols);
  void (*softcap)(float* x, int32_t cols, float cap);
  // Rotates `num_heads` heads in place; cos/sin are [rotary_dim / 2] rows for this position.
  void (*rope)(float* x, int32_t num_heads, int32_t head_dim, int32_t rotary_dim, bool interleaved, const float* cos, const float* sin);
  // Keys and values of some heads of one token; either may be null, then the other is written alone.
  void (*kv_write)(uint8_t* block_layer, int32_t block_size, int32_t offset, const float* k, const float* v, int32_t num_kv_heads, int32_t head_dim, KvType type);
  void (*attention)(const AttentionArgs* args);
  // Whether attention multiplies pairs of bf16 where the cache is bf16, rather than float32.
  bool (*has_bf16_attention)();
  // Merges partial results of attention over `num_segments` segments, in order (attention.h).
  void (*merge_attention)(const AttentionArgs* args, int32_t num_segments);
  // Offers n values, of the ids from `first_id` on, to the best ones seen so far.
  void (*keep_top)(const float* x, int32_t n, int32_t first_id, TopValues* top);
  // weights[i] = exp((x[i] - max) / temperature) in double precision, the same bits on every instruction set (sampling-inl.h).
  void (*exact_weights)(const double* x, int32_t n, double max, double temperature, double* weights);
  // Sums of the weights of kWeightChunk logits each, without storing the weights.
  void (*weight_sums)(const float* x, int32_t n, double max, double temperature, double* sums);
  WeightsAbove (*weights_above)(const double* weights, int32_t n, double least);
  // The chunks of n logits from the start of one on, and the weights of one chunk's logits: in float32, the same bits on every
  // instruction set (src/device/reference/choose-in-chunks.ts).
  void (*sum_chunks)(const float* x, int32_t n, float scale, ChunkSum* chunks);
  void (*chunk_weights)(const float* x, int32_t n, float max, float scale, float* weights);
};

const Kernels* kernels_amx();       // null when the compiler did not build it
const Kernels* kernels_avx512();
const Kernels* kernels_avx2();
const Kernels* kernels_portable();  // never null

// Fill the gemm part of a table (defined once per instruction set by gemm-inl.h); kernels-<isa>.cc calls both.
}  // namespace pagoda
