// Kernels of gpu_hang_test. Errors of the launch: cudaGetLastError().
#pragma once

#include <cuda_runtime_api.h>

namespace nereid::kernels::testing_only {

// Runs until *stop, in memory that the device sees, is not 0.
void launch_spin(cudaStream_t stream, const int* stop);
void launch_nothing(cudaStream_t stream);

}  // namespace nereid::kernels::testing_only
