// Activations in int8 form: the same bytes on every instruction set, whatever part of a row or how many rows a call covers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "checks.h"
#include "ops/kernels.h"
#include "runtime/cpu-features.h"

using namespace pagoda;
using namespace pagoda::test;

namespace {

struct Activations {
  int rows, cols;
  std::vector<float> x;
};

// Magnitudes from subnormal to near the largest float, rows of zeros and of very small values among them.
Activations random_activations() {
  Activations a = {1 + static_cast<int>(random_bits() % 40), 1 + static_cast<int>(random_bits() % 700), {}};
  for (int r = 0; r < a.rows; r++) {
    const int kind = static_cast<int>(random_bits() % 8), exponent = static_cast<int>(random_bits() % 250) - 125;
    for (int c = 0; c < a.cols; c++) {
      const float value = static_cast<float>(static_cast<int>(random_bits() % 20001) - 10000) * 1e-4f;
      a.x.push_back(kind == 0 ? 0.0f : kind == 1 ? std::ldexp(value, exponent) : value * std::ldexp(1.0f, static_cast<int>(random_bits() % 12)));
    }
  }
  return a;
}

struct alignas(64) Line {
  uint8_t bytes[64];
};
struct Form {
  std::vector<Line> lines;
  QuantizedRows q;
  int lines_per_record, blocks;
  Form(const Kernels& kernels, const Activations& a)
      : lines(kernels.quantized_bytes(RowForm::Int8, a.rows, a.cols) / 64),
        q{lines[0].bytes, a.rows, (a.cols + 31) / 32 * 32, RowForm::Int8},
        lines_per_record(static_cast<int>(kernels.quantized_bytes(RowForm::Int8, 1, 32) / 64)),
        blocks(q.cols / 32) {}
  // A record holds a block of some rows, a line each, and a line that keeps records apart.
  const Line& line(int row, int block) const {
    const int rows = lines_per_record - 1;
    return lines[(static_cast<size_t>(row / rows) * blocks + block) * lines_per_record + row % rows];
  }
  bool operator==(const Form& other) const {
    for (int row = 0; row < q.max_rows; row++) {
      for (int b = 0; b < blocks; b++) if (std::memcmp(&line(row, b), &other.line(row, b), sizeof(Line)) != 0) return false;
    }
    return true;
  }
};

Form whole(const Kernels& kernels, const Activations& a) {
  Form form(kernels, a);
  kernels.quantize_rows(&form.q, a.x.data(), a.cols, 0, a.rows, 0, a.cols);
  return form;
}

// Random runs of rows, each in random runs of columns.
Form in_parts(const Kernels& kernels, const Activations& a) {
  Form form(kernels, a);
  for (int r = 0, rows; r < a.rows; r += rows) {
    rows = std::min(1 + static_cast<int>(random_bits() % 20), a.rows - r);
    for (int c = 0, cols; c < a.cols; c += cols) {
      cols = std::min(32 * (1 + static_cast<int>(random_bits() % 8)), a.cols - c);
      kernels.quantize_rows(&form.q, a.x.data(), a.cols, r, r + rows, c, c + cols);
    }
  }
  return form;
}

}  // namespace

int main() {
  const Kernels& portable = *kernels_portable();
  for (int i = 0; i < 300; i++) {
    const Activations a = random_activations();
    const std::string shape = std::to_string(a.rows) + " x " + std::to_string(a.cols);
    const Form expected = whole(portable, a);
    for (const std::string& name : usable_isas()) {
      const Kernels& kernels = *choose_kernels(name);
      check(whole(kernels, a) == expected, name + ": " + shape);
      check(in_parts(kernels, a) == expected, name + ", in parts: " + shape);
    }
  }
  return end_checks();
}
