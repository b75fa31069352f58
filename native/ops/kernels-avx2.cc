// The kernel table for AVX2 with FMA and F16C.
// Null when the compiler did not target it; running it on a CPU that lacks it is the caller's mistake.
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define PAGODA_ISA_AVX2 1
#define PAGODA_ISA_NAMESPACE isa_avx2
#define PAGODA_ISA_NAME "avx2"
#include "kernels-table-inl.h"

namespace pagoda {
const Kernels* kernels_avx2() {
  static const Kernels table = isa_avx2::make_table();
  return &table;
}
}  // namespace pagoda
#else
#include "kernels.h"

namespace pagoda {
const Kernels* kernels_avx2() { return nullptr; }
}  // namespace pagoda
#endif
