// Descriptions of matrices for the copy engine of Hopper.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace nereid::kernels::cuda {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's cuTensorMapEncodeTiled; null when it has none.
inline EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        result != cudaDriverEntryPointSuccess) {
      cudaGetLastError();
      found = nullptr;
    }
    return reinterpret_cast<EncodeTiled>(found);
  }();
  return function;
}

// Boxes of `box` elements of an array with `sizes`, innermost dimension first; `strides`: bytes
// from one element of each other dimension to the next. Rows of a box are 128 bytes, permuted as
// tensor cores read them (the 128-byte swizzle); what lies outside of the array reads as 0.
template <int kDims>
cudaError_t describe(CUtensorMapDataType type, const void* data, const cuuint64_t (&sizes)[kDims],
                     const cuuint64_t (&strides)[kDims - 1], const cuuint32_t (&box)[kDims],
                     CUtensorMap& map) {
  cuuint32_t steps[kDims];
  for (cuuint32_t& step : steps) step = 1;
  const CUresult result =
      encode_tiled()(&map, type, kDims, const_cast<void*>(data), sizes, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace nereid::kernels::cuda
