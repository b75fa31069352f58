// The kernel table for whatever the compiler targets by default (SSE2 on x86-64, NEON on arm64).
#define PAGODA_ISA_PORTABLE 1
#define PAGODA_ISA_NAMESPACE isa_portable
#define PAGODA_ISA_NAME "portable"
#include "kernels-table-inl.h"

namespace pagoda {
const Kernels* kernels_portable() {
  static const Kernels table = isa_portable::make_table();
  return &table;
}
}  // namespace pagoda
