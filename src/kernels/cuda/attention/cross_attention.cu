// Cross attention by attention_plain.cu; storing of an encoder's keys and values by attention.cu.
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

template <class Op>
bool has_lines(const Op& a) {
  return a.cache.layout == KeyLayout::kLines && a.heads.num <= 65535 && a.heads.dim <= kMaxPlainDim;
}

cudaError_t launch_cross_attention(const CrossAttention& a, const Scratch& scratch,
                                   cudaStream_t stream) {
  if (!is_aligned(a.cache.keys) || !is_aligned(a.cache.values)) return cudaErrorInvalidValue;
  AttentionParams p = cache_params(a.q, a.heads, a.cache);
  p.row_of_token = a.step.row_of_token;
  p.block_table = a.step.cross_table;
  p.max_blocks = a.step.max_cross_blocks;
  p.cross_lengths = a.step.cross_lengths;
  p.out = static_cast<__nv_bfloat16*>(a.out.data);
  p.out_stride = a.out.stride;
  p.scale = a.scale;
  divide_plain_heads(a.q.rows, int64_t{a.step.max_cross_blocks} * a.cache.block_tokens, scratch, p);
  return launch_plain_heads(p, a.cache.type, static_cast<int>(a.q.rows), stream);
}

cudaError_t launch_store_kv(const StoreKv& a, const Scratch&, cudaStream_t stream) {
  AttentionParams p = cache_params(a.kv, {0, a.heads.num_kv, a.heads.dim}, a.cache);
  p.positions = a.step.positions;
  p.row_of_token = a.step.row_of_token;
  p.block_table = a.step.block_table;
  p.max_blocks = a.step.max_blocks;
  return launch_store_lines(p, a.cache.type, static_cast<int>(a.kv.rows), stream);
}

}  // namespace

template <>
Row<CrossAttention> row<CrossAttention>() {
  return {launch_cross_attention, has_lines<CrossAttention>};
}

template <>
Row<StoreKv> row<StoreKv>() {
  return {launch_store_kv, has_lines<StoreKv>};
}

}  // namespace nereid::kernels::cuda
