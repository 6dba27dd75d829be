// Decode attention of one-token rows with an f8e4m3 cache on Hopper, up to eight query heads per KV
// head. TMA loads tiles of 64 keys and values; wgmma multiplies the cells in 8 bits: keys as the
// left operand in shared memory, values as the left operand in registers, transposed. The right
// operand, queries then weights, is f8e4m3 too (attention_columns.cuh). Per thread, a cell costs
// 1/4 instruction for its value and none for its key; conversion to bf16 would cost nearly two.
#include <algorithm>
#include <bit>

#include "kernels/cuda/attention/attention_boxes.cuh"
#include "kernels/cuda/attention/attention_columns.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_parts.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = kAttentionThreads + kWarp;  // the last warp loads
constexpr int shared_bytes(int sets, int stages) {
  return stages * (2 * kTile + 2 * kScales) + 2 * sets * kSet;
}

#if defined(NEREID_HOPPER)

constexpr float kMaxWeight = 256;      // below the largest f8e4m3
constexpr float kMaxShare = 0x1p100f;  // of a weight in the sum of weights

// The consumer warps' barriers; any_worker(): OR over their threads.
constexpr int kBeginMeets = 1, kWorkMeets = 2;
__device__ void workers_meet() { meet(kWorkMeets, kAttentionThreads); }
__device__ bool any_worker(bool mine) {
  uint32_t all;
  asm volatile(
      "{\n"
      ".reg .pred mine, all;\n"
      "setp.ne.u32 mine, %1, 0;\n"
      "barrier.cta.red.or.pred all, %2, %3, mine;\n"
      "selp.u32 %0, 1, 0, all;\n"
      "}\n"
      : "=r"(all)
      : "r"(static_cast<uint32_t>(mine)), "n"(kWorkMeets), "n"(kAttentionThreads)
      : "memory");
  return all != 0;
}

// False for a block without work.
__device__ bool find_tile(const AttentionParams& p, QueryTile& tile) {
  tile.row = static_cast<int>(blockIdx.z);
  find_heads(p, tile);
  tile.tokens = 1;
  tile.first_token = tile.row;
  if (p.is_single) return true;
  tile.first_token = p.row_begin[tile.row];
  return p.row_begin[tile.row + 1] - tile.first_token == 1 && !has_tree(p, tile.row);
}

// Values of 32 keys and 16 columns as the left operand: its rows are columns 0, 2, .. 14, 1, 3, ..
// 15; its columns are keys 0, 8, 1, 9, .. 7, 15, then the next 16.
__device__ void load_values(const uint8_t* values, int first_key, int first_column,
                            uint32_t (&operand)[4]) {
  const int key = first_key + static_cast<int>(threadIdx.x) % kWarp;
  uint32_t words[4];  // of two columns of keys 2 (lane % 4) and the next, of eight keys each
  load_transposed(words, shared_address(values + place_in_lines(key, first_column)));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    operand[2 * i] = __byte_perm(words[2 * i], words[2 * i + 1], 0x6240);
    operand[2 * i + 1] = __byte_perm(words[2 * i], words[2 * i + 1], 0x7351);
  }
  // Keeps the compiler from moving this among the products.
#pragma unroll
  for (uint32_t& word : operand) asm volatile("" : "+r"(word)::"memory");
}

// A block on the tiles of its part. A thread has keys lane / 4 and lane / 4 + 8 of its warp's 16
// and head lane % 4 of each set; of the sums of values that head's columns 64 h + 16 warp + 2 (lane
// / 4) and the next.
template <int kDim, int kSets>
struct Work {
  static constexpr int kHalves = kDim / 64;

  const AttentionParams& p;
  const QueryTile& tile;
  const KeyRange& range;
  const Slots& slots;
  const Stages& stages;
  int slot_bits;  // log2 of tokens per slot
  int position;   // of the token
  uint8_t* queries;
  uint8_t* weights;  // 64 bytes of each line for every other tile
  float (*tops)[kMaxSets * kSetHeads];
  float factor[kSets], slope[kSets], reference[kSets], sum[kSets];
  float scores[kSets][2], shares[kSets][2], value_scales[2];
  float value[kHalves][kSets][2];
  uint32_t operands[kHalves][2][4];  // values of the tile

  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  __device__ void begin(const float* factors) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const int m = s * kSetHeads + lane() % 4;
      factor[s] = factors[m];
      slope[s] = slope_of(p, tile.head(min(m, tile.heads - 1)));
      reference[s] = -INFINITY;
      sum[s] = 0;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) value[h][s][0] = value[h][s][1] = 0;
    }
  }

  __device__ int position_of(int first_slot, int key) const {
    return (slots.number(first_slot + (key >> slot_bits)) << slot_bits) +
           (key & ((1 << slot_bits) - 1));
  }
  __device__ bool is_visible(int first_slot, int key, int at) const {
    return first_slot + (key >> slot_bits) < slots.count && at <= position &&
           (at < range.sink || at >= range.begin);
  }

  // Zeros masked values: memory may have NaN.
  __device__ void clear_values(int first_slot, int stage) const {
    const int key = static_cast<int>(threadIdx.x) / 2;
    if (is_visible(first_slot, key, position_of(first_slot, key))) return;
    auto* const line = reinterpret_cast<uint4*>(stages.values(stage) + key * kLine) +
                       static_cast<int>(threadIdx.x) % 2 * (kLine / 32);
#pragma unroll
    for (int i = 0; i < kLine / 32; ++i) line[i] = uint4{};
  }

  __device__ void score(int stage) {
    float products[8 * kSets] = {};
    const uint64_t a = swizzled_matrix(stages.keys(stage)), b = swizzled_matrix(queries);
#pragma unroll
    for (float& x : products) asm volatile("" : "+f"(x)::"memory");
    products_begin();
#pragma unroll
    for (int k = 0; k < kDim / 32; ++k) multiply_64_f8(products, a + 2 * k, b + 2 * k);
    products_end();
    const int key = 16 * warp() + lane() / 4;
    const float* const scales = stages.key_scales(stage);
    const float key_scales[2] = {scales[key], scales[key + 8]};
    value_scales[0] = stages.value_scales(stage)[key];
    value_scales[1] = stages.value_scales(stage)[key + 8];
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        load_values(stages.values(stage), 32 * k, 64 * h + 16 * warp(), operands[h][k]);
    wait_for_products<0>();
#pragma unroll
    for (int s = 0; s < kSets; ++s)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        scores[s][r] = join(products + 8 * s, r) * (key_scales[r] * factor[s]);
  }

  // Soft cap, ALiBi, mask.
  __device__ void judge(int first_slot) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = 16 * warp() + lane() / 4 + 8 * r, at = position_of(first_slot, key);
      const bool visible = is_visible(first_slot, key, at);
      if (!visible) value_scales[r] = 0;
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        float bent = scores[s][r];
        if (p.cap > 0) bent = p.cap * kLog2E * tanhf(bent / (p.cap * kLog2E));
        if (p.alibi > 0) bent -= slope[s] * static_cast<float>(position - at);
        scores[s][r] = visible ? bent : -INFINITY;
      }
    }
  }

  // Updates the reference maxima so that the tile's weights are <= 1; rescales sums.
  __device__ void raise() {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      float top = -INFINITY;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        top = fmaxf(top, scores[s][r] + fmaxf(__log2f(value_scales[r]), -60.0f));
#pragma unroll
      for (int by = 4; by < kWarp; by *= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, by));
      if (lane() < 4) tops[warp()][s * kSetHeads + lane()] = top;
    }
    workers_meet();
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      float top = reference[s];
#pragma unroll
      for (int w = 0; w < kAttentionWarps; ++w)
        top = fmaxf(top, tops[w][s * kSetHeads + lane() % 4]);
      const float correction = weight_of(reference[s], top);
      reference[s] = top;
      sum[s] *= correction;
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        value[h][s][0] *= correction;
        value[h][s][1] *= correction;
      }
    }
  }

  // Writes weights * scales of their values for the product; true if some exceed its range.
  __device__ bool weigh(int parity) {
    bool exceeds = false;
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      float weight[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        shares[s][r] = power_of_2(scores[s][r] - reference[s]);
        weight[r] = shares[s][r] * value_scales[r];
        exceeds |= weight[r] > kMaxWeight || shares[s][r] > kMaxShare;
      }
      __nv_fp8x2_storage_t parts[kParts];
      split(__floats2half2_rn(weight[0], weight[1]), parts);
#pragma unroll
      for (int j = 0; j < kParts; ++j) {
        const int line = column_of(s * kSetHeads + lane() % 4, j);
        const int byte = parity * kKeys + 16 * warp() + lane() / 4 * 2;
        *reinterpret_cast<uint16_t*>(weights + place_in_lines(line, byte)) = parts[j];
      }
    }
    writes_are_ready();
    return exceeds;
  }

  __device__ void add_values(int parity) {
    const uint64_t b = swizzled_matrix(weights) + parity * (kKeys / 16);
    float sums[kHalves][8 * kSets];
    products_begin();
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      multiply_64_f8<false>(sums[h], operands[h][0], b);
      multiply_64_f8<true>(sums[h], operands[h][1], b + 2);
    }
    products_end();
#pragma unroll
    for (int s = 0; s < kSets; ++s) sum[s] += shares[s][0] + shares[s][1];
    wait_for_products<0>();
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int s = 0; s < kSets; ++s)
#pragma unroll
        for (int r = 0; r < 2; ++r) value[h][s][r] += join(sums[h] + 8 * s, r);
  }

  // Loop over the part's tiles.
  __device__ void run(const Part& part, const NewLine& new_line) {
    const bool plain = is_plain(p);
    int stage = 0;
    uint32_t parity = 0;
    for (int t = 0; t < part.tiles; ++t) {
      const int slot = part.first_slot + (t << kKeyBits >> slot_bits);
      const bool has_new = part.is_last && t == part.tiles - 1;
      const bool changes = has_new || p.window > 0;
      barrier_wait(stages.full + stage, parity);
      if (changes) {
        if (has_new)
          new_line.store(
              stages, stage,
              ((slots.count - 1 - slot) << slot_bits) + (position & ((1 << slot_bits) - 1)));
        clear_values(slot, stage);
        writes_are_ready();
        workers_meet();
      }
      score(stage);
      if (changes || !plain) judge(slot);
      if (t == 0 || any_worker(weigh(t % 2))) {
        raise();
        weigh(t % 2);
        workers_meet();
      }
      add_values(t % 2);
      __syncwarp();
      if (lane() == 0) barrier_arrive(stages.empty + stage);
      if (++stage == stages.count) stage = 0, parity ^= 1;
    }
  }

  // Writes the state: values [head][kDim], the warps' sums; all tiles are consumed.
  __device__ void leave(float* values, float* largest, float* sums) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const int m = s * kSetHeads + lane() % 4;
#pragma unroll
      for (int by = 4; by < kWarp; by *= 2) sum[s] += __shfl_xor_sync(kAllLanes, sum[s], by);
      if (lane() < 4) tops[warp()][m] = sum[s];
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
        *reinterpret_cast<float2*>(values + m * kDim + 64 * h + 16 * warp() + lane() / 4 * 2) = {
            value[h][s][0], value[h][s][1]};
      if (threadIdx.x < kSetHeads) largest[m] = reference[s];
    }
    workers_meet();
    if (threadIdx.x < kSets * kSetHeads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kAttentionWarps; ++w) total += tops[w][threadIdx.x];
      sums[threadIdx.x] = total;
    }
    workers_meet();
  }
};

#endif  // NEREID_HOPPER

template <int kDim, int kSets>
__global__ void __launch_bounds__(kThreads, 4)
    single_token_kernel(AttentionParams p, const __grid_constant__ Boxes boxes) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ float tops[kAttentionWarps][kMaxSets * kSetHeads];
  __shared__ float largest[kMaxSets * kSetHeads], sums[kMaxSets * kSetHeads];
  __shared__ uint64_t barriers[2][kMaxStages];
  __shared__ int arrived;
  let_next_begin();
  // Positions and cache lines of earlier steps are visible: see embed_kernel().
  QueryTile tile;
  if (!find_tile(p, tile)) return wait_for_previous();
  const int position = p.positions[tile.first_token];
  const KeyRange range = keys_of(p, position, position);
  const Slots slots = slots_of(range, position, boxes.slot_bits);
  const Part part = part_of(p, slots, boxes.slot_bits);
  if (part.tiles == 0) return wait_for_previous();

  uint8_t* const queries = memory + boxes.stages * 2 * kTile;
  uint8_t* const weights = queries + kSets * kSet;
  const Stages stages = {memory, reinterpret_cast<float*>(weights + kSets * kSet), barriers[0],
                         barriers[1], boxes.stages};
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp == kAttentionWarps) {
    Fetcher fetcher = {p, boxes, tile, slots, stages, part.first_slot, part.num_slots};
    fetcher.begin();
    if (threadIdx.x % kWarp == 0) stages.init(kAttentionWarps);
    __syncwarp();
    arrive(kBeginMeets, kThreads);
    return fetcher.run();
  }
  wait_for_qkv(p);
  Queries<kSets> mine;
  mine.load(p, tile, position);
  // Blocks that share a KV head write the same bytes.
  if (part.is_last && warp >= 2)
    store_token<Fp8Cache>(p, tile.first_token, tile.row, tile.kv_head, warp == 3);
  mine.store(p, queries, largest);
  writes_are_ready();
  meet(kBeginMeets, kThreads);
  NewLine new_line;
  if (part.is_last) new_line.load(p, tile, position);
  Work<kDim, kSets> work = {p,        tile,    range,   slots, stages, boxes.slot_bits,
                            position, queries, weights, tops};
  work.begin(largest);
  work.run(part, new_line);
  workers_meet();  // all threads have finished with the tiles, which the values overlay
  auto* const values = reinterpret_cast<float*>(memory);
  work.leave(values, largest, sums);
  finish<kDim>(p, tile, part.num_parts, values, largest, sums, &arrived);
  wait_for_previous();
#endif
}

template <int kDim, int kSets>
cudaError_t enqueue(const AttentionParams& p, const Boxes& boxes, dim3 grid, cudaStream_t stream) {
  return launch_overlapped(single_token_kernel<kDim, kSets>, p.num_rows, grid, kThreads,
                           shared_bytes(kSets, boxes.stages), stream, p, boxes);
}

}  // namespace

bool takes_single_tokens(const AttentionParams& p, DType cache, int sm) {
  return sm == 90 && cache == DType::kF8E4M3 && p.latent == 0 && p.wide_lines &&
         p.heads_per_block <= kMaxSets * kSetHeads && p.head_dim <= kLine &&
         p.block_tokens >= kMinSlot && std::has_single_bit(static_cast<uint32_t>(p.block_tokens)) &&
         p.scale_stride % 4 == 0 && is_aligned(p.k_scales) && is_aligned(p.v_scales) &&
         encode_tiled() != nullptr;
}

cudaError_t launch_single_tokens(const AttentionParams& p, int num_chunks, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_chunks),
                  static_cast<unsigned>(p.num_kv_heads * p.head_blocks),
                  static_cast<unsigned>(p.num_rows));
  const int block_bits = std::countr_zero(static_cast<uint32_t>(p.block_tokens));
  Boxes boxes = {};
  boxes.slot_bits = std::min(block_bits, kKeyBits);
  boxes.block_bits = block_bits - boxes.slot_bits;
  const bool few_heads = p.heads_per_block <= kSetHeads;
  // Four resident blocks per SM, or two beside products of few rows.
  boxes.stages = few_heads && p.num_rows > kMaxGemvRows ? 3 : 2;
  const auto describe = [&](const void* cache, CUtensorMap& map) {
    return describe_blocks<1>(cache, p.head_dim, p.block_tokens, p.num_kv_heads, p.block_stride,
                              1 << boxes.slot_bits, map);
  };
  if (const cudaError_t error = describe(p.k_cache, boxes.keys); error != cudaSuccess) return error;
  if (const cudaError_t error = describe(p.v_cache, boxes.values); error != cudaSuccess)
    return error;
  if (p.head_dim <= 64)
    return few_heads ? enqueue<64, 1>(p, boxes, grid, stream)
                     : enqueue<64, 2>(p, boxes, grid, stream);
  return few_heads ? enqueue<128, 1>(p, boxes, grid, stream)
                   : enqueue<128, 2>(p, boxes, grid, stream);
}

}  // namespace nereid::kernels::cuda
