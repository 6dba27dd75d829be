// Cross attention by attention_plain.cu, and scores of one of its heads; storing of an encoder's
// keys and values by attention.cu.
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
  p.cross_mask = a.step.cross_mask;
  p.cross_mask_words = a.step.cross_mask_words;
  p.out = static_cast<__nv_bfloat16*>(a.out.data);
  p.out_stride = a.out.stride;
  p.scale = a.scale;
  divide_plain_heads(a.q.rows, int64_t{a.step.max_cross_blocks} * a.cache.block_tokens, scratch, p);
  return launch_plain_heads(p, a.cache.type, static_cast<int>(a.q.rows), stream);
}

constexpr int kScoredKeys = 64;  // per block

// One token and kScoredKeys keys of a head; one warp per key.
template <class Cache>
__global__ void score_head(AttentionParams p, int head, float* out, int64_t out_stride) {
  const int64_t token = blockIdx.x;
  const int row = p.row_of_token[token];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = static_cast<int>(blockIdx.y) * kScoredKeys;
  const int end = min(p.cross_lengths ? p.cross_lengths[row] : 0, first + kScoredKeys);
  const float* q = p.qkv + token * p.qkv_stride + static_cast<int64_t>(head) * p.head_dim;
  for (int at = first + static_cast<int>(threadIdx.x) / kWarp; at < end; at += kAttentionWarps) {
    const CellIndex place = place_of(p, row, at, head / (p.num_heads / p.num_kv_heads));
    const auto* key = static_cast<const typename Cache::Cell*>(p.k_cache) + place.first;
    float sum = 0;
    for (int c = lane; c < p.head_dim; c += kWarp) sum += q[c] * Cache::read(key + c);
    sum = warp_sum(sum);
    if constexpr (Cache::kHasScales) sum *= p.k_scales[place.scale];
    if (lane == 0) out[token * out_stride + at] = sum * p.scale;
  }
}

cudaError_t launch_cross_scores(const CrossScores& a, const Scratch&, cudaStream_t stream) {
  AttentionParams p = cache_params(a.q, a.heads, a.cache);
  p.row_of_token = a.step.row_of_token;
  p.block_table = a.step.cross_table;
  p.max_blocks = a.step.max_cross_blocks;
  p.cross_lengths = a.step.cross_lengths;
  p.scale = a.scale;
  const dim3 grid(static_cast<unsigned>(a.q.rows),
                  static_cast<unsigned>((a.out.cols + kScoredKeys - 1) / kScoredKeys));
  auto* const out = static_cast<float*>(a.out.data);
  with_cache(a.cache.type, [&]<class Cache>() {
    score_head<Cache><<<grid, kAttentionThreads, 0, stream>>>(p, a.head, out, a.out.stride);
  });
  return cudaGetLastError();
}

bool takes_scores(const CrossScores& a) {
  return a.cache.layout == KeyLayout::kLines && a.out.cols <= int64_t{65535} * kScoredKeys;
}

cudaError_t launch_store_kv(const StoreKv& a, const Scratch&, cudaStream_t stream) {
  AttentionParams p = cache_params(a.kv, {0, a.heads.num_kv, a.heads.dim}, a.cache);
  p.positions = a.step.positions;
  p.row_of_token = a.step.row_of_token;
  p.block_table = a.step.block_table;
  p.max_blocks = a.step.max_blocks;
  p.cross_lengths = a.step.cross_lengths;
  return launch_store_lines(p, a.cache.type, static_cast<int>(a.kv.rows), stream);
}

}  // namespace

template <>
Row<CrossAttention> row<CrossAttention>() {
  return {launch_cross_attention, has_lines<CrossAttention>};
}

template <>
Row<CrossScores> row<CrossScores>() {
  return {launch_cross_scores, takes_scores};
}

template <>
Row<StoreKv> row<StoreKv>() {
  return {launch_store_kv, has_lines<StoreKv>};
}

}  // namespace nereid::kernels::cuda
