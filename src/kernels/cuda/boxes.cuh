// wgmma products of weights loaded by TMA in boxes (64 outputs by 128 bytes of k): shared by the
// kernels of few rows and of experts.
//
// Integers are converted to bf16 between the box and wgmma, whose weight operand is then in
// registers. A thread's words have non-adjacent columns, so x is permuted to the same order first.
// (integer - zero) is multiplied, exact in bf16, and the sum over a group is scaled: no rounding of
// every weight to bf16.
#pragma once

#include <cuda_bf16.h>

#include <bit>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/integers.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/tensor_map.h"

namespace nereid::kernels::cuda {

inline constexpr int kPart = 64;         // outputs per consumer group of four warps
inline constexpr int kDepthBytes = 128;  // bytes of k per box
inline constexpr int kProducts = 4;      // products per box along k
inline constexpr int kHalves = 2;        // of a box of integers; one half is in one group
inline constexpr int kGroupThreads = 128;
inline constexpr int kPartBytes = kPart * kDepthBytes;
inline constexpr int kSharedBytes = 144 * 1024;

// Consumer groups: a tile has kGroups * 64 outputs, so that x, read by every tile, takes less L2
// bandwidth than the weight.
template <int kRows>
inline constexpr int kGroups = kRows <= 16 ? 1 : 2;

// Number type of the weight: __nv_bfloat16, __nv_fp8_e4m3 (x too), or:
template <int kIntegerBits>
struct Integers {};

template <class In>
inline constexpr int kBits = 8 * sizeof(In);
template <int kIntegerBits>
constexpr int kBits<Integers<kIntegerBits>> = kIntegerBits;
template <class In>
constexpr bool kIsInteger = false;
template <int kIntegerBits>
constexpr bool kIsInteger<Integers<kIntegerBits>> = true;
template <class In>
constexpr bool kIsF8 = std::is_same_v<In, __nv_fp8_e4m3>;

template <class In>
inline constexpr int kDepth = kDepthBytes * 8 / kBits<In>;  // columns of a box
// Boxes of x per box of the weight.
template <class In>
inline constexpr int kXBoxes = kIsInteger<In> ? kDepth<In> / 64 : 1;
template <class In>
inline constexpr int kXDepth = kDepth<In> / kXBoxes<In>;
template <int kRows, class In>
inline constexpr int kStageBytes = kGroups<kRows>* kPartBytes + kXBoxes<In>* kRows* kDepthBytes;
template <int kRows, class In>
inline constexpr int kStages = kSharedBytes / kStageBytes<kRows, In>;

// Scales and zero points of an integer weight.
struct BoxIntegers {
  const float* scales;
  const uint8_t* zeros;  // or null
  int k;
  int groups, group_bits, zero;  // groups: per row; group_bits: log2 of their columns; zero:
                                 // default zero point
};

#if defined(NEREID_HOPPER)

// Register 4 i + r of a thread: output within the group's part, and row of x.
inline __device__ int part_output(int r) {
  return threadIdx.x % kGroupThreads / kWarp * 16 + threadIdx.x % kWarp / 4 + 8 * (r / 2);
}
inline __device__ int x_row(int i, int r) { return 8 * i + threadIdx.x % 4 * 2 + r % 2; }

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

// Compiler barrier: sums computed later, among the products that accumulate on them, would
// serialise the products.
template <int kSums>
__device__ void are_defined_here(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Enqueues the products of a box of 64 outputs with the rows of x; waits for the previous box's.
template <class In, int kSums>
__device__ void multiply_box(float (&sums)[kSums], uint64_t a, uint64_t b) {
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
}

// Adds the products of boxes [begin, end) of 64 outputs with the rows of x, layout as part_output()
// and x_row(). `first`: the part's first row of the weight; `last`: last existing row.
template <int kRows, class In>
__device__ void add_boxes(const BoxIntegers&, Ring<kRows, In>& ring, int group, int64_t, int64_t,
                          int begin, int end, float (&sums)[kRows / 2]) {
  int before = -1;  // stage whose products may still run
  for (int box = begin; box < end; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    const uint64_t a = swizzled_matrix(ring.weight(ring.stage) + group * kPartBytes);
    const uint64_t b = swizzled_matrix(ring.x(ring.stage));
    multiply_box<In>(sums, a, b);
    if (before >= 0 && threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
    before = ring.stage;
    ring.step();
  }
  wait_for_products<0>();
  if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
}

// Scales and zero points of a thread's two rows in the halves of a box of integers.
struct BoxScales {
  float scales[kHalves][2];
  uint32_t zeros[kHalves][2];

  template <class In>
  __device__ void load(const BoxIntegers& p, In, const int64_t (&rows)[2], int box) {
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
__device__ void add_boxes(const BoxIntegers& p, Ring<kRows, Integers<kIntegerBits>>& ring,
                          int group, int64_t first, int64_t last, int begin, int end,
                          float (&sums)[kRows / 2]) {
  using In = Integers<kIntegerBits>;
  using Word = Words<kIntegerBits, false>;
  constexpr int kPieces = kDepthBytes / 16;         // of a row, one word per thread
  constexpr int kPieceProducts = Word::kPairs / 2;  // of 16 columns
  constexpr int kTurns = 2 * kHalves;  // operand conversions, each during the previous products
  constexpr int kTurnProducts = kPieces / kTurns * kPieceProducts;
  const int lane = threadIdx.x % kWarp;
  const int row = part_output(0);  // of the part; the other is row + 8
  int64_t rows[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) rows[r] = min(first + row + 8 * r, last);

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
        // Pieces of a row are swizzled by the row's low bits.
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
      if (turn > 0) wait_for_products<1>();  // previous turn: its registers are reused
    }
    add_half(0);
    wait_for_products<0>();
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
    add_half(1);
    ring.step();
  }
}

#endif  // NEREID_HOPPER

// Boxes of `box_rows` rows by kDepthBytes of a matrix with rows of `row_bytes`.
inline cudaError_t describe_rows(bool bf16, const void* data, int64_t rows, int64_t row_bytes,
                                 int64_t stride_bytes, int box_rows, CUtensorMap& map) {
  const int bytes = bf16 ? 2 : 1;
  return describe<2>(
      bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_UINT8, data,
      {static_cast<cuuint64_t>(row_bytes / bytes), static_cast<cuuint64_t>(rows)},
      {static_cast<cuuint64_t>(stride_bytes)},
      {static_cast<cuuint32_t>(kDepthBytes / bytes), static_cast<cuuint32_t>(box_rows)}, map);
}

// Whether integer rows are a multiple of 16 bytes and half a box is within one group.
inline bool fits_boxes(const WeightFormat& format, int64_t k) {
  const int64_t group = format.group_size(k);
  return format.scheme == Scheme::kInteger && !format.minima && k % (128 / format.bits) == 0 &&
         (format.num_groups(k) == 1 || (std::has_single_bit(static_cast<uint64_t>(group)) &&
                                        group >= kDepthBytes / kHalves * 8 / format.bits));
}

inline BoxIntegers box_integers(const WeightView& weight) {
  const WeightFormat& format = weight.format;
  const int64_t groups = format.num_groups(weight.k);
  const auto group = static_cast<uint64_t>(format.group_size(weight.k));
  return {weight.scales,
          weight.zeros,
          static_cast<int>(weight.k),
          static_cast<int>(groups),
          groups == 1 ? 31 : std::countr_zero(group),
          format.default_zero()};
}

}  // namespace nereid::kernels::cuda
