// Attention of latent heads (MLA) with wgmma, keys of 576 columns whose last 512 are the value. A
// block has 64 query vectors. Four producer warps load keys in steps of 64; two consumer groups of
// four warps each compute all scores and sum one half of the value columns: no exchange between
// groups, and one may multiply during the other's softmax. TMA loads whole blocks of a bf16 cache.
// Keys of 8-bit caches are converted to bf16 on load; their scales multiply scores and weights.
#include "kernels/cuda/attention/attention_latent.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_products.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kGroupThreads = 4 * kWarp;
constexpr int kGroups = 2;  // consumers; the third group loads
constexpr int kMultipliers = kGroups * kGroupThreads;
constexpr int kThreads = kMultipliers + kGroupThreads;
constexpr int kVectors = kLatentHopperVectors;
constexpr int kKeys = kLatentHopperKeys;  // per step
constexpr int kDim = 576, kLatent = 512;
constexpr int kHalves = kDim / kHalf;
constexpr int kStages = 2;

struct Memory {
  uint8_t queries[kHalves * kVectors * kLineBytes];
  uint8_t keys[kStages][kHalves * kKeys * kLineBytes];
  float scales[kStages][kKeys];
  uint64_t full[kStages], empty[kStages];
};

// TMA descriptor of the blocks of a bf16 cache.
struct KeyBoxes {
  CUtensorMap map;
  bool exist;
};

#if defined(NEREID_HOPPER)

constexpr int kGroupColumns = kLatent / kGroups;
constexpr int kParts = 2;  // of a group's columns, one product each
constexpr int kPartColumns = kGroupColumns / kParts;
constexpr int kGroupRegisters = 216, kFetchRegisters = 56;
constexpr int kLoadMeets = 1;  // barrier id

// Position in the ring of stages.
struct Turn {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void step() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Loads keys [first, first + kKeys) of the block's, zeros past them; two threads per line.
template <class Cache>
__device__ void fetch(const AttentionParams& p, const LatentWork& work, int first, int stage,
                      Memory& memory) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads, line = thread / 2;
  const bool exists = first + line < work.end;
  const int key = exists ? first + line : work.end - 1;
  const CellIndex place = place_of(p, work.tile, work.range.position(key));
  const auto* const from = static_cast<const typename Cache::Cell*>(p.k_cache) + place.first;
  uint8_t* const keys = memory.keys[stage];
  if constexpr (!Cache::kHasScales) {
#pragma unroll 4
    for (int c = 8 * (thread % 2); c < kDim; c += 16)
      copy_16(shared_address(keys + place_in_matrix(kKeys, line, c)), from + c, exists);
    end_copies();
    wait_for_copies<0>();
  } else {
    if (thread % 2 == 0) memory.scales[stage][line] = exists ? p.k_scales[place.scale] : 0;
#pragma unroll 6
    for (int c = 8 * (thread % 2); c < kDim; c += 16)
      *reinterpret_cast<uint4*>(keys + place_in_matrix(kKeys, line, c)) =
          exists ? Cache::widen8(from + c) : uint4{};
  }
  writes_are_ready();
}

// Same by TMA, one lane per cache block.
__device__ void fetch_boxes(const AttentionParams& p, const KeyBoxes& boxes, const LatentWork& work,
                            int first, int stage, Memory& memory) {
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  if (thread == 0) barrier_expect(memory.full + stage, sizeof(memory.keys[stage]));
  __syncwarp();
  const int line = thread * p.block_tokens;
  if (line >= kKeys) return;
  const int in_table = work.range.position(first + line) / p.block_tokens;
  const int block = p.block_table[int64_t{work.tile.row} * p.max_blocks + in_table];
#pragma unroll
  for (int h = 0; h < kHalves; ++h)
    copy_box(memory.keys[stage] + (h * kKeys + line) * kLineBytes, &boxes.map, h * kHalf, 0,
             work.tile.kv_head, block, memory.full + stage);
}

// The producer warps.
template <class Cache>
__device__ void fetch_all(const AttentionParams& p, const KeyBoxes& boxes, const LatentWork& work,
                          Memory& memory) {
  const bool in_blocks =
      boxes.exist && work.range.sink == 0 && work.range.begin % p.block_tokens == 0;
  const bool is_first_lane = threadIdx.x % kWarp == 0,
             is_first_warp = threadIdx.x % kGroupThreads < kWarp;
  Turn turn;
  for (int first = work.begin; first < work.end; first += kKeys) {
    barrier_wait(memory.empty + turn.stage, turn.parity ^ 1);
    const bool by_boxes = in_blocks && first + kKeys <= work.end;
    if (!by_boxes)
      fetch<Cache>(p, work, first, turn.stage, memory);
    else if (is_first_warp)
      fetch_boxes(p, boxes, work, first, turn.stage, memory);
    __syncwarp();
    if (is_first_lane && !(by_boxes && is_first_warp)) barrier_arrive(memory.full + turn.stage);
    turn.step();
  }
}

// The state of a consumer thread: query vectors lane / 4 and lane / 4 + 8 of its warp's 16, the
// group's value columns.
template <class Cache>
struct Group {
  const AttentionParams& p;
  const KeyRange& range;
  Memory& memory;
  int index;           // of the group
  int position[2];     // -1: no such vector
  int first_position;  // of the tile's first token
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  float value[kParts][kPartColumns / 8][4] = {};
  uint32_t weights[kKeys / 16][4];

  __device__ void score(int stage, float (&scores)[kKeys / 8][4]) {
    products_begin();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const uint64_t a = swizzled_matrix(memory.queries + h * kVectors * kLineBytes);
      const uint64_t b = swizzled_matrix(memory.keys[stage] + h * kKeys * kLineBytes);
#pragma unroll
      for (int k = 0; k < kHalf / 16; ++k) {
        if (h + k == 0)
          multiply_64<false>(scores, a, b);
        else
          multiply_64<true>(scores, a + 2 * k, b + 2 * k);
      }
    }
    products_end();
    wait_for_products<0>();
    hold(scores);
  }

  // Converts the scores of the step at key `first` to weights and rescales earlier sums.
  __device__ void weigh(int first, int stage, float (&scores)[kKeys / 8][4]) {
    const int column = 2 * (static_cast<int>(threadIdx.x) % 4);
    const float* const scales = memory.scales[stage] + column;
    const bool seen_by_all = p.window == 0 && first + kKeys <= first_position + 1;
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int s = 0; s < kKeys / 8; ++s)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if constexpr (Cache::kHasScales) scores[s][r] *= scales[8 * s + r % 2];
        if (!seen_by_all) {
          const int key = first + 8 * s + column + r % 2;
          if (key >= range.count || !is_seen(p, range.position(key), position[r / 2]))
            scores[s][r] = -INFINITY;
        }
        top[r / 2] = fmaxf(top[r / 2], scores[s][r]);
      }
    float base[2], correction[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(kAllLanes, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(kAllLanes, top[h], 2));
      base[h] = top[h] == -INFINITY ? 0.0f : top[h];  // no visible key yet: weights are 0
      correction[h] = power_of_2(largest[h] - base[h]);
      largest[h] = top[h];
      sum[h] *= correction[h];
    }
#pragma unroll
    for (int s = 0; s < kKeys / 8; ++s) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        scores[s][r] = power_of_2(scores[s][r] - base[r / 2]);
        sum[r / 2] += scores[s][r];
        if constexpr (Cache::kHasScales) scores[s][r] *= scales[8 * s + r % 2];
      }
#pragma unroll
      for (int h = 0; h < 2; ++h)
        weights[s / 2][s % 2 * 2 + h] = pack(scores[s][2 * h], scores[s][2 * h + 1]);
    }
    if (!__any_sync(kAllLanes, correction[0] != 1.0f || correction[1] != 1.0f)) return;
#pragma unroll
    for (auto& part : value)
#pragma unroll
      for (auto& four : part)
#pragma unroll
        for (int r = 0; r < 4; ++r) four[r] *= correction[r / 2];
  }

  __device__ void add_values(int stage) {
    constexpr int kMatrix = kKeys * kLineBytes, kPartHalves = kPartColumns / kHalf;
    const int first_half = (kDim - kLatent + index * kGroupColumns) / kHalf;
    products_begin();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint64_t b = swizzled_columns(
          memory.keys[stage] + (first_half + part * kPartHalves) * kMatrix, kMatrix);
#pragma unroll
      for (int s = 0; s < kKeys / 16; ++s)
        multiply_64(value[part], weights[s], b + s * (16 * kLineBytes / 16));
    }
    products_end();
    wait_for_products<0>();
#pragma unroll
    for (auto& part : value) hold(part);
  }

  __device__ void run(int begin, int end) {
    Turn turn;
    for (int first = begin; first < end; first += kKeys) {
      float scores[kKeys / 8][4];
      barrier_wait(memory.full + turn.stage, turn.parity);
      score(turn.stage, scores);
      weigh(first, turn.stage, scores);
      add_values(turn.stage);
      __syncwarp();  // all lanes have read the scales
      if (threadIdx.x % kWarp == 0) barrier_arrive(memory.empty + turn.stage);
      turn.step();
    }
  }
};

// Query vector m of the tile, the group's columns: a partial result unless the block has all keys.
template <class Cache>
__device__ void write_columns(const AttentionParams& p, const LatentWork& work,
                              const Group<Cache>& group, int m, int h, float sum) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, first = group.index * kGroupColumns;
  if (work.parts == 1) {
    __nv_bfloat16* const out = p.out + work.tile.token(m) * p.out_stride +
                               static_cast<int64_t>(work.tile.head(m)) * kLatent + first;
#pragma unroll
    for (int i = 0; i < kParts; ++i)
      write_pieces(out + i * kPartColumns, 1 / sum, h, group.value[i]);
    return;
  }
  const int64_t at = first_part(static_cast<int>(gridDim.z), kVectors) + work.part * kVectors + m;
  float* const out = p.part_values + at * kLatent + first + 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < kParts; ++i)
#pragma unroll
    for (int c = 0; c < kPartColumns / 8; ++c)
      *reinterpret_cast<float2*>(out + i * kPartColumns + 8 * c) = {group.value[i][c][2 * h],
                                                                    group.value[i][c][2 * h + 1]};
  if (group.index == 0 && lane % 4 == 0) p.part_sums[at] = {group.largest[h], sum};
}

// A consumer group of warps.
template <class Cache>
__device__ void attend(const AttentionParams& p, const LatentWork& work, Memory& memory) {
  const QueryTile& tile = work.tile;
  load_queries<kVectors, kMultipliers>(
      p, tile, [&](int m, int c) { return memory.queries + place_in_matrix(kVectors, m, c); });
  writes_are_ready();
  meet(kLoadMeets, kMultipliers);
  const int row = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16 +
                  static_cast<int>(threadIdx.x) % kWarp / 4;
  Group<Cache> group = {p, work.range, memory, static_cast<int>(threadIdx.x) / kGroupThreads};
#pragma unroll
  for (int h = 0; h < 2; ++h)
    group.position[h] = row + 8 * h < tile.vectors() ? p.positions[tile.token(row + 8 * h)] : -1;
  group.first_position = p.positions[tile.first_token];
  group.run(work.begin, work.end);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = row_sum(group.sum[h]);
    if (row + 8 * h < tile.vectors()) write_columns(p, work, group, row + 8 * h, h, sum);
  }
}

#endif  // NEREID_HOPPER

template <class Cache>
__global__ void __launch_bounds__(kThreads, 1)
    latent_hopper_kernel(AttentionParams p, const __grid_constant__ KeyBoxes boxes) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t latent_memory[];
  auto& memory = *reinterpret_cast<Memory*>(latent_memory);
  let_next_begin();
  LatentWork work;
  if (!find_work(p, work)) return wait_for_previous();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(memory.full + i, kGroupThreads / kWarp);
      barrier_init(memory.empty + i, kMultipliers / kWarp);
    }
    barriers_are_ready();
  }
  __syncthreads();
  wait_for_previous();
  if (static_cast<int>(threadIdx.x) < kMultipliers) {
    take_registers<kGroupRegisters>();
    attend<Cache>(p, work, memory);
  } else {
    give_registers<kFetchRegisters>();
    fetch_all<Cache>(p, boxes, work, memory);
  }
#endif
}

}  // namespace

bool takes_latent_hopper(const AttentionParams& p, int sm) {
  return sm == 90 && p.head_dim == kDim && p.latent == kLatent && p.out_stride % 8 == 0 &&
         is_aligned(p.out);
}

cudaError_t launch_latent_hopper(const AttentionParams& p, DType cache, int num_tokens, dim3 grid,
                                 cudaStream_t stream) {
  KeyBoxes boxes = {};
  boxes.exist = cache == DType::kBF16 && p.block_tokens % 8 == 0 && kKeys % p.block_tokens == 0 &&
                encode_tiled() != nullptr;
  if (boxes.exist)
    if (const cudaError_t error =
            describe_blocks<2>(p.k_cache, kDim, p.block_tokens, p.num_kv_heads, p.block_stride,
                               p.block_tokens, boxes.map);
        error != cudaSuccess)
      return error;
  return with_cache(cache, [&]<class Cache>() {
    return launch_overlapped(latent_hopper_kernel<Cache>, num_tokens, grid, kThreads,
                             sizeof(Memory), stream, p, boxes);
  });
}

}  // namespace nereid::kernels::cuda
