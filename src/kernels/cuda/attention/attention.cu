// Paged attention of mixed steps. Rows of few tokens: attention_few.cu (Hopper: one token and an
// f8e4m3 cache: attention_single.cu; few such rows: attention_cluster.cu). Other rows (prompts and
// their chunks): the kernel here, after a kernel that stores their keys and values. A block has up
// to 128 query vectors that share a KV head (tokens x heads of the group), 32 per warp, and
// iterates over their keys in tiles of 64. Heads of 64 and 128 columns: attention_hopper.cu on
// Hopper; latent heads: attention_latent.cu; heads of other widths: attention_plain.cu. Queries and
// weights are rounded to bf16. Rows with draft trees: here, in tiles of one token, whose keys are
// read in the order of positions from the cells of its path. A query's result does not depend on
// other rows or chunks, except through the choice of kernel.
#include <algorithm>
#include <cstddef>

#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_products.cuh"
#include "kernels/cuda/attention/attention_wide.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kKeys = 64;   // per tile
constexpr int kSlices = 2;  // of 16 keys, between two updates of the running maximum
// Tiles of 16 query vectors per warp, limited by registers.
template <int kDim>
constexpr int kTiles = kDim <= 128 ? 2 : 1;
constexpr int vectors_of(int head_dim) { return head_dim <= 128 ? 128 : 64; }  // per block
constexpr int kChunkKeys = 64;                    // min keys per block, few tokens
constexpr int kMaxChunks = 256;                   // per row
constexpr int kFewBlocks = 4, kSingleBlocks = 4;  // resident per SM
constexpr int kStoreThreads = 256;
constexpr int kManyStored = 512;        // tokens whose blocks fill a device
constexpr int kFewRows = 32;            // limit of AttentionParams::heads_first
constexpr int kMaxTileDim = 256;        // widest head of the tile kernels;
constexpr int kVectorColumns = 8;       // head widths are multiples of a 16-byte load of bf16
constexpr unsigned kMostTiles = 65535;  // max grid.y

// Rotates a query head, scales it for a base-2 softmax and writes it as bf16 to the location of its
// result; one warp.
__device__ void store_query(const AttentionParams& p, int64_t token, int head) {
  const int position = p.positions[token];
  const float factor = p.scale * kLog2E;
  const int64_t first = static_cast<int64_t>(head) * p.head_dim;
  __nv_bfloat16* const out = p.out + token * p.out_stride + first;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < p.head_dim / 2; i += kWarp) {
    const int2 at = columns(p, i);
    const float2 pair = load_pair(p, p.qkv + token * p.qkv_stride + first, i, position);
    out[at.x] = __float2bfloat16_rn(pair.x * factor);
    out[at.y] = __float2bfloat16_rn(pair.y * factor);
  }
}

// One warp per head of a token: keys, values (unless they are part of the keys) and, if stored,
// queries. Grid [token, share of the heads].
template <class Cache>
__global__ void __launch_bounds__(kStoreThreads) store_kernel(AttentionParams p) {
  let_next_begin();
  wait_for_previous();
  const int64_t token = blockIdx.x;
  const int row = p.row_of_token[token];
  if (p.few_tokens > 0 && p.row_begin[row + 1] - p.row_begin[row] <= p.few_tokens &&
      !has_tree(p, row))
    return;
  if (p.cross_lengths && p.positions[token] >= p.cross_lengths[row]) return;
  const int lines = (p.latent > 0 ? 1 : 2) * p.num_kv_heads;
  const int heads = lines + (p.stores_queries ? p.num_heads : 0);
  constexpr int kWarps = kStoreThreads / kWarp;
  const int first = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / kWarp;
  for (int i = first; i < heads; i += static_cast<int>(gridDim.y) * kWarps)
    if (i >= lines)
      store_query(p, token, i - lines);
    else
      store_token<Cache>(p, token, row, i % p.num_kv_heads, i >= p.num_kv_heads);
}

template <class Cache, int kDim>
struct TileMemory {
  static constexpr int kWide = 2 * Lines<kDim>::bytes(kKeys);  // keys, then values
  static constexpr int kStage = Cache::kHasScales ? 2 * kKeys * kDim : kWide;
  static constexpr int kQueries = Lines<kDim>::bytes(vectors_of(kDim));
  static constexpr int kBytes = kQueries + kStage + (Cache::kHasScales ? kWide : 0);
};

// Loads keys and values [first, first + kKeys) of the range, with scales.
template <class Cache, int kDim>
__device__ void fetch(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                      int first, uint8_t* stage, float (*scales)[kKeys]) {
  constexpr int kLine = Cache::kHasScales ? kDim : Lines<kDim>::kPitch;
  constexpr int kParts = 8;  // threads per line
#pragma unroll
  for (int i = 0; i < kKeys; i += kAttentionThreads / kParts) {
    const int line = i + static_cast<int>(threadIdx.x) / kParts, key = first + line;
    const bool valid = key < range.count;
    const CellIndex place = place_of(p, tile, range.position(valid ? key : range.count - 1));
    const int part = static_cast<int>(threadIdx.x) % kParts;
    fetch_line<Cache, kDim>(p, p.k_cache, place.first, valid, part, kParts, stage + line * kLine);
    fetch_line<Cache, kDim>(p, p.v_cache, place.first, valid, part, kParts,
                            stage + TileMemory<Cache, kDim>::kStage / 2 + line * kLine);
    if constexpr (Cache::kHasScales)
      if (part == 0) {
        scales[0][line] = valid ? p.k_scales[place.scale] : 0.0f;
        scales[1][line] = valid ? p.v_scales[place.scale] : 0.0f;
      }
  }
}

// One warp: keys [first, first + 16 * kSlices) of the range, with lines at `keys` and `values`.
template <class Cache, int kDim>
__device__ void attend_keys(const AttentionParams& p, const KeyRange& range, const uint8_t* queries,
                            const QueryLimits (&limits)[kTiles<kDim>][2], int first,
                            bool all_visible, const uint8_t* keys, const uint8_t* values,
                            const float* key_scales, const float* value_scales,
                            WarpState<kTiles<kDim>, kDim>& state) {
  const int lane = threadIdx.x % kWarp;
  float scores[kTiles<kDim>][2 * kSlices][4];
  score<kTiles<kDim>, kSlices, kDim, false>(queries, nullptr, keys, scores);
#pragma unroll
  for (int t = 0; t < kTiles<kDim>; ++t) {
    if constexpr (Cache::kHasScales) {
#pragma unroll
      for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
        for (int r = 0; r < 4; ++r) scores[t][s][r] *= key_scales[8 * s + 2 * (lane % 4) + r % 2];
    }
    if (!all_visible)
      judge<kSlices>(
          p, is_plain(p), limits[t], range.count - first,
          [&](int i) { return range.position(first + i); }, scores[t]);
    weigh<kSlices, kDim>(scores[t], state.largest[t], state.sum[t], state.value[t]);
    if constexpr (Cache::kHasScales) {
#pragma unroll
      for (int s = 0; s < 2 * kSlices; ++s)
#pragma unroll
        for (int r = 0; r < 4; ++r) scores[t][s][r] *= value_scales[8 * s + 2 * (lane % 4) + r % 2];
    }
  }
  add_values<kTiles<kDim>, kSlices, kDim, false>(scores, values, state.value);
}

template <class Cache, int kDim>
__global__ void __launch_bounds__(kAttentionThreads) many_tokens_kernel(AttentionParams p) {
  using Memory = TileMemory<Cache, kDim>;
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ float scales[2][2][kKeys];
  let_next_begin();
  wait_for_previous();
  QueryTile tile;
  if (!find_many(p, tile)) return;
  uint8_t* const fetched = memory + Memory::kQueries;
  uint8_t* const wide = fetched + Memory::kStage;
  const auto last_seen = [&](int64_t token) { return last_of(p, tile.row, p.positions[token]); };
  const int last_position = last_seen(tile.first_token + tile.tokens - 1);
  const KeyRange range = keys_of(p, p.positions[tile.first_token], last_position);
  fetch<Cache, kDim>(p, tile, range, 0, fetched, scales[0]);
  end_copies();
  load_queries<kDim, false>(p, tile, vectors_of(kDim), memory, nullptr);

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  QueryLimits limits[kTiles<kDim>][2];
#pragma unroll
  for (int t = 0; t < kTiles<kDim>; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int m = (warp * kTiles<kDim> + t) * 16 + 8 * h + lane / 4;
      const bool exists = m < tile.vectors();
      limits[t][h] = {exists ? last_seen(tile.token(m)) : -1,
                      exists ? slope_of(p, tile.head(m)) : 0};
    }
  // The warp's first and last token; keys after the last are skipped.
  const int first_vector = warp * kTiles<kDim> * 16;
  const bool has_work = first_vector < tile.vectors();
  const int last_vector = min(first_vector + kTiles<kDim> * 16, tile.vectors()) - 1;
  const int warp_first = has_work ? last_seen(tile.token(first_vector)) : 0;
  const int warp_end =
      has_work ? range.count - (last_position - last_seen(tile.token(last_vector))) : 0;
  const bool plain = is_plain(p);
  const uint8_t* const queries = memory + first_vector * Lines<kDim>::kPitch;

  WarpState<kTiles<kDim>, kDim> state;
  state.clear();
  for (int first = 0, slot = 0; first < range.count; first += kKeys, slot ^= 1) {
    const auto fetch_next = [&] {
      if (first + kKeys < range.count)
        fetch<Cache, kDim>(p, tile, range, first + kKeys, fetched, scales[slot ^ 1]);
      end_copies();
    };
    wait_for_copies<0>();
    __syncthreads();  // the tile is loaded; all warps have finished the previous one
    const uint8_t* lines = fetched;
    if constexpr (Cache::kHasScales) {
      for (int i = threadIdx.x; i < 2 * kKeys * kDim / 8; i += kAttentionThreads)
        widen_8<Cache>(lines + i / (kDim / 8) * kDim, wide + i / (kDim / 8) * Lines<kDim>::kPitch,
                       i % (kDim / 8));
      __syncthreads();
      fetch_next();
      lines = wide;
    }
#pragma unroll
    for (int at = 0; at < kKeys; at += 16 * kSlices)
      if (first + at < warp_end)
        attend_keys<Cache, kDim>(p, range, queries, limits, first + at,
                                 plain && first + at + 16 * kSlices <= warp_first + 1,
                                 lines + Lines<kDim>::bytes(at),
                                 lines + Lines<kDim>::bytes(kKeys + at), scales[slot][0] + at,
                                 scales[slot][1] + at, state);
    if constexpr (!Cache::kHasScales) {
      __syncthreads();
      fetch_next();
    }
  }
#pragma unroll
  for (int t = 0; t < kTiles<kDim>; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int m = first_vector + 16 * t + 8 * h + lane / 4;
      const float sum = row_sum(state.sum[t][h]);
      if (m < tile.vectors())
        write_vector<kDim>(p, tile, m, h, state.largest[t][h], sum, state.value[t]);
    }
}

template <class Cache, int kDim>
cudaError_t enqueue(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  const auto kernel = many_tokens_kernel<Cache, kDim>;
  constexpr int kBytes = TileMemory<Cache, kDim>::kBytes;
  return launch_overlapped(kernel, kMaxGemvRows + 1, grid, kAttentionThreads, kBytes, stream, p);
}

template <class Cache>
cudaError_t enqueue_dim(const AttentionParams& p, dim3 grid, cudaStream_t stream) {
  if (p.head_dim <= 64) return enqueue<Cache, 64>(p, grid, stream);
  if (p.head_dim <= 96) return enqueue<Cache, 96>(p, grid, stream);
  if (p.head_dim <= 128) return enqueue<Cache, 128>(p, grid, stream);
  return enqueue<Cache, 256>(p, grid, stream);
}

bool is_for_hopper(const AttentionParams& p, int sm) {
  return sm == 90 && !p.plain_heads && !p.bidirectional && p.latent == 0 &&
         (p.head_dim == 64 || p.head_dim == 128) && p.wide_lines && p.out_stride % 8 == 0 &&
         is_aligned(p.out);
}

// bf16 copies of an 8-bit cache's keys and values for attention_hopper.cu: behind the workspace,
// and the workspace itself if no row of few tokens uses it.
void place_wide_blocks(const Attention& a, const Scratch& scratch, AttentionParams& p) {
  if (a.cache.type == DType::kBF16 || p.window > 0 || p.after || a.qkv.rows < kWideTokens ||
      !is_for_hopper(p, scratch.sm) || !takes_vectors(p))
    return;
  const bool is_alone =
      !p.has_neighbour &&
      static_cast<std::byte*>(scratch.workspace) + scratch.workspace_bytes == scratch.unpacked;
  const int64_t bytes =
      kUnpackedBytes + (is_alone ? static_cast<int64_t>(scratch.workspace_bytes) : 0);
  // elements of a block's keys
  const int64_t numbers = int64_t{kWideLines} * p.num_kv_heads * p.head_dim;
  p.wide = static_cast<__nv_bfloat16*>(is_alone ? scratch.workspace : scratch.unpacked);
  p.wide_blocks = static_cast<int>(bytes / (2 * numbers * int64_t{sizeof(__nv_bfloat16)}));
}

// Stores keys and values of rows with many tokens or trees.
template <class Cache>
cudaError_t launch_store(const AttentionParams& p, int num_tokens, cudaStream_t stream) {
  // Few tokens: more blocks, to fill the device.
  const dim3 blocks(static_cast<unsigned>(num_tokens), num_tokens < kManyStored ? 4 : 1);
  return launch_overlapped(store_kernel<Cache>, num_tokens, blocks, kStoreThreads, 0, stream, p);
}

// `tile_tokens`: max tokens per tile.
template <class Cache>
cudaError_t launch_tiles(AttentionParams p, DType cache, int num_tokens, int tile_tokens,
                         cudaStream_t stream) {
  const int group = p.num_heads / p.num_kv_heads;
  p.tile_vectors = p.stores_queries ? kHopperVectors : vectors_of(p.head_dim);
  p.tile_tokens = std::min(tile_tokens, p.tile_vectors / std::min(group, p.tile_vectors));
  const auto tiles = static_cast<unsigned>(num_tokens / p.tile_tokens + p.num_rows);
  const auto heads =
      static_cast<unsigned>(p.num_kv_heads * ((group + p.tile_vectors - 1) / p.tile_vectors));
  // SMs finish at about the same time if the longest blocks of all heads start first. Not with many
  // rows: the empty blocks of few-token rows could then all come last.
  p.heads_first = p.stores_queries && p.num_rows <= kFewRows && tiles <= kMostTiles;
  const dim3 grid(p.heads_first ? heads : tiles, p.heads_first ? tiles : heads);
  if (p.stores_queries) return launch_many_hopper(p, cache, grid, stream);
  return enqueue_dim<Cache>(p, grid, stream);
}

// Stores keys and values of rows with many tokens or trees, then computes their results.
template <class Cache>
cudaError_t launch_many_tokens(AttentionParams p, DType cache, int num_tokens, int tile_tokens,
                               int sm, cudaStream_t stream) {
  p.stores_queries = is_for_hopper(p, sm);
  const cudaError_t stored = p.stores_queries && takes_vectors(p)
                                 ? launch_store_vectors(p, cache, num_tokens, stream)
                                 : launch_store<Cache>(p, num_tokens, stream);
  if (stored != cudaSuccess) return stored;
  if (p.plain_heads) return launch_plain_heads(p, cache, num_tokens, stream);
  const cudaError_t error = launch_tiles<Cache>(p, cache, num_tokens, tile_tokens, stream);
  if (error != cudaSuccess || !p.after) return error;
  p.in_trees = true;
  return launch_tiles<Cache>(p, cache, num_tokens, 1, stream);
}

cudaError_t launch_many_tokens(const AttentionParams& p, DType cache, int num_tokens,
                               int tile_tokens, int sm, cudaStream_t stream) {
  return with_cache(cache, [&]<class Cache>() {
    return launch_many_tokens<Cache>(p, cache, num_tokens, tile_tokens, sm, stream);
  });
}

AttentionParams params_of(const Attention& a) {
  const int group = a.heads.num / a.heads.num_kv;
  AttentionParams p = cache_params(a.qkv, a.heads, a.cache);
  p.rope_table = is_given(a.angles) ? a.angles.data : nullptr;
  p.positions = a.step.positions;
  p.row_begin = a.step.row_begin;
  p.row_of_token = a.step.row_of_token;
  p.block_table = a.step.block_table;
  p.after = a.step.after;
  p.cells = a.step.cells;
  p.out = static_cast<__nv_bfloat16*>(a.out.data);
  p.out_stride = a.out.stride;
  p.num_rows = a.step.num_rows;
  p.max_blocks = a.step.max_blocks;
  p.window = a.bidirectional ? 0 : a.cache.window;
  p.sink = a.cache.sink;
  p.chunk = chunk_of(a);
  p.bidirectional = a.bidirectional;
  p.last = a.bidirectional ? a.step.last : nullptr;
  p.bias = is_given(a.bias) ? static_cast<const float*>(a.bias.data) : nullptr;
  p.bias_first = a.bias_first;
  p.bias_width = a.bias_width;
  p.heads_per_block = std::min(group, kFewVectors);
  p.head_blocks = (group + p.heads_per_block - 1) / p.heads_per_block;
  p.plain_heads =
      p.latent > 0 || p.head_dim > kMaxTileDim || p.head_dim % kVectorColumns != 0 || p.bias;
  p.few_tokens = p.plain_heads || p.bidirectional ? 0 : kFewVectors / p.heads_per_block;
  p.scale = a.scale;
  p.cap = a.cap;
  p.alibi = a.alibi;
  p.alibi_scale = a.alibi_scale;
  p.alibi_first = a.alibi_first;
  p.alibi_heads = 1;
  const int all_heads = a.alibi_heads > 0 ? a.alibi_heads : p.num_heads;
  while (p.alibi_heads <= all_heads / 2) p.alibi_heads *= 2;
  p.sinks = is_given(a.sinks) ? static_cast<const __nv_bfloat16*>(a.sinks.data) : nullptr;
  p.rotated = static_cast<int>(a.angles.cols);
  p.interleaved = a.interleaved;
  return p;
}

// Max keys of a row of few tokens.
int64_t most_keys(const Attention& a, const AttentionParams& p) {
  const int64_t most = int64_t{a.step.max_blocks} * a.cache.block_tokens;
  if (p.window == 0) return most;
  return std::min<int64_t>(most, int64_t{p.window} + p.sink + p.few_tokens);
}

// Splits the keys of few-token rows among blocks, as finely as the workspace allows. Returns the
// number of parts. `one_token`: all rows have one token; `blocks`: resident blocks per SM.
int divide_keys(const Attention& a, bool one_token, int blocks, const Scratch& scratch,
                AttentionParams& p) {
  const int64_t most = most_keys(a, p);
  const int64_t groups = int64_t{p.num_rows} * p.num_kv_heads * p.head_blocks;
  p.part_vectors = one_token ? p.heads_per_block : kFewVectors;
  const int64_t part_bytes =
      int64_t{p.part_vectors} * (p.head_dim * int64_t{sizeof(float)} + int64_t{sizeof(float2)});
  const int64_t room =
      std::min<int64_t>((static_cast<int64_t>(scratch.workspace_bytes) - int64_t{sizeof(float2)}) /
                            (groups * part_bytes),
                        kMaxChunks);
  // Enough blocks to fill the device and no more: each has a fixed cost.
  const int blocks_per_unit = p.num_rows <= kMaxGemvRows ? 2 : blocks;
  const int64_t wanted = std::max<int64_t>(1, blocks_per_unit * scratch.num_units / groups);
  int64_t chunk = kChunkKeys;
  while (chunk < most && (most + chunk - 1) / chunk > std::min(room, wanted)) chunk += kChunkKeys;
  if (groups > scratch.num_counters) chunk = std::max(chunk, most);
  const int64_t chunks = (most + chunk - 1) / chunk;
  p.chunk_keys = static_cast<int>(chunk);
  p.part_sums = static_cast<float2*>(scratch.workspace);
  // part_values is read in float4s: pad to an even number of float2s.
  p.part_values =
      reinterpret_cast<float*>(p.part_sums + (groups * chunks * p.part_vectors + 1) / 2 * 2);
  p.counters = scratch.counters;
  return static_cast<int>(chunks);
}

bool has_aligned_cache(const Attention& a) {
  return is_aligned(a.cache.keys) && is_aligned(a.cache.values);
}

}  // namespace

AttentionParams cache_params(const View& x, const Heads& heads, const CacheView& cache) {
  AttentionParams p = {};
  p.qkv = static_cast<const float*>(x.data);
  p.qkv_stride = x.stride;
  p.k_cache = cache.keys;
  p.v_cache = cache.values;
  p.k_scales = cache.key_scales;
  p.v_scales = cache.value_scales;
  p.block_stride = cache.block_stride;
  p.scale_stride = cache.scale_stride;
  p.num_heads = heads.num;
  p.num_kv_heads = heads.num_kv;
  p.head_dim = heads.dim;
  p.latent = heads.latent;
  p.block_tokens = cache.block_tokens;
  p.wide_lines = heads.dim % 16 == 0 && cache.block_stride % 16 == 0;
  return p;
}

cudaError_t launch_store_lines(const AttentionParams& p, DType cache, int num_tokens,
                               cudaStream_t stream) {
  return with_cache(cache,
                    [&]<class Cache>() { return launch_store<Cache>(p, num_tokens, stream); });
}

// Rows of few tokens after prompts on Hopper: their kernel is launched once each block of the
// prompts' kernel has started (all earlier kernels have ended), runs beside it in the remaining
// resources, and waits for it at its end.
cudaError_t launch_attention(const Attention& a, const Scratch& scratch, cudaStream_t stream) {
  if (!has_aligned_cache(a)) return cudaErrorInvalidValue;
  AttentionParams p = params_of(a);
  const auto tokens = static_cast<int>(a.qkv.rows);
  if (p.plain_heads) divide_plain_heads(a.qkv.rows, most_keys(a, p), scratch, p);
  if (tokens > p.num_rows || p.plain_heads || p.bidirectional || p.after) {
    const bool has_few = !p.bidirectional && (p.num_rows > 1 || tokens <= p.few_tokens);
    p.has_neighbour = has_few && !p.after && is_for_hopper(p, scratch.sm);
    place_wide_blocks(a, scratch, p);
    if (const cudaError_t error =
            launch_many_tokens(p, a.cache.type, tokens, kHopperVectors, scratch.sm, stream);
        error != cudaSuccess || p.plain_heads || !has_few)
      return error;
    p.is_neighbour = p.has_neighbour;
  }
  p.is_single = tokens == p.num_rows && !p.after;
  p.takes_single = takes_single_tokens(p, a.cache.type, scratch.sm);
  if (p.is_single)
    if (const int cluster = cluster_size(p, a.cache.type, most_keys(a, p), p.takes_single,
                                         scratch.sm, scratch.num_units);
        cluster > 0)
      return launch_clusters(p, a.cache.type, cluster, stream);
  if (p.takes_single) {
    AttentionParams single = p;
    const int chunks = divide_keys(a, true, kSingleBlocks, scratch, single);
    const cudaError_t error = launch_single_tokens(single, chunks, stream);
    if (error != cudaSuccess || p.is_single) return error;
    p.is_neighbour = false;  // the other kernel uses the workspace until it ends
  }
  const int chunks = divide_keys(a, p.is_single, kFewBlocks, scratch, p);
  return launch_few_tokens(p, a.cache.type, chunks, stream);
}

// The many-token kernels read the keys of a token tile in order from the first key visible to any
// of its tokens: key 0, or with a window that of each token.
cudaError_t launch_invariant_attention(const Attention& a, const Scratch& scratch,
                                       cudaStream_t stream) {
  if (!has_aligned_cache(a)) return cudaErrorInvalidValue;
  AttentionParams p = params_of(a);
  p.few_tokens = 0;
  if (p.plain_heads) divide_plain_heads(a.qkv.rows, most_keys(a, p), scratch, p);
  return launch_many_tokens(p, a.cache.type, static_cast<int>(a.qkv.rows),
                            p.window > 0 ? 1 : kHopperVectors, scratch.sm, stream);
}

cudaError_t launch_latent_attention(const Attention& a, const Scratch& scratch,
                                    cudaStream_t stream) {
  if (!has_aligned_cache(a)) return cudaErrorInvalidValue;
  const AttentionParams p = params_of(a);
  if (!takes_latent(p)) return launch_attention(a, scratch, stream);
  const auto tokens = static_cast<int>(a.qkv.rows);
  const cudaError_t stored = launch_store_lines(p, a.cache.type, tokens, stream);
  if (stored != cudaSuccess) return stored;
  return launch_latent(p, a.cache.type, tokens, most_keys(a, p), scratch, stream);
}

bool takes_attention(const Attention& a) {
  return a.cache.layout == KeyLayout::kLines && a.heads.num <= 65535 && a.heads.dim <= kMaxPlainDim;
}

}  // namespace nereid::kernels::cuda
