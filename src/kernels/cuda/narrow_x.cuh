// x of gemv_narrow.cu in shared memory: bf16 integers or f8e4m3, in wgmma layout.
#pragma once

#include <algorithm>

#include "kernels/api/ops.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda::narrow {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kProductWarps = 4;              // per wgmma
constexpr int kOutputs = 16;                  // per tile
constexpr int kStepBytes = 64;                // of a weight row, per warp
constexpr int kStride = kWarps * kStepBytes;  // per block
constexpr size_t kMaxShared = 48 * 1024;      // limit for x: two blocks per SM

// x [rows, k], k of the weight.
struct XParams {
  const void* x;
  int64_t stride, row_bytes;  // row_bytes: of the weight
  int rows, steps;
};

// Format of a warp's 64 bytes of a weight row.
enum class Form { kF8, kInt8, kInt4 };
template <Form kForm>
constexpr int kMaxRows = kForm == Form::kF8 ? 4 : 2;  // more rows: integer x costs more
template <Form kForm>
constexpr int kColumns = kForm == Form::kInt4 ? 2 * kStepBytes : kStepBytes;  // per step
template <Form kForm>
constexpr int kProducts = kColumns<kForm> / 32;  // per step
template <Form kForm>
constexpr int kAhead = kForm == Form::kF8 ? 8 : 6;  // steps in flight
// Columns of one warp's x: one per row; integers: two (high and low byte).
template <Form kForm, int kRows>
constexpr int kMine = kForm == Form::kF8 ? kRows : 2 * kRows;
template <Form kForm, int kRows>
constexpr int kAll = std::max(8, kProductWarps* kMine<kForm, kRows>);  // of a product

// Shared memory of x: per step of four warps and product, two matrices of 16 bytes of k, in groups
// of eight columns.
template <Form kForm, int kRows>
constexpr int kMatrixBytes = 16 * kAll<kForm, kRows>;
template <Form kForm, int kRows>
constexpr int kProductBytes = 2 * kMatrixBytes<kForm, kRows>;
template <Form kForm, int kRows>
constexpr int kGroupStepBytes = kProducts<kForm>* kProductBytes<kForm, kRows>;
struct UnitScale {
  float scale, sum;  // scale of the step's integers, sum of the numbers they represent
};
template <Form kForm, int kRows>
size_t shared_bytes(int steps) {
  const size_t matrices =
      static_cast<size_t>(steps) * (kWarps / kProductWarps) * kGroupStepBytes<kForm, kRows>;
  const size_t units = kForm == Form::kF8 ? 0 : static_cast<size_t>(steps) * kWarps * kRows;
  return matrices + units * sizeof(UnitScale);
}

#if defined(NEREID_HOPPER)

__device__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Offset in a matrix of the 16 bytes of k of column `column` of warp `warp` (of four).
template <Form kForm, int kRows>
__device__ int column_at(int warp, int column) {
  const int q = warp * kMine<kForm, kRows> + column;
  return q / 8 * 128 + q % 8 * 16;
}

// Stores piece i, 16 bytes of k, of an f8e4m3 row. A wgmma thread reads words 4 c + i of such
// pieces, two per product: word i is in matrix i.
template <int kRows>
__device__ void put_f8(uint8_t* to, int i, int row, const uint4& piece) {
  constexpr Form kForm = Form::kF8;
  const int unit = i / 4;
  uint8_t* const at = to + unit / kProductWarps * kGroupStepBytes<kForm, kRows> +
                      column_at<kForm, kRows>(unit % kProductWarps, row) + i % 4 * 4;
#pragma unroll
  for (int w = 0; w < 4; ++w)
    *reinterpret_cast<uint32_t*>(at + w * kMatrixBytes<kForm, kRows>) = word_of(piece, w);
}

// Stages f8e4m3 x.
template <int kRows>
__device__ void stage_f8(const XParams& p, uint8_t* to) {
  const int pieces = p.steps * (kStride / 16);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const auto* const x = static_cast<const uint8_t*>(p.x) + row * p.stride;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kThreads) {
      uint4 v = {};
      if (row < p.rows && int64_t{i} * 16 < p.row_bytes)
        v = *reinterpret_cast<const uint4*>(x + int64_t{i} * 16);
      put_f8<kRows>(to, i, row, v);
    }
  }
}

// Prefetch: a load whose result is unused.
__device__ void touch(const void* p) {
  asm volatile("{\n.reg .b32 unused;\nld.global.b32 unused, [%0];\n}\n" ::"l"(p) : "memory");
}

// Stages bf16 x as integers: one warp per step's columns of a row, adjacent columns per lane. Calls
// f() while x is loading.
template <Form kForm, int kRows, class F>
__device__ void stage_integers(const XParams& p, uint8_t* to, UnitScale* scales, F f) {
  constexpr int kLane = kColumns<kForm> / kWarp;  // columns per lane: 4 or 2
  constexpr int kTogether = kRows == 1 ? 7 : 4;   // steps whose loads are in flight
  constexpr int kLine = 128;                      // bytes of a cache line
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int units = p.steps * kRows;  // of this warp
  // Prefetches all of x to the L1 cache.
  const int64_t x_bytes = p.row_bytes * (kColumns<kForm> / kStepBytes) * 2;
  for (int row = 0; row < p.rows; ++row)
    for (int64_t at = threadIdx.x * int64_t{kLine}; at < x_bytes; at += kThreads * kLine)
      touch(static_cast<const char*>(p.x) + row * p.stride * 2 + at);
  f();
  for (int first = 0; first < units; first += kTogether) {
    uint32_t pairs[kTogether][kLane / 2];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      const int unit = (first + t) / kRows * kWarps + warp, row = (first + t) % kRows;
      const int64_t column = int64_t{unit} * kColumns<kForm> + lane * kLane;
      const bool exists = first + t < units && row < p.rows &&
                          column < p.row_bytes * (kColumns<kForm> / kStepBytes);
      const auto* const from = reinterpret_cast<const uint32_t*>(
          static_cast<const __nv_bfloat16*>(p.x) + row * p.stride + column);
#pragma unroll
      for (int i = 0; i < kLane / 2; ++i) pairs[t][i] = exists ? from[i] : 0u;
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (first + t >= units) break;
      const int unit = (first + t) / kRows * kWarps + warp, row = (first + t) % kRows;
      uint32_t most = 0;  // max magnitude, bf16
#pragma unroll
      for (int i = 0; i < kLane / 2; ++i) most = __vmaxu2(most, pairs[t][i] & 0x7fff7fffu);
      const uint32_t largest = __reduce_max_sync(kAllLanes, max(most << 16, most & 0xffff0000u));
      // Scales amax to [2^14, 2^15); tiny exponents are clamped.
      const uint32_t exponent = min(max(largest >> 23, 30u), 254u);
      const float factor = __uint_as_float((127 + 14 + 127 - exponent) << 23);
      // Adding 1.5 * 2^23 rounds to an integer in the low bits.
      uint32_t integers[kLane], sum = 0;
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        constexpr float kMost = 32639;  // its high byte is still 127
        const float2 two = unpack(pairs[t][i / 2]);
        const float v = (i % 2 == 0 ? two.x : two.y) * factor;
        integers[i] = __float_as_uint(fminf(fmaxf(v, -kMost), kMost) + 0x1.8p23f);
        sum += integers[i] - __float_as_uint(0x1.8p23f);
      }
      sum = __reduce_add_sync(kAllLanes, sum);
      if (lane == 0) {
        const float scale = largest < 0x7f800000u ? __uint_as_float((exponent - 14) << 23) : NAN;
        scales[unit * kRows + row] = {kForm == Form::kInt4 ? scale / 16 : scale,
                                      scale * static_cast<float>(static_cast<int>(sum))};
      }
      const int group = unit / kProductWarps, w = unit % kProductWarps;
      uint8_t* const at = to + group * kGroupStepBytes<kForm, kRows>;
      const auto put = [&](int matrix, int byte, int a, int b) {  // of columns a and b
        uint8_t* const place = at + matrix * kMatrixBytes<kForm, kRows> + byte;
        const uint32_t x = integers[a], y = integers[b];
        constexpr uint32_t kHalf = 128;  // low bytes are signed, from -128
        *reinterpret_cast<uint16_t*>(place + column_at<kForm, kRows>(w, 2 * row)) =
            static_cast<uint16_t>(__byte_perm(x + kHalf, y + kHalf, 0x51));
        *reinterpret_cast<uint16_t*>(place + column_at<kForm, kRows>(w, 2 * row + 1)) =
            static_cast<uint16_t>(__byte_perm(x, y, 0x40));
      };
      if constexpr (kForm == Form::kInt4) {
        // Word l / 2 of the step's; a product takes one word per thread: its even columns are one
        // matrix, its odd ones the other.
        const int word = lane / 2, byte = word / 4 * 4 + lane % 2 * 2;
        put(word % 4 * 2, byte, 0, 2);
        put(word % 4 * 2 + 1, byte, 1, 3);
      } else {
        const int word = lane / 2;
        put(word % 4, word / 4 * 4 + lane % 2 * 2, 0, 1);
      }
    }
  }
}

#endif

}  // namespace nereid::kernels::cuda::narrow
