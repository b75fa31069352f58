// The body of every kernels-<isa>.cc: includes the kernels once for the instruction set of this unit and fills its table.
// Each *-inl.h lives in namespace pagoda::PAGODA_ISA_NAMESPACE and offers one `static void fill_<part>(Kernels&)`.
#include "kernels.h"
#include "simd.h"
#include "gemm-inl.h"
#if __has_include("elementwise-inl.h")
#include "elementwise-inl.h"
#define PAGODA_HAS_ELEMENTWISE 1
#endif
#if __has_include("attention-inl.h")
#include "attention-inl.h"
#define PAGODA_HAS_ATTENTION 1
#endif

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

static Kernels make_table() {
  Kernels table = {};
  table.isa = PAGODA_ISA_NAME;
  fill_gemm(table);
#ifdef PAGODA_HAS_ELEMENTWISE
  fill_elementwise(table);
#endif
#ifdef PAGODA_HAS_ATTENTION
  fill_attention(table);
#endif
  return table;
}

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
