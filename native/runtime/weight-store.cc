#include "runtime/weight-store.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "runtime/claims.h"

namespace pagoda {
namespace {
constexpr uint64_t kSlabBytes = uint64_t{48} << 20;  // file bytes packed between two releases of pages
}

void WeightStore::load(const WeightSource& source) {
  if (source.rows < 1 || source.cols < 1 || source.num_parts < 1 || source.rows % source.num_parts != 0) {
    throw std::runtime_error("weight " + source.name + " has an impossible shape");
  }
  if (source.is_vector) load_vector(source);
  else load_matrix(source);
}

void WeightStore::load_vector(const WeightSource& source) {
  const size_t count = static_cast<size_t>(source.rows) * source.cols;
  if (source.values.size() != count) throw std::runtime_error("weight " + source.name + " has " + std::to_string(source.values.size()) + " values, " + std::to_string(count) + " are wanted");
  float* data = reinterpret_cast<float*>(arena_.allocate(count * sizeof(float)));
  std::memcpy(data, source.values.data(), count * sizeof(float));
  matrices_.emplace_back();
  vectors_.push_back({data, static_cast<int>(count)});
}

void WeightStore::use_cache(const std::string& path, const std::string& header) {
  if (num_weights() > 0) throw std::runtime_error("packed weights come before all others");
  cached_ = read_packed_cache(path, header, pool_, &cached_bytes_);
}

uint8_t* WeightStore::take_cached(size_t bytes) {
  if (bytes > cached_bytes_ - cached_taken_) throw std::runtime_error("the packed weights are too short");
  cached_taken_ += bytes;
  return cached_.data() + cached_taken_ - bytes;
}

void WeightStore::finish() {
  files_.clear();
  if (cached_taken_ != cached_bytes_) throw std::runtime_error("the packed weights hold more than the model");
}

void WeightStore::load_matrix(const WeightSource& source) {
  Matrix matrix;
  matrix.format = source.format;
  matrix.rows = source.rows;
  matrix.cols = source.cols;
  if (source_row_bytes(source.format, source.cols) == 0) throw std::runtime_error("weight " + source.name + ": " + std::to_string(source.cols) + " columns do not fit the blocks of its format");
  const bool from_files = source.values.empty();
  const bool is_cached = from_files && cached_.data() != nullptr;
  const int32_t part_rows = source.rows / source.num_parts;
  const int32_t part_panels = (part_rows + kPanelRows - 1) / kPanelRows;
  for (int32_t part = 0; part < source.num_parts; part++) {
    PackedWeight packed{source.format, part_rows, source.cols, part_panels, kernels_->packed_panel_bytes(source.format, source.cols), nullptr};
    const size_t bytes = packed.panel_bytes * part_panels;
    packed.data = is_cached ? take_cached(bytes) : arena_.allocate(bytes);
    if (from_files) cacheable_.push_back({packed.data, bytes});
    matrix.parts.push_back(packed);
  }
  if (!is_cached) pack_matrix(matrix, source);
  matrices_.push_back(std::move(matrix));
  vectors_.push_back({});
}

std::vector<const uint8_t*> WeightStore::source_rows(const WeightSource& source, size_t row_bytes) {
  std::vector<const uint8_t*> rows;
  rows.reserve(source.rows);
  if (!source.values.empty()) {
    if (source.format != Format::F32 || source.values.size() != static_cast<size_t>(source.rows) * source.cols) {
      throw std::runtime_error("weight " + source.name + " has a wrong number of values");
    }
    for (int32_t r = 0; r < source.rows; r++) rows.push_back(reinterpret_cast<const uint8_t*>(source.values.data() + static_cast<size_t>(r) * source.cols));
    return rows;
  }
  for (const SourcePiece& piece : source.pieces) {
    if (piece.row_bytes != row_bytes || piece.num_rows < 1 || piece.num_rows > source.rows) throw std::runtime_error("weight " + source.name + " has a piece of a wrong size");
    std::unique_ptr<MappedFile>& file = files_[piece.file];
    if (!file) file = std::make_unique<MappedFile>(piece.file);
    const uint8_t* data = file->range(piece.offset, static_cast<uint64_t>(piece.num_rows) * row_bytes);
    for (int64_t r = 0; r < piece.num_rows; r++) rows.push_back(data + r * row_bytes);
    if (rows.size() > static_cast<size_t>(source.rows)) break;
  }
  if (rows.size() != static_cast<size_t>(source.rows)) throw std::runtime_error("the pieces of weight " + source.name + " do not add up to " + std::to_string(source.rows) + " rows");
  return rows;
}

void WeightStore::pack_matrix(Matrix& matrix, const WeightSource& source) {
  const size_t row_bytes = source_row_bytes(source.format, source.cols);
  const std::vector<const uint8_t*> rows = source_rows(source, row_bytes);
  const int64_t num_panels = static_cast<int64_t>(matrix.parts[0].num_panels) * source.num_parts;
  const int64_t slab_panels = std::max<int64_t>(1, static_cast<int64_t>(kSlabBytes / (row_bytes * kPanelRows)));
  for (int64_t panel = 0; panel < num_panels; panel += slab_panels) {
    pack_slab(matrix, rows, panel, std::min(panel + slab_panels, num_panels));
    for (const SourcePiece& piece : source.pieces) files_[piece.file]->release(piece.offset, static_cast<uint64_t>(piece.num_rows) * row_bytes);
  }
}

// Each thread packs the run of panels that it multiplies later (claims.h), so that their pages lie in the memory of its NUMA node; of a matrix of several
// slabs, its run of each.
void WeightStore::pack_slab(Matrix& matrix, const std::vector<const uint8_t*>& rows, int64_t first_panel, int64_t last_panel) {
  const int32_t part_rows = matrix.parts[0].rows;
  const int32_t part_panels = matrix.parts[0].num_panels;
  const int num_threads = pool_->num_threads();
  const std::unique_ptr<std::atomic<int64_t>[]> taken(new std::atomic<int64_t>[num_threads * kClaimStride]());
  pool_->parallel([&](int thread) {
    const Claims claims{taken.get(), thread, num_threads};
    const uint8_t* panel_rows[kPanelRows];
    const int64_t total = last_panel - first_panel;
    for (int64_t item = claims.next(total); item >= 0; item = claims.next(total)) {
      const int64_t panel = first_panel + item;
      const int32_t part = static_cast<int32_t>(panel / part_panels);
      const int32_t part_panel = static_cast<int32_t>(panel % part_panels);
      for (int32_t i = 0; i < kPanelRows; i++) {
        const int32_t row = part_panel * kPanelRows + i;
        panel_rows[i] = row < part_rows ? rows[static_cast<size_t>(part) * part_rows + row] : nullptr;
      }
      kernels_->pack_panels(&matrix.parts[part], panel_rows, part_panel, part_panel + 1);
    }
  });
}

}  // namespace pagoda
