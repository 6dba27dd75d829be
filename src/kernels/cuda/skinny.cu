// out [rows, n] = x [rows, k] . weight [n, k]^T, few rows, bf16, f8e4m3 or integers. Bound by one
// read of the weight. A block has a tile of outputs and, with fewer tiles than SMs, a part of k:
// the blocks of a cluster have the parts of one tile; each adds all parts' sums for some of the
// rows, in the order of k. Tile width: all blocks are resident at once with equal work (every tile
// reads x, so narrow tiles would read more of x than of the weight). Two threads prefetch boxes by
// TMA, the other warps multiply.
//
// Weights do not depend on the previous kernel: as many as fit are loaded while it still runs, into
// a ring of their own. Few boxes are in flight at a time: loads of the previous kernel, and x,
// would queue behind more.
#include <algorithm>
#include <atomic>

#include "kernels/cuda/boxes.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/integer_products.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

// Most rows of bf16 and f8e4m3; of integers: kSkinnyRows.
constexpr int64_t kFloatRows = 128;
constexpr int kMaxTileGroups = 4;  // consumer groups, 64 outputs each
constexpr int kMaxTile = kMaxTileGroups * kPart;
constexpr int kTileUnit = 8;    // tiles are multiples of it: rows of the swizzle
constexpr int kMaxStages = 24;  // of weights, and of x: one lane initialises each barrier

// Two warps for weights and for x; integers: a group, whose registers the consumers take.
template <class In>
constexpr int kFetchThreads = kIsInteger<In> ? kGroupThreads : 2 * kWarp;
template <class In>
constexpr int kMaxThreads = kMaxTileGroups* kGroupThreads + kFetchThreads<In>;

// Sums per thread.
template <int kRows>
constexpr int kSums = kRows / 2;
// Bytes of x beside a box of the weight.
template <int kRows, class In>
constexpr int kXBytes = kXBoxes<In>* kRows* kDepthBytes;

struct Form {
  int split, tile;                      // parts of k, outputs per tile
  int weight_stages, x_stages, on_way;  // ring sizes in boxes; weight boxes in flight
  int groups() const { return (tile + kPart - 1) / kPart; }
};

struct Params {
  void* out;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // f8e4m3: of outputs and of rows of x
  const float* x_scales;
  int64_t out_stride, x_scales_stride;
  int n, rows, boxes_k;
  BoxIntegers integers;
  Form form;
  bool vectors;  // outputs can be stored in vectors of four
};

#if defined(NEREID_HOPPER)

// Position in a ring of boxes.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ void step(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

// In shared memory.
struct Barriers {
  uint64_t weights[kMaxStages], x[kMaxStages];                  // boxes are full
  uint64_t free_of_weights[kMaxStages], free_of_x[kMaxStages];  // boxes are free
  uint64_t sums;                                                // sums of other parts have arrived
};

// Called by one warp; `warps`: consumers.
__device__ void init(const Params& p, Barriers& barriers, int warps) {
  const int lane = threadIdx.x % kWarp;
  if (lane < p.form.weight_stages) {
    barrier_init(barriers.weights + lane, 1);
    barrier_init(barriers.free_of_weights + lane, warps);
  }
  if (lane < p.form.x_stages) {
    barrier_init(barriers.x + lane, 1);
    barrier_init(barriers.free_of_x + lane, warps);
  }
  if (lane == 0) barrier_init(&barriers.sums, 1);
  barriers_are_ready();
}

// A block's boxes in processing order: adjacent tiles start at different columns, so that blocks do
// not load the same columns of all rows at once.
template <int kSplit>
struct Boxes {
  int part, tile, begin, count, first;

  __device__ Boxes(const Params& p) {
    part = static_cast<int>(blockIdx.x) % kSplit;
    tile = static_cast<int>(blockIdx.x) / kSplit;
    begin = p.boxes_k * part / kSplit;
    count = p.boxes_k * (part + 1) / kSplit - begin;
    first = 2 * tile % count;  // a load brings two boxes' columns to the L2 cache
  }
  __device__ int operator[](int i) const {
    const int box = first + i;
    return begin + (box < count ? box : box - count);
  }
};

// Producer: one thread for weights, one for x.
template <int kRows, class In, int kSplit>
struct Fetcher {
  const Params& p;
  const CUtensorMap *weights, *x;
  uint8_t *weight_boxes, *x_boxes;
  Barriers& barriers;
  const Boxes<kSplit>& boxes;

  __device__ void copy_weight(int i, int stage) const {
    const int bytes = p.form.tile * kDepthBytes;
    uint64_t* const there = barriers.weights + stage;
    barrier_expect(there, bytes);
    uint8_t* const to = weight_boxes + stage * bytes;
    constexpr int kColumns = kIsInteger<In> ? kDepthBytes : kDepth<In>;
    const int column = boxes[i] * kColumns, row = boxes.tile * p.form.tile;
    // 64 rows and more: the step was 0.4 % slower with this; 16 rows: 2.5 % faster (8B, H200).
    if constexpr (kRows <= 16)
      copy_box(to, weights, column, row, there, read_once());
    else
      copy_box(to, weights, column, row, there);
  }
  __device__ void copy_x(int i, int stage) const {
    uint64_t* const there = barriers.x + stage;
    uint8_t* const to = x_boxes + stage * kXBytes<kRows, In>;
    barrier_expect(there, kXBytes<kRows, In>);
#pragma unroll
    for (int j = 0; j < kXBoxes<In>; ++j)
      copy_box(to + j * kRows * kDepthBytes, x, boxes[i] * kDepth<In> + j * kXDepth<In>, 0, there);
  }
  __device__ void fetch_weights() const {
    RingPosition place, free, arrived;
#pragma unroll 1
    for (int i = 0; i < boxes.count; ++i) {
      if (i >= p.form.on_way) {
        barrier_wait(barriers.weights + arrived.stage, arrived.parity);
        arrived.step(p.form.weight_stages);
      }
      if (i >= p.form.weight_stages) {
        barrier_wait(barriers.free_of_weights + free.stage, free.parity);
        free.step(p.form.weight_stages);
      }
      copy_weight(i, place.stage);
      place.step(p.form.weight_stages);
    }
  }
  __device__ void fetch_x() const {
    RingPosition place, free;
#pragma unroll 1
    for (int i = 0; i < boxes.count; ++i) {
      if (i >= p.form.x_stages) {
        barrier_wait(barriers.free_of_x + free.stage, free.parity);
        free.step(p.form.x_stages);
      }
      copy_x(i, place.stage);
      place.step(p.form.x_stages);
    }
  }
};

// Adds the products of a block's boxes of 64 outputs with x; layout: part_output() and x_row().
template <int kRows, class In, int kSplit>
__device__ void multiply_all(const Params& p, const Boxes<kSplit>& boxes,
                             const uint8_t* weight_boxes, const uint8_t* x_boxes,
                             Barriers& barriers, float (&sums)[kSums<kRows>]) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  RingPosition weight, x;
  for (int i = 0; i < boxes.count; ++i) {
    barrier_wait(barriers.weights + weight.stage, weight.parity);
    barrier_wait(barriers.x + x.stage, x.parity);
    const uint64_t a = swizzled_matrix(weight_boxes + weight.stage * p.form.tile * kDepthBytes +
                                       group * kPartBytes);
    const uint64_t b = swizzled_matrix(x_boxes + x.stage * kXBytes<kRows, In>);
    multiply_box<In>(sums, a, b);
    // Frees the previous box; the last ones need no signal.
    const int weight_before = (weight.stage == 0 ? p.form.weight_stages : weight.stage) - 1;
    const int x_before = (x.stage == 0 ? p.form.x_stages : x.stage) - 1;
    if (i > 0 && threadIdx.x % kWarp == 0) {
      barrier_arrive(barriers.free_of_weights + weight_before);
      barrier_arrive(barriers.free_of_x + x_before);
    }
    weight.step(p.form.weight_stages);
    x.step(p.form.x_stages);
  }
  wait_for_products<0>();
}

// Few rows: products per warp. One of wgmma with its left operand in registers takes as long for
// few rows as for many.
template <int kRows>
constexpr bool kPerWarp = kRows <= 16;

// Registers per thread: 4 * 112 + 24 <= 5 * 96.
constexpr int kFetchRegisters = 24, kIntegerRegisters = 112;

// Same for integers (integer_products.cuh).
template <int kRows, int kIntegerBits, int kSplit>
__device__ void multiply_integers(const Params& p, const Boxes<kSplit>& boxes,
                                  const uint8_t* weight_boxes, const uint8_t* x_boxes,
                                  Barriers& barriers, float (&sums)[kSums<kRows>]) {
  using In = Integers<kIntegerBits>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads, row = part_output(0);
  int64_t rows[2];
  part_rows(int64_t{boxes.tile} * p.form.tile + group * kPart, int64_t{p.n} - 1, rows);
  RingPosition weight, x, weight_before, x_before;
  const auto release = [&](const RingPosition& of_weight, const RingPosition& of_x) {
    if (lane != 0) return;
    barrier_arrive(barriers.free_of_weights + of_weight.stage);
    barrier_arrive(barriers.free_of_x + of_x.stage);
  };
  const auto words = [&] {
    return weight_boxes + (weight.stage * p.form.tile + group * kPart + row) * kDepthBytes;
  };
  const auto x_box = [&] { return x_boxes + x.stage * kXBytes<kRows, In>; };
  const auto step = [&] {
    weight.step(p.form.weight_stages);
    x.step(p.form.x_stages);
  };
  if constexpr (!kPerWarp<kRows>) {
    IntegerProducts<kRows, kIntegerBits, kSums<kRows>> products(p.integers, rows, boxes[0], sums);
    for (int i = 0; i < boxes.count; ++i) {
      barrier_wait(barriers.weights + weight.stage, weight.parity);
      products.add_box(
          words(), x_box(), boxes[i], boxes[min(i + 1, boxes.count - 1)],
          [&] { barrier_wait(barriers.x + x.stage, x.parity); },
          [&] {
            if (i > 0) release(weight_before, x_before);  // the last ones need no signal
          });
      weight_before = weight, x_before = x;
      step();
    }
    products.add();
  } else {
    WarpProducts<kRows, kIntegerBits> products(p.integers, rows, boxes[0], sums);
    for (int i = 0; i < boxes.count; ++i) {
      barrier_wait(barriers.weights + weight.stage, weight.parity);
      barrier_wait(barriers.x + x.stage, x.parity);
      products.add_box(words(), x_box(), boxes[i], boxes[min(i + 1, boxes.count - 1)]);
      __syncwarp();
      release(weight, x);
      step();
    }
    products.add();
  }
}

// A thread's sums over all parts of k, in order; each block has them for its share of the rows, a
// subset of the registers. `from`: buffer of received sums.
template <int kRows, class In, int kSplit>
__device__ void add_parts(const Boxes<kSplit>& boxes, float4* from, Barriers& barriers,
                          const float (&sums)[kSums<kRows>], float (&all)[kSums<kRows> / kSplit]) {
  constexpr int kMine = kSums<kRows> / kSplit, kVectors = kMine / 4;
  const int threads = static_cast<int>(blockDim.x) - kFetchThreads<In>;
  // A block's own sums have no buffer.
  const auto at = [&](int to, int q, int v) {
    return from + ((q - (q > to)) * kVectors + v) * threads + threadIdx.x;
  };
  float mine[kMine];
#pragma unroll
  for (int q = 0; q < kSplit; ++q) {
    if (q == boxes.part) {
#pragma unroll
      for (int i = 0; i < kMine; ++i) mine[i] = sums[q * kMine + i];
    } else {
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
        send_in_cluster(at(q, boxes.part, v), q, sums + q * kMine + 4 * v, &barriers.sums);
    }
  }
  barrier_wait_in_cluster(&barriers.sums, 0);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    float4 parts[kSplit];
#pragma unroll
    for (int q = 0; q < kSplit; ++q)
      if (q != boxes.part) parts[q] = *at(boxes.part, q, v);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = 0;
#pragma unroll
      for (int q = 0; q < kSplit; ++q) {
        const float other = reinterpret_cast<const float*>(&parts[q])[i];
        const float part = q == boxes.part ? mine[4 * v + i] : other;
        sum = q == 0 ? part : sum + part;
      }
      all[4 * v + i] = sum;
    }
  }
}

// Transposes 8x8 16-bit numbers of a warp, two of a row per register.
__device__ uint32_t transpose(uint32_t pair) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

// Stores a warp's results: 16 outputs from n (`last`: end) of eight rows, in tensor-core layout.
__device__ void store_results(const Params& p, __nv_bfloat16* out, int row, int n, int last,
                              const float (&v)[4]) {
  const int lane = threadIdx.x % kWarp, column = lane % 4;
  // Outputs 2 * column and 8 more of row lane / 4, then four adjacent ones.
  uint32_t low = transpose(pack(v[0], v[1])), high = transpose(pack(v[2], v[3]));
  const uint32_t far = __shfl_xor_sync(kAllLanes, column < 2 ? high : low, 2);
  low = column < 2 ? low : far, high = column < 2 ? far : high;
  const uint32_t near = __shfl_xor_sync(kAllLanes, column % 2 == 0 ? high : low, 1);
  low = column % 2 == 0 ? low : near, high = column % 2 == 0 ? near : high;
  row += lane / 4, n += column / 2 * 8 + column % 2 * 4;
  if (row >= p.rows || n >= last) return;
  __nv_bfloat16* const to = out + row * p.out_stride + n;
  if (p.vectors) {
    *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
  } else {
    const float2 pairs[] = {unpack(low), unpack(high)};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (n + i < last) store(to + i, i % 2 == 0 ? pairs[i / 2].x : pairs[i / 2].y);
  }
}
__device__ void store_results(const Params& p, float* out, int row, int n, int last,
                              const float (&v)[4]) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int to_row = row + lane % 4 * 2 + r % 2, to = n + lane / 4 + 8 * (r / 2);
    if (to_row < p.rows && to < last) out[to_row * p.out_stride + to] = v[r];
  }
}

// Scales and bias of a block, in shared memory.
template <int kRows>
struct Factors {
  float scales[kMaxTile], bias[kMaxTile], x_scales[kRows];
};

// Stores the results of a block's share of the rows.
template <int kRows, class In, class Out, int kSplit>
__device__ void finish(const Params& p, const Boxes<kSplit>& boxes, const Factors<kRows>& factors,
                       const float (&sums)[kSums<kRows> / kSplit]) {
  constexpr int kEights = kSums<kRows> / kSplit / 4;  // of rows
  const int thread = static_cast<int>(threadIdx.x), begin = boxes.tile * p.form.tile;
  const int warp_column = thread / kWarp * 16, column = warp_column + thread % kWarp / 4;
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    const int row = (boxes.part * kEights + i) * 8;
    float v[4];
    asm volatile("" ::: "memory");  // no early load of the next factors: registers
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int c = column + 8 * (r / 2);
      v[r] = sums[4 * i + r];
      if (kIsF8<In>) v[r] *= factors.scales[c] * factors.x_scales[row + thread % 4 * 2 + r % 2];
      v[r] += factors.bias[c];
    }
    store_results(p, static_cast<Out*>(p.out), row, begin + warp_column,
                  min(p.n, begin + p.form.tile), v);
  }
}

#endif  // NEREID_HOPPER

// In: type of x and weight, or Integers.
template <int kRows, class In, class Out, int kSplit>
__global__ void __launch_bounds__(kMaxThreads<In>, 1)
    skinny_kernel(const __grid_constant__ CUtensorMap weights,
                  const __grid_constant__ CUtensorMap x, Params p) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ Barriers barriers;
  __shared__ Factors<kRows> factors;
  constexpr int kMine = kSums<kRows> / kSplit;
  uint8_t* const x_boxes = memory + p.form.weight_stages * p.form.tile * kDepthBytes;
  float4* const others = reinterpret_cast<float4*>(x_boxes + p.form.x_stages * kXBytes<kRows, In>);
  const int thread = static_cast<int>(threadIdx.x);
  const int threads = static_cast<int>(blockDim.x) - kFetchThreads<In>;  // consumers
  let_next_begin();
  const Boxes<kSplit> boxes(p);
  const Fetcher<kRows, In, kSplit> fetcher = {p, &weights, &x, memory, x_boxes, barriers, boxes};
  if (thread / kWarp == threads / kWarp + 1) init(p, barriers, threads / kWarp);
  __syncthreads();
  if (kSplit > 1) cluster_arrives();
  constexpr bool kTakesRegisters = kIsInteger<In> && !kPerWarp<kRows>;
  if (thread < threads) {
    if constexpr (kTakesRegisters) take_registers<kIntegerRegisters>();
    for (int i = thread; i < p.form.tile; i += threads) {
      const int n = boxes.tile * p.form.tile + i;
      factors.scales[i] = kIsF8<In> && n < p.n ? p.scales[n] : 0.0f;
      factors.bias[i] = p.bias && n < p.n ? load(p.bias + n) : 0.0f;
    }
    wait_for_previous();
    if (kIsF8<In> && thread < p.rows)
      factors.x_scales[thread] = p.x_scales[thread * p.x_scales_stride];
    if (kSplit > 1) cluster_waits();  // the other blocks' barriers are initialised
    float sums[kSums<kRows>] = {};
    are_defined_here(sums);
    if constexpr (kIsInteger<In>)
      multiply_integers<kRows, kBits<In>>(p, boxes, memory, x_boxes, barriers, sums);
    else
      multiply_all<kRows, In>(p, boxes, memory, x_boxes, barriers, sums);
    meet(1, threads);  // the factors are in shared memory
    if constexpr (kSplit == 1) {
      finish<kRows, In, Out>(p, boxes, factors, sums);
    } else {
      float all[kMine];
      add_parts<kRows, In>(boxes, others, barriers, sums, all);
      finish<kRows, In, Out>(p, boxes, factors, all);
    }
    return;
  }
  if constexpr (kTakesRegisters) give_registers<kFetchRegisters>();
  if (thread < threads + kWarp) {
    if (thread == threads) {
      if (kSplit > 1)
        barrier_expect(&barriers.sums, (kSplit - 1) * kMine * threads * int{sizeof(float)});
      fetcher.fetch_weights();
    }
    __syncwarp();
    if (kSplit > 1) cluster_waits();
  } else {
    if (thread == threads + kWarp)
      asm volatile("prefetch.tensormap [%0];" ::"l"(&x) : "memory");  // prefetch
    __syncwarp();
    if (kSplit > 1) cluster_waits();  // the other blocks' barriers are initialised
    if (thread == threads + kWarp) {
      wait_for_previous();
      fetcher.fetch_x();
    }
  }
#endif
}

// Shared memory; leaves room for small kernels beside a block.
template <int kRows>
constexpr int kRingBytes = (kRows <= 64 ? 184 : 204) * 1024;
constexpr int kOnWay = 4, kOnWayBytes = 48 * 1024;  // weight boxes, or more small ones
constexpr int kFewest = 2;  // boxes per ring: one is free while the next is multiplied
template <int kRows>
constexpr int kFewX = kRows <= 64 ? 4 : 3;

// Behind the boxes: sums of other parts, and padding that wgmma reads if a box has too few rows.
template <int kRows>
int sums_bytes(const Form& f) {
  return (f.split - 1) * kSums<kRows> / f.split * f.groups() * kGroupThreads * int{sizeof(float)};
}
template <int kRows, class In>
int shared_bytes(const Form& f) {
  const int behind = f.x_stages * kXBytes<kRows, In> + sums_bytes<kRows>(f);
  const int unused = (f.groups() * kPart - f.tile) * kDepthBytes;
  return f.weight_stages * f.tile * kDepthBytes + std::max(behind, unused);
}

// As many weight boxes as fit beside a few of x.
template <int kRows, class In>
void choose_stages(int64_t boxes_k, Form& f) {
  constexpr int kBoxX = kXBytes<kRows, In>;
  const int boxes = static_cast<int>(std::clamp<int64_t>(boxes_k / f.split, kFewest, kMaxStages));
  const int box = f.tile * kDepthBytes;
  const int bytes = kRingBytes<kRows> - sums_bytes<kRows>(f);
  const int bytes_x = std::min(kIsInteger<In> ? kFewest : kFewX<kRows>, boxes) * kBoxX;
  f.weight_stages = std::clamp((bytes - bytes_x) / box, kFewest, boxes);
  f.x_stages = std::clamp((bytes - f.weight_stages * box) / kBoxX, kFewest, boxes);
  f.on_way = std::min(std::max(kOnWay, kOnWayBytes / box), f.weight_stages);
}

// Max resident clusters of kSplit blocks.
template <int kRows, class In, class Out, int kSplit>
int count_clusters(int units) {
  if (kSplit == 1) return units;
  static std::atomic<int> known = 0;  // value + 1; 0: not yet computed
  if (known == 0) {
    const auto kernel = skinny_kernel<kRows, In, Out, kSplit>;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {kSplit, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = kSplit;
    config.blockDim = kMaxThreads<In>;
    config.dynamicSmemBytes = kRingBytes<kRows>;
    config.attrs = &attribute;
    config.numAttrs = 1;
    int clusters = 0;
    if (ask_for_shared(reinterpret_cast<const void*>(kernel), kRingBytes<kRows>) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
      cudaGetLastError();
      clusters = 0;
    }
    known = clusters + 1;
  }
  return std::min(known - 1, units / kSplit);
}

// The form with kSplit parts of k; the best form has the least left to read when x is available.
// Bytes of x (L2) and of sums (other blocks) have other costs than bytes of weights.
template <int kRows, class In, class Out, int kSplit>
void try_split(int64_t n, int64_t boxes_k, int units, Form& best, double& best_cost) {
  constexpr double kTimeOfX = 0.8, kTimeOfSums = 3.5;  // measured: 8B, H200
  constexpr int kShortPart = 3;  // boxes; shorter parts take less time than an exchange of sums
  const bool is_short = kSplit > 1 && boxes_k <= kShortPart * kSplit;
  const int64_t clusters = is_short ? 0 : count_clusters<kRows, In, Out, kSplit>(units);
  if (clusters == 0) return;
  const int64_t turns = (n + clusters * kMaxTile - 1) / (clusters * kMaxTile);
  const int64_t outputs = (n + clusters * turns - 1) / (clusters * turns);
  const int64_t tile = (outputs + kTileUnit - 1) / kTileUnit * kTileUnit;
  Form form = {kSplit, static_cast<int>(tile)};
  choose_stages<kRows, In>(boxes_k, form);
  const auto turn = static_cast<double>(turns);
  const double box_bytes = static_cast<double>(tile) * kDepthBytes;
  const double boxes = static_cast<double>(boxes_k) / kSplit;
  const double sums = static_cast<double>(tile * kRows) * sizeof(float) * (kSplit - 1) / kSplit;
  const double cost =
      turn * (boxes * (box_bytes + kTimeOfX * kXBytes<kRows, In>)+kTimeOfSums * sums) -
      std::min<double>(form.weight_stages, boxes) * box_bytes;
  if (best.tile == 0 || cost < best_cost) best = form, best_cost = cost;
}

template <int kRows, class In, class Out, int kSplit>
cudaError_t enqueue(const Linear& a, const Form& form, const void* ordered, cudaStream_t stream) {
  CUtensorMap weights, x;
  constexpr int64_t kXSize = kIsF8<In> ? 1 : 2;
  const int64_t row_bytes = a.weight.k * kBits<In> / 8;
  const int64_t x_bytes =
      kXSize * (kIsInteger<In> ? order_columns(a.weight.k, kBits<In>) : a.weight.k);
  if (const cudaError_t error = describe_rows(kBits<In> == 16, a.weight.data, a.weight.n, row_bytes,
                                              row_bytes, form.tile, weights);
      error != cudaSuccess)
    return error;
  const void* const rows = kIsInteger<In> ? ordered : a.x.data;
  const int64_t x_stride = kIsInteger<In> ? x_bytes : a.x.stride * kXSize;
  if (const cudaError_t error =
          describe_rows(kXSize == 2, rows, a.x.rows, x_bytes, x_stride, kRows, x);
      error != cudaSuccess)
    return error;
  Params p = {};
  if constexpr (kIsInteger<In>) p.integers = box_integers(a.weight);
  p.out = a.out.data;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data);
  p.x_scales_stride = a.scales.stride;
  p.out_stride = a.out.stride;
  p.n = static_cast<int>(a.weight.n);
  p.rows = static_cast<int>(a.x.rows);
  p.boxes_k = static_cast<int>((a.weight.k + kDepth<In> - 1) / kDepth<In>);
  p.form = form;
  p.vectors = fits_vectors(a.out, p.n);
  const int blocks = (p.n + form.tile - 1) / form.tile * kSplit;
  return launch_overlapped_clusters(
      skinny_kernel<kRows, In, Out, kSplit>, a.x.rows, static_cast<unsigned>(blocks), kSplit,
      static_cast<unsigned>(form.groups() * kGroupThreads + kFetchThreads<In>),
      shared_bytes<kRows, In>(form), stream, weights, x, p);
}

template <int kRows, class In, class Out>
cudaError_t enqueue_form(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  const int64_t boxes_k = (a.weight.k + kDepth<In> - 1) / kDepth<In>;
  Form form = {};
  double cost = 0;
  const auto try_this = [&]<int kSplit>() {
    try_split<kRows, In, Out, kSplit>(a.weight.n, boxes_k, scratch.num_units, form, cost);
  };
  try_this.template operator()<1>();
  try_this.template operator()<2>();
  if constexpr (kRows > 16) try_this.template operator()<4>();
  if constexpr (kIsInteger<In>)
    if (const cudaError_t error = launch_order(a, scratch.unpacked, stream); error != cudaSuccess)
      return error;
  const void* const ordered = scratch.unpacked;
  if (form.split == 1) return enqueue<kRows, In, Out, 1>(a, form, ordered, stream);
  if (form.split == 2) return enqueue<kRows, In, Out, 2>(a, form, ordered, stream);
  if constexpr (kRows > 16) return enqueue<kRows, In, Out, 4>(a, form, ordered, stream);
  return cudaErrorInvalidValue;
}

template <class In, class Out>
cudaError_t enqueue_rows(const Linear& a, int64_t rows, const Scratch& scratch,
                         cudaStream_t stream) {
  if (rows <= 16) return enqueue_form<16, In, Out>(a, scratch, stream);
  if (rows <= 32) return enqueue_form<32, In, Out>(a, scratch, stream);
  if (kIsInteger<In> || rows <= 64) return enqueue_form<64, In, Out>(a, scratch, stream);
  if constexpr (!kIsInteger<In>) return enqueue_form<kFloatRows, In, Out>(a, scratch, stream);
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
  if (a.x.dtype == DType::kF8E4M3) return enqueue_out<__nv_fp8_e4m3>(a, rows, scratch, stream);
  return enqueue_out<__nv_bfloat16>(a, rows, scratch, stream);
}

bool takes_integers(const Linear& a) {
  return fits_boxes(a.weight) &&
         kSkinnyRows * order_columns(a.weight.k, a.weight.format.bits) * 2 <= kUnpackedBytes &&
         a.x.stride % 2 == 0;
}

}  // namespace

bool takes_skinny(const Linear& a, int sm) {
  const bool fits =
      is_in_pieces(a) ? a.x.rows <= kFloatRows : a.x.rows <= kSkinnyRows && takes_integers(a);
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
