// Products of hundreds of rows by Hopper's tensor cores (bands.cu).
#pragma once

#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {

// Whether a product can be one, and whether it takes less time than the library's, as far as is
// known.
bool takes_bands(const Linear& args, int sm);
bool prefers_bands(const Linear& args, const Scratch& scratch);
cudaError_t launch_bands(const Linear& args, const Scratch& scratch, cudaStream_t stream);

}  // namespace nereid::kernels::cuda
