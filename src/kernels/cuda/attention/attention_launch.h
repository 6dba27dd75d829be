// Launches of the attention kernels other than that in attention.cu.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"
#include "tensor/dtype.h"

namespace nereid::kernels::cuda {

struct AttentionParams;

// Parameters that follow from the input [heads of queries | keys | values] and the cache.
AttentionParams cache_params(const View& x, const Heads& heads, const CacheView& cache);
// Stores keys and values of rows with many tokens or trees, and queries if they are wanted.
cudaError_t launch_store_lines(const AttentionParams& p, DType cache, int num_tokens,
                               cudaStream_t stream);

// Rows of <= few_tokens tokens; writes their keys and values to the cache first.
cudaError_t launch_few_tokens(const AttentionParams& p, DType cache, int num_chunks,
                              cudaStream_t stream);
// Same for rows of one token, and whether a kernel supports them.
bool takes_single_tokens(const AttentionParams& p, DType cache, int sm);
cudaError_t launch_single_tokens(const AttentionParams& p, int num_chunks, cudaStream_t stream);
// Same for rows of one token in steps of few rows, by clusters. cluster_size(): blocks per cluster,
// 0 if another kernel is faster; `keys`: max per row; `takes_single`: of takes_single_tokens().
int cluster_size(const AttentionParams& p, DType cache, int64_t keys, bool takes_single, int sm,
                 int num_units);
cudaError_t launch_clusters(const AttentionParams& p, DType cache, int cluster,
                            cudaStream_t stream);
// Hopper: the other rows, heads of 64 or 128 columns, keys and values in the cache.
cudaError_t launch_many_hopper(const AttentionParams& p, DType cache, dim3 grid,
                               cudaStream_t stream);

// Before launch_many_hopper(), if takes_vectors(): attention.cu's stores by 16 bytes; fills p.wide.
bool takes_vectors(const AttentionParams& p);
cudaError_t launch_store_vectors(const AttentionParams& p, DType cache, int num_tokens,
                                 cudaStream_t stream);

// Latent heads if takes_latent(): all rows, keys in the cache; `most_keys`: max per token.
bool takes_latent(const AttentionParams& p);
cudaError_t launch_latent(const AttentionParams& p, DType cache, int num_tokens, int64_t most_keys,
                          const Scratch& scratch, cudaStream_t stream);
// Kernel of launch_latent() for prompts on Hopper if takes_latent_hopper(): tiles of
// kLatentHopperVectors query vectors, parts in multiples of kLatentHopperKeys keys.
constexpr int kLatentHopperVectors = 64, kLatentHopperKeys = 64;
bool takes_latent_hopper(const AttentionParams& p, int sm);
cudaError_t launch_latent_hopper(const AttentionParams& p, DType cache, int num_tokens, dim3 grid,
                                 cudaStream_t stream);
// Keys per chunk, see AttentionParams::plain_chunks.
constexpr int kPlainChunkKeys = 128;
// Divides the keys of tokens among blocks, if that takes to fill the device and parts fit the
// workspace; parts are [token, head, chunk]. `most_keys`: of a token.
void divide_plain_heads(int64_t num_tokens, int64_t most_keys, const Scratch& scratch,
                        AttentionParams& p);
// If AttentionParams::plain_heads: all rows, keys and values in the cache.
cudaError_t launch_plain_heads(const AttentionParams& p, DType cache, int num_tokens,
                               cudaStream_t stream);

}  // namespace nereid::kernels::cuda
