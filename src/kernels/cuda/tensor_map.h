// TMA descriptors (Hopper).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::kernels::cuda {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's cuTensorMapEncodeTiled; null if missing.
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
// between elements of each other dimension. A box row is 128 bytes in the 128-byte swizzle;
// out-of-bounds elements read as 0.
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

// Blocks of a KV cache, array [block, head, line, column] of bf16, or of bytes if kBytes = 1, in
// boxes of `box_lines` lines of 128 bytes; `stride`: elements between blocks.
template <int kBytes>
cudaError_t describe_blocks(const void* cache, int columns, int lines, int heads, int64_t stride,
                            int box_lines, CUtensorMap& map) {
  static_assert(kBytes == 1 || kBytes == 2);
  constexpr cuuint64_t kAnyBlock = 0x7fffffff;
  const auto line_bytes = static_cast<cuuint64_t>(kBytes * columns);
  return describe<4>(kBytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                     cache,
                     {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(lines),
                      static_cast<cuuint64_t>(heads), kAnyBlock},
                     {line_bytes, line_bytes * static_cast<cuuint64_t>(lines),
                      static_cast<cuuint64_t>(kBytes * stride)},
                     {128 / kBytes, static_cast<cuuint32_t>(box_lines), 1, 1}, map);
}

}  // namespace nereid::kernels::cuda
