// What the gemm kernels of an instruction set have in common.
#pragma once

namespace pagoda {
namespace PAGODA_ISA_NAMESPACE {

#ifdef PAGODA_ISA_AVX512
constexpr bool kSignedBytes = false;  // vpdpbusd multiplies unsigned weights with signed activations
constexpr int kFloatTileRows = 8, kFloatTilePanels = 2;
constexpr int kGroupRows = 16;        // rows of activations that lie together: the height of an AMX tile
#elif defined(PAGODA_ISA_AVX2)
constexpr bool kSignedBytes = true;  // vpmaddubsw saturates: |w| as the unsigned side, the sign moved to the activation
constexpr int kFloatTileRows = 6, kFloatTilePanels = 1;
constexpr int kGroupRows = 4;
#else
constexpr bool kSignedBytes = true;
constexpr int kFloatTileRows = 2, kFloatTilePanels = 1;
constexpr int kGroupRows = 4;
#endif

}  // namespace PAGODA_ISA_NAMESPACE
}  // namespace pagoda
