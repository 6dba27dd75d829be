// out [rows, n] = x [rows, k] . weight [n, k]^T for hundreds of rows of bf16 or f8e4m3. The rows
// are taken in bands of up to 256. Two blocks, a cluster, have neighbouring tiles of outputs and
// the same band: each fetches its own weights and half of x for both, so that less comes from the
// second-level cache. Where that leaves multiprocessors without work, the k of a tile is divided
// into parts too: each part's sums go to the workspace, and the blocks of a tile add them in the
// order of k, each for some of the rows. One warp fetches boxes ahead, also those of the next tile,
// the others multiply.
#include <algorithm>

#include "kernels/cuda/bands.cuh"
#include "kernels/cuda/bands.h"
#include "kernels/cuda/bands_results.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kMaxRowsOfThree = 192;  // bands that three groups have registers for

// Registers of a thread that multiplies and of one that fetches; all begin with an equal share.
template <int kTileGroups>
constexpr int kRegisters = kTileGroups == 2 ? 232 : 160;
template <int kTileGroups>
constexpr int kFetchRegisters = kTileGroups == 2 ? 40 : 32;
template <int kTileGroups>
constexpr int kEqualRegisters = kTileGroups == 2 ? 168 : 128;
static_assert(2 * kRegisters<2> + kFetchRegisters<2> <= 3 * kEqualRegisters<2> &&
              3 * kRegisters<3> + kFetchRegisters<3> <= 4 * kEqualRegisters<3>);
template <int kTileGroups>
constexpr int kThreads = (kTileGroups + 1) * kGroupThreads;
constexpr int kRingBytes = 200 * 1024;
template <int kRows, class In, int kTileGroups>
constexpr int kNumStages = kStages<kRows, In, kTileGroups, kRingBytes>;
template <int kRows, class In, int kTileGroups>
constexpr int kRingAll = kNumStages<kRows, In, kTileGroups>* kStageBytes<kRows, In, kTileGroups>;
// Of shared memory; behind the ring two chunks of each group's results.
template <int kRows, class In, int kTileGroups>
constexpr int kBytes = kRingAll<kRows, In, kTileGroups> + kTileGroups * 2 * kChunkBytes;

#if defined(NEREID_HOPPER)

// Barriers behind those of the groups.
constexpr int kFactorsReady = 4, kFactorsUsed = 5;

template <int kRows, class In, int kTileGroups>
using BandRing = Ring<kRows, In, kTileGroups, kRingBytes>;

// Calls f with every item of this cluster, in order.
template <class F>
__device__ void for_each_item(const BandParams& p, int rank, F f) {
  for (int i = static_cast<int>(blockIdx.x) / kPair; i < p.items;
       i += static_cast<int>(gridDim.x) / kPair)
    f(i, BandItem(p, i, rank));
}

template <int kRows, class In, int kTileGroups>
struct Fetch {
  const BandParams& p;
  const CUtensorMap *weights, *x;
  BandRing<kRows, In, kTileGroups> ring;
  int rank;

  __device__ void weight(const BandItem& item, int box) {
    barrier_expect(ring.full + ring.stage, kStageBytes<kRows, In, kTileGroups>);
    copy_box(ring.weight(ring.stage), weights, box * kDepth<In>, item.tile * kTile<kTileGroups>,
             ring.full + ring.stage);
  }
  __device__ void half_x(const BandItem& item, int box) {
    const int row = rank * (kRows / kPair);
    copy_box_to(ring.x(ring.stage) + row * kDepthBytes, x, box * kDepth<In>,
                item.band * kRows + row, ring.full + ring.stage, (1 << kPair) - 1);
  }
  // Of the first item, weights alone, which do not depend on the kernel in front.
  __device__ int ahead() {
    const BandItem item(p, static_cast<int>(blockIdx.x) / kPair, rank);
    const int count = min(item.end - item.begin, kNumStages<kRows, In, kTileGroups>);
    for (int i = 0; i < count; ++i, ring.step()) weight(item, item.begin + i);
    ring.stage = 0, ring.parity = 0;
    return count;
  }
  __device__ void all(int fetched) {
    for_each_item(p, rank, [&](int, const BandItem& item) {
      for (int box = item.begin; box < item.end; ++box, ring.step()) {
        if (--fetched < 0) {
          barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
          weight(item, box);
        }
        half_x(item, box);
      }
    });
  }
};

// The fetching warps: the first brings boxes, the others what sums are multiplied with.
template <int kRows, class In, int kTileGroups>
__device__ void fetch_all(const BandParams& p, const CUtensorMap* weights, const CUtensorMap* x,
                          const BandRing<kRows, In, kTileGroups>& ring, int rank,
                          Factors<kRows, kTileGroups>& factors) {
  constexpr int kAll = kTileGroups * kGroupThreads;
  Fetch<kRows, In, kTileGroups> fetch = {p, weights, x, ring, rank};
  const int thread = static_cast<int>(threadIdx.x) - kAll, helper = thread - kWarp;
  int fetched = 0;
  if (thread == 0) fetched = fetch.ahead();
  __syncwarp();
  cluster_is_here();
  if (thread == 0) {
    wait_for_previous();
    fetch.all(fetched);
  } else if (helper >= 0) {
    wait_for_previous();
    bool is_first = true;
    for_each_item(p, rank, [&](int, const BandItem& item) {
      if (!is_first) meet(kFactorsUsed, kAll + kFactorThreads);
      is_first = false;
      factors.load(p, In{}, item.tile * kTile<kTileGroups>, item.band * kRows, helper);
      arrive(kFactorsReady, kAll + kFactorThreads);
    });
  }
  __syncwarp();
  cluster_is_here();  // no block ends while the other brings x to it or tells it of free stages
}

// Sums of `boxes` boxes. Both blocks are told when a stage is free: each brings x to both.
template <int kRows, class In, int kTileGroups>
__device__ void add_band(BandRing<kRows, In, kTileGroups>& ring, int group, int boxes,
                         float (&sums)[kRows / 2]) {
  const int lane = threadIdx.x % kWarp;
  const auto free_stage = [&](int stage) {
    if (lane < kPair) barrier_arrive_at(ring.empty + stage, lane);
  };
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] = 0;
  are_defined_here(sums);
  int before = -1;  // stage whose products may still run
  for (int box = 0; box < boxes; ++box) {
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
    if (before >= 0) free_stage(before);
    before = ring.stage;
    ring.step();
  }
  wait_for_products<0>();
  free_stage(before);
}

#endif  // NEREID_HOPPER

// In: of x and weight.
template <int kRows, class In, class Out, int kTileGroups>
__global__ void __launch_bounds__(kThreads<kTileGroups>, 1)
    bands_kernel(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap x,
                 const __grid_constant__ BandParams p) {
#if defined(NEREID_HOPPER)
  constexpr int kNumRing = kNumStages<kRows, In, kTileGroups>;
  extern __shared__ __align__(1024) uint8_t boxes[];
  __shared__ uint64_t full[kNumRing], empty[kNumRing];
  __shared__ __align__(8) Factors<kRows, kTileGroups> factors;
  constexpr int kAll = kTileGroups * kGroupThreads;
  BandRing<kRows, In, kTileGroups> ring = {boxes, full, empty};
  const int thread = static_cast<int>(threadIdx.x);
  // Known to be one for a warp: products' operands are described in uniform registers then (1,032
  // cycles for a box, 1,400 without).
  const int group = __shfl_sync(kAllLanes, thread / kGroupThreads, 0);
  const int rank = static_cast<int>(cluster_rank());
  if (thread == 0) {
    for (int i = 0; i < kNumRing; ++i) {
      barrier_init(full + i, 1);
      barrier_init(empty + i, kPair * kTileGroups * kGroupThreads / kWarp);
    }
    barriers_are_ready();
  }
  __syncthreads();
  let_next_begin();
  if (group >= kTileGroups) {
    give_registers<kFetchRegisters<kTileGroups>>();
    fetch_all<kRows, In, kTileGroups>(p, &weights, &x, ring, rank, factors);
    return;
  }
  take_registers<kRegisters<kTileGroups>>();
  cluster_is_here();
  wait_for_previous();
  uint8_t* const staged = boxes + kRingAll<kRows, In, kTileGroups> + group * 2 * kChunkBytes;
  for_each_item(p, rank, [&](int index, const BandItem& item) {
    float sums[kRows / 2];
    add_band<kRows, In, kTileGroups>(ring, group, item.end - item.begin, sums);
    meet(kFactorsReady, kAll + kFactorThreads);  // also: all groups have used their boxes
    const Results<In, Out> results(p, factors, item.tile * kTile<kTileGroups>, group,
                                   item.band * kRows);
    if (p.parts > 1)
      finish_parts<kRows, In, Out, kTileGroups>(p, item, index, rank, group, results, sums,
                                                reinterpret_cast<float4*>(boxes), staged);
    else
      finish<kRows>(results, sums, staged);
    if (index + static_cast<int>(gridDim.x) / kPair < p.items)
      arrive(kFactorsUsed, kAll + kFactorThreads);
  });
  __syncwarp();
  cluster_is_here();
#endif
}

// How a product is divided, and the cycles of a multiprocessor that it takes.
struct Form {
  int groups, band_rows, bands, parts;
  int64_t items;
  double cycles;
};

int64_t round_up_quotient(int64_t x, int64_t by) { return (x + by - 1) / by; }

// Copies are not in it: a box takes the time of its products (1,032 cycles where those are 1,024).
Form form_of(const Linear& a, int64_t boxes_k, int units, int groups, int band_rows, int parts) {
  Form f = {groups, band_rows, static_cast<int>(round_up_quotient(a.x.rows, band_rows)), parts};
  f.items = round_up_quotient(a.weight.n, groups * kPart * kPair) * f.bands * parts;
  const auto turns = static_cast<double>(round_up_quotient(f.items, units / kPair));
  const auto boxes = static_cast<double>(round_up_quotient(boxes_k, parts));
  const double sums = static_cast<double>(groups) * kPart * band_rows;
  constexpr double kLaunchCycles = 6000, kMeetCycles = 3000;
  constexpr double kStoreCycles = 0.15, kExchangeCycles = 0.25;  // of each sum
  f.cycles = kLaunchCycles + turns * (boxes * 2 * groups * band_rows + kStoreCycles * sums);
  if (parts > 1) f.cycles += kMeetCycles + kExchangeCycles * sums * (parts - 1) / parts;
  return f;
}

// What cuBLASLt takes: tiles of 128 outputs and 128 or 256 rows in turns of as many as there are
// multiprocessors, whichever is less. Of 72 products of each type (the four of an 8B model with 129
// to 1,280 rows, one H200) it and form_of() find all 35 of f8e4m3 that bands gain more than 4 % on,
// and none that they lose on; of bf16, where power bounds both, 20 of 28, and one they lose 3 % on.
double library_cycles(const Linear& a, int64_t boxes_k, int units) {
  const auto turns = [&](int64_t rows) {
    const int64_t tiles = round_up_quotient(a.weight.n, 128) * round_up_quotient(a.x.rows, rows);
    return static_cast<double>(round_up_quotient(tiles, units));
  };
  constexpr double kLaunchCycles = 4000;
  const double share = a.x.dtype == DType::kF8E4M3 ? 1.05 : 0.78;  // of the cycles of products
  return kLaunchCycles +
         share * static_cast<double>(boxes_k) * std::min(turns(128) * 512, turns(256) * 1024);
}

template <int kRows, class In, class Out, int kTileGroups>
cudaError_t enqueue(const Linear& a, const Form& form, const Scratch& scratch,
                    cudaStream_t stream) {
  CUtensorMap weights, x;
  constexpr int64_t kSize = kBits<In> / 8;
  const int64_t row_bytes = a.weight.k * kSize;
  if (const cudaError_t error = describe_rows(kSize == 2, a.weight.data, a.weight.n, row_bytes,
                                              row_bytes, kTile<kTileGroups>, weights);
      error != cudaSuccess)
    return error;
  if (const cudaError_t error = describe_rows(kSize == 2, a.x.data, a.x.rows, row_bytes,
                                              a.x.stride * kSize, kRows / kPair, x);
      error != cudaSuccess)
    return error;
  BandParams p = {};
  p.out = a.out.data;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data);
  p.x_scales_stride = a.scales.stride;
  p.partials = static_cast<float4*>(scratch.workspace);
  p.counters = scratch.counters;
  p.out_stride = a.out.stride;
  p.n = static_cast<int>(a.weight.n);
  p.rows = static_cast<int>(a.x.rows);
  p.boxes_k = static_cast<int>(round_up_quotient(a.weight.k, kDepth<In>));
  p.bands = form.bands;
  p.parts = form.parts;
  p.items = static_cast<int>(form.items);
  p.vectors = a.weight.n % 8 == 0 && a.out.stride % 8 == 0 && is_aligned(a.out.data);
  const int64_t clusters = std::min<int64_t>(scratch.num_units / kPair, form.items);
  return launch_overlapped_clusters(
      bands_kernel<kRows, In, Out, kTileGroups>, a.x.rows, static_cast<unsigned>(clusters * kPair),
      kPair, kThreads<kTileGroups>, kBytes<kRows, In, kTileGroups>, stream, weights, x, p);
}

template <class In, class Out, int kTileGroups>
cudaError_t enqueue_band(const Linear& a, const Form& form, const Scratch& scratch,
                         cudaStream_t stream) {
  if (form.band_rows == 160) return enqueue<160, In, Out, kTileGroups>(a, form, scratch, stream);
  if constexpr (kTileGroups == 2) {
    if (form.band_rows == 224) return enqueue<224, In, Out, kTileGroups>(a, form, scratch, stream);
    if (form.band_rows == 256) return enqueue<256, In, Out, kTileGroups>(a, form, scratch, stream);
  }
  return enqueue<192, In, Out, kTileGroups>(a, form, scratch, stream);
}

bool fits(const Form& f, const Scratch& s) {
  const int64_t blocks = f.items * kPair;
  return f.parts == 1 || (f.items <= s.num_units / kPair && blocks * f.groups <= s.num_counters &&
                          blocks * f.groups * kPart * f.band_rows * int64_t{sizeof(float)} <=
                              static_cast<int64_t>(s.workspace_bytes));
}

Form choose_form(const Linear& a, int64_t boxes_k, const Scratch& scratch) {
  Form best = {};
  for (const int groups : {2, 3})
    for (const int band_rows : {160, 192, 224, 256})
      for (int parts = 1; parts <= std::min<int64_t>(kMaxParts, boxes_k); ++parts) {
        if (groups == 3 && band_rows > kMaxRowsOfThree) continue;
        const Form f = form_of(a, boxes_k, scratch.num_units, groups, band_rows, parts);
        if (fits(f, scratch) && (best.groups == 0 || f.cycles < best.cycles)) best = f;
      }
  return best;
}

template <class In, class Out>
cudaError_t enqueue_form(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  const int64_t boxes_k = round_up_quotient(a.weight.k, kDepth<In>);
  const Form form = choose_form(a, boxes_k, scratch);
  return form.groups == 2 ? enqueue_band<In, Out, 2>(a, form, scratch, stream)
                          : enqueue_band<In, Out, 3>(a, form, scratch, stream);
}

template <class In>
cudaError_t enqueue_out(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  return a.out.dtype == DType::kBF16 ? enqueue_form<In, __nv_bfloat16>(a, scratch, stream)
                                     : enqueue_form<In, float>(a, scratch, stream);
}

}  // namespace

bool takes_bands(const Linear& a, int sm) {
  return sm == 90 && is_in_pieces(a) && is_aligned(a.x.data) && is_aligned(a.weight.data) &&
         encode_tiled() != nullptr;
}

bool prefers_bands(const Linear& a, const Scratch& scratch) {
  constexpr int64_t kMaxMeasuredRows = 1280;
  if (!takes_bands(a, scratch.sm) || a.x.rows > kMaxMeasuredRows) return false;
  const int64_t boxes_k = round_up_quotient(
      a.weight.k, a.x.dtype == DType::kF8E4M3 ? kDepth<__nv_fp8_e4m3> : kDepth<__nv_bfloat16>);
  return choose_form(a, boxes_k, scratch).cycles < library_cycles(a, boxes_k, scratch.num_units);
}

cudaError_t launch_bands(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  return a.x.dtype == DType::kF8E4M3 ? enqueue_out<__nv_fp8_e4m3>(a, scratch, stream)
                                     : enqueue_out<__nv_bfloat16>(a, scratch, stream);
}

}  // namespace nereid::kernels::cuda
