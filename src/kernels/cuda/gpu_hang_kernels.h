// Kernels of gpu_hang_test. Launch errors: cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

namespace nereid::kernels::testing_only {

// Runs until *stop != 0; `stop` is in memory visible to the device.
void launch_spin(cudaStream_t stream, const int* stop);
void launch_nothing(cudaStream_t stream);

}  // namespace nereid::kernels::testing_only
