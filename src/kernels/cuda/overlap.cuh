// Launches that may overlap with the end of the previous kernel (programmatic dependent launch,
// Hopper): for kernels that call wait_for_previous() before they access memory of other kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {

// Compute capability of the current device.
inline int compute_capability() {
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return 10 * major + minor;
}

// More than 48 KiB of a block's shared memory, static included, must be requested. Always requests
// the maximum: a smaller request by another thread could come between request and launch.
inline cudaError_t ask_for_shared(const void* kernel, size_t dynamic_bytes) {
  constexpr size_t kUsualShared = 48 * 1024;
  cudaFuncAttributes has;
  if (const cudaError_t error = cudaFuncGetAttributes(&has, kernel); error != cudaSuccess)
    return error;
  if (has.sharedSizeBytes + dynamic_bytes <= kUsualShared) return cudaSuccess;
  int device = 0, most = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  if (const cudaError_t error =
          cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
      error != cudaSuccess)
    return error;
  most -= static_cast<int>(has.sharedSizeBytes);
  if (has.maxDynamicSharedSizeBytes >= most) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
}

// All kernels of a step request the same L1/shared memory split of an SM: a kernel with another
// split starts only on an empty SM. Up to kMaxGemvRows rows, products read weights through the L1
// cache, which needs the space; with more rows, into shared memory.
// `cluster`: blocks per cluster, with distributed shared memory (Hopper); 1: none.
template <class... Params, class... Args>
cudaError_t launch_overlapped_clusters(void (*kernel)(Params...), int64_t rows, dim3 grid,
                                       unsigned cluster, dim3 block, size_t shared,
                                       cudaStream_t stream, Args... args) {
  constexpr int kHalfShared = 44;            // percent of 228 KiB
  constexpr size_t kMostStatic = 32 * 1024;  // max over all kernels
  if (shared > 48 * 1024 - kMostStatic)
    if (const cudaError_t error = ask_for_shared(reinterpret_cast<const void*>(kernel), shared);
        error != cudaSuccess)
      return error;
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
  attributes[0].val.sharedMemCarveout =
      rows <= kMaxGemvRows ? kHalfShared : cudaSharedmemCarveoutMaxShared;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  attributes[2].id = cudaLaunchAttributeClusterDimension;
  attributes[2].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  // Other devices, newer ones too, run code without wait_for_previous(): PTX for Ampere.
  config.numAttrs = compute_capability() != 90 ? 1 : cluster == 1 ? 2 : 3;
  return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

template <class... Params, class... Args>
cudaError_t launch_overlapped(void (*kernel)(Params...), int64_t rows, dim3 grid, dim3 block,
                              size_t shared, cudaStream_t stream, Args... args) {
  return launch_overlapped_clusters(kernel, rows, grid, 1, block, shared, stream, args...);
}

}  // namespace nereid::kernels::cuda
