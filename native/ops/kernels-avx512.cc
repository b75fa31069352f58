// The kernel table for AVX-512 (F, BW, DQ, VL, VNNI).
// Null when the compiler did not target it; running it on a CPU that lacks it is the caller's mistake.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define PAGODA_ISA_AVX512 1
#define PAGODA_ISA_NAMESPACE isa_avx512
#define PAGODA_ISA_NAME "avx512"
#include "kernels-table-inl.h"

namespace pagoda {
const Kernels* kernels_avx512() {
  static const Kernels table = isa_avx512::make_table();
  return &table;
}
}  // namespace pagoda
#else
#include "kernels.h"

namespace pagoda {
const Kernels* kernels_avx512() { return nullptr; }
}  // namespace pagoda
#endif
