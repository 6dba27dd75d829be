// The kernel of attention_few.cu, which attention.cu launches.
#pragma once

#include <cuda_runtime_api.h>

#include "tensor/dtype.h"

namespace nereid::kernels::cuda {

struct AttentionParams;

// Rows of at most few_tokens tokens, their keys and values written to the cache before.
cudaError_t launch_few_tokens(const AttentionParams& p, DType cache, int num_chunks,
                              cudaStream_t stream);
}  // namespace nereid::kernels::cuda
