// Matrix products through cuBLASLt, which is opened at run time: it is large, and a machine without
// it still serves with our own product.
#pragma once

#include "kernels/api/ops.h"
#include "tensor/cuda_device.h"

namespace nereid::kernels::cuda {

// Opens the library on first use: beside this one, then where the loader looks, then the CUDA
// toolkit's usual folder. Logs once which file it took, or that there is none.
bool has_cublaslt();

// Enqueues the product. Algorithms are chosen by the library's heuristic, once per shape and bucket
// of token counts, and kept with the stream. Unimplemented when the library has none for this shape
// or alignment, Internal with its reason on failure.
Status run_cublaslt(const Linear& args, CudaStream& stream);

}  // namespace nereid::kernels::cuda
