// Products of MXFP4 weights in boxes (boxes.cuh), by wgmma or per warp. Numbers lie in the order of
// left operands (layout kFragments) and are scaled as they are converted to bf16, exactly.
#pragma once

#include "kernels/cuda/boxes.cuh"

namespace nereid::kernels::cuda {

inline constexpr int kHalfColumns = kFragmentColumns / 2;  // of a block

#if defined(NEREID_HOPPER)

// Bytes of a block (WeightLayout::kFragments): eight rows of a half; a half.
inline constexpr int kRunBytes = 512, kHalfBytes = 8 * kRunBytes;

// Converts a word of MXFP4 numbers to four bf16 pairs; `scale`: 2^(e - 1) in both halves.
inline __device__ void scale_mxfp4(uint32_t q, uint32_t scale, uint32_t (&pairs)[4]) {
  constexpr uint32_t kKept = 0x81c081c0u;  // sign, and three bits of magnitude
  // A magnitude's three bits in the low bits of a bf16 exponent and the high one of its mantissa
  // are the number * 2^-126, subnormals included. A product places sign and magnitude at once.
  const uint32_t high = q >> 8;
  const uint32_t raw[4] = {(q & 0x000f000fu) * (1 << 12 | 1 << 6) & kKept,
                           (q & 0x00f000f0u) * (1 << 8 | 1 << 2) & kKept,
                           (high & 0x000f000fu) * (1 << 12 | 1 << 6) & kKept,
                           (high & 0x00f000f0u) * (1 << 8 | 1 << 2) & kKept};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 product = __hmul2(reinterpret_cast<const __nv_bfloat162&>(raw[i]),
                                           reinterpret_cast<const __nv_bfloat162&>(scale));
    pairs[i] = reinterpret_cast<const uint32_t&>(product);
  }
}

// A thread's words of two rows of a part's half box, and their exponents. A part has 64 rows in
// runs of eight; a warp has two runs: adjacent ones, or gates and their ups behind all gates.
template <bool kGated>
struct Mxfp4Half {
  static constexpr int kTurns = kHalfColumns / 32;  // of 32 columns, one exponent each
  uint32_t words[2][kTurns], exponents[2];

  // `at`: the half; `exponents_at`: the exponents of the part's rows in it, `stride` bytes apart.
  __device__ Mxfp4Half(const uint8_t* at, const uint8_t* exponents_at, int stride) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int run = kGated ? warp + 4 * r : 2 * warp + r;
      const uint4 four = *reinterpret_cast<const uint4*>(at + run * kRunBytes + lane * 16);
      words[r][0] = four.x, words[r][1] = four.y, words[r][2] = four.z, words[r][3] = four.w;
      // Each byte e becomes e + 126, the bf16 exponent of 2^(e - 1).
      exponents[r] =
          *reinterpret_cast<const uint32_t*>(exponents_at + (run * 8 + lane / 4) * stride) +
          0x7e7e7e7eu;
    }
  }
  // The turn's left operands of two products of 16 columns.
  __device__ void take(int turn, uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      // The exponent to the low end of both halves.
      const uint32_t scale = __byte_perm(exponents[r], 0, 0x4040 | turn << 8 | turn) << 7;
      uint32_t pairs[4];
      scale_mxfp4(words[r][turn], scale, pairs);
#pragma unroll
      for (int j = 0; j < 4; ++j) a[j / 2][j % 2 * 2 + r] = pairs[j];
    }
  }
};

// Adds the products of `boxes` boxes of a group's part with the first kN rows of x, layout as
// part_output() and x_row(). By products of a warp: few rows, which need no waits.
template <int kN, bool kGated, int kRows, int kColumns>
__device__ void add_mxfp4_few(const BoxIntegers& p, Ring<kRows, Mxfp4<kColumns>>& ring, int group,
                              int boxes, float (&sums)[kRows / 2]) {
  using In = Mxfp4<kColumns>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // Matrices of load_matrices(): rows 0 to 7 of x, columns 0 to 7 and 8 to 15; rows 8 to 15.
  const int row = lane / 16 * 8 + lane % 8, half_piece = lane / 8 % 2;
  for (int box = 0; box < boxes; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    const uint32_t x = shared_address(ring.x(ring.stage)) + row * kDepthBytes;
#pragma unroll
    for (int half = 0; half < kColumns / kHalfColumns; ++half) {
      if (box * kColumns + half * kHalfColumns >= p.k) break;
      const Mxfp4Half<kGated> weights(
          ring.weight(ring.stage) + group * kBoxBytes<In> + half * kHalfBytes,
          ring.exponents(ring.stage) + group * kPart * kRowExponents<In> + half * 4,
          kRowExponents<In>);
#pragma unroll
      for (int turn = 0; turn < weights.kTurns; ++turn) {
        uint32_t a[2][4], b[2][kN / 16][4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < kN / 16; ++j) {
            const int product = (half * weights.kTurns + turn) * 2 + i;
            const int piece = product % 4 * 2 + half_piece;
            load_matrices(b[i][j], x + (product / 4 * kRows + 16 * j) * kDepthBytes +
                                       (piece ^ lane % 8) * 16);
          }
        weights.take(turn, a);
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < kN / 8; ++j)
            multiply(reinterpret_cast<float(&)[4]>(sums[4 * j]), a[i], b[i][j / 2][j % 2 * 2],
                     b[i][j / 2][j % 2 * 2 + 1]);
      }
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(ring.empty + ring.stage);
    ring.step();
  }
}

// By wgmma. A group's conversions overlap the products of other groups.
template <int kN, bool kGated, int kRows, int kColumns>
__device__ void add_mxfp4_many(Ring<kRows, Mxfp4<kColumns>>& ring, int group, int boxes,
                               float (&sums)[kRows / 2]) {
  using In = Mxfp4<kColumns>;
  static_assert(kColumns == kHalfColumns);
  for (int box = 0; box < boxes; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    const uint64_t b = swizzled_matrix(ring.x(ring.stage));
    const Mxfp4Half<kGated> weights(ring.weight(ring.stage) + group * kBoxBytes<In>,
                                    ring.exponents(ring.stage) + group * kPart * kRowExponents<In>,
                                    kRowExponents<In>);
#pragma unroll
    for (int turn = 0; turn < weights.kTurns; ++turn) {
      uint32_t a[2][4];
      weights.take(turn, a);
      products_begin();
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int product = turn * 2 + i;
        multiply_64(first_sums<kN>(sums), a[i],
                    b + product / 4 * (kRows * kDepthBytes >> 4) + product % 4 * 2, true);
      }
      products_end();
      wait_for_products<0>();
    }
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
    ring.step();
  }
}

// A part without outputs.
template <int kRows, int kColumns>
__device__ void pass_boxes(Ring<kRows, Mxfp4<kColumns>>& ring, int boxes) {
  for (int box = 0; box < boxes; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    if (threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + ring.stage);
    ring.step();
  }
}

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
