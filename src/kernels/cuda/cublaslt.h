// Matrix products by cuBLASLt, opened at run time: it is large, and optional (else launch_plain()).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/api/ops.h"
#include "kernels/api/product_choices.h"
#include "tensor/cuda_device.h"

namespace nereid::kernels::cuda {

// Opens the library on first use: beside this one, then the loader's path, then the default folder
// of the CUDA toolkit. Logs the file found, or its absence.
bool has_cublaslt();

// "cublasLt" and its version; empty if absent.
std::string cublaslt_name();

// Enqueues the product. The heuristic lists algorithms once per shape and bucket of token counts;
// the first, or the one given to set_choices(), is stored with the stream. Unimplemented: no
// algorithm for this shape or alignment; Internal with its reason: failure.
Status run_cublaslt(const Linear& args, CudaStream& stream);

// The algorithms listed by the heuristic for the product, as numbers. Errors as run_cublaslt().
StatusOr<std::vector<std::vector<int32_t>>> list_algorithms(const Linear& args, CudaStream& stream);

// Sets the algorithms of the stream's products, as far as the heuristic lists them.
void set_choices(const AlgorithmChoices& choices, CudaStream& stream);

}  // namespace nereid::kernels::cuda
