// Attention of decode steps of few one-token rows on Hopper: the keys of a row and KV head are
// split among the blocks of a cluster, which merge their softmax states through distributed shared
// memory. Each block owns a share of the result's columns: the others send their parts of it,
// counted in bytes by a barrier in its memory. attention_few.cu (more rows and keys) merges through
// global memory instead: partial results, a counter and the read of the partial results are three
// latencies of contended memory. The new key and value are stored at the end.
#include <algorithm>
#include <bit>

#include "kernels/cuda/attention/attention_eight.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kMaxCluster = 16, kMaxPortable = 8;
constexpr int kMaxDim = 128;

// Dynamic shared memory of a block: queries, the warps' lines, received partial results.
template <class Cache, int kDim>
struct Memory {
  static constexpr int kTiles = Lines<kDim>::bytes(2 * kMaxHeads);
  static constexpr int kReceived = kTiles + kWarps * WarpMemory<Cache, kDim>::kBytes;
  // A warp's state overlays its lines: values per head, padded against bank conflicts.
  static constexpr int kPitch = kDim + 8;
  static_assert(WarpMemory<Cache, kDim>::kBytes >=
                kMaxHeads * kPitch * static_cast<int>(sizeof(float)));
  // Shares are rounded up to a power of two of column pairs.
  static constexpr int bytes(int heads) {
    return kReceived + 2 * heads * kDim * static_cast<int>(sizeof(float));
  }
};

#if defined(NEREID_HOPPER)

// The row's keys and the result's column pairs assigned to this block of the cluster.
struct Part {
  int blocks;      // with keys: the first of the cluster
  int first, end;  // this block's keys
  bool has_new;    // include the row's new key
  int pair_bits;   // log2 of the pairs per share
  int own_pairs;   // this block's pairs

  __device__ Part(int pairs, int keys) {
    const int rank = static_cast<int>(blockIdx.x), cluster = static_cast<int>(gridDim.x);
    const int steps = (keys + kStepKeys - 1) / kStepKeys;
    const int least = steps / cluster, rest = steps % cluster;
    blocks = min(steps, cluster);
    first = (rank * least + min(rank, rest)) * kStepKeys;
    end = min(keys, first + (least + (rank < rest)) * kStepKeys);
    has_new = rank == blocks - 1;
    const int share = (pairs + cluster - 1) / cluster;
    pair_bits = 32 - __clz(share - 1);
    own_pairs = max(0, min(pairs - (rank << pair_bits), 1 << pair_bits));
  }
};

// Received from the cluster's blocks: values [block][pair of the share], ends [block][head] =
// (maximum, sum of weights).
struct Received {
  float2* values;
  float2 (*ends)[kMaxHeads];
  uint64_t* barrier;
};

__device__ uint64_t bytes_of(float2 two) {
  return uint64_t{__float_as_uint(two.y)} << 32 | __float_as_uint(two.x);
}

// Arms the barrier for the bytes of all blocks with keys; these send only after all blocks have
// arrived here (cluster_waits()). A block without a share receives nothing.
__device__ void begin_exchange(const QueryTile& tile, const Part& part, const Received& received) {
  if (threadIdx.x == 0 && part.own_pairs > 0) {
    barrier_init(received.barrier, 1);
    barrier_expect(received.barrier, static_cast<uint32_t>(part.blocks * sizeof(float2)) *
                                         static_cast<uint32_t>(part.own_pairs + tile.heads));
    barriers_are_ready();
  }
  __syncwarp();
  cluster_arrives();
}

// Loads the lines of a warp's first step, except the new key's.
template <class Cache, int kDim>
__device__ Found fetch_first(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                             int key, int end, uint8_t* lines) {
  const int old = min(end, range.count - 1) - key;
  Found found;
  if (key < end) {
    found = find<Cache>(p, tile, range, key, end);
    fetch<Cache, kDim>(p, p.k_cache, found.place, old, lines);
  }
  end_copies();
  if (key < end)
    fetch<Cache, kDim>(p, p.v_cache, found.place, old,
                       lines + kStepKeys * WarpMemory<Cache, kDim>::kLine);
  end_copies();
  return found;
}

// The query column pairs that a thread rotates, as in load_queries(): all loads are issued first,
// so that other loads can follow.
template <class Cache, int kDim>
struct Queries {
  static constexpr int kHalf = kDim / 2;
  static constexpr int kPairs = (kMaxHeads * kHalf + kThreads - 1) / kThreads;
  float2 pairs[kPairs], angles[kPairs];

  template <class Do>
  __device__ void each(const AttentionParams& p, const QueryTile& tile, Do work) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kThreads;
      if (i < tile.heads * kHalf) work(j, i / kHalf, i % kHalf, i % kHalf < p.head_dim / 2);
    }
  }
  __device__ void load_angles(const AttentionParams& p, const QueryTile& tile, int position) {
    const float* const table = p.rope_table + static_cast<int64_t>(position) * p.rotated;
    each(p, tile, [&](int j, int, int c, bool) {
      if (c < p.rotated / 2) angles[j] = {table[c], table[c + p.rotated / 2]};
    });
  }
  __device__ void load(const AttentionParams& p, const QueryTile& tile) {
    const float* const first = p.qkv + tile.first_token * p.qkv_stride +
                               static_cast<int64_t>(tile.first_head) * p.head_dim;
    each(p, tile, [&](int j, int m, int c, bool inside) {
      const int2 at = columns(p, c);
      pairs[j] = {0, 0};
      if (inside) pairs[j] = {first[m * p.head_dim + at.x], first[m * p.head_dim + at.y]};
    });
  }
  __device__ void store(const AttentionParams& p, const QueryTile& tile, uint8_t* lines) {
    constexpr int kPitch = Lines<kDim>::kPitch;
    const float factor = p.scale * kLog2E * kBy<Cache>;
    each(p, tile, [&](int j, int m, int c, bool inside) {
      float2 pair = pairs[j];
      if (c < p.rotated / 2) pair = rotate(pair, angles[j].x, angles[j].y);
      pair.x *= factor, pair.y *= factor;
      int2 at = inside ? columns(p, c) : int2{2 * c, 2 * c + 1};
      if (kIsFp8<Cache>) at = {place_of_f8(at.x), place_of_f8(at.y)};
      auto* const high = reinterpret_cast<__nv_bfloat16*>(lines + m * kPitch);
      auto* const low = reinterpret_cast<__nv_bfloat16*>(lines + (kMaxHeads + m) * kPitch);
      const __nv_bfloat16 x = __float2bfloat16_rn(pair.x), y = __float2bfloat16_rn(pair.y);
      high[at.x] = x;
      high[at.y] = y;
      low[at.x] = __float2bfloat16_rn(pair.x - __bfloat162float(x));
      low[at.y] = __float2bfloat16_rn(pair.y - __bfloat162float(y));
    });
  }
  // Zeros for vectors past the tile's.
  __device__ static void clear_rest(const QueryTile& tile, uint8_t* lines) {
    constexpr int kPieces = Lines<kDim>::kPitch / 16;
    for (int i = threadIdx.x; i < (kMaxHeads - tile.heads) * kPieces; i += kThreads)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        reinterpret_cast<uint4*>(lines)[(h * kMaxHeads + tile.heads) * kPieces + i] = uint4{};
  }
};

// The warps' states: maxima and sums [head][warp], values in the warps' memory.
struct States {
  float (*largest)[kWarps];
  float (*sums)[kWarps];
  uint8_t* tiles;
};

template <class Cache, int kDim>
__device__ void leave_state(const QueryTile& tile, bool has_keys,
                            const EightState<Cache, kDim>& state, const States& states) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, m = lane / 4;
  const float sum = row_sum(state.sum);
  if (lane % 4 == 0) states.largest[m][warp] = state.largest, states.sums[m][warp] = sum;
  if (m >= tile.heads || !has_keys) return;
  auto* const values =
      reinterpret_cast<float*>(states.tiles + warp * WarpMemory<Cache, kDim>::kBytes) +
      m * Memory<Cache, kDim>::kPitch;
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      values[column_of<Cache>(i, r)] = (state.value[i][r] + state.value[i][2 + r]) * kBy<Cache>;
}

// Merges the states of the block's warps and sends each block of the cluster its share.
template <class Cache, int kDim>
__device__ void send_state(const QueryTile& tile, const Part& part, const States& states,
                           const Received& received) {
  constexpr int kHalf = kDim / 2;
  const int rank = static_cast<int>(blockIdx.x), bits = part.pair_bits;
  const int shares = (tile.heads * kHalf + (1 << bits) - 1) >> bits;
#pragma unroll 1
  for (int i = threadIdx.x; i < tile.heads * kHalf; i += kThreads) {
    const int m = i / kHalf, c = i % kHalf;
    float weights[kWarps], top = -INFINITY, total = 0;
    float2 sum = {0, 0};
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, states.largest[m][w]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      weights[w] = weight_of(states.largest[m][w], top);
      total += states.sums[m][w] * weights[w];
      if (part.first + w * kStepKeys >= part.end) continue;
      const float2 value = *reinterpret_cast<const float2*>(
          states.tiles + w * WarpMemory<Cache, kDim>::kBytes +
          (m * Memory<Cache, kDim>::kPitch + 2 * c) * sizeof(float));
      sum.x += value.x * weights[w], sum.y += value.y * weights[w];
    }
    send_in_cluster(received.values + (rank << bits) + (i & ((1 << bits) - 1)), i >> bits,
                    bytes_of(sum), received.barrier);
    if (c < shares)
      send_in_cluster(&received.ends[rank][m], c, bytes_of({top, total}), received.barrier);
  }
}

// Merges the received parts; the lanes of a pair take every kLanes-th block.
template <int kDim>
__device__ void write_share(const AttentionParams& p, const QueryTile& tile, const Part& part,
                            const Received& received) {
  constexpr int kHalf = kDim / 2, kLanes = 4;
  const int lane = threadIdx.x % kLanes;
  for (int from = 0; from < part.own_pairs; from += kThreads / kLanes) {
    const int mine = from + static_cast<int>(threadIdx.x) / kLanes;
    const int i = min(mine, part.own_pairs - 1);
    const int pair = (static_cast<int>(blockIdx.x) << part.pair_bits) + i;
    const int m = pair / kHalf, c = pair % kHalf * 2;
    const float sink = sink_of(p, tile.first_head + m);
    float2 ends[kMaxCluster / kLanes], values[kMaxCluster / kLanes];
    float top = sink, total = 0;
    float2 sum = {0, 0};
#pragma unroll
    for (int j = 0; j < kMaxCluster / kLanes; ++j) {
      const int block = lane + j * kLanes;
      const bool exists = block < part.blocks;
      ends[j] = exists ? received.ends[block][m] : float2{-INFINITY, 0};
      values[j] = exists ? received.values[(block << part.pair_bits) + i] : float2{0, 0};
      top = fmaxf(top, ends[j].x);
    }
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2)
      top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, by));
#pragma unroll
    for (int j = 0; j < kMaxCluster / kLanes; ++j) {
      const float weight = weight_of(ends[j].x, top);
      total += ends[j].y * weight;
      sum.x += values[j].x * weight, sum.y += values[j].y * weight;
    }
#pragma unroll
    for (int by = kLanes / 2; by > 0; by /= 2) {
      total += __shfl_xor_sync(kAllLanes, total, by);
      sum.x += __shfl_xor_sync(kAllLanes, sum.x, by);
      sum.y += __shfl_xor_sync(kAllLanes, sum.y, by);
    }
    const float scale = 1 / (total + weight_of(sink, top));
    if (lane > 1 || mine >= part.own_pairs || c >= p.head_dim) continue;
    store(p.out + tile.first_token * p.out_stride +
              static_cast<int64_t>(tile.first_head + m) * p.head_dim + c + lane,
          (lane == 0 ? sum.x : sum.y) * scale);
  }
}

// The new key and value, one warp each: into the lines of the block's first steps, once the loads
// of these have arrived, or into the cache if a later step reads them there.
template <class Cache, int kDim>
struct NewLines {
  int step, line;  // step of the block, line of the step
  bool is_early;

  __device__ NewLines(const KeyRange& range, const Part& part) {
    const int key = range.count - 1 - part.first;
    step = key / kStepKeys, line = key % kStepKeys;
    is_early = step < kWarps;
  }
  // 0 and 1: the warps of the key and the value; < 0: others.
  __device__ static int which() { return static_cast<int>(threadIdx.x) / kWarp - (kWarps - 2); }
  __device__ void put(const AttentionParams& p, const QueryTile& tile, int position, uint8_t* tiles,
                      float* scales) const {
    if (!is_early) return keep(p, tile);
    if (which() < 0) return;
    using Warp = WarpMemory<Cache, kDim>;
    const int at = step * Warp::kBytes + (which() * kStepKeys + line) * Warp::kLine;
    store_token_at<Cache>(p, tile.first_token, tile.kv_head, position, which() == 1, CellIndex{},
                          tiles + at, scales + which());
  }
  // Stores them in the cache.
  __device__ void keep(const AttentionParams& p, const QueryTile& tile) const {
    if (which() < 0) return;
    store_token<Cache>(p, tile.first_token, tile.row, tile.kv_head, which() == 1);
    __threadfence_block();
  }
  __device__ void find_scales(const float* scales, Found& found) const {
    if (!Cache::kHasScales || static_cast<int>(threadIdx.x) / kWarp != step ||
        static_cast<int>(threadIdx.x) % kStepKeys != line)
      return;
    found.key_scale = scales[0] * kBy<Cache>;
    found.value_scale = scales[1] * kBy<Cache>;
  }
};

#endif  // NEREID_HOPPER

template <class Cache, int kDim>
__global__ void __launch_bounds__(kThreads, 2) cluster_kernel(AttentionParams p) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(16) uint8_t memory[];
  __shared__ __align__(16) float largest[kMaxHeads][kWarps], sums[kMaxHeads][kWarps];
  __shared__ float2 ends[kMaxCluster][kMaxHeads];
  __shared__ float new_scales[2];
  __shared__ uint64_t barrier;
  let_next_begin();
  // Positions and cache lines of earlier steps are visible: see embed_kernel().
  QueryTile tile;
  tile.row = tile.first_token = static_cast<int>(blockIdx.z);
  tile.tokens = 1;
  find_heads(p, tile);
  const int position = p.positions[tile.row];
  const KeyRange range = keys_of(p, position, position);
  const Part part(tile.heads * kDim / 2, range.count);
  uint8_t* const tiles = memory + Memory<Cache, kDim>::kTiles;
  const States states = {largest, sums, tiles};
  const Received received = {reinterpret_cast<float2*>(memory + Memory<Cache, kDim>::kReceived),
                             ends, &barrier};
  begin_exchange(tile, part, received);

  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  uint8_t* const mine = tiles + warp * WarpMemory<Cache, kDim>::kBytes;
  const int key = part.first + warp * kStepKeys;
  Found found = fetch_first<Cache, kDim>(p, tile, range, key, part.end, mine);
  Queries<Cache, kDim> queries;
  queries.clear_rest(tile, memory);
  queries.load_angles(p, tile, position);
  const float slope = slope_of(p, tile.first_head + min(lane / 4, tile.heads - 1));
  const NewLines<Cache, kDim> new_lines(range, part);

  wait_for_previous();
  queries.load(p, tile);
  if (part.has_new) {
    wait_for_copies<0>();
    __syncthreads();
    new_lines.put(p, tile, position, tiles, new_scales);
  }
  queries.store(p, tile, memory);
  __syncthreads();
  if (part.has_new) new_lines.find_scales(new_scales, found);
  EightState<Cache, kDim> state;
  walk<Cache, kDim>(p, tile, range, memory, position, slope, found, key, part.end,
                    kWarps * kStepKeys, mine, state);
  leave_state(tile, key < part.end, state, states);
  __syncthreads();
  cluster_waits();
  if (part.first < part.end) send_state<Cache, kDim>(tile, part, states, received);
  if (part.own_pairs > 0) barrier_wait(&barrier, 0);
  write_share<kDim>(p, tile, part, received);
  if (part.has_new && new_lines.is_early) new_lines.keep(p, tile);
#endif
}

// Calls work.operator()<Cache, kDim>().
template <class Cache, class Do>
auto with_dim(int head_dim, Do work) {
  if (head_dim <= 64) return work.template operator()<Cache, 64>();
  if (head_dim <= 96) return work.template operator()<Cache, 96>();
  return work.template operator()<Cache, 128>();
}
template <class Do>
auto with_types(const AttentionParams& p, DType cache, Do work) {
  return with_cache(cache, [&]<class Cache>() { return with_dim<Cache>(p.head_dim, work); });
}

template <class Cache, int kDim>
cudaLaunchConfig_t config_of(const AttentionParams& p, int cluster) {
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(p.num_kv_heads * p.head_blocks),
           static_cast<unsigned>(p.num_rows));
  config.blockDim = kThreads;
  config.dynamicSmemBytes = Memory<Cache, kDim>::bytes(p.heads_per_block);
  return config;
}

// Whether the device supports clusters of this size (may exceed the portable size) with the maximal
// shared memory of a kernel.
template <class Cache, int kDim>
bool fits(const AttentionParams& p, int cluster) {
  const auto kernel = cluster_kernel<Cache, kDim>;
  cudaLaunchConfig_t config = config_of<Cache, kDim>(p, cluster);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const bool good = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed,
                                         1) == cudaSuccess &&
                    cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess;
  if (!good) cudaGetLastError();  // clears the error for the next launch
  return good && clusters > 0;
}

}  // namespace

// One block per SM; blocks of much shared memory on every other SM, as more of them, and larger
// clusters, would start late beside the previous kernel. The warps of the other kernels have fewer
// keys each, which is faster for long contexts; the f8e4m3 kernel also has less work per key.
int cluster_size(const AttentionParams& p, DType cache, int64_t keys, bool takes_single, int sm,
                 int num_units) {
  constexpr int kManyBytes = 48 * 1024;
  constexpr int kMostKeys = 128, kMostSingleKeys = 32;  // per warp
  const int64_t groups = int64_t{p.num_rows} * p.num_kv_heads * p.head_blocks;
  if (sm != 90 || p.num_rows > kMaxGemvRows || p.heads_per_block > kMaxHeads ||
      p.head_dim > kMaxDim || 2 * groups > num_units)
    return 0;
  return with_types(p, cache, [&]<class Cache, int kDim>() {
    const bool is_large = Memory<Cache, kDim>::bytes(p.heads_per_block) > kManyBytes;
    const auto wanted = static_cast<unsigned>((is_large ? num_units / 2 : num_units) / groups);
    const unsigned most = is_large ? kMaxPortable : kMaxCluster;
    int cluster = static_cast<int>(std::bit_floor(std::clamp(wanted, 2u, most)));
    if (cluster > kMaxPortable && !fits<Cache, kDim>(p, cluster)) cluster = kMaxPortable;
    const int64_t keys_of_warp = takes_single ? kMostSingleKeys : kMostKeys;
    return keys <= keys_of_warp * kWarps * cluster ? cluster : 0;
  });
}

cudaError_t launch_clusters(const AttentionParams& p, DType cache, int cluster,
                            cudaStream_t stream) {
  return with_types(p, cache, [&]<class Cache, int kDim>() {
    const cudaLaunchConfig_t config = config_of<Cache, kDim>(p, cluster);
    return launch_overlapped_clusters(cluster_kernel<Cache, kDim>, p.num_rows, config.gridDim,
                                      config.gridDim.x, kThreads, config.dynamicSmemBytes, stream,
                                      p);
  });
}

}  // namespace nereid::kernels::cuda
