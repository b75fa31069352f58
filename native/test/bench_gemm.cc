// Products of activations [m, cols] with a weight [rows, cols], called as a step calls them: at most 256 rows of activations and a
// run of panels at a time. Weights cycle through copies, so that small m reads them from where a whole model's weights come from.
#include <algorithm>
#include <cstring>

#include "bench_common.h"
#include "runtime/memory.h"

namespace pagoda::bench {
namespace {

constexpr int kRowsPerCall = 256;               // as runtime/gemm-phase.cc
constexpr size_t kWeightBytes = size_t{256} << 20;  // far beyond the caches: as when a step goes through a whole model
constexpr double kMacsPerWindow = 4e7;          // per thread: 0.1 to 0.8 ms, as short as the windows of the peaks
constexpr double kBytesPerWindow = 4e6;         // per thread, where memory is the limit

struct Target {
  PeakKind kind;
  double bound;
};
// The shares of issue "Run near the hardware's limit": 4-bit, 8-bit and bf16 products from 32 rows on. Others have a peak, no bound.
Target target_of(const Kernels& kernels, Format format, int m, int threads) {
  const std::string isa = kernels.isa;
  const bool ymm = isa == "avx2", counts = m >= 32 && isa != "portable";
  switch (format) {
    case Format::Q4_0: case Format::Q4_1: case Format::Q4_K: return {PeakKind::FourBit, !counts ? 0 : ymm && threads > 1 ? 0.50 : 0.60};
    case Format::Q8_0: return {PeakKind::EightBit, !counts ? 0 : ymm ? 0.70 : 0.60};
    case Format::BF16: return {PeakKind::Bf16, !counts ? 0 : ymm ? 0.85 : 0.80};
    case Format::F16: case Format::F32: return {PeakKind::Fma, 0};
    default: return {PeakKind::FourBit, 0};
  }
}

}  // namespace

void bench_gemm(const Kernels& kernels, Format format, int cols, int rows, int m, Team& team) {
  const size_t row_bytes = source_row_bytes(format, cols);
  if (row_bytes == 0) return;  // no whole number of blocks: such a weight does not exist in this format
  const int panels = (rows + kPanelRows - 1) / kPanelRows, threads = team.size();
  const size_t panel_bytes = kernels.packed_panel_bytes(format, cols), bytes = panel_bytes * panels;
  const int copies = static_cast<int>(std::max<size_t>(1, kWeightBytes / bytes)), all_panels = panels * copies;

  // One panel of plain numbers (no subnormal scales), everywhere the same: the speed does not depend on the values.
  AlignedBuffer data(bytes * copies + 4096);  // prefetches run past the end
  std::vector<uint8_t> source(row_bytes);
  for (size_t i = 0; i < row_bytes; ++i) source[i] = static_cast<uint8_t>(0x20 + i * 7 % 11);
  const std::vector<const uint8_t*> pointers(kPanelRows, source.data());
  PackedWeight weight = {format, all_panels * kPanelRows, cols, all_panels, panel_bytes, data.data()};
  kernels.pack_panels(&weight, pointers.data(), 0, 1);
  for (int p = 1; p < all_panels; ++p) std::memcpy(data.data() + panel_bytes * p, data.data(), panel_bytes);

  AlignedBuffer x(sizeof(float) * m * cols), quantized(kernels.quantized_bytes(kernels.row_form(format), m, cols));
  for (int i = 0; i < m * cols; ++i) x.floats()[i] = static_cast<float>(i * 7919LL % 2001 - 1000) * 0.001f;
  QuantizedRows q = {quantized.data(), m, cols, kernels.row_form(format)};
  const bool has_form = q.form != RowForm::Float;
  if (has_form) kernels.quantize_rows(&q, x.floats(), cols, 0, m, 0, cols);

  // A window: a run of panels per thread, one after the other through all copies.
  const double macs_per_panel = static_cast<double>(m) * cols * kPanelRows;
  const int wanted = static_cast<int>(m == 1 ? kBytesPerWindow / panel_bytes : kMacsPerWindow / macs_per_panel);
  const int window = std::clamp(wanted, std::min(4, all_panels / threads), all_panels / threads);
  const int num_windows = all_panels / (window * threads);
  const size_t out_stride = static_cast<size_t>(window) * kPanelRows;
  std::vector<AlignedBuffer> outs, scratches;
  for (int t = 0; t < threads; ++t) {
    outs.emplace_back(sizeof(float) * m * out_stride);
    scratches.emplace_back(sizeof(float) * kernels.gemm_scratch_floats(cols));
  }
  int next = 0;
  const auto kernel = [&] {
    const int first = next++ % num_windows * window * threads;
    return team.run([&](int t) {
      PackedWeight part = weight;
      part.data = weight.data + panel_bytes * (first + window * t);
      part.num_panels = window;
      part.rows = window * kPanelRows;
      for (int row = 0; row < m; row += kRowsPerCall) {
        const GemmArgs args = {&part, x.floats(), static_cast<size_t>(cols), has_form ? &q : nullptr, row, std::min(row + kRowsPerCall, m), 0, window, window, outs[t].floats(), out_stride, nullptr, false, scratches[t].floats()};
        kernels.gemm(&args);
      }
    });
  };
  std::atomic<uint64_t> sink{0};
  const double window_bytes = static_cast<double>(panel_bytes) * window * threads, window_macs = macs_per_panel * window * threads;
  Result result = {"gemm", kernels.isa, kFormatNames[static_cast<int>(format)], std::to_string(cols) + "x" + std::to_string(rows), m, threads, "GMAC/s", nullptr, 0};
  if (m == 1) {
    result.unit = "GB/s";
    result.peak_name = "read";
    result.bound = std::string(kernels.isa) == "portable" ? 0 : 0.85;
    measure(result, [&] { return window_bytes / kernel() * 1e-9; }, [&] {
      const int first = next++ % num_windows * window * threads;
      return window_bytes * 1e-9 / team.run([&](int t) { sink.fetch_xor(read_bytes(weight.data + panel_bytes * (first + window * t), panel_bytes * window)); });
    });
    return;
  }
  const Target target = target_of(kernels, format, m, threads);
  const Peak peak = peak_of(kernels.isa, target.kind);
  result.peak_name = peak.name;
  result.bound = target.bound;
  measure(result, [&] { return window_macs / kernel() * 1e-9; }, [&] { return peak.loop ? loop_rate(team, peak) : 0; });
}

}  // namespace pagoda::bench
