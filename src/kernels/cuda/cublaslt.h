// Matrix products through cuBLASLt, which is opened at run time: it is large, and a machine without
// it still serves with our own product.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/api/ops.h"
#include "kernels/api/product_choices.h"
#include "tensor/cuda_device.h"

namespace nereid::kernels::cuda {

// Opens the library on first use: beside this one, then where the loader looks, then the CUDA
// toolkit's usual folder. Logs once which file it took, or that there is none.
bool has_cublaslt();

// "cublasLt" and its version; empty when there is none.
std::string cublaslt_name();

// Enqueues the product. The library's heuristic lists algorithms once per shape and bucket of token
// counts; the first, or the one that set_choices() names, is kept with the stream. Unimplemented
// when the library has none for this shape or alignment, Internal with its reason on failure.
Status run_cublaslt(const Linear& args, CudaStream& stream);

// The numbers of the algorithms that the heuristic lists for the product. Errors as run_cublaslt().
StatusOr<std::vector<std::vector<int32_t>>> list_algorithms(const Linear& args, CudaStream& stream);

// The stream's products are those that `choices` names from now on, where the heuristic lists them.
void set_choices(const ProductChoices& choices, CudaStream& stream);

}  // namespace nereid::kernels::cuda
