// out [rows, n] = x [rows, k] . weight [n, k]^T for few rows: the time is that of reading the
// weight once. Every multiprocessor takes an equal share of the weight's boxes (a tile of outputs
// by 128 bytes of k), in the order of outputs, then k; one warp fetches them ahead with the copy
// engine, the others multiply. Where the share of a multiprocessor begins or ends inside an output
// tile, the partial sums meet in the workspace and the last to arrive adds them in order (Osama et
// al. 2023, "Stream-K").
//
// Integers become bf16 on their way from a box to the tensor cores, which take the weight's operand
// from registers then: a thread reads words whose columns lie apart, so x is brought into their
// order first. The integers less their zero are multiplied as they are, exact in bf16, and the sums
// over a group are scaled: without the rounding of every weight to bf16.
//
// Weights do not depend on the kernel in front: the first boxes are fetched while it still runs.
#include <cuda_bf16.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/integers.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kPart = 64;         // outputs of a group of four warps
constexpr int kDepthBytes = 128;  // of the k of a box
constexpr int kProducts = 4;      // along it
constexpr int kHalves = 2;        // of a box of integers; all of a half is in one group
constexpr int kGroupThreads = 128;
constexpr int kPartBytes = kPart * kDepthBytes;
constexpr int kSharedBytes = 144 * 1024;

// Groups of warps that multiply: a tile has that many times 64 outputs, so that x, which every tile
// reads, does not take more of the way from the second-level cache than the weight.
template <int kRows>
constexpr int kGroups = kRows <= 16 ? 1 : 2;
template <int kRows>
constexpr int kThreads = kGroups<kRows>* kGroupThreads + kWarp;

// What the numbers of the weight are: __nv_bfloat16, __nv_fp8_e4m3 (x is of that type too), or:
template <int kIntegerBits>
struct Integers {};

template <class In>
constexpr int kBits = 8 * sizeof(In);
template <int kIntegerBits>
constexpr int kBits<Integers<kIntegerBits>> = kIntegerBits;
template <class In>
constexpr bool kIsInteger = false;
template <int kIntegerBits>
constexpr bool kIsInteger<Integers<kIntegerBits>> = true;
template <class In>
constexpr bool kIsF8 = std::is_same_v<In, __nv_fp8_e4m3>;

template <class In>
constexpr int kDepth = kDepthBytes * 8 / kBits<In>;  // columns of a box
// Boxes of x for one of the weight, and their columns.
template <class In>
constexpr int kXBoxes = kIsInteger<In> ? kDepth<In> / 64 : 1;
template <class In>
constexpr int kXDepth = kDepth<In> / kXBoxes<In>;
template <int kRows, class In>
constexpr int kStageBytes = kGroups<kRows>* kPartBytes + kXBoxes<In>* kRows* kDepthBytes;
template <int kRows, class In>
constexpr int kStages = kSharedBytes / kStageBytes<kRows, In>;

struct Params {
  void* out;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // of outputs and of rows of x, for f8e4m3
  const float* x_scales;
  const uint8_t* zeros;  // of integers, or null
  float* partials;       // [blocks, 2, groups, kRows / 2, kGroupThreads]
  int32_t* counters;     // one for each tile and group, zero
  int64_t out_stride, x_scales_stride;
  int64_t boxes;  // of the whole weight
  int n, k, rows, boxes_k;
  int groups, group_bits, zero;  // of integers: groups of a row, log2 of their columns, usual zero
};

#if defined(NEREID_HOPPER)

__device__ int64_t share_begin(const Params& p, int64_t block) {
  return p.boxes * block / gridDim.x;
}
__device__ int64_t block_of(const Params& p, int64_t box) {
  return ((box + 1) * gridDim.x - 1) / p.boxes;
}

// A block's boxes in the order of its work: those of tiles that it shares with other blocks first,
// so that the last to arrive is not the end of the kernel where there are whole tiles too.
struct Share {
  int tiles[3], begins[3],
      ends[3];  // pieces: first tile, boxes of it; the last one is of whole tiles
  int num_whole;

  __device__ explicit Share(const Params& p) {
    const int64_t begin = share_begin(p, blockIdx.x), end = share_begin(p, blockIdx.x + 1);
    const int first = static_cast<int>(begin / p.boxes_k), last = static_cast<int>(end / p.boxes_k);
    const int from = static_cast<int>(begin - int64_t{first} * p.boxes_k);
    const int to = static_cast<int>(end - int64_t{last} * p.boxes_k);
    const bool one = first == last;  // all in one tile that is not whole
    tiles[0] = first, begins[0] = from, ends[0] = from == 0 ? 0 : one ? to : p.boxes_k;
    tiles[1] = last, begins[1] = 0, ends[1] = one && from > 0 ? 0 : to;
    tiles[2] = first + (from > 0), begins[2] = 0, ends[2] = p.boxes_k;
    num_whole = max(0, last - tiles[2]);
  }
  // Calls f(tile, first box, end) for each tile.
  template <class F>
  __device__ void for_each(F f) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (ends[i] > begins[i]) f(tiles[i], begins[i], ends[i]);
    for (int i = 0; i < num_whole; ++i) f(tiles[2] + i, 0, ends[2]);
  }
};

// Register 4 i + r of a thread: output of the group's part, and row of x.
__device__ int part_output(int r) {
  return threadIdx.x % kGroupThreads / kWarp * 16 + threadIdx.x % kWarp / 4 + 8 * (r / 2);
}
__device__ int x_row(int i, int r) { return 8 * i + threadIdx.x % 4 * 2 + r % 2; }

template <int kRows, class In, class Out>
__device__ void store_part(const Params& p, int64_t part, const float (&sums)[kRows / 2]) {
#pragma unroll
  for (int r = 0; r < 4; r += 2) {
    const int64_t n = part * kPart + part_output(r);
    if (n >= p.n) continue;
    const float bias = p.bias ? load(p.bias + n) : 0.0f;
    const float scale = kIsF8<In> ? p.scales[n] : 1.0f;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (const int row = x_row(i, c); row < p.rows) {
          float sum = sums[4 * i + r + c];
          if (kIsF8<In>) sum *= scale * p.x_scales[row * p.x_scales_stride];
          store(static_cast<Out*>(p.out) + row * p.out_stride + n, sum + bias);
        }
  }
}

__device__ void group_meets(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Adds the other blocks' sums of the part when this one is the last; false when it is not.
template <int kRows>
__device__ bool add_partials(const Params& p, int64_t tile, int group, float (&sums)[kRows / 2],
                             int* shared) {
  const int64_t first_box = tile * p.boxes_k;
  const int64_t first = block_of(p, first_box), last = block_of(p, first_box + p.boxes_k - 1);
  // A block has at most two tiles that are not whole: its first and its last.
  const auto partial_of = [&](int64_t block) {
    const int64_t slot = share_begin(p, block) / p.boxes_k == tile ? 0 : 1;
    return p.partials +
           ((2 * block + slot) * kGroups<kRows> + group) * (kRows / 2) * kGroupThreads +
           threadIdx.x % kGroupThreads;
  };
  float* const mine = partial_of(blockIdx.x);
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) mine[i * kGroupThreads] = sums[i];
  __threadfence();
  group_meets(group);
  int32_t* const counter = p.counters + tile * kGroups<kRows> + group;
  if (threadIdx.x % kGroupThreads == 0) *shared = atomicAdd(counter, 1);
  group_meets(group);
  if (*shared != last - first) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] = 0;
  for (int64_t block = first; block <= last; ++block) {
    const float* partial = partial_of(block);
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) sums[i] += __ldcg(partial + i * kGroupThreads);
  }
  if (threadIdx.x % kGroupThreads == 0) *counter = 0;
  return true;
}

// The stages of boxes in shared memory: the weight's, then x's.
template <int kRows, class In>
struct Ring {
  uint8_t* boxes;
  uint64_t* full;
  uint64_t* empty;
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint8_t* weight(int s) const { return boxes + s * kStageBytes<kRows, In>; }
  __device__ uint8_t* x(int s) const { return weight(s) + kGroups<kRows> * kPartBytes; }
  __device__ void step() {
    if (++stage == kStages<kRows, In>) stage = 0, parity ^= 1;
  }
};

template <int kRows, class In>
__device__ void produce(const Params& p, const CUtensorMap* weights, const CUtensorMap* x,
                        Ring<kRows, In> ring, const Share& share) {
  constexpr int kBoxColumns = kIsInteger<In> ? kDepthBytes : kDepth<In>;  // integers: bytes
  const auto copy_weight = [&](int tile, int box) {
    barrier_expect(ring.full + ring.stage, kStageBytes<kRows, In>);
#pragma unroll
    for (int g = 0; g < kGroups<kRows>; ++g)
      copy_box(ring.weight(ring.stage) + g * kPartBytes, weights, box * kBoxColumns,
               (tile * kGroups<kRows> + g) * kPart, ring.full + ring.stage);
  };
  const auto copy_x = [&](int box) {
#pragma unroll
    for (int i = 0; i < kXBoxes<In>; ++i)
      copy_box(ring.x(ring.stage) + i * kRows * kDepthBytes, x, box * kDepth<In> + i * kXDepth<In>,
               0, ring.full + ring.stage);
  };
  // The weights of the first stages, their rows of x, then the others as stages become free.
  int count = 0;
  share.for_each([&](int tile, int begin, int end) {
    for (int box = begin; box < end && count < kStages<kRows, In>; ++box, ++count) {
      copy_weight(tile, box);
      ring.step();
    }
  });
  wait_for_previous();
  const int ahead = count;
  ring.stage = 0, ring.parity = 0, count = 0;
  share.for_each([&](int tile, int begin, int end) {
    for (int box = begin; box < end; ++box, ++count) {
      if (count >= ahead) {
        barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
        copy_weight(tile, box);
      }
      copy_x(box);
      ring.step();
    }
  });
}

template <int kRows, class In>
__device__ void add_boxes(const Params&, Ring<kRows, In>& ring, int group, int, int begin, int end,
                          float (&sums)[kRows / 2]) {
  int before = -1;  // stage whose products may still run
  for (int box = begin; box < end; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    const uint64_t a = swizzled_matrix(ring.weight(ring.stage) + group * kPartBytes);
    const uint64_t b = swizzled_matrix(ring.x(ring.stage));
    products_begin();
#pragma unroll
    for (int k = 0; k < kProducts; ++k) {
      if constexpr (kIsF8<In>)
        multiply_64_f8(sums, a + 2 * k, b + 2 * k);
      else
        multiply_64(sums, a + 2 * k, b + 2 * k);
    }
    products_end();
    wait_for_products<1>();
    if (before >= 0 && threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
    before = ring.stage;
    ring.step();
  }
  wait_for_products<0>();
  if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
}

// Scales and zeros of a thread's two rows in the halves of a box of integers.
struct BoxScales {
  float scales[kHalves][2];
  uint32_t zeros[kHalves][2];

  template <class In>
  __device__ void load(const Params& p, In, const int64_t (&rows)[2], int box) {
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int column = box * kDepth<In> + h * (kDepth<In> / kHalves);
        const int64_t at = rows[r] * p.groups + (column >> p.group_bits);
        const bool inside = column < p.k;
        scales[h][r] = inside ? __ldg(p.scales + at) : 0.0f;
        zeros[h][r] = p.zeros && inside ? __ldg(p.zeros + at) : static_cast<uint32_t>(p.zero);
      }
  }
};

template <int kRows, int kIntegerBits>
__device__ void add_boxes(const Params& p, Ring<kRows, Integers<kIntegerBits>>& ring, int group,
                          int tile, int begin, int end, float (&sums)[kRows / 2]) {
  using In = Integers<kIntegerBits>;
  using Word = Words<kIntegerBits, false>;
  constexpr int kPieces = kDepthBytes / 16;         // of a row, one word for each thread
  constexpr int kPieceProducts = Word::kPairs / 2;  // of 16 columns
  constexpr int kTurns = 2 * kHalves;  // of making operands while the ones before are multiplied
  constexpr int kTurnProducts = kPieces / kTurns * kPieceProducts;
  const int lane = threadIdx.x % kWarp;
  const int row = part_output(0);  // of the part; the other is 8 behind
  int64_t rows[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    rows[r] = min((int64_t{tile} * kGroups<kRows> + group) * kPart + row + 8 * r, int64_t{p.n} - 1);

  BoxScales now, next;
  next.load(p, In{}, rows, begin);
  float products[kHalves][kRows / 2];
  const auto add_half = [&](int h) {
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i)
      sums[i] = fmaf(now.scales[h][i % 4 / 2], products[h][i], sums[i]);
  };
  for (int box = begin; box < end; ++box) {
    now = next;
    if (box + 1 < end) next.load(p, In{}, rows, box + 1);
    barrier_wait(ring.full + ring.stage, ring.parity);
    const uint8_t* words = ring.weight(ring.stage) + group * kPartBytes + row * kDepthBytes;
    const uint64_t b = swizzled_matrix(ring.x(ring.stage));
    uint32_t a[2][kTurnProducts][4];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      constexpr int kTurnPieces = kPieces / kTurns;
      const int half = turn / (kTurns / kHalves);
      uint32_t(&now_a)[kTurnProducts][4] = a[turn % 2];
#pragma unroll
      for (int i = 0; i < kTurnPieces; ++i) {
        // Pieces of a row are swizzled by the row's last bits.
        const int at = ((turn * kTurnPieces + i) ^ (row % 8)) * 16 + lane % 4 * 4;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          uint32_t pairs[Word::kPairs];
          Word::decode(*reinterpret_cast<const uint32_t*>(words + r * 8 * kDepthBytes + at), 0,
                       now.zeros[half][r], 0, pairs);
#pragma unroll
          for (int j = 0; j < Word::kPairs; ++j)
            now_a[i * kPieceProducts + j / 2][j % 2 * 2 + r] = pairs[j];
        }
      }
      products_begin();
#pragma unroll
      for (int i = 0; i < kTurnProducts; ++i) {
        const int product = turn * kTurnProducts + i;
        const uint64_t x = b + product / 4 * (kRows * kDepthBytes >> 4) + product % 4 * 2;
        if (i == 0 && turn % (kTurns / kHalves) == 0)
          multiply_64<false>(products[half], now_a[i], x);
        else
          multiply_64<true>(products[half], now_a[i], x);
      }
      products_end();
      if (turn > 0) wait_for_products<1>();  // those of the turn before, whose registers are next
    }
    add_half(0);
    wait_for_products<0>();
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
    add_half(1);
    ring.step();
  }
}

template <int kRows, class In, class Out>
__device__ void consume(const Params& p, Ring<kRows, In> ring, const Share& share, int* shared) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  wait_for_previous();
  share.for_each([&](int tile, int begin, int end) {
    float sums[kRows / 2] = {};
    add_boxes(p, ring, group, tile, begin, end, sums);
    if (end - begin == p.boxes_k || add_partials<kRows>(p, tile, group, sums, shared + group))
      store_part<kRows, In, Out>(p, int64_t{tile} * kGroups<kRows> + group, sums);
  });
}

#endif  // NEREID_HOPPER

// In: of x and weight.
template <int kRows, class In, class Out>
__global__ void __launch_bounds__(kThreads<kRows>)
    skinny_kernel(const __grid_constant__ CUtensorMap weights,
                  const __grid_constant__ CUtensorMap x, Params p) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t boxes[];
  __shared__ uint64_t full[kStages<kRows, In>], empty[kStages<kRows, In>];
  __shared__ int arrived[kGroups<kRows>];
  const Ring<kRows, In> ring = {boxes, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kRows, In>; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, kGroups<kRows> * kGroupThreads / kWarp);
    }
    barriers_are_ready();
  }
  __syncthreads();
  let_next_begin();
  const Share share(p);
  if (threadIdx.x < kGroups<kRows> * kGroupThreads)
    consume<kRows, In, Out>(p, ring, share, arrived);
  else if (threadIdx.x == kGroups<kRows> * kGroupThreads)
    produce<kRows, In>(p, &weights, &x, ring, share);
#endif
}

// Boxes of `box_rows` rows by kDepthBytes of a matrix with rows of `row_bytes`.
cudaError_t describe_rows(bool bf16, const void* data, int64_t rows, int64_t row_bytes,
                          int64_t stride_bytes, int box_rows, CUtensorMap& map) {
  const int bytes = bf16 ? 2 : 1;
  return describe<2>(
      bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, data,
      {static_cast<cuuint64_t>(row_bytes / bytes), static_cast<cuuint64_t>(rows)},
      {static_cast<cuuint64_t>(stride_bytes)},
      {static_cast<cuuint32_t>(kDepthBytes / bytes), static_cast<cuuint32_t>(box_rows)}, map);
}

template <int kRows, class In, class Out>
cudaError_t enqueue(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  CUtensorMap weights, x;
  const int64_t weight_bytes = a.weight.k * kBits<In> / 8, x_size = kIsF8<In> ? 1 : 2;
  const void* rows = kIsInteger<In> ? scratch.unpacked : a.x.data;
  const int64_t rows_stride = kIsInteger<In> ? a.weight.k : a.x.stride;
  if (const cudaError_t error = describe_rows(kBits<In> == 16, a.weight.data, a.weight.n,
                                              weight_bytes, weight_bytes, kPart, weights);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = describe_rows(x_size == 2, rows, a.x.rows, a.x.cols * x_size,
                                              rows_stride * x_size, kRows, x);
      error != cudaSuccess)
    return error;
  Params p = {};
  p.out = a.out.data;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data);
  p.x_scales_stride = a.scales.stride;
  p.partials = static_cast<float*>(scratch.workspace);
  p.counters = scratch.counters;
  p.out_stride = a.out.stride;
  p.n = static_cast<int>(a.weight.n), p.k = static_cast<int>(a.weight.k);
  p.rows = static_cast<int>(a.x.rows);
  if constexpr (kIsInteger<In>) {
    const WeightFormat& format = a.weight.format;
    p.zeros = a.weight.zeros, p.zero = format.default_zero();
    p.groups = static_cast<int>(format.num_groups(a.weight.k));
    const auto group = static_cast<uint64_t>(format.group_size(a.weight.k));
    p.group_bits = p.groups == 1 ? 31 : std::countr_zero(group);
    if (const cudaError_t error = launch_order(a, scratch.unpacked, stream); error != cudaSuccess)
      return error;
  }
  p.boxes_k = static_cast<int>((a.weight.k + kDepth<In> - 1) / kDepth<In>);
  constexpr int kTile = kGroups<kRows> * kPart;
  p.boxes = (a.weight.n + kTile - 1) / kTile * p.boxes_k;
  constexpr int kBytes = kStages<kRows, In> * kStageBytes<kRows, In>;
  const auto kernel = skinny_kernel<kRows, In, Out>;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(scratch.num_units, p.boxes));
  return launch_overlapped(kernel, a.x.rows, blocks, kThreads<kRows>, kBytes, stream, weights, x,
                           p);
}

template <class In, class Out>
cudaError_t enqueue_rows(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  if (a.x.rows <= 16) return enqueue<16, In, Out>(a, scratch, stream);
  if (a.x.rows <= 32) return enqueue<32, In, Out>(a, scratch, stream);
  return enqueue<64, In, Out>(a, scratch, stream);
}

template <class In>
cudaError_t enqueue_out(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16) return enqueue_rows<In, __nv_bfloat16>(a, scratch, stream);
  return enqueue_rows<In, float>(a, scratch, stream);
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Whether rows of integers are whole pieces of 16 bytes, and a half of a box lies in one group.
bool fits_boxes(const Linear& a) {
  const WeightFormat& format = a.weight.format;
  const int64_t k = a.weight.k, group = format.group_size(k);
  return format.scheme == Scheme::kInteger && !format.minima && k % (128 / format.bits) == 0 &&
         kSkinnyRows * k * 2 <= kUnpackedBytes && a.x.stride % 2 == 0 &&
         (format.num_groups(k) == 1 || (std::has_single_bit(static_cast<uint64_t>(group)) &&
                                        group >= kDepthBytes / kHalves * 8 / format.bits));
}

}  // namespace

bool takes_skinny(const Linear& a, int sm) {
  return sm == 90 && a.x.rows <= kSkinnyRows && (is_in_pieces(a) || fits_boxes(a)) &&
         a.weight.n <= int64_t{kPart} * kMaxSkinnyParts && is_aligned(a.x.data) &&
         is_aligned(a.weight.data) && encode_tiled() != nullptr;
}

cudaError_t launch_skinny(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  if (a.weight.format.scheme == Scheme::kInteger)
    return a.weight.format.bits == 4 ? enqueue_out<Integers<4>>(a, scratch, stream)
                                     : enqueue_out<Integers<8>>(a, scratch, stream);
  if (a.x.dtype == DType::kF8E4M3) return enqueue_out<__nv_fp8_e4m3>(a, scratch, stream);
  return enqueue_out<__nv_bfloat16>(a, scratch, stream);
}

}  // namespace nereid::kernels::cuda
