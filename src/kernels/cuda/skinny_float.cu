// out [rows, n] = x [rows, k] . weight [n, k]^T for few rows of bf16 or f8e4m3: the time is that of
// reading the weight once. A block has a tile of outputs, and where there are fewer tiles than
// multiprocessors a part of k too: the blocks of a cluster have the parts of one tile and add their
// sums in the order of k, each for some of the rows, from each other's shared memory. Tiles are as
// wide as makes all blocks run at once with equal work (up to 256 outputs: every tile reads x, so
// narrow ones would read more of x than of the weight). One warp fetches boxes ahead with the copy
// engine, the others multiply.
//
// Weights do not depend on the kernel in front: the first boxes are fetched while it still runs.
#include <algorithm>
#include <array>
#include <atomic>

#include "kernels/cuda/boxes.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/skinny.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kMaxSplit = 4;  // parts of k
constexpr int kVector = 4;    // outputs that are stored at once
constexpr int kTileUnit = 8;  // a tile is a multiple of it: rows of the swizzle

// kTileGroups: groups of warps that multiply, each for 64 outputs; the last may have fewer.
template <int kTileGroups>
constexpr int kThreads = kTileGroups* kGroupThreads + kWarp;
template <int kTileGroups>
constexpr int kMaxTile = kTileGroups* kPart;
// Floats from a row of sums to the next: rows of a warp lie in different banks.
template <int kTileGroups>
constexpr int kPitch = kMaxTile<kTileGroups> + kVector;
// What the kernel in front has beside it matters more than another stage, but three are too few.
template <int kRows>
constexpr int kRingBytes = (kRows <= 64 ? 160 : 192) * 1024;
template <int kRows, class In, int kTileGroups>
constexpr int kNumStages = kStages<kRows, In, kTileGroups, kRingBytes<kRows>>;

struct Params {
  void* out;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // of outputs and of rows of x, for f8e4m3
  const float* x_scales;
  int64_t out_stride, x_scales_stride;
  int n, rows, boxes_k, split;
  int tile;      // outputs
  bool vectors;  // outputs can be stored kVector at a time
};

#if defined(NEREID_HOPPER)

template <int kRows, class In, int kTileGroups>
using TileRing = Ring<kRows, In, kTileGroups, kRingBytes<kRows>>;

// The boxes of a block, in the order of its work: neighbouring tiles begin at other columns, so
// that the blocks do not ask for the same columns of all rows at a time.
struct Boxes {
  int tile, begin, count, first;

  __device__ Boxes(const Params& p) {
    const int rank = static_cast<int>(blockIdx.x) % p.split;
    tile = static_cast<int>(blockIdx.x) / p.split;
    begin = p.boxes_k * rank / p.split;
    count = p.boxes_k * (rank + 1) / p.split - begin;
    first = 2 * tile % count;  // copies bring two boxes' columns to the second-level cache
  }
  __device__ int operator[](int i) const {
    const int box = first + i;
    return begin + (box < count ? box : box - count);
  }
};

template <int kRows, class In, int kTileGroups>
__device__ void produce(const Params& p, const CUtensorMap* weights, const CUtensorMap* x,
                        TileRing<kRows, In, kTileGroups> ring, const Boxes& boxes) {
  const auto copy_weight = [&](int i) {
    barrier_expect(ring.full + ring.stage, (p.tile + kRows) * kDepthBytes);
    const int column = boxes[i] * kDepth<In>, row = boxes.tile * p.tile;
    // With 64 rows and more steps took 0.4 % longer so (8B, H200), with 16 they take 2.5 % less.
    if constexpr (kRows <= 16)
      copy_box(ring.weight(ring.stage), weights, column, row, ring.full + ring.stage, read_once());
    else
      copy_box(ring.weight(ring.stage), weights, column, row, ring.full + ring.stage);
  };
  const int ahead = min(boxes.count, kNumStages<kRows, In, kTileGroups>);
  for (int i = 0; i < ahead; ++i, ring.step()) copy_weight(i);
  asm volatile("prefetch.tensormap [%0];" ::"l"(x) : "memory");  // before it is needed
  wait_for_previous();
  ring.stage = 0, ring.parity = 0;
  for (int i = 0; i < boxes.count; ++i, ring.step()) {
    if (i >= ahead) {
      barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
      copy_weight(i);
    }
    copy_box(ring.x(ring.stage), x, boxes[i] * kDepth<In>, 0, ring.full + ring.stage);
  }
}

// What a block adds and multiplies its sums with, in shared memory.
template <int kRows, int kTileGroups>
struct Factors {
  float scales[kMaxTile<kTileGroups>], bias[kMaxTile<kTileGroups>], x_scales[kRows];
};

// A thread's sums of its tile to shared memory, [row of x, output].
template <int kRows, int kTileGroups>
__device__ void put_sums(float* tile, int group, const float (&sums)[kRows / 2]) {
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      tile[x_row(i, r) * kPitch<kTileGroups> + group * kPart + part_output(r)] = sums[4 * i + r];
}

// Four numbers of another block's shared memory.
__device__ float4 load_in_cluster(const float4* at, int rank) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(shared_address(at)), "r"(rank)
      : "memory");
  return v;
}
// cluster_meets() behind such loads alone: what a block stored in global memory need not be there.
__device__ void cluster_has_read() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The sums of all parts of k, in their order.
__device__ float4 add_parts(const float* mine, int split) {
  const auto* at = reinterpret_cast<const float4*>(mine);
  if (split == 1) return *at;
  float4 parts[kMaxSplit];
#pragma unroll
  for (int s = 0; s < kMaxSplit; ++s)
    if (s < split) parts[s] = load_in_cluster(at, s);
  float4 sum = parts[0];
#pragma unroll
  for (int s = 1; s < kMaxSplit; ++s)
    if (s < split) {
      sum.x += parts[s].x, sum.y += parts[s].y;
      sum.z += parts[s].z, sum.w += parts[s].w;
    }
  return sum;
}

template <class Out>
__device__ void store_vector(const Params& p, Out* to, int n, const float (&v)[kVector]) {
  if (!p.vectors) {
    for (int i = 0; i < min(kVector, p.n - n); ++i) store(to + i, v[i]);
  } else if constexpr (sizeof(Out) == sizeof(float)) {
    *reinterpret_cast<float4*>(to) = {v[0], v[1], v[2], v[3]};
  } else {
    const __nv_bfloat162 pairs[] = {__floats2bfloat162_rn(v[0], v[1]),
                                    __floats2bfloat162_rn(v[2], v[3])};
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
  }
}

// Adds and stores this block's share of the tile's rows.
template <int kRows, class In, class Out, int kTileGroups>
__device__ void finish(const Params& p, const Boxes& boxes, const float* tile,
                       const Factors<kRows, kTileGroups>& factors) {
  const int rank = static_cast<int>(blockIdx.x) % p.split, vectors = p.tile / kVector;
  const int first = p.rows * rank / p.split, last = p.rows * (rank + 1) / p.split;
  for (int i = static_cast<int>(threadIdx.x); i < (last - first) * vectors;
       i += kTileGroups * kGroupThreads) {
    const int row = first + i / vectors, column = i % vectors * kVector;
    const int n = boxes.tile * p.tile + column;
    if (n >= p.n) continue;
    const float4 sum = add_parts(tile + row * kPitch<kTileGroups> + column, p.split);
    float v[] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (kIsF8<In>) v[j] *= factors.scales[column + j] * factors.x_scales[row];
      v[j] += factors.bias[column + j];
    }
    store_vector(p, static_cast<Out*>(p.out) + row * p.out_stride + n, n, v);
  }
}

#endif  // NEREID_HOPPER

// In: of x and weight.
template <int kRows, class In, class Out, int kTileGroups>
__global__ void __launch_bounds__(kThreads<kTileGroups>)
    skinny_kernel(const __grid_constant__ CUtensorMap weights,
                  const __grid_constant__ CUtensorMap x, Params p) {
#if defined(NEREID_HOPPER)
  constexpr int kNumRing = kNumStages<kRows, In, kTileGroups>;
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ uint64_t full[kNumRing], empty[kNumRing];
  __shared__ Factors<kRows, kTileGroups> factors;
  TileRing<kRows, In, kTileGroups> ring = {memory, full, empty};
  const int thread = static_cast<int>(threadIdx.x), group = thread / kGroupThreads;
  if (thread == 0) {
    for (int i = 0; i < kNumRing; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, kTileGroups * kGroupThreads / kWarp);
    }
    barriers_are_ready();
  }
  __syncthreads();
  let_next_begin();
  const Boxes boxes(p);
  float* const tile = reinterpret_cast<float*>(memory);
  if (group < kTileGroups) {
    for (int i = thread; i < p.tile; i += kTileGroups * kGroupThreads) {
      const int n = boxes.tile * p.tile + i;
      factors.scales[i] = kIsF8<In> && n < p.n ? p.scales[n] : 0.0f;
      factors.bias[i] = p.bias && n < p.n ? load(p.bias + n) : 0.0f;
    }
    wait_for_previous();
    if (kIsF8<In> && thread < p.rows)
      factors.x_scales[thread] = p.x_scales[thread * p.x_scales_stride];
    float sums[kRows / 2] = {};
    are_defined_here(sums);
    add_boxes(BoxIntegers{}, ring, group, 0, 0, 0, boxes.count, sums);
    meet(1, kTileGroups * kGroupThreads);  // all boxes are multiplied: the sums take their place
    put_sums<kRows, kTileGroups>(tile, group, sums);
    meet(1, kTileGroups * kGroupThreads);
    if (p.split > 1) cluster_meets();
    finish<kRows, In, Out>(p, boxes, tile, factors);
    __syncwarp();
    if (p.split > 1) cluster_has_read();  // no block ends while others read its sums
  } else {
    if (thread == kTileGroups * kGroupThreads)
      produce<kRows, In, kTileGroups>(p, &weights, &x, ring, boxes);
    __syncwarp();
    if (p.split > 1) {
      cluster_meets();
      cluster_has_read();
    }
  }
#endif
}

template <int kRows, class In, int kTileGroups>
constexpr int kBytes =
    std::max(kNumStages<kRows, In, kTileGroups>* kStageBytes<kRows, In, kTileGroups>,
             kRows* kPitch<kTileGroups>* int{sizeof(float)});

// Clusters of so many blocks that can run at once.
template <int kRows, class In, class Out>
int count_clusters(int split, int units) {
  if (split == 1) return units;
  static std::array<std::atomic<int>, kMaxSplit + 1> known = {};  // one more, 0: not yet
  if (known[split] == 0) {
    const auto kernel = skinny_kernel<kRows, In, Out, 4>;
    constexpr int kShared = kBytes<kRows, In, 4>;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(split), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = static_cast<unsigned>(split);
    config.blockDim = kThreads<4>;
    config.dynamicSmemBytes = kShared;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared) !=
            cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
      cudaGetLastError();
      clusters = 0;
    }
    known[split] = clusters + 1;
  }
  return std::min(known[split] - 1, units / split);
}

struct Form {
  int split, tile;
};

// The parts of k and the outputs of a tile for which a block reads least, itself and with all
// others beside it; what blocks of a cluster wait for each other is worth kMeetBytes for each.
template <int kRows, class In, class Out>
Form choose_form(int64_t n, int64_t boxes_k, int units) {
  constexpr double kMeetBytes = 100e3;
  Form best = {};
  double best_cost = 0;
  for (int split = 1; split <= std::min<int64_t>(kMaxSplit, boxes_k); ++split) {
    const int64_t clusters = count_clusters<kRows, In, Out>(split, units);
    if (clusters == 0) continue;
    const int64_t turns = (n + clusters * kMaxTile<4> - 1) / (clusters * kMaxTile<4>);
    const int64_t outputs = (n + clusters * turns - 1) / (clusters * turns);
    const int64_t tile = (outputs + kTileUnit - 1) / kTileUnit * kTileUnit;
    const int64_t blocks = (n + tile - 1) / tile * split;
    const double block_bytes = static_cast<double>((tile + kRows) * kDepthBytes * boxes_k) / split;
    const double cost = block_bytes * static_cast<double>(blocks) / units +
                        block_bytes * static_cast<double>(turns) + kMeetBytes * split;
    if (best.tile == 0 || cost < best_cost)
      best = {split, static_cast<int>(tile)}, best_cost = cost;
  }
  return best;
}

template <int kRows, class In, class Out, int kTileGroups>
cudaError_t enqueue(const Linear& a, const Form& form, cudaStream_t stream) {
  CUtensorMap weights, x;
  constexpr int64_t kSize = kBits<In> / 8;
  const int64_t row_bytes = a.weight.k * kSize;
  if (const cudaError_t error = describe_rows(kSize == 2, a.weight.data, a.weight.n, row_bytes,
                                              row_bytes, form.tile, weights);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error =
          describe_rows(kSize == 2, a.x.data, a.x.rows, row_bytes, a.x.stride * kSize, kRows, x);
      error != cudaSuccess)
    return error;
  Params p = {};
  p.out = a.out.data;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data);
  p.x_scales_stride = a.scales.stride;
  p.out_stride = a.out.stride;
  p.n = static_cast<int>(a.weight.n);
  p.rows = static_cast<int>(a.x.rows);
  p.boxes_k = static_cast<int>((a.weight.k + kDepth<In> - 1) / kDepth<In>);
  p.split = form.split;
  p.tile = form.tile;
  p.vectors = fits_vectors(a.out, p.n);
  const int blocks = (p.n + p.tile - 1) / p.tile * p.split;
  return launch_overlapped_clusters(skinny_kernel<kRows, In, Out, kTileGroups>, a.x.rows,
                                    static_cast<unsigned>(blocks), static_cast<unsigned>(p.split),
                                    kThreads<kTileGroups>, kBytes<kRows, In, kTileGroups>, stream,
                                    weights, x, p);
}

template <int kRows, class In, class Out>
cudaError_t enqueue_form(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  const int64_t boxes_k = (a.weight.k + kDepth<In> - 1) / kDepth<In>;
  const Form form = choose_form<kRows, In, Out>(a.weight.n, boxes_k, scratch.num_units);
  return form.tile <= kMaxTile<2> ? enqueue<kRows, In, Out, 2>(a, form, stream)
                                  : enqueue<kRows, In, Out, 4>(a, form, stream);
}

template <class In, class Out>
cudaError_t enqueue_rows(const Linear& a, int64_t rows, const Scratch& scratch,
                         cudaStream_t stream) {
  if (rows <= 16) return enqueue_form<16, In, Out>(a, scratch, stream);
  if (rows <= 32) return enqueue_form<32, In, Out>(a, scratch, stream);
  if (rows <= 64) return enqueue_form<64, In, Out>(a, scratch, stream);
  return enqueue_form<kSkinnyFloatRows, In, Out>(a, scratch, stream);
}

template <class In>
cudaError_t enqueue_out(const Linear& a, int64_t rows, const Scratch& scratch,
                        cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16) return enqueue_rows<In, __nv_bfloat16>(a, rows, scratch, stream);
  return enqueue_rows<In, float>(a, rows, scratch, stream);
}

}  // namespace

cudaError_t launch_skinny_floats(const Linear& a, int64_t rows, const Scratch& scratch,
                                 cudaStream_t stream) {
  if (a.x.dtype == DType::kF8E4M3) return enqueue_out<__nv_fp8_e4m3>(a, rows, scratch, stream);
  return enqueue_out<__nv_bfloat16>(a, rows, scratch, stream);
}

}  // namespace nereid::kernels::cuda
