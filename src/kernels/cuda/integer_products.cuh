// Products of integer weights in boxes (boxes.cuh), by wgmma or per warp.
#pragma once

#include "kernels/cuda/boxes.cuh"

namespace nereid::kernels::cuda {

#if defined(NEREID_HOPPER)

// Groups of a weight of integers along k, at a thread's two rows.
template <int kIntegerBits>
struct Groups {
  const BoxIntegers& p;
  uint32_t first[2];  // places of the rows' first groups

  __device__ Groups(const BoxIntegers& p, const int64_t (&rows)[2])
      : p(p),
        first{static_cast<uint32_t>(rows[0] * p.groups),
              static_cast<uint32_t>(rows[1] * p.groups)} {}
  // The group of a half of a box; behind k, where x is 0, the last.
  __device__ int at(int box, int half) const {
    constexpr int kColumns = kDepth<Integers<kIntegerBits>>;
    return min(box * kColumns + half * (kColumns / kHalves), p.k - 1) >> p.group_bits;
  }
  __device__ void load_scales(int group, float (&scales)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) scales[r] = __ldg(p.scales + (first[r] + group));
  }
  __device__ void load_zeros(int group, uint32_t (&zeros)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      zeros[r] = p.zeros ? __ldg(p.zeros + (first[r] + group)) : static_cast<uint32_t>(p.zero);
  }
};

// Integers of two rows of a half of a box, 16 bytes of each per thread. A turn: two products.
template <int kIntegerBits>
struct IntegerHalf {
  using Word = Words<kIntegerBits, false>;
  static constexpr int kTurnWords = 4 / Word::kPairs, kTurns = 4 / kTurnWords;
  uint32_t words[2][4];

  // `row`: of this thread in the box, in shared memory; the other is eight rows behind.
  __device__ void load(const uint8_t* row, int half) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    // Pieces of a row are swizzled by the row's low bits.
    const uint8_t* const at = row + ((4 * half + lane % 4) ^ (lane / 4)) * 16;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint4 piece = *reinterpret_cast<const uint4*>(at + r * 8 * kDepthBytes);
      words[r][0] = piece.x, words[r][1] = piece.y, words[r][2] = piece.z, words[r][3] = piece.w;
    }
  }
  // The turn's left operands.
  __device__ void take(int turn, const uint32_t (&zeros)[2], uint32_t (&a)[2][4]) const {
#pragma unroll
    for (int i = 0; i < kTurnWords; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint32_t pairs[Word::kPairs];
        Word::decode(words[r][turn * kTurnWords + i], 0, zeros[r], 0, pairs);
#pragma unroll
        for (int j = 0; j < Word::kPairs; ++j) {
          const int pair = i * Word::kPairs + j;
          a[pair / 2][pair % 2 * 2 + r] = pairs[j];
        }
      }
  }
};

template <int kSums>
__device__ void add_scaled(float (&sums)[kSums], const float (&scales)[2],
                           const float (&products)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) sums[i] = fmaf(scales[i % 4 / 2], products[i], sums[i]);
}

// Products of a thread's integers with boxes of kRows rows of x; the sum of a group is scaled when
// the group ends. Conversions of a turn overlap the products of the turn before.
template <int kRows, int kIntegerBits, int kSums>
struct IntegerProducts {
  using Half = IntegerHalf<kIntegerBits>;
  const Groups<kIntegerBits> groups;
  float (&sums)[kSums];
  float products[kSums], scales[2];
  uint32_t zeros[2], a[2][2][4];
  int group = -1;  // of the products; -1: none

  __device__ IntegerProducts(const BoxIntegers& p, const int64_t (&rows)[2], int first_box,
                             float (&sums)[kSums])
      : groups(p, rows), sums(sums) {
    groups.load_zeros(groups.at(first_box, 0), zeros);
  }
  // `row`: see IntegerHalf; `next_box`: the next one of this thread. Calls wait_for_x() before the
  // first products, release() when those of the boxes before have ended.
  template <class F, class G>
  __device__ void add_box(const uint8_t* row, const uint8_t* x, int box, int next_box, F wait_for_x,
                          G release) {
    const uint64_t b = swizzled_matrix(x);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      Half integers;
      integers.load(row, half);
      const int own = groups.at(box, half);
      uint32_t next_zeros[2];
      groups.load_zeros(half + 1 < kHalves ? groups.at(box, half + 1) : groups.at(next_box, 0),
                        next_zeros);
      const bool begins = own != group;
#pragma unroll
      for (int turn = 0; turn < Half::kTurns; ++turn) {
        integers.take(turn, zeros, a[turn % 2]);
        if (turn == 0 && half == 0) wait_for_x();
        if (turn == 0 && begins) {
          if (group >= 0) add();
          groups.load_scales(own, scales);
          group = own;
        }
        products_begin();
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int product = (half * Half::kTurns + turn) * 2 + j;
          multiply_64(products, a[turn % 2][j],
                      b + product / 4 * (kRows * kDepthBytes >> 4) + product % 4 * 2,
                      turn > 0 || j > 0 || !begins);
        }
        products_end();
        wait_for_products<1>();  // the previous turn's registers are reused
        if (turn == 0 && half == 0) release();
      }
      zeros[0] = next_zeros[0], zeros[1] = next_zeros[1];
    }
  }
  __device__ void add() {
    wait_for_products<0>();
    are_defined_here(products);
    add_scaled(sums, scales, products);
  }
};

// Same by products of a warp, whose rows of x are not waited for here.
template <int kRows, int kIntegerBits>
struct WarpProducts {
  using Half = IntegerHalf<kIntegerBits>;
  const Groups<kIntegerBits> groups;
  float (&sums)[kRows / 2];
  float products[kRows / 2] = {}, scales[2] = {};
  uint32_t zeros[2];
  int group = -1;  // of the products; -1: none

  __device__ WarpProducts(const BoxIntegers& p, const int64_t (&rows)[2], int first_box,
                          float (&sums)[kRows / 2])
      : groups(p, rows), sums(sums) {
    groups.load_zeros(groups.at(first_box, 0), zeros);
  }
  __device__ void add_box(const uint8_t* row, const uint8_t* x, int box, int next_box) {
    // Matrices of load_matrices(): rows 0 to 7 of x, columns 0 to 7 and 8 to 15; rows 8 to 15.
    const int lane = static_cast<int>(threadIdx.x) % kWarp, half_piece = lane / 8 % 2;
    const uint32_t from = shared_address(x) + (lane / 16 * 8 + lane % 8) * kDepthBytes;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      Half integers;
      integers.load(row, half);
      const int own = groups.at(box, half);
      uint32_t next_zeros[2];
      groups.load_zeros(half + 1 < kHalves ? groups.at(box, half + 1) : groups.at(next_box, 0),
                        next_zeros);
      if (own != group) {
        add();
#pragma unroll
        for (float& product : products) product = 0;
        groups.load_scales(own, scales);
        group = own;
      }
#pragma unroll
      for (int turn = 0; turn < Half::kTurns; ++turn) {
        uint32_t a[2][4], b[2][kRows / 16][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int r = 0; r < kRows / 16; ++r) {
            const int product = (half * Half::kTurns + turn) * 2 + j;
            load_matrices(b[j][r], from + (product / 4 * kRows + 16 * r) * kDepthBytes +
                                       ((product % 4 * 2 + half_piece) ^ lane % 8) * 16);
          }
        integers.take(turn, zeros, a);
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int r = 0; r < kRows / 8; ++r)
            multiply(reinterpret_cast<float(&)[4]>(products[4 * r]), a[j], b[j][r / 2][r % 2 * 2],
                     b[j][r / 2][r % 2 * 2 + 1]);
      }
      zeros[0] = next_zeros[0], zeros[1] = next_zeros[1];
    }
  }
  __device__ void add() { add_scaled(sums, scales, products); }
};

template <int kN, int kRows, int kIntegerBits>
__device__ void add_boxes(const BoxIntegers& p, Ring<kRows, Integers<kIntegerBits>>& ring,
                          int group, const int64_t (&rows)[2], int begin, int end,
                          float (&parts)[1][kRows / 2]) {
  IntegerProducts<kRows, kIntegerBits, kN / 2> products(p, rows, begin, first_sums<kN>(parts[0]));
  int before = -1;  // stage whose products may still run
  const auto release = [&] {
    if (before >= 0 && threadIdx.x % kWarp == 0) barrier_arrive(ring.empty + before);
  };
  for (int box = begin; box < end; ++box) {
    barrier_wait(ring.full + ring.stage, ring.parity);
    products.add_box(
        ring.weight(ring.stage) + group * kPartBytes + part_output(0) * kDepthBytes,
        ring.x(ring.stage), box, min(box + 1, end - 1), [] {}, release);
    before = ring.stage;
    ring.step();
  }
  products.add();
  release();
}

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
