// The model's weights in the kernels' packed form. Matrices are read from mapped files (or from float values) and packed once, on
// all threads; small vectors stay plain floats. A weight may be cut into equal parts (experts), each packed on its own.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/kernels.h"
#include "runtime/mapped-file.h"
#include "runtime/memory.h"
#include "runtime/packed-cache.h"
#include "runtime/thread-pool.h"

namespace pagoda {

struct SourcePiece {
  std::string file;
  uint64_t offset = 0;
  uint64_t row_bytes = 0;
  int64_t num_rows = 0;
};

// What JavaScript says about one weight; either `pieces` or `values` holds its content.
struct WeightSource {
  std::string name;
  Format format = Format::F32;
  int32_t rows = 0, cols = 0, num_parts = 1;
  bool is_vector = false;
  std::vector<SourcePiece> pieces;
  std::vector<float> values;
};

struct Matrix {
  Format format = Format::F32;
  int32_t rows = 0, cols = 0;  // of the whole weight
  std::vector<PackedWeight> parts;
};

class WeightStore {
 public:
  WeightStore(const Kernels* kernels, ThreadPool* pool) : kernels_(kernels), pool_(pool) {}

  // Before the first weight: the matrices that come from files are taken from this cache of packed weights, in the order of loading,
  // instead of being packed. The header has been made from their shapes. Only from a pool job. Throws UnusableCache.
  void use_cache(const std::string& path, const std::string& header);
  // The matrices that came from files, packed, in the order of loading: the content of a cache.
  const std::vector<ContentPart>& cacheable() const { return cacheable_; }

  // Appends one weight; its index is the number of weights before. Only from a pool job. Throws std::runtime_error or std::bad_alloc.
  void load(const WeightSource& source);
  // After the last weight. Drops the file mappings; the packed weights stay.
  void finish();

  size_t bytes() const { return arena_.used_bytes() + cached_bytes_; }
  size_t num_weights() const { return matrices_.size(); }
  const Matrix& matrix(int index) const { return matrices_[index]; }
  // Null when weight `index` is a matrix.
  const float* vector(int index) const { return vectors_[index].data; }
  int vector_size(int index) const { return vectors_[index].size; }

 private:
  void load_vector(const WeightSource& source);
  void load_matrix(const WeightSource& source);
  void pack_matrix(Matrix& matrix, const WeightSource& source);
  std::vector<const uint8_t*> source_rows(const WeightSource& source, size_t row_bytes);
  uint8_t* take_cached(size_t bytes);
  void pack_slab(Matrix& matrix, const std::vector<const uint8_t*>& rows, int64_t first_panel, int64_t last_panel);

  struct Vector {
    const float* data = nullptr;
    int size = 0;
  };

  const Kernels* kernels_;
  ThreadPool* pool_;
  Arena arena_;
  std::unordered_map<std::string, std::unique_ptr<MappedFile>> files_;
  std::vector<Matrix> matrices_;  // an empty entry for a vector
  std::vector<Vector> vectors_;  // a null entry for a matrix
  std::vector<ContentPart> cacheable_;
  AlignedBuffer cached_;  // content of the cache in use
  size_t cached_bytes_ = 0, cached_taken_ = 0;
};

}  // namespace pagoda
