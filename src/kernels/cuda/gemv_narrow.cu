// out [rows, n] = x [rows, k] . weight [n, k]^T with weights of 8 or 4 bits: f8e4m3 with up to four
// rows of f8e4m3, and integers in groups that are whole steps of a warp with up to two of bf16. The
// time is that of reading the weight once, so that as few instructions as can be handle it:
// Hopper's products of four warps (wgmma) take f8e4m3 and int8 from registers as they are, in any
// order of k, and x from shared memory.
//
// A block takes tiles of 16 outputs, one after the other; its eight warps take 64 bytes of k of the
// sixteen rows in turn, straight from memory to registers. The four warps of a product would share
// x: each has columns of it to itself, and leaves the sums with the others' columns alone.
//
// x with integers: a step of a warp has a scale, a power of two, by which x is integers of 16 bits,
// multiplied as two of 8 bits, exactly. Numbers of at least 1/128 of the largest of a step are
// exact, others lose at most 2^-16 of it. The order of additions depends on k alone.
//
// Weights do not depend on the kernel in front: the first are fetched while it still runs.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kProductWarps = 4;              // of a wgmma
constexpr int kOutputs = 16;                  // of a tile
constexpr int kStepBytes = 64;                // of a weight row, by a warp
constexpr int kStride = kWarps * kStepBytes;  // by a block
constexpr int kBlocksPerUnit = 2;
constexpr size_t kMaxShared = 48 * 1024;  // for x, so that two blocks fit

struct Params {
  const void* x;
  const uint8_t* weight;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // of outputs (f8e4m3) or of groups
  const float* x_scales;      // f8e4m3
  const uint8_t* zeros;       // of groups, or null
  void* out;
  int64_t x_stride, x_scales_stride, out_stride, n, row_bytes, groups;
  int rows, tiles, steps;
  int group_bits;  // a column's group is column >> group_bits
  int zero;        // where there are no zeros; 0 for f8e4m3
  bool out_bf16;
};

// What a warp's 64 bytes of a weight row are.
enum class Form { kF8, kInt8, kInt4 };
template <Form kForm>
constexpr int kMaxRows = kForm == Form::kF8 ? 4 : 2;  // more integers of x cost more than they save
template <Form kForm>
constexpr int kColumns = kForm == Form::kInt4 ? 2 * kStepBytes : kStepBytes;  // of a step
template <Form kForm>
constexpr int kProducts = kColumns<kForm> / 32;  // of a step
template <Form kForm>
constexpr int kAhead = kForm == Form::kF8 ? 8 : 6;  // steps that are on their way
// Columns of x that one warp has: each row, of integers its upper and its lower bits.
template <Form kForm, int kRows>
constexpr int kMine = kForm == Form::kF8 ? kRows : 2 * kRows;
template <Form kForm, int kRows>
constexpr int kAll = std::max(8, kProductWarps* kMine<kForm, kRows>);  // of a product

// Shared memory of x: for each step of four warps and each product two matrices of 16 bytes of k,
// in groups of eight columns.
template <Form kForm, int kRows>
constexpr int kMatrixBytes = 16 * kAll<kForm, kRows>;
template <Form kForm, int kRows>
constexpr int kProductBytes = 2 * kMatrixBytes<kForm, kRows>;
template <Form kForm, int kRows>
constexpr int kGroupStepBytes = kProducts<kForm>* kProductBytes<kForm, kRows>;
struct UnitScale {
  float scale, sum;  // of the step's integers, and of what they stand for
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

// Where column `column` of warp `warp` (of four) has its 16 bytes of k in a matrix.
template <Form kForm, int kRows>
__device__ int column_at(int warp, int column) {
  const int q = warp * kMine<kForm, kRows> + column;
  return q / 8 * 128 + q % 8 * 16;
}

// x of f8e4m3. A thread of the product has 16 bytes of k, the four words 4 c + i, of which it uses
// two in each product: word i is in matrix i.
template <int kRows>
__device__ void stage_f8(const Params& p, uint8_t* to) {
  constexpr Form kForm = Form::kF8;
  const int pieces = p.steps * (kStride / 16);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const auto* const x = static_cast<const uint8_t*>(p.x) + row * p.x_stride;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < pieces; i += kThreads) {
      uint4 v = {};
      if (row < p.rows && int64_t{i} * 16 < p.row_bytes)
        v = *reinterpret_cast<const uint4*>(x + int64_t{i} * 16);
      const int unit = i / 4;
      uint8_t* const at = to + unit / kProductWarps * kGroupStepBytes<kForm, kRows> +
                          column_at<kForm, kRows>(unit % kProductWarps, row) + i % 4 * 4;
#pragma unroll
      for (int w = 0; w < 4; ++w)
        *reinterpret_cast<uint32_t*>(at + w * kMatrixBytes<kForm, kRows>) = word_of(v, w);
    }
  }
}

// A load whose result is not waited for.
__device__ void touch(const void* p) {
  asm volatile("{\n.reg .b32 unused;\nld.global.b32 unused, [%0];\n}\n" ::"l"(p) : "memory");
}

// x of bf16 as integers: a warp takes a step's columns of a row, each lane neighbours.
template <Form kForm, int kRows>
__device__ void stage_integers(const Params& p, uint8_t* to, UnitScale* scales) {
  constexpr int kLane = kColumns<kForm> / kWarp;  // columns of a lane: 4 or 2
  constexpr int kTogether = kRows == 1 ? 7 : 4;   // steps whose loads are under way at once
  constexpr int kLine = 128;                      // bytes of the cache
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int units = p.steps * kRows;  // of this warp
  // All of x to the first-level cache at once.
  const int64_t x_bytes = p.row_bytes * (kColumns<kForm> / kStepBytes) * 2;
  for (int row = 0; row < p.rows; ++row)
    for (int64_t at = threadIdx.x * int64_t{kLine}; at < x_bytes; at += kThreads * kLine)
      touch(static_cast<const char*>(p.x) + row * p.x_stride * 2 + at);
  for (int first = 0; first < units; first += kTogether) {
    uint32_t pairs[kTogether][kLane / 2];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      const int unit = (first + t) / kRows * kWarps + warp, row = (first + t) % kRows;
      const int64_t column = int64_t{unit} * kColumns<kForm> + lane * kLane;
      const bool exists = first + t < units && row < p.rows &&
                          column < p.row_bytes * (kColumns<kForm> / kStepBytes);
      const auto* const from = reinterpret_cast<const uint32_t*>(
          static_cast<const __nv_bfloat16*>(p.x) + row * p.x_stride + column);
#pragma unroll
      for (int i = 0; i < kLane / 2; ++i) pairs[t][i] = exists ? from[i] : 0u;
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      if (first + t >= units) break;
      const int unit = (first + t) / kRows * kWarps + warp, row = (first + t) % kRows;
      uint32_t most = 0;  // magnitudes of bf16
#pragma unroll
      for (int i = 0; i < kLane / 2; ++i) most = __vmaxu2(most, pairs[t][i] & 0x7fff7fffu);
      const uint32_t largest = __reduce_max_sync(kAllLanes, max(most << 16, most & 0xffff0000u));
      // The largest number becomes 2^14 to 2^15; exponents of nearly nothing are cut off.
      const uint32_t exponent = min(max(largest >> 23, 30u), 254u);
      const float factor = __uint_as_float((127 + 14 + 127 - exponent) << 23);
      // A float of 1.5 * 2^23 more than a number has it, rounded, in its lower bits.
      uint32_t integers[kLane], sum = 0;
#pragma unroll
      for (int i = 0; i < kLane; ++i) {
        constexpr float kMost = 32639;  // its upper bits are 127 still
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
        constexpr uint32_t kHalf = 128;  // the lower bits are an integer from -128 on
        *reinterpret_cast<uint16_t*>(place + column_at<kForm, kRows>(w, 2 * row)) =
            static_cast<uint16_t>(__byte_perm(x + kHalf, y + kHalf, 0x51));
        *reinterpret_cast<uint16_t*>(place + column_at<kForm, kRows>(w, 2 * row + 1)) =
            static_cast<uint16_t>(__byte_perm(x, y, 0x40));
      };
      if constexpr (kForm == Form::kInt4) {
        // Word l / 2 of the step's; a product takes a word of each thread, its even columns as one
        // matrix, its odd ones as the other.
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

// Matrices in shared memory without a swizzle: eight columns by 16 bytes of k together.
__device__ uint64_t plain_matrix(const void* p, int matrix_bytes) {
  return (static_cast<uint64_t>(shared_address(p)) >> 4 & 0x3fff) |
         static_cast<uint64_t>(matrix_bytes >> 4) << 16 | uint64_t{128 >> 4} << 32;
}

// A step's products, sums of f32 or int. `nothing` is 0: without it the compiler puts the words in
// their order as soon as they are fetched, and so waits for every fetch.
template <Form kForm, int kRows>
__device__ void multiply_step(const uint4 (&w)[2], const uint8_t* x, uint32_t nothing,
                              float (&sums)[kAll<kForm, kRows> / 2]) {
  uint32_t a[kProducts<kForm>][4];
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) a[i][r] = word_of(w[r % 2], 2 * i + r / 2) ^ nothing;
  products_begin();
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i) {
    const uint64_t b =
        plain_matrix(x + i * kProductBytes<kForm, kRows>, kMatrixBytes<kForm, kRows>);
    if (i == 0)
      multiply_64_f8<false>(sums, a[i], b);
    else
      multiply_64_f8<true>(sums, a[i], b);
  }
  products_end();
  wait_for_products<0>();
}
template <Form kForm, int kRows>
__device__ void multiply_step(const uint4 (&w)[2], const uint8_t* x, uint32_t,
                              int (&sums)[kAll<kForm, kRows> / 2]) {
  uint32_t a[kProducts<kForm>][4];
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (kForm == Form::kInt4) {
        // 16 times the integer less 8.
        const uint32_t word = word_of(w[h], i);
        a[i][h] = (word << 4 & 0xf0f0f0f0u) ^ 0x80808080u;
        a[i][2 + h] = (word & 0xf0f0f0f0u) ^ 0x80808080u;
      } else {
        a[i][h] = word_of(w[h], 2 * i) ^ 0x80808080u;
        a[i][2 + h] = word_of(w[h], 2 * i + 1) ^ 0x80808080u;
      }
    }
  products_begin();
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i) {
    const uint64_t b =
        plain_matrix(x + i * kProductBytes<kForm, kRows>, kMatrixBytes<kForm, kRows>);
    if (i == 0)
      multiply_64_s8<false>(sums, a[i], b);
    else
      multiply_64_s8<true>(sums, a[i], b);
  }
  products_end();
  wait_for_products<0>();
}

// Element r of block `i` of sums, which is the same for a warp.
template <int kSize, class T>
__device__ T sum_of(const T (&sums)[kSize], int i, int r) {
  T v = sums[r];
#pragma unroll
  for (int j = 1; j < kSize / 4; ++j)
    if (i == j) v = sums[4 * j + r];
  return v;
}

template <Form kForm, int kRows>
__device__ void run(const Params& p) {
  constexpr bool kF8 = kForm == Form::kF8;
  constexpr int kSteps = kAhead<kForm>;
  extern __shared__ __align__(128) uint8_t matrices[];
  __shared__ float totals[2][kWarps][kOutputs][kRows];
  auto* const units = reinterpret_cast<UnitScale*>(matrices + p.steps * (kWarps / kProductWarps) *
                                                                  kGroupStepBytes<kForm, kRows>);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int first_byte = warp * kStepBytes + lane % 4 * 16;  // this thread's
  const auto row_bytes = static_cast<int>(p.row_bytes);
  const int total = (p.tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                    static_cast<int>(gridDim.x) * p.steps;

  uint4 weights[kSteps][2];
  float scales[kSteps][2];
  int zeros[kSteps][2];
  // The next step to fetch: its tile, and its number.
  int tile = static_cast<int>(blockIdx.x), next = 0;
  const uint8_t* rows[2];
  int64_t first_groups[2];
  const auto find_rows = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = min(int64_t{tile} * kOutputs + 8 * h + lane / 4, p.n - 1);
      rows[h] = p.weight + row * p.row_bytes;
      first_groups[h] = row * p.groups;
    }
  };
  find_rows();
  const auto fetch = [&](int a) {
    const int byte = first_byte + next * kStride;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      weights[a][h] = byte < row_bytes ? load_once(rows[h] + byte) : uint4{};
      if constexpr (!kF8) {
        const int unit = next * kWarps + warp;
        const bool exists = unit * kStepBytes < row_bytes;
        const int64_t at = first_groups[h] + (unit * kColumns<kForm> >> p.group_bits);
        scales[a][h] = exists ? __ldg(p.scales + at) : 0.0f;
        zeros[a][h] = p.zeros && exists ? __ldg(p.zeros + at) : p.zero;
      }
    }
    if (++next < p.steps) return;
    next = 0, tile += static_cast<int>(gridDim.x);
    find_rows();
  };
#pragma unroll
  for (int a = 0; a < kSteps; ++a)
    if (a < total) fetch(a);
  let_next_begin();
  wait_for_previous();
  if constexpr (kF8)
    stage_f8<kRows>(p, matrices);
  else
    stage_integers<kForm, kRows>(p, matrices, units);
  writes_are_ready();
  __syncthreads();

  // Columns of x in the products: this warp's are in block `mine` of eight.
  const int in_product = warp % kProductWarps * kMine<kForm, kRows>;
  const int mine = in_product / 8;
  const int column = lane % 4 * 2 - in_product % 8;  // of this warp's, of a thread's first sums
  // Of integers a thread has both columns of a row.
  const int row = kF8 ? column : column / 2;
  const bool has_row = column >= 0 && row < kRows;
  float results[2][2] = {};  // of outputs, and of two rows of f8e4m3
  int in_tile = 0, buffer = 0;
  int done = static_cast<int>(blockIdx.x);  // the tile whose products are made
  const auto finish_tile = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int c = 0; c < (kF8 ? 2 : 1); ++c) {
        if (kF8 ? column + c >= 0 && column + c < kRows : has_row)
          totals[buffer][warp][8 * h + lane / 4][row + c] = results[h][c];
        results[h][c] = 0;
      }
    __syncthreads();
    const int m = static_cast<int>(threadIdx.x) / kOutputs;
    const int output = static_cast<int>(threadIdx.x) % kOutputs;
    const int64_t n = int64_t{done} * kOutputs + output;
    if (m < p.rows && n < p.n) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += totals[buffer][w][output][m];
      if (kF8) sum *= p.scales[n] * p.x_scales[m * p.x_scales_stride];
      if (p.bias) sum += load(p.bias + n);
      const int64_t at = m * p.out_stride + n;
      if (p.out_bf16)
        store(static_cast<__nv_bfloat16*>(p.out) + at, sum);
      else
        store(static_cast<float*>(p.out) + at, sum);
    }
    in_tile = 0, buffer ^= 1, done += static_cast<int>(gridDim.x);
  };
  const auto multiply = [&](int a) {
    const uint8_t* const x =
        matrices +
        (in_tile * (kWarps / kProductWarps) + warp / kProductWarps) * kGroupStepBytes<kForm, kRows>;
    std::conditional_t<kF8, float, int> sums[kAll<kForm, kRows> / 2];
    multiply_step<kForm, kRows>(weights[a], x, static_cast<uint32_t>(p.zero), sums);
    if constexpr (kF8) {
#pragma unroll
      for (int r = 0; r < 4; ++r) results[r / 2][r % 2] += sum_of(sums, mine, r);
    } else {
      const UnitScale unit = units[(in_tile * kWarps + warp) * kRows + (has_row ? row : 0)];
      constexpr int kZero = kForm == Form::kInt4 ? 8 : 128;  // what is taken off already
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int sum = sum_of(sums, mine, 2 * h) * 256 + sum_of(sums, mine, 2 * h + 1);
        const float moved = static_cast<float>(kZero - zeros[a][h]) * unit.sum;
        results[h][0] =
            fmaf(scales[a][h], fmaf(unit.scale, static_cast<float>(sum), moved), results[h][0]);
      }
    }
  };
  for (int first = 0; first < total; first += kSteps) {
#pragma unroll
    for (int a = 0; a < kSteps; ++a) {
      if (first + a >= total) break;
      multiply(a);
      if (first + a + kSteps < total) fetch(a);
      if (++in_tile == p.steps) finish_tile();
    }
  }
}

#endif

template <Form kForm, int kRows>
__global__ void __launch_bounds__(kThreads, kBlocksPerUnit) gemv_narrow_kernel(Params p) {
#if defined(NEREID_HOPPER)
  run<kForm, kRows>(p);
#endif
}

Form form_of(const Linear& a) {
  return a.weight.format.scheme == Scheme::kFloat8 ? Form::kF8
         : a.weight.format.bits == 8               ? Form::kInt8
                                                   : Form::kInt4;
}

// Calls f with a constant of the form, and of the rows.
template <class F>
auto with_form(const Linear& a, F f) {
  const auto with_rows = [&]<Form kForm>() {
    if (a.x.rows == 1) return f.template operator()<kForm, 1>();
    if (a.x.rows == 2) return f.template operator()<kForm, 2>();
    return f.template operator()<kForm, kMaxRows<kForm>>();
  };
  switch (form_of(a)) {
    case Form::kF8:
      return with_rows.template operator()<Form::kF8>();
    case Form::kInt8:
      return with_rows.template operator()<Form::kInt8>();
    default:
      return with_rows.template operator()<Form::kInt4>();
  }
}

int steps_of(const Linear& a) {
  return static_cast<int>((a.weight.format.row_bytes(a.weight.k) + kStride - 1) / kStride);
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Whether a step of a warp lies in one group.
bool has_wide_groups(const Linear& a) {
  const int64_t group = a.weight.format.group_size(a.weight.k);
  const int64_t step = a.weight.format.bits == 4 ? kColumns<Form::kInt4> : kColumns<Form::kInt8>;
  return a.weight.format.num_groups(a.weight.k) == 1 ||
         (std::has_single_bit(static_cast<uint64_t>(group)) && group >= step);
}

}  // namespace

bool takes_narrow_gemv(const Linear& a, int sm) {
  const WeightFormat& format = a.weight.format;
  if (sm != 90 || format.is_float()) return false;
  const bool f8 = form_of(a) == Form::kF8;
  if (a.x.rows > (f8 ? kMaxRows<Form::kF8> : kMaxRows<Form::kInt4>)) return false;
  if (f8 != (a.x.dtype == DType::kF8E4M3) || format.minima || (!f8 && !has_wide_groups(a)))
    return false;
  if (format.row_bytes(a.weight.k) % 16 != 0 || a.x.stride % (f8 ? 16 : 8) != 0 ||
      !is_aligned(a.x.data) || !is_aligned(a.weight.data))
    return false;
  return with_form(a, [&]<Form kForm, int kRows>() {
    return shared_bytes<kForm, kRows>(steps_of(a)) <= kMaxShared;
  });
}

cudaError_t launch_narrow_gemv(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  const WeightFormat& format = a.weight.format;
  Params p = {};
  p.x = a.x.data;
  p.weight = a.weight.as_bytes();
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data);
  p.zeros = a.weight.zeros;
  p.out = a.out.data;
  p.x_stride = a.x.stride, p.x_scales_stride = a.scales.stride, p.out_stride = a.out.stride;
  p.n = a.weight.n, p.row_bytes = format.row_bytes(a.weight.k);
  p.groups = format.num_groups(a.weight.k);
  p.rows = static_cast<int>(a.x.rows);
  p.tiles = static_cast<int>((p.n + kOutputs - 1) / kOutputs);
  p.steps = steps_of(a);
  p.group_bits =
      p.groups == 1 ? 31 : std::countr_zero(static_cast<uint64_t>(format.group_size(a.weight.k)));
  p.zero = form_of(a) == Form::kF8 ? 0 : format.default_zero();
  p.out_bf16 = a.out.dtype == DType::kBF16;
  const auto blocks = static_cast<unsigned>(std::min(p.tiles, kBlocksPerUnit * scratch.num_units));
  return with_form(a, [&]<Form kForm, int kRows>() {
    return launch_overlapped(gemv_narrow_kernel<kForm, kRows>, a.x.rows, blocks, kThreads,
                             shared_bytes<kForm, kRows>(p.steps), stream, p);
  });
}

}  // namespace nereid::kernels::cuda
