// out [rows, n] = x [rows, k] . weight [n, k]^T, few rows, integer weights (others:
// skinny_float.cu). Bound by one read of the weight or its conversion to bf16. Each SM takes an
// equal share of the weight's boxes (a tile of outputs by 128 bytes of k), ordered by outputs, then
// k; one warp prefetches them by TMA, the others multiply. If a share starts or ends inside an
// output tile, the partial sums go to the workspace and the last block to arrive adds them in order
// (Osama et al. 2023, "Stream-K").
//
// Weights do not depend on the previous kernel: the first boxes are loaded while it still runs.
#include <algorithm>

#include "kernels/cuda/boxes.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/skinny.h"

namespace nereid::kernels::cuda {
namespace {

template <int kRows, class In>
constexpr int kThreads = kGroups<kRows, In>* kGroupThreads + kWarp;

struct Params {
  void* out;
  const __nv_bfloat16* bias;  // or null
  float* partials;            // [blocks, 2, groups, kRows / 2, kGroupThreads]
  int32_t* counters;          // one per tile and group, initially 0
  int64_t out_stride;
  int64_t boxes;  // of the whole weight
  int n, rows, boxes_k;
  BoxIntegers integers;
};

#if defined(NEREID_HOPPER)

__device__ int64_t share_begin(const Params& p, int64_t block) {
  return p.boxes * block / gridDim.x;
}
__device__ int64_t block_of(const Params& p, int64_t box) {
  return ((box + 1) * gridDim.x - 1) / p.boxes;
}

// A block's boxes in processing order: shared tiles first, so that the wait for other blocks
// overlaps with whole tiles.
struct Share {
  int tiles[3], begins[3],
      ends[3];  // three runs: first tile, boxes of it; the last run has whole tiles
  int num_whole;

  __device__ explicit Share(const Params& p) {
    const int64_t begin = share_begin(p, blockIdx.x), end = share_begin(p, blockIdx.x + 1);
    const int first = static_cast<int>(begin / p.boxes_k), last = static_cast<int>(end / p.boxes_k);
    const int from = static_cast<int>(begin - int64_t{first} * p.boxes_k);
    const int to = static_cast<int>(end - int64_t{last} * p.boxes_k);
    const bool one = first == last;  // all in one partial tile
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

template <int kRows, class Out>
__device__ void store_part(const Params& p, int64_t part, const float (&sums)[kRows / 2]) {
#pragma unroll
  for (int r = 0; r < 4; r += 2) {
    const int64_t n = part * kPart + part_output(r);
    if (n >= p.n) continue;
    const float bias = p.bias ? load(p.bias + n) : 0.0f;
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
      for (int c = 0; c < 2; ++c)
        if (const int row = x_row(i, c); row < p.rows)
          store(static_cast<Out*>(p.out) + row * p.out_stride + n, sums[4 * i + r + c] + bias);
  }
}

__device__ void group_meets(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// If this block is the last of the part: adds the other blocks' sums. Else false.
template <int kRows, class In>
__device__ bool add_partials(const Params& p, int64_t tile, int group, float (&sums)[kRows / 2],
                             int* shared) {
  const int64_t first_box = tile * p.boxes_k;
  const int64_t first = block_of(p, first_box), last = block_of(p, first_box + p.boxes_k - 1);
  // A block has at most two partial tiles: its first and its last.
  const auto partial_of = [&](int64_t block) {
    const int64_t slot = share_begin(p, block) / p.boxes_k == tile ? 0 : 1;
    return p.partials +
           ((2 * block + slot) * kGroups<kRows, In> + group) * (kRows / 2) * kGroupThreads +
           threadIdx.x % kGroupThreads;
  };
  float* const mine = partial_of(blockIdx.x);
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) mine[i * kGroupThreads] = sums[i];
  __threadfence();
  group_meets(group);
  int32_t* const counter = p.counters + tile * kGroups<kRows, In> + group;
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

template <int kRows, class In>
__device__ void produce(const Params& p, const CUtensorMap* weights, const CUtensorMap* x,
                        Ring<kRows, In> ring, const Share& share) {
  const auto copy_weight = [&](int tile, int box) {
    barrier_expect(ring.full + ring.stage, kStageBytes<kRows, In>);
#pragma unroll
    for (int g = 0; g < kGroups<kRows, In>; ++g)
      copy_box(ring.weight(ring.stage) + g * kPartBytes, weights, box * kDepthBytes,
               (tile * kGroups<kRows, In> + g) * kPart, ring.full + ring.stage);
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

template <int kRows, class In, class Out>
__device__ void consume(const Params& p, Ring<kRows, In> ring, const Share& share, int* shared) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  wait_for_previous();
  share.for_each([&](int tile, int begin, int end) {
    float sums[1][kRows / 2] = {};
    const int64_t part = int64_t{tile} * kGroups<kRows, In> + group;
    int64_t rows[2];
    part_rows(part * kPart, int64_t{p.n} - 1, rows);
    add_boxes<kRows>(p.integers, ring, group, rows, begin, end, sums);
    if (end - begin == p.boxes_k ||
        add_partials<kRows, In>(p, tile, group, sums[0], shared + group))
      store_part<kRows, Out>(p, part, sums[0]);
  });
}

#endif  // NEREID_HOPPER

// In: Integers.
template <int kRows, class In, class Out>
__global__ void __launch_bounds__(kThreads<kRows, In>)
    skinny_kernel(const __grid_constant__ CUtensorMap weights,
                  const __grid_constant__ CUtensorMap x, Params p) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t boxes[];
  __shared__ uint64_t full[kStages<kRows, In>], empty[kStages<kRows, In>];
  __shared__ int arrived[kGroups<kRows, In>];
  const Ring<kRows, In> ring = {boxes, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kRows, In>; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, kGroups<kRows, In> * kGroupThreads / kWarp);
    }
    barriers_are_ready();
  }
  __syncthreads();
  let_next_begin();
  const Share share(p);
  if (threadIdx.x < kGroups<kRows, In> * kGroupThreads)
    consume<kRows, In, Out>(p, ring, share, arrived);
  else if (threadIdx.x == kGroups<kRows, In> * kGroupThreads)
    produce<kRows, In>(p, &weights, &x, ring, share);
#endif
}

template <int kRows, class In, class Out>
cudaError_t enqueue(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  CUtensorMap weights, x;
  const int64_t weight_bytes = a.weight.k * kBits<In> / 8, x_bytes = a.weight.k * 2;
  if (const cudaError_t error = describe_rows(false, a.weight.data, a.weight.n, weight_bytes,
                                              weight_bytes, kPart, weights);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error =
          describe_rows(true, scratch.unpacked, a.x.rows, x_bytes, x_bytes, kRows, x);
      error != cudaSuccess)
    return error;
  Params p = {};
  p.out = a.out.data;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.partials = static_cast<float*>(scratch.workspace);
  p.counters = scratch.counters;
  p.out_stride = a.out.stride;
  p.n = static_cast<int>(a.weight.n);
  p.rows = static_cast<int>(a.x.rows);
  p.integers = box_integers(a.weight);
  if (const cudaError_t error = launch_order(a, scratch.unpacked, stream); error != cudaSuccess)
    return error;
  p.boxes_k = static_cast<int>((a.weight.k + kDepth<In> - 1) / kDepth<In>);
  constexpr int kTile = kGroups<kRows, In> * kPart;
  p.boxes = (a.weight.n + kTile - 1) / kTile * p.boxes_k;
  constexpr int kBytes = kStages<kRows, In> * kStageBytes<kRows, In>;
  const auto kernel = skinny_kernel<kRows, In, Out>;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(scratch.num_units, p.boxes));
  return launch_overlapped(kernel, a.x.rows, blocks, kThreads<kRows, In>, kBytes, stream, weights,
                           x, p);
}

// `rows`: capacity of the form.
template <class In, class Out>
cudaError_t enqueue_rows(const Linear& a, int64_t rows, const Scratch& scratch,
                         cudaStream_t stream) {
  if (rows <= 16) return enqueue<16, In, Out>(a, scratch, stream);
  if (rows <= 32) return enqueue<32, In, Out>(a, scratch, stream);
  return enqueue<64, In, Out>(a, scratch, stream);
}

template <class In>
cudaError_t enqueue_out(const Linear& a, int64_t rows, const Scratch& scratch,
                        cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16) return enqueue_rows<In, __nv_bfloat16>(a, rows, scratch, stream);
  return enqueue_rows<In, float>(a, rows, scratch, stream);
}

cudaError_t enqueue_in(const Linear& a, int64_t rows, const Scratch& scratch, cudaStream_t stream) {
  if (a.weight.format.scheme == Scheme::kInteger)
    return a.weight.format.bits == 4 ? enqueue_out<Integers<4>>(a, rows, scratch, stream)
                                     : enqueue_out<Integers<8>>(a, rows, scratch, stream);
  return launch_skinny_floats(a, rows, scratch, stream);
}

bool takes_integers(const Linear& a) {
  return fits_boxes(a.weight.format, a.weight.k) &&
         kSkinnyRows * a.weight.k * 2 <= kUnpackedBytes && a.x.stride % 2 == 0;
}

}  // namespace

bool takes_skinny(const Linear& a, int sm) {
  const bool fits =
      is_in_pieces(a) ? a.x.rows <= kSkinnyFloatRows : a.x.rows <= kSkinnyRows && takes_integers(a);
  return sm == 90 && fits && a.weight.n <= int64_t{kPart} * kMaxSkinnyParts &&
         is_aligned(a.x.data) && is_aligned(a.weight.data) && encode_tiled() != nullptr;
}

cudaError_t launch_skinny(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  return enqueue_in(a, a.x.rows, scratch, stream);
}
cudaError_t launch_invariant_skinny(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  return enqueue_in(a, kSkinnyRows, scratch, stream);
}

}  // namespace nereid::kernels::cuda
