// The kernel table for CPUs with AMX int8 tiles: the AVX-512 one with another gemm. Null when the compiler did not target it.
#if defined(__AMX_INT8__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define PAGODA_ISA_AVX512 1
#define PAGODA_ISA_NAMESPACE isa_amx
#include <string.h>

#include <algorithm>

#include "gemm-int8-amx-inl.h"

namespace pagoda {
namespace {

// Below so many rows a tile, which costs the same for one row as for sixteen, is slower than vpdpbusd.
constexpr int32_t kLeastRows = 16, kLeastRowsOfLastTile = 12;

void gemm(const GemmArgs* args) {
  const auto rest = kernels_avx512()->gemm;
  const isa_amx::AmxGemm tiles = args->q != nullptr && args->q->form == RowForm::Int8 && args->row_end - args->row_begin >= kLeastRows ? isa_amx::amx_gemm(args->weight->format) : nullptr;
  if (tiles == nullptr) return rest(args);
  const int32_t last = args->row_end % isa_amx::kTileRows;
  GemmArgs part = *args;
  part.row_end = last >= kLeastRowsOfLastTile ? args->row_end : args->row_end - last;
  tiles(part);
  part.row_begin = part.row_end;
  part.row_end = args->row_end;
  if (part.row_begin < part.row_end) rest(&part);
}

}  // namespace

const Kernels* kernels_amx() {
  static const Kernels table = [] {
    Kernels kernels = *kernels_avx512();
    kernels.isa = "amx";
    kernels.gemm = gemm;
    return kernels;
  }();
  return &table;
}
}  // namespace pagoda
#else
#include "kernels.h"

namespace pagoda {
const Kernels* kernels_amx() { return nullptr; }
}  // namespace pagoda
#endif
