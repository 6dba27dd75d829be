// wgmma products of weights loaded by TMA in boxes (64 outputs by 128 bytes of k): shared by the
// kernels of few rows and of experts.
//
// Integers and MXFP4 (mxfp4_products.cuh) are converted to bf16 between the box and wgmma, whose
// weight operand is then in registers.
// A thread takes 16 bytes of a row of integers at once, so x is permuted to the same order first.
// (integer - zero) is multiplied, exact in bf16, and the sum over a group is scaled: no rounding of
// every weight to bf16.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "base/round_up.h"
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
inline constexpr int kSharedBytes = 144 * 1024, kWideSharedBytes = 204 * 1024;

// Number type of the weight: __nv_bfloat16, __nv_fp8_e4m3 (x too), or:
template <int kIntegerBits>
struct Integers {};
template <int kColumns>  // of a box
struct Mxfp4 {};

template <class In>
inline constexpr int kBits = 8 * sizeof(In);
template <int kIntegerBits>
constexpr int kBits<Integers<kIntegerBits>> = kIntegerBits;
template <int kColumns>
constexpr int kBits<Mxfp4<kColumns>> = 4;
template <class In>
constexpr bool kIsInteger = false;
template <int kIntegerBits>
constexpr bool kIsInteger<Integers<kIntegerBits>> = true;
template <class In>
constexpr bool kIsMxfp4 = false;
template <int kColumns>
constexpr bool kIsMxfp4<Mxfp4<kColumns>> = true;
template <class In>
constexpr bool kIsUnpacked = kIsInteger<In> || kIsMxfp4<In>;
template <class In>
constexpr bool kIsF8 = std::is_same_v<In, __nv_fp8_e4m3>;

// Consumer groups and the parts of each: a tile has kGroups * kParts * 64 outputs, so that x, read
// by every tile, takes less L2 bandwidth than the weight. MXFP4: enough warps to hide conversions.
template <int kRows, class In>
inline constexpr int kGroups = kIsMxfp4<In>  ? (kRows <= 32 ? 3 : 4)
                               : kRows <= 16 ? 1
                                             : 2;
template <int kRows, class In>
inline constexpr int kParts = kIsMxfp4<In> || kRows <= 64 ? 1 : 2;
template <int kRows, class In>
inline constexpr int kTileParts = kGroups<kRows, In>* kParts<kRows, In>;

// Bytes of a row of the weight in a box, and of 64 of them.
template <class In>
inline constexpr int kRowBytes = kDepthBytes;
template <int kColumns>
constexpr int kRowBytes<Mxfp4<kColumns>> = kColumns / 2;
template <class In>
inline constexpr int kBoxBytes = kPart* kRowBytes<In>;
template <class In>
inline constexpr int kDepth = kRowBytes<In> * 8 / kBits<In>;  // columns of a box
// Boxes of x per box of the weight.
template <class In>
inline constexpr int kXBoxes = kIsUnpacked<In> ? kDepth<In> / 64 : 1;
template <class In>
inline constexpr int kXDepth = kDepth<In> / kXBoxes<In>;
// Exponents of a row of an MXFP4 weight in a box, and bytes of all rows' up to the next stage.
template <class In>
inline constexpr int kRowExponents = kIsMxfp4<In> ? kDepth<In> / kMxfp4.group : 0;
template <int kRows, class In>
inline constexpr int kExponentBytes = round_up(kTileParts<kRows, In>* kPart* kRowExponents<In>,
                                               1024);
template <int kRows, class In>
inline constexpr int kStageBytes = kTileParts<kRows, In>* kBoxBytes<In> +
                                   kXBoxes<In>* kRows* kDepthBytes + kExponentBytes<kRows, In>;
template <int kRows, class In>
inline constexpr int kStages = (kParts<kRows, In> > 1 || kIsMxfp4<In> ? kWideSharedBytes
                                                                      : kSharedBytes) /
                               kStageBytes<kRows, In>;

// Scales and zero points of an integer weight, exponents of an MXFP4 weight.
struct BoxIntegers {
  const float* scales;
  const uint8_t* exponents;
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
  __device__ uint8_t* x(int s) const { return weight(s) + kTileParts<kRows, In> * kBoxBytes<In>; }
  __device__ uint8_t* exponents(int s) const { return x(s) + kXBoxes<In> * kRows * kDepthBytes; }
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

// The sums of the first kN rows of x.
template <int kN, int kSums>
__device__ float (&first_sums(float (&sums)[kSums]))[kN / 2] {
  static_assert(kN / 2 <= kSums);
  return reinterpret_cast<float(&)[kN / 2]>(sums);
}

// Enqueues the products of a box of 64 outputs of each part with the first kN rows of x; waits for
// the previous box's.
template <int kN, class In, int kCount, int kSums>
__device__ void multiply_box(float (&sums)[kCount][kSums], uint64_t a, uint64_t b) {
  products_begin();
#pragma unroll
  for (int part = 0; part < kCount; ++part)
#pragma unroll
    for (int k = 0; k < kProducts; ++k) {
      const uint64_t own = a + part * (kPartBytes >> 4) + 2 * k;
      if constexpr (kIsF8<In>)
        multiply_64_f8(first_sums<kN>(sums[part]), own, b + 2 * k);
      else
        multiply_64(first_sums<kN>(sums[part]), own, b + 2 * k);
    }
  products_end();
  wait_for_products<1>();
}

// A thread's rows of the weight in a part, for scales: `first` is the part's first row, `last` the
// last that exists.
inline __device__ void part_rows(int64_t first, int64_t last, int64_t (&rows)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) rows[r] = min(first + part_output(0) + 8 * r, last);
}

template <class In, int kSums>
__device__ void multiply_box(float (&sums)[kSums], uint64_t a, uint64_t b) {
  multiply_box<2 * kSums, In>(reinterpret_cast<float(&)[1][kSums]>(sums), a, b);
}

// Adds the products of boxes [begin, end) of 64 outputs of each part with the first kN rows of x,
// layout as part_output() and x_row(). `rows`: this thread's of the weight, in the only part.
template <int kN, int kRows, class In>
__device__ void add_boxes(const BoxIntegers&, Ring<kRows, In>& ring, int group,
                          const int64_t (&)[2], int begin, int end,
                          float (&sums)[kParts<kRows, In>][kRows / 2]) {
  int before = -1;  // stage whose products may still run
  for (int box = begin; box < end; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    const uint64_t a =
        swizzled_matrix(ring.weight(ring.stage) + group * kParts<kRows, In> * kPartBytes);
    const uint64_t b = swizzled_matrix(ring.x(ring.stage));
    multiply_box<kN, In>(sums, a, b);
    if (before >= 0 && threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
    before = ring.stage;
    ring.step();
  }
  wait_for_products<0>();
  if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
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

// Whether integer rows are a multiple of 16 bytes, half a box is within one group, and groups are
// counted in 32 bits.
inline bool fits_boxes(const WeightView& w) {
  const WeightFormat& format = w.format;
  const int64_t group = format.group_size(w.k), groups = format.num_groups(w.k);
  return format.scheme == Scheme::kInteger && !format.minima && w.k % (128 / format.bits) == 0 &&
         std::max<int64_t>(w.experts, 1) * w.n <= std::numeric_limits<uint32_t>::max() / groups &&
         (groups == 1 || (std::has_single_bit(static_cast<uint64_t>(group)) &&
                          group >= kDepthBytes / kHalves * 8 / format.bits));
}

inline BoxIntegers box_exponents(const WeightView& weight) {
  BoxIntegers out = {};
  out.exponents = weight.exponents;
  out.k = static_cast<int>(weight.k);
  return out;
}

inline BoxIntegers box_integers(const WeightView& weight) {
  const WeightFormat& format = weight.format;
  const int64_t groups = format.num_groups(weight.k);
  const auto group = static_cast<uint64_t>(format.group_size(weight.k));
  return {weight.scales,
          nullptr,
          weight.zeros,
          static_cast<int>(weight.k),
          static_cast<int>(groups),
          groups == 1 ? 31 : std::countr_zero(group),
          format.default_zero()};
}

}  // namespace nereid::kernels::cuda
