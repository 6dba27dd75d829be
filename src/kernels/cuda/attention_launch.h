// The kernels beside the one of attention.cu, which launches them.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"
#include "tensor/dtype.h"

namespace nereid::kernels::cuda {

struct AttentionParams;

// Rows of at most few_tokens tokens; writes their keys and values to the cache first.
cudaError_t launch_few_tokens(const AttentionParams& p, DType cache, int num_chunks,
                              cudaStream_t stream);
// Rows of one token, likewise, and whether there is a kernel for them.
bool takes_single_tokens(const AttentionParams& p, DType cache, int sm);
cudaError_t launch_single_tokens(const AttentionParams& p, int num_chunks, cudaStream_t stream);
// Rows of one token, likewise, of a step with few rows: by clusters of so many blocks, 0 where
// another kernel is quicker; `keys`: the most of a row, `takes_single`: launch_single_tokens()
// would take them.
int cluster_size(const AttentionParams& p, DType cache, int64_t keys, bool takes_single, int sm,
                 int num_units);
cudaError_t launch_clusters(const AttentionParams& p, DType cache, int cluster,
                            cudaStream_t stream);
// On Hopper: the other rows, of heads of 64 or 128 columns, their keys and values in the cache.
cudaError_t launch_many_hopper(const AttentionParams& p, DType cache, dim3 grid,
                               cudaStream_t stream);

// In front of it, where takes_vectors(): what the kernel of attention.cu stores, 16 bytes at a
// time, and AttentionParams::wide.
bool takes_vectors(const AttentionParams& p);
cudaError_t launch_store_vectors(const AttentionParams& p, DType cache, int num_tokens,
                                 cudaStream_t stream);

// Latent heads where takes_latent(): all rows, their keys in the cache; `most_keys`: of a token.
bool takes_latent(const AttentionParams& p);
cudaError_t launch_latent(const AttentionParams& p, DType cache, int num_tokens, int64_t most_keys,
                          const Scratch& scratch, cudaStream_t stream);
// The kernel that launch_latent() takes for prompts on Hopper where takes_latent_hopper(): tiles of
// kLatentHopperVectors query vectors, parts of keys in multiples of kLatentHopperKeys.
constexpr int kLatentHopperVectors = 64, kLatentHopperKeys = 64;
bool takes_latent_hopper(const AttentionParams& p, int sm);
cudaError_t launch_latent_hopper(const AttentionParams& p, DType cache, int num_tokens, dim3 grid,
                                 cudaStream_t stream);
// Keys of a chunk, see AttentionParams::plain_chunks.
constexpr int kPlainChunkKeys = 128;
// Where AttentionParams::plain_heads: all rows, their keys and values in the cache.
cudaError_t launch_plain_heads(const AttentionParams& p, DType cache, int num_tokens,
                               cudaStream_t stream);

}  // namespace nereid::kernels::cuda
