// out [rows, n] = x [rows, k] . weight [n, k]^T with 4- or 8-bit integer weights.
//
// Few rows: one read of the integers. A block takes tiles of 16 outputs in turn; its warps take 64
// bytes of each weight row in turn, loaded directly to registers, where the integers are converted
// to bf16 tensor-core operands. Any order of k will do, so an operand pair is two masks of a word.
// If a warp's 64 bytes are within one group, (integer - zero) is multiplied, exact in bf16, and the
// sum is scaled: no rounding of every weight to bf16. Smaller groups are scaled and rounded first.
// The order of additions depends on the weight only.
//
// More rows: launch_unpack() converts weight rows to bf16 for a bf16 product.
#include <algorithm>
#include <bit>

#include "kernels/cuda/integers.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kOutputs = 16;   // per tile
constexpr int kTileRows = 8;   // rows of x per product
constexpr int kPieces = 4;     // threads that share a weight row's 64 bytes, 16 each
constexpr int kManyTiles = 4;  // row tiles of the larger form
constexpr int kManyRows = kManyTiles * kTileRows;
constexpr int kUnpackedColumns = 8;  // per thread of unpack_kernel
constexpr int kUnpackedRows = 4;     // per thread of unpack_kernel

struct Params {
  const __nv_bfloat16* x;
  const uint8_t* weight;
  const float* scales;
  const uint8_t* zeros;       // or null
  const float* minima;        // or null
  const __nv_bfloat16* bias;  // or null
  void* out;
  int64_t x_stride, out_stride, n, k, row_bytes, groups;
  int rows, tiles;
  int group_bits;  // a column's group is column >> group_bits
  int zero;        // default zero point
  bool out_bf16;
};

__device__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// kScaled: integers are scaled before the product. kTiles: of eight rows of x.
template <int kBits, bool kScaled, int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles == 1 ? 2 : 1) few_rows_kernel(Params p) {
  using Word = Words<kBits, kScaled>;
  constexpr int kAhead = kTiles == 1 ? 4 : 6;  // steps in flight
  constexpr int kColumns = 128 / kBits;        // of a thread's piece
  constexpr int kStep = kPieces * kColumns;    // columns of a warp's step
  constexpr int kStride = kWarps * kStep;      // columns of the block's steps
  constexpr int kLoads = kColumns * 2 / 16;    // of x per piece
  constexpr int kRows = kTiles * kTileRows;
  __shared__ float sums[2][kWarps][kOutputs][kRows];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warp_k = warp * kStep, piece = lane % kPieces * kColumns;
  const auto k_end = static_cast<int>(p.k);
  const int steps = (k_end + kStride - 1) / kStride;
  const int total = (p.tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                    static_cast<int>(gridDim.x) * steps;

  uint4 weights[kAhead][2];
  float scales[kAhead][2];
  uint32_t zeros[kAhead][2];  // or the bits of minima
  // The next step to load: its tile, its warp's first column.
  int tile = static_cast<int>(blockIdx.x), next_k = warp_k;
  const uint8_t* weight_rows[2];
  int64_t first_groups[2];
  const auto find_rows = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = min(int64_t{tile} * kOutputs + 8 * h + lane / 4, p.n - 1);
      weight_rows[h] = p.weight + row * p.row_bytes + (warp_k + piece) * kBits / 8;
      first_groups[h] = row * p.groups;
    }
  };
  find_rows();
  const auto fetch = [&](int a) {
    const int k = next_k + piece, scaled_k = kScaled ? k : next_k;
    const int group = scaled_k >> p.group_bits;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      weights[a][h] = k < k_end ? load_once(weight_rows[h]) : uint4{};
      weight_rows[h] += kStride * kBits / 8;
      const int64_t at = first_groups[h] + group;
      scales[a][h] = scaled_k < k_end ? __ldg(p.scales + at) : 0.0f;
      zeros[a][h] = static_cast<uint32_t>(p.zero);
      if (p.zeros && scaled_k < k_end) zeros[a][h] = __ldg(p.zeros + at);
      if (kScaled && p.minima)
        zeros[a][h] = scaled_k < k_end ? __float_as_uint(__ldg(p.minima + at)) : 0;
    }
    next_k += kStride;
    if (next_k - warp_k < steps * kStride) return;
    next_k = warp_k, tile += static_cast<int>(gridDim.x);
    find_rows();
  };
#pragma unroll
  for (int a = 0; a < kAhead; ++a)
    if (a < total) fetch(a);
  let_next_begin();
  wait_for_previous();

  float results[kTiles][4] = {};
  int in_tile = 0, buffer = 0;
  int done = static_cast<int>(blockIdx.x), k = warp_k;  // tile and column being multiplied
  const __nv_bfloat16* const x_row = p.x + (lane / 4) * p.x_stride + piece;
  const auto finish_tile = [&] {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        sums[buffer][warp][8 * (r / 2) + lane / 4][t * kTileRows + lane % 4 * 2 + r % 2] =
            results[t][r];
        results[t][r] = 0;
      }
    __syncthreads();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kOutputs * kRows; i += kThreads) {
      const int row = i / kOutputs, output = i % kOutputs;
      const int64_t n = int64_t{done} * kOutputs + output;
      if (row >= p.rows || n >= p.n) continue;
      float sum = p.bias ? load(p.bias + n) : 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += sums[buffer][w][output][row];
      const int64_t at = row * p.out_stride + n;
      if (p.out_bf16)
        store(static_cast<__nv_bfloat16*>(p.out) + at, sum);
      else
        store(static_cast<float*>(p.out) + at, sum);
    }
    in_tile = 0, buffer ^= 1, done += static_cast<int>(gridDim.x), k = warp_k;
  };
  const auto multiply_step = [&](int a) {
    uint4 inputs[kLoads];
    const auto load_x = [&](int t) {
      const bool has_x = t * kTileRows + lane / 4 < p.rows && k + piece < k_end;
      const auto* x = reinterpret_cast<const uint4*>(x_row + t * kTileRows * p.x_stride + k);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) inputs[i] = has_x ? x[i] : uint4{};
    };
    load_x(0);
    uint32_t pairs[2][4][Word::kPairs];
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int w = 0; w < 4; ++w)
        Word::decode(word_of(weights[a][h], w), scales[a][h], kScaled && p.minima ? 0 : zeros[a][h],
                     kScaled && p.minima ? __uint_as_float(zeros[a][h]) : 0.0f, pairs[h][w]);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      if (t > 0) load_x(t);
      float step[2][4] = {};  // two sums: independent product chains
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        uint32_t ordered[Word::kPairs], taken[Word::kInWords];
#pragma unroll
        for (int i = 0; i < Word::kInWords; ++i) {
          const int word = w * Word::kInWords + i;
          taken[i] = word_of(inputs[word / 4], word % 4);
        }
        Word::order(taken, ordered);
#pragma unroll
        for (int i = 0; i < Word::kPairs; i += 2)
          multiply(step[w % 2],
                   {pairs[0][w][i], pairs[1][w][i], pairs[0][w][i + 1], pairs[1][w][i + 1]},
                   ordered[i], ordered[i + 1]);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r)
        results[t][r] =
            fmaf(kScaled ? 1.0f : scales[a][r / 2], step[0][r] + step[1][r], results[t][r]);
    }
    k += kStride;
  };
  for (int first = 0; first < total; first += kAhead) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first + a >= total) break;
      multiply_step(a);
      if (first + a + kAhead < total) fetch(a);
      if (++in_tile == steps) finish_tile();
    }
  }
}

// Converts rows [row0, row0 + rows) to bf16; a thread: kUnpackedColumns of kUnpackedRows rows.
template <int kBits>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(Params p, int64_t row0, int rows, unsigned group) {
  const unsigned k = (blockIdx.x * kThreads + threadIdx.x) * kUnpackedColumns;
  if (k >= p.k) return;
  const unsigned at = k / group;
  uint32_t words[kUnpackedRows][kUnpackedColumns * kBits / 32];
  float scales[kUnpackedRows], zeros[kUnpackedRows], minima[kUnpackedRows];
#pragma unroll
  for (int i = 0; i < kUnpackedRows; ++i) {
    const int64_t row = row0 + min(static_cast<int>(blockIdx.y) * kUnpackedRows + i, rows - 1);
    const auto* from =
        reinterpret_cast<const uint32_t*>(p.weight + row * p.row_bytes + int64_t{k} * kBits / 8);
#pragma unroll
    for (int w = 0; w < kUnpackedColumns * kBits / 32; ++w) words[i][w] = from[w];
    scales[i] = p.scales[row * p.groups + at];
    zeros[i] = static_cast<float>(p.zeros ? p.zeros[row * p.groups + at] : p.zero);
    minima[i] = p.minima ? p.minima[row * p.groups + at] : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kUnpackedRows; ++i) {
    const int row = static_cast<int>(blockIdx.y) * kUnpackedRows + i;
    if (row >= rows) return;
    float numbers[kUnpackedColumns];
#pragma unroll
    for (int c = 0; c < kUnpackedColumns; ++c) {
      const uint32_t u = words[i][c * kBits / 32] >> c * kBits % 32 & ((1u << kBits) - 1);
      numbers[c] = __fmaf_rn(scales[i], static_cast<float>(u) - zeros[i], -minima[i]);
    }
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(p.out) + row * p.k + k) = {
        pack(numbers[0], numbers[1]), pack(numbers[2], numbers[3]), pack(numbers[4], numbers[5]),
        pack(numbers[6], numbers[7])};
  }
}

// Permutes x to the integers' order when thread t of four has piece t of 64 bytes of a row: each
// product of 16 columns takes pair t of both halves from thread t. A thread here: a word's columns.
template <int kIntegerBits>
__global__ void order_kernel(const __nv_bfloat16* x, int64_t x_stride, int64_t k, int64_t columns,
                             __nv_bfloat16* out) {
  using Word = Words<kIntegerBits, false>;
  constexpr int kWordColumns = 32 / kIntegerBits, kWords = 16;  // of 64 bytes
  let_next_begin();
  wait_for_previous();
  const int64_t word = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t end = k / kWordColumns;
  // Past k: zeros, so that every product has its columns.
  if (word * kWordColumns >= columns) return;
  uint32_t taken[Word::kInWords] = {}, pairs[Word::kPairs];
  const auto* from =
      reinterpret_cast<const uint32_t*>(x + blockIdx.y * x_stride + word * kWordColumns);
  if (word < end)
#pragma unroll
    for (int i = 0; i < Word::kInWords; ++i) taken[i] = from[i];
  Word::order(taken, pairs);
  const int64_t first = word / kWords * kWords;
  const int own = static_cast<int>(word - first), thread = own / 4;  // and word own % 4 of it
  auto* to = reinterpret_cast<uint32_t*>(out + blockIdx.y * columns + first * kWordColumns);
#pragma unroll
  for (int i = 0; i < Word::kPairs; ++i) {
    const int pair = own % 4 * Word::kPairs + i;
    to[pair / 2 * 8 + pair % 2 * 4 + thread] = pairs[i];
  }
}

Params params_of(const Linear& a) {
  const WeightFormat& format = a.weight.format;
  Params p = {};
  p.x = static_cast<const __nv_bfloat16*>(a.x.data);
  p.weight = a.weight.as_bytes();
  p.scales = a.weight.scales;
  p.zeros = a.weight.zeros;
  p.minima = a.weight.minima;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.out = a.out.data;
  p.x_stride = a.x.stride, p.out_stride = a.out.stride;
  p.n = a.weight.n, p.k = a.weight.k;
  p.row_bytes = format.row_bytes(p.k), p.groups = format.num_groups(p.k);
  p.rows = static_cast<int>(a.x.rows);
  p.tiles = static_cast<int>((p.n + kOutputs - 1) / kOutputs);
  const auto group = static_cast<uint64_t>(format.group_size(p.k));
  p.group_bits = p.groups == 1 ? 31 : std::countr_zero(group);
  p.zero = format.minima ? 0 : format.default_zero();
  p.out_bf16 = a.out.dtype == DType::kBF16;
  return p;
}

template <int kBits, bool kScaled>
cudaError_t enqueue(const Params& p, int num_units, cudaStream_t stream) {
  if (p.rows <= kTileRows)
    return launch_overlapped(few_rows_kernel<kBits, kScaled, 1>, p.rows,
                             static_cast<unsigned>(std::min(p.tiles, 2 * num_units)), kThreads, 0,
                             stream, p);
  return launch_overlapped(few_rows_kernel<kBits, kScaled, kManyTiles>, p.rows,
                           static_cast<unsigned>(std::min(p.tiles, num_units)), kThreads, 0, stream,
                           p);
}

}  // namespace

bool takes_few_rows_of_integers(const Linear& a) {
  const WeightFormat& format = a.weight.format;
  const int64_t columns = 128 / format.bits, group = format.group_size(a.weight.k);
  const bool groups_fit = format.num_groups(a.weight.k) == 1 ||
                          (std::has_single_bit(static_cast<uint64_t>(group)) && group >= columns);
  return a.weight.k % columns == 0 && groups_fit && a.x.stride % 8 == 0 && is_aligned(a.x.data) &&
         is_aligned(a.weight.data);
}

cudaError_t launch_few_rows_of_integers(const Linear& a, const Scratch& scratch,
                                        cudaStream_t stream) {
  Params p = params_of(a);
  const bool four = a.weight.format.bits == 4;
  // A warp's step is within one group.
  const bool scaled =
      p.minima || (p.groups > 1 && a.weight.format.group_size(p.k) < (four ? 128 : 64));
  for (int64_t row = 0; row < a.x.rows; row += kManyRows) {
    p.rows = static_cast<int>(std::min<int64_t>(a.x.rows - row, kManyRows));
    p.x = static_cast<const __nv_bfloat16*>(a.x.data) + row * a.x.stride;
    p.out = static_cast<char*>(a.out.data) +
            row * a.out.stride * static_cast<int64_t>(p.out_bf16 ? 2 : 4);
    const auto enqueue_form = four     ? scaled ? enqueue<4, true> : enqueue<4, false>
                                  : scaled ? enqueue<8, true>
                                       : enqueue<8, false>;
    if (const cudaError_t error = enqueue_form(p, scratch.num_units, stream); error != cudaSuccess)
      return error;
  }
  return cudaSuccess;
}

cudaError_t launch_order(const Linear& a, void* to, cudaStream_t stream) {
  constexpr int kOrderThreads = 128;
  const bool four = a.weight.format.bits == 4;
  const int64_t words = order_columns(a.weight.k, a.weight.format.bits) * a.weight.format.bits / 32;
  const dim3 blocks(static_cast<unsigned>((words + kOrderThreads - 1) / kOrderThreads),
                    static_cast<unsigned>(a.x.rows));
  return launch_overlapped(four ? order_kernel<4> : order_kernel<8>, a.x.rows, blocks,
                           kOrderThreads, 0, stream, static_cast<const __nv_bfloat16*>(a.x.data),
                           a.x.stride, a.weight.k, order_columns(a.weight.k, a.weight.format.bits),
                           static_cast<__nv_bfloat16*>(to));
}

cudaError_t launch_unpack(const WeightView& w, int64_t row0, int64_t rows, void* to,
                          cudaStream_t stream) {
  Linear a;
  a.weight = w;
  Params p = params_of(a);
  p.out = to;
  const dim3 blocks(static_cast<unsigned>((p.k / kUnpackedColumns + kThreads - 1) / kThreads),
                    static_cast<unsigned>((rows + kUnpackedRows - 1) / kUnpackedRows));
  const auto group = static_cast<unsigned>(w.format.group_size(w.k));
  const auto kernel = w.format.bits == 4 ? unpack_kernel<4> : unpack_kernel<8>;
  kernel<<<blocks, kThreads, 0, stream>>>(p, row0, static_cast<int>(rows), group);
  return cudaGetLastError();
}

}  // namespace nereid::kernels::cuda
