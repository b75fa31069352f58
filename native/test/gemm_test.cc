// Checks the gemm part of every kernel table that this CPU can run: packing, dequantization, activation quantization, integer
// and float GEMM, and that results do not depend on how rows and panels are split. Run by `npm run test:native`, or alone:
//   g++ -std=c++17 -O1 -g -fsanitize=address,undefined -ffp-contract=off -I native native/test/gemm_test.cc <objects of native/ops> -o gemm_test
// PAGODA_SHARED=<folder> also compares dequantized rows with golden/quant. Prints "N passed, N failed".
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/kernels.h"
#include "runtime/cpu-features.h"
#include "test/checks.h"

using namespace pagoda;
using namespace pagoda::test;

namespace {

const char* kNames[kNumFormats] = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
const char* name_of(Format f) { return kNames[static_cast<int>(f)]; }
bool is_float(Format f) { return f == Format::F32 || f == Format::F16 || f == Format::BF16; }

float random_float() { return static_cast<float>(static_cast<int>(random_bits() % 2001) - 1000) * 0.001f; }

float f16(const uint8_t* p) {
  uint16_t h;
  memcpy(&h, p, 2);
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  float v = exponent == 31 ? (mantissa ? NAN : INFINITY) : exponent == 0 ? ldexpf(static_cast<float>(mantissa), -24) : ldexpf(static_cast<float>(1024 + mantissa), exponent - 25);
  return h & 0x8000 ? -v : v;
}

// --- the oracle: ggml's dequantize_row loops, written down once more, element by element ---
const int kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const int kFp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
float element(Format format, const uint8_t* row, int k) {
  const int i = k % 32, e = k % 256, low_half = i < 16;
  const auto nibble = [&](const uint8_t* qs) { return low_half ? qs[i] & 15 : qs[i - 16] >> 4; };
  const auto fifth = [&](const uint8_t* qh) { return ((qh[i / 8] >> (i % 8)) & 1) << 4; };
  switch (format) {
    case Format::F32: { float v; memcpy(&v, row + 4 * k, 4); return v; }
    case Format::F16: return f16(row + 2 * k);
    case Format::BF16: { uint32_t u = (row[2 * k] | row[2 * k + 1] << 8); u <<= 16; float v; memcpy(&v, &u, 4); return v; }
    case Format::Q8_0: { const uint8_t* p = row + k / 32 * 34; return static_cast<float>(static_cast<int8_t>(p[2 + i])) * f16(p); }
    case Format::Q4_0: { const uint8_t* p = row + k / 32 * 18; return static_cast<float>(nibble(p + 2) - 8) * f16(p); }
    case Format::Q4_1: { const uint8_t* p = row + k / 32 * 20; const float v = static_cast<float>(nibble(p + 4)) * f16(p); return v + f16(p + 2); }
    case Format::Q5_0: { const uint8_t* p = row + k / 32 * 22; return static_cast<float>((nibble(p + 6) | fifth(p + 2)) - 16) * f16(p); }
    case Format::Q5_1: { const uint8_t* p = row + k / 32 * 24; const float v = static_cast<float>(nibble(p + 8) | fifth(p + 4)) * f16(p); return v + f16(p + 2); }
    case Format::IQ4_NL: { const uint8_t* p = row + k / 32 * 18; return f16(p) * static_cast<float>(kIq4[nibble(p + 2)]); }
    case Format::MXFP4: { const uint8_t* p = row + k / 32 * 17; return ldexpf(1.0f, p[0] - 128) * static_cast<float>(kFp4[nibble(p + 1)]); }
    case Format::Q2_K: {
      const uint8_t* p = row + k / 256 * 84;
      const int n = e / 128, j = e % 128 / 32, l = e % 32;
      const float scale = f16(p + 80) * static_cast<float>(p[e / 16] & 15), min = f16(p + 82) * static_cast<float>(p[e / 16] >> 4);
      const float v = scale * static_cast<float>((p[16 + 32 * n + l] >> (2 * j)) & 3);
      return v - min;
    }
    case Format::Q3_K: {
      const uint8_t* p = row + k / 256 * 110;
      const int n = e / 128, j = e % 128 / 32, l = e % 32, s = e / 16;
      const int low = s < 8 ? p[96 + s] & 15 : p[96 + s - 8] >> 4, high = (p[104 + s % 4] >> (2 * (s / 4))) & 3;
      const int q = ((p[32 + 32 * n + l] >> (2 * j)) & 3) - ((p[l] >> (4 * n + j)) & 1 ? 0 : 4);
      return f16(p + 108) * static_cast<float>((low | high << 4) - 32) * static_cast<float>(q);
    }
    case Format::Q4_K:
    case Format::Q5_K: {
      const int wide = format == Format::Q5_K;
      const uint8_t *p = row + k / 256 * (wide ? 176 : 144), *sc = p + 4, *qs = p + (wide ? 48 : 16);
      const int j = e / 32, l = e % 32;
      const int scale = j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4, min = j < 4 ? sc[j + 4] & 63 : sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
      int q = j % 2 ? qs[j / 2 * 32 + l] >> 4 : qs[j / 2 * 32 + l] & 15;
      if (wide) q |= ((p[16 + l] >> j) & 1) << 4;
      const float v = f16(p) * static_cast<float>(scale) * static_cast<float>(q);
      return v - f16(p + 2) * static_cast<float>(min);
    }
    case Format::Q6_K: {
      const uint8_t* p = row + k / 256 * 210;
      const int n = e / 128, part = e % 128 / 32, l = e % 32;
      const uint8_t *ql = p + 64 * n, *qh = p + 128 + 32 * n;
      const int low = part == 0 ? ql[l] & 15 : part == 1 ? ql[l + 32] & 15 : part == 2 ? ql[l] >> 4 : ql[l + 32] >> 4;
      const int q = (low | ((qh[l] >> (2 * part)) & 3) << 4) - 32;
      return f16(p + 208) * static_cast<float>(static_cast<int8_t>(p[192 + e / 16])) * static_cast<float>(q);
    }
    case Format::IQ4_XS: {
      const uint8_t* p = row + k / 256 * 136;
      const int j = e / 32;
      const int scale = ((p[4 + j / 2] >> (4 * (j % 2))) & 15) | (((p[2] | p[3] << 8) >> (2 * j)) & 3) << 4;
      return f16(p) * static_cast<float>(scale - 32) * static_cast<float>(kIq4[nibble(p + 8 + 16 * j)]);
    }
  }
  return 0;
}

// Where the 16-bit scales of a source block are, so that random bytes can be given sane ones.
std::vector<int> scale_positions(Format f) {
  switch (f) {
    case Format::Q8_0: case Format::Q4_0: case Format::Q5_0: case Format::IQ4_NL: case Format::IQ4_XS: return {0};
    case Format::Q4_1: case Format::Q5_1: case Format::Q4_K: case Format::Q5_K: return {0, 2};
    case Format::Q2_K: return {80, 82};
    case Format::Q3_K: return {108};
    case Format::Q6_K: return {208};
    default: return {};
  }
}
int block_cols(Format f) {
  for (int c : {1, 32, 256}) if (source_row_bytes(f, c) != 0) return c;
  return 0;
}

enum class Fill { Random, Ones };  // Ones: every code bit set, the largest sums
std::vector<uint8_t> source_row(Format f, int cols, Fill fill) {
  std::vector<uint8_t> row(source_row_bytes(f, cols));
  if (f == Format::F32) {
    for (int k = 0; k < cols; ++k) { const float v = random_float(); memcpy(&row[4 * k], &v, 4); }
    return row;
  }
  if (f == Format::F16 || f == Format::BF16) {
    for (int k = 0; k < cols; ++k) { const uint16_t v = static_cast<uint16_t>((random_bits() & 0x83ff) | (f == Format::F16 ? 0x3000 : 0x3c00)); memcpy(&row[2 * k], &v, 2); }
    return row;
  }
  for (auto& byte : row) byte = fill == Fill::Ones ? (f == Format::Q8_0 ? 0x80 : 0xff) : static_cast<uint8_t>(random_bits());
  const int block = block_cols(f), bytes = static_cast<int>(source_row_bytes(f, block));
  for (int b = 0; b < cols / block; ++b) {
    for (int at : scale_positions(f)) { const uint16_t v = static_cast<uint16_t>((random_bits() & 0x83ff) | 0x2000); memcpy(&row[b * bytes + at], &v, 2); }
    if (f == Format::MXFP4) row[b * bytes] = static_cast<uint8_t>(b == 0 ? 0 : b == 1 ? 1 : 118 + random_bits() % 12);
  }
  return row;
}

struct Free { void operator()(void* p) const { free(p); } };
template <typename T> using Aligned = std::unique_ptr<T[], Free>;
template <typename T> Aligned<T> aligned(size_t count) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, count * sizeof(T) + 64) != 0) abort();
  memset(p, 0, count * sizeof(T));
  return Aligned<T>(static_cast<T*>(p));
}

struct Case {
  Format format;
  int rows, cols, m;
  std::vector<std::vector<uint8_t>> source;
  std::vector<float> x;
  std::vector<float> weights;  // [rows][cols] by the oracle
  Case(Format f, int rows, int cols, int m, Fill fill) : format(f), rows(rows), cols(cols), m(m) {
    for (int r = 0; r < rows; ++r) {
      source.push_back(source_row(f, cols, fill));
      for (int k = 0; k < cols; ++k) weights.push_back(element(f, source[r].data(), k));
    }
    for (int i = 0; i < m * cols; ++i) x.push_back(fill == Fill::Ones ? (i / cols % 2 ? -3.0f : 3.0f) : random_float());
    if (fill == Fill::Random) for (int k = 0; k < 32 && k < cols; ++k) x[k] = 0;  // a block of zeros
  }
};

struct Packed {
  PackedWeight weight;
  Aligned<uint8_t> data;
  Packed(const Kernels& kernels, const Case& c) {
    const int panels = (c.rows + kPanelRows - 1) / kPanelRows;
    weight = {c.format, c.rows, c.cols, panels, kernels.packed_panel_bytes(c.format, c.cols), nullptr};
    data = aligned<uint8_t>(weight.panel_bytes * panels);
    weight.data = data.get();
    memset(weight.data, 0xa5, weight.panel_bytes * panels);
    std::vector<const uint8_t*> rows(panels * kPanelRows, nullptr);
    for (int r = 0; r < c.rows; ++r) rows[r] = c.source[r].data();
    for (int p = 0; p < panels; ++p) kernels.pack_panels(&weight, &rows[p * kPanelRows], p, p + 1);
  }
};

constexpr float kUntouched = -12345.0f;
struct Run {
  const Kernels& kernels;
  const Case& c;
  const Packed& packed;
  QuantizedRows q{};
  Aligned<uint8_t> quantized;
  Aligned<float> scratch;
  int stride;
  Run(const Kernels& kernels, const Case& c, const Packed& packed, RowForm form) : kernels(kernels), c(c), packed(packed), stride(packed.weight.num_panels * kPanelRows) {
    scratch = aligned<float>(kernels.gemm_scratch_floats(c.cols));
    if (form == RowForm::Float) return;
    quantized = aligned<uint8_t>(kernels.quantized_bytes(form, c.m, c.cols));
    q = {quantized.get(), c.m, c.cols, form};
    for (int r = c.m - 1; r >= 0; --r) {  // one by one, backwards, in two parts
      const int middle = c.cols / 64 * 32;
      kernels.quantize_rows(&q, c.x.data(), c.cols, r, r + 1, middle, c.cols);
      kernels.quantize_rows(&q, c.x.data(), c.cols, r, r + 1, 0, middle);
    }
  }
  void part(std::vector<float>* out, int row_begin, int row_end, int panel_begin, int panel_end, const float* bias = nullptr, bool accumulate = false) const {
    GemmArgs args = {&packed.weight, c.x.data(), static_cast<size_t>(c.cols), q.data ? &q : nullptr, row_begin, row_end, panel_begin, panel_end, panel_end,
                     out->data(), static_cast<size_t>(stride), bias, accumulate, scratch.get()};
    kernels.gemm(&args);
  }
  std::vector<float> empty() const { return std::vector<float>(static_cast<size_t>(c.m) * stride, kUntouched); }
  std::vector<float> whole() const {
    std::vector<float> out = empty();
    part(&out, 0, c.m, 0, packed.weight.num_panels);
    return out;
  }
};
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0; }

void check_splits(const Run& run, const std::vector<float>& whole, const std::string& what) {
  const int panels = run.packed.weight.num_panels, m = run.c.m, rows = run.c.rows;
  bool clean = true;
  for (int r = 0; r < m; ++r) for (int o = rows; o < run.stride; ++o) clean &= whole[r * run.stride + o] == kUntouched;
  check(clean, what + ": wrote lanes that do not exist");
  std::vector<float> out = run.empty();
  for (int r = 0; r < m; ++r) run.part(&out, r, r + 1, 0, panels);
  check(same_bits(out, whole), what + ": rows one by one differ");
  out = run.empty();
  for (int r = 0, step = 1; r < m; r += step, step = 1 + static_cast<int>(random_bits() % 7)) run.part(&out, r, r + step < m ? r + step : m, 0, panels);
  check(same_bits(out, whole), what + ": rows in random groups differ");
  out = run.empty();
  for (int p = panels - 1; p >= 0; --p) run.part(&out, 0, m, p, p + 1);
  check(same_bits(out, whole), what + ": panels one by one differ");
  std::vector<float> bias;
  for (int o = 0; o < rows; ++o) bias.push_back(random_float());
  out = run.empty();
  for (int r = 0; r < m; ++r) for (int o = 0; o < rows; ++o) out[r * run.stride + o] = static_cast<float>(o - r);
  run.part(&out, 0, m, 0, panels, bias.data(), true);
  bool ok = true;
  for (int r = 0; r < m; ++r) for (int o = 0; o < rows; ++o) {
    const float biased = whole[r * run.stride + o] + bias[o];
    ok &= out[r * run.stride + o] == static_cast<float>(o - r) + biased;
  }
  check(ok, what + ": bias and accumulate");
}

// int8 path against sums in double over the activations that the definition gives.
void check_int8_values(const Run& run, const std::vector<float>& out, const std::string& what) {
  const Case& c = run.c;
  std::vector<double> a(c.cols);
  double worst = 0;
  for (int r = 0; r < c.m; ++r) {
    for (int b = 0; b < c.cols; b += 32) {
      float amax = 0;
      for (int k = b; k < b + 32; ++k) amax = fmaxf(amax, fabsf(c.x[r * c.cols + k]));
      const float inverse = amax > 0 ? 127.0f / amax : 0;
      for (int k = b; k < b + 32; ++k) a[k] = static_cast<double>(amax / 127.0f) * nearbyintf(c.x[r * c.cols + k] * inverse);
    }
    for (int o = 0; o < c.rows; ++o) {
      double sum = 0, size = 0;
      for (int k = 0; k < c.cols; ++k) {
        const double term = a[k] * c.weights[static_cast<size_t>(o) * c.cols + k];
        sum += term;
        size += fabs(term);
      }
      worst = fmax(worst, fabs(sum - out[r * run.stride + o]) / (size + 1e-30));
    }
  }
  // Codes and minimum are summed apart, so a sum of terms of both signs loses a little more than eps * sum |terms|.
  if (!(worst < 4e-6)) printf("  worst relative error %.3g\n", worst);
  check(worst < 4e-6, what + ": values");
}

// bf16 path against sums in double over the activations rounded to nearest even.
void check_bf16_values(const Run& run, const std::vector<float>& out, const std::string& what) {
  const Case& c = run.c;
  double worst = 0;
  for (int r = 0; r < c.m; ++r) for (int o = 0; o < c.rows; ++o) {
    double sum = 0, size = 0;
    for (int k = 0; k < c.cols; ++k) {
      uint32_t bits;
      memcpy(&bits, &c.x[r * c.cols + k], 4);
      bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
      float x;
      memcpy(&x, &bits, 4);
      const double term = static_cast<double>(x) * c.weights[static_cast<size_t>(o) * c.cols + k];
      sum += term;
      size += fabs(term);
    }
    worst = fmax(worst, fabs(sum - out[r * run.stride + o]) / (size + 1e-30));
  }
  if (!(worst < 4e-6)) printf("  worst relative error %.3g\n", worst);
  check(worst < 4e-6, what + ": values");
}

void check_float_values(const Run& run, const std::vector<float>& out, bool fused, const std::string& what) {
  const Case& c = run.c;
  bool ok = true;
  for (int r = 0; r < c.m; ++r) for (int o = 0; o < c.rows; ++o) {
    float acc = 0;
    for (int k = 0; k < c.cols; ++k) {
      const float w = c.weights[static_cast<size_t>(o) * c.cols + k], x = c.x[r * c.cols + k];
      if (fused) acc = fmaf(w, x, acc);
      else { volatile float product = w * x; acc = product + acc; }
    }
    ok &= memcmp(&acc, &out[r * run.stride + o], 4) == 0;
  }
  check(ok, what + ": not the sequential sum");
}

const bool kPortableFused =
#if defined(__aarch64__)
    true;
#else
    false;
#endif

void check_format(Format f, const std::vector<const Kernels*>& tables) {
  struct Shape { int rows, cols; Fill fill; };
  std::vector<Shape> shapes;
  if (is_float(f)) shapes = {{37, 96, Fill::Random}, {16, 48, Fill::Random}, {5, 51, Fill::Random}};
  else if (block_cols(f) == 32) shapes = {{37, 96, Fill::Random}, {16, 352, Fill::Random}, {3, 64, Fill::Ones}};
  else shapes = {{37, 512, Fill::Random}, {3, 256, Fill::Ones}};
  for (const Shape& shape : shapes) {
    for (int m : {1, 2, 3, 4, 5, 7, 8, 16, 23, 33}) {
      if (shape.fill == Fill::Ones && m > 8) continue;
      random_state = 7 + m + shape.cols;
      const Case c(f, shape.rows, shape.cols, m, shape.fill);
      std::vector<float> fused_int8;
      for (const Kernels* kernels : tables) {
        const std::string what = std::string(name_of(f)) + " " + kernels->isa + " rows " + std::to_string(c.rows) + " cols " + std::to_string(c.cols) + " m " + std::to_string(m);
        const bool fused = strcmp(kernels->isa, "portable") != 0 || kPortableFused;
        const Packed packed(*kernels, c);
        if (m == 1) {
          std::vector<float> row(c.cols);
          bool ok = true;
          for (int r = 0; r < c.rows; ++r) {
            kernels->dequantize_row(&packed.weight, r, row.data());
            ok &= memcmp(row.data(), &c.weights[static_cast<size_t>(r) * c.cols], c.cols * 4) == 0;
          }
          check(ok, what + ": dequantize_row");
        }
        const Run float_run(*kernels, c, packed, RowForm::Float);
        const std::vector<float> by_float = float_run.whole();
        check_float_values(float_run, by_float, fused, what + " float");
        check_splits(float_run, by_float, what + " float");
        const RowForm form = kernels->row_form(f);
        if (is_float(f)) {
          check(form == RowForm::Float || (f == Format::BF16 && form == RowForm::Bf16), what + ": form of the activations");
          if (form == RowForm::Float) continue;
          const Run bf16_run(*kernels, c, packed, form);
          const std::vector<float> by_bf16 = bf16_run.whole();
          check_bf16_values(bf16_run, by_bf16, what + " bf16");
          check_splits(bf16_run, by_bf16, what + " bf16");
          continue;
        }
        check(form == RowForm::Int8, what + ": form of the activations");
        const Run int8_run(*kernels, c, packed, RowForm::Int8);
        const std::vector<float> by_int8 = int8_run.whole();
        check_int8_values(int8_run, by_int8, what + " int8");
        check_splits(int8_run, by_int8, what + " int8");
        if (!fused) continue;
        if (!fused_int8.empty()) check(same_bits(by_int8, fused_int8), what + " int8: differs from another instruction set");
        fused_int8 = by_int8;
      }
    }
  }
}

// NaN and infinity must come out, not vanish in the integers; very small blocks count as zeros.
void check_odd_activations(const Kernels& kernels) {
  Case c(Format::Q8_0, 16, 64, 4, Fill::Random);
  c.x[5] = NAN;
  c.x[64 + 5] = INFINITY;
  for (int k = 0; k < 64; ++k) c.x[128 + k] = 1e-38f;
  const Packed packed(kernels, c);
  const Run run(kernels, c, packed, RowForm::Int8);
  const std::vector<float> out = run.whole();
  check(isnan(out[0]), std::string(kernels.isa) + ": NaN activation");
  check(!isfinite(out[16]), std::string(kernels.isa) + ": infinite activation");
  check(out[32] == 0, std::string(kernels.isa) + ": tiny activations");
  check(isfinite(out[48]), std::string(kernels.isa) + ": a row beside odd ones");
}

void check_memory(const Kernels& kernels) {
  for (Format f : {Format::F32, Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q4_K, Format::Q5_K, Format::Q6_K}) {
    const double packed = static_cast<double>(kernels.packed_panel_bytes(f, 4096)), file = 16.0 * static_cast<double>(source_row_bytes(f, 4096));
    check(packed <= 1.05 * file && kernels.packed_panel_bytes(f, 4096) % 64 == 0, std::string(name_of(f)) + ": packed size");
  }
  check(source_row_bytes(Format::Q4_K, 32) == 0 && source_row_bytes(Format::Q8_0, 33) == 0, "source_row_bytes of broken rows");
}

std::string read_file(const std::string& path) {
  std::string content;
  if (FILE* file = fopen(path.c_str(), "rb")) {
    char buffer[65536];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) content.append(buffer, n);
    fclose(file);
  }
  return content;
}
// golden/quant/manifest.json: one type per line, tensors with absolute offsets.
void check_golden(const std::string& folder, const std::vector<const Kernels*>& tables) {
  const std::string manifest = read_file(folder + "/manifest.json");
  for (int i = 0; i < kNumFormats; ++i) {
    const std::string type = kNames[i];
    const size_t line = manifest.find("{\"type\":\"" + type + "\",\"ggmlType\"");
    if (line == std::string::npos) { check(false, "golden: no type " + type); continue; }
    const std::string entry = manifest.substr(line, manifest.find('\n', line) - line), file = read_file(folder + "/" + type + ".gguf");
    struct Tensor { int rows, cols; size_t offset; };
    const auto tensor = [&](const std::string& name) {
      Tensor t = {0, 0, 0};
      const size_t at = entry.find("{\"name\":\"" + name + "\"");
      if (at != std::string::npos) sscanf(entry.c_str() + entry.find("\"shape\"", at), "\"shape\":[%d,%d],\"offset\":%zu", &t.rows, &t.cols, &t.offset);
      return t;
    };
    for (const char* name : {"gauss", "bits"}) {
      const Tensor raw = tensor(name), floats = tensor(std::string(name) + ".f32");
      if (raw.rows == 0) continue;
      const Format f = static_cast<Format>(i);
      Case c(f, 0, raw.cols, 1, Fill::Random);
      c.rows = raw.rows;
      const size_t bytes = source_row_bytes(f, raw.cols);
      for (int r = 0; r < raw.rows; ++r) c.source.emplace_back(file.begin() + raw.offset + r * bytes, file.begin() + raw.offset + (r + 1) * bytes);
      for (const Kernels* kernels : tables) {
        const Packed packed(*kernels, c);
        std::vector<float> row(raw.cols);
        int different = 0;
        for (int r = 0; r < raw.rows; ++r) {
          kernels->dequantize_row(&packed.weight, r, row.data());
          for (int k = 0; k < raw.cols; ++k) {
            float golden;
            memcpy(&golden, file.data() + floats.offset + (static_cast<size_t>(r) * raw.cols + k) * 4, 4);
            different += memcmp(&golden, &row[k], 4) != 0 && !(isnan(golden) && isnan(row[k]));
          }
        }
        check(different == 0, "golden " + type + " " + name + " " + kernels->isa + ": " + std::to_string(different) + " values differ");
      }
    }
  }
}

}  // namespace

int main() {
  std::vector<const Kernels*> tables = {kernels_portable()};
  for (const std::string& name : usable_isas()) if (name != "portable") tables.push_back(choose_kernels(name));
  printf("gemm:");
  for (const Kernels* kernels : tables) printf(" %s", kernels->isa);
  printf("\n");
  const char* only = getenv("PAGODA_TEST_FORMAT");
  for (int i = 0; i < kNumFormats; ++i) if (!only || strcmp(only, kNames[i]) == 0) check_format(static_cast<Format>(i), tables);
  for (const Kernels* kernels : tables) {
    check_odd_activations(*kernels);
    check_memory(*kernels);
  }
  const char* shared = getenv("PAGODA_SHARED");
  if (shared) check_golden(std::string(shared) + "/golden/quant", tables);
  return end_checks();
}
