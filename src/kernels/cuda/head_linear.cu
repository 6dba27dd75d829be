// Products by head on tensor cores: each head's piece of a row by the head's own matrix. Operands
// are loaded from memory to registers: per 32 columns of k a lane has eight adjacent ones of its
// rows and of its outputs, four for each of two products, so that k has the same order on both
// sides, for any number of rows.
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kDepth = 32;    // columns of k per step
constexpr int kEight = 8;     // adjacent columns per lane
constexpr int kFewRows = 64;  // for fewer rows, more blocks beat single reads

// Tiles of a warp: of 16 rows and of 8 outputs, kAhead steps in flight.
template <int kRows, int kColumns, int kSteps>
struct Form {
  static constexpr int kRowTiles = kRows, kColumnTiles = kColumns, kAhead = kSteps;
  static constexpr int kTileRows = 16 * kRows, kTileColumns = kEight * kColumns;
};
using Few = Form<1, 1, 8>;
using Many = Form<2, 4, 2>;

// Whether eight adjacent numbers of x and weights, and two of out, are aligned.
struct Access {
  bool eights, pairs;
};

// `count` of eight adjacent numbers as bf16, then zeros.
template <class T>
__device__ uint4 load_eight(const T* p, int64_t count, bool at_once) {
  if (count <= 0) return {};
  float x[kEight] = {};
  if (at_once) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) return *reinterpret_cast<const uint4*>(p);
    const auto low = Vector<4>(p), high = Vector<4>(p + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = low[i], x[4 + i] = high[i];
  } else {
#pragma unroll
    for (int i = 0; i < kEight; ++i)
      if (i < count) x[i] = load(p + i);
  }
  return {pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])};
}

template <class Out>
__device__ void store_pair(Out* out, float x, float y, int64_t columns, bool at_once) {
  if (columns <= 0) return;
  if (at_once) {
    if constexpr (std::is_same_v<Out, float>)
      *reinterpret_cast<float2*>(out) = {x, y};
    else
      *reinterpret_cast<uint32_t*>(out) = pack(x, y);
    return;
  }
  store(out, x);
  if (columns > 1) store(out + 1, y);
}

// Copies the kept columns of rows [first, first + num).
template <class X, class Out>
__device__ void copy_kept(const HeadLinear& a, const X* x, Out* out, int64_t first, int num) {
  const int64_t rows = min(int64_t{num}, a.out.rows - first);
  for (int i = static_cast<int>(threadIdx.x); i < rows * a.kept; i += kThreads) {
    const int64_t row = first + i / a.kept, column = i % a.kept;
    store(out + row * a.out.stride + column, load(x + row * a.x.stride + column));
  }
}

// A warp's tiles of a head's results, from a row and an output.
template <class Out, int kRowTiles, int kColumnTiles>
__device__ void store_sums(const HeadLinear& a, const Access& access, Out* out, int64_t first_row,
                           int64_t first_output, const float (&sums)[kRowTiles][kColumnTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) {
    const int64_t row = first_row + kEight * r + lane / 4;
    if (row >= a.out.rows) break;
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
      const int64_t column = first_output + c * kEight + lane % 4 * 2;
      const auto& four = sums[r / 2][c];
      store_pair(out + row * a.out.stride + a.kept + column, four[r % 2 * 2], four[r % 2 * 2 + 1],
                 a.weight.n - column, access.pairs);
    }
  }
}

// One block: rows and outputs of one head; blocks of the first outputs also copy the kept columns.
template <class X, class Out, class Form>
__global__ void __launch_bounds__(kThreads) head_kernel(HeadLinear a, Access access) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int64_t head = blockIdx.z, k = a.weight.k, n = a.weight.n;
  const int64_t first_row = int64_t{blockIdx.y} * Form::kTileRows;
  const int64_t first_output = (int64_t{blockIdx.x} * kWarps + warp) * Form::kTileColumns;
  const X* const x = static_cast<const X*>(a.x.data) + head * (a.kept + k);
  Out* const out = static_cast<Out*>(a.out.data) + head * (a.kept + n);
  const auto* const matrix = static_cast<const __nv_bfloat16*>(a.weight.data) + head * n * k;
  const auto own = [&](int64_t step) { return step * kDepth + lane % 4 * kEight; };

  uint4 weights[Form::kAhead][Form::kColumnTiles];
  const auto fetch = [&](int64_t step, uint4(&to)[Form::kColumnTiles]) {
#pragma unroll
    for (int c = 0; c < Form::kColumnTiles; ++c) {
      const int64_t output = first_output + c * kEight + lane / 4;
      to[c] = load_eight(matrix + output * k + own(step), output < n ? k - own(step) : 0,
                         access.eights);
    }
  };
#pragma unroll
  for (int i = 0; i < Form::kAhead; ++i) fetch(i, weights[i]);
  let_next_begin();
  wait_for_previous();
  if (blockIdx.x == 0) copy_kept(a, x, out, first_row, Form::kTileRows);

  float sums[Form::kRowTiles][Form::kColumnTiles][4] = {};
  for (int64_t step = 0; step * kDepth < k; step += Form::kAhead) {
    uint4 rows[Form::kAhead][Form::kRowTiles][2];
#pragma unroll
    for (int i = 0; i < Form::kAhead; ++i)
#pragma unroll
      for (int r = 0; r < 2 * Form::kRowTiles; ++r) {
        const int64_t row = first_row + kEight * r + lane / 4;
        rows[i][r / 2][r % 2] = load_eight(x + row * a.x.stride + a.kept + own(step + i),
                                           row < a.out.rows ? k - own(step + i) : 0, access.eights);
      }
#pragma unroll
    for (int i = 0; i < Form::kAhead; ++i) {
#pragma unroll
      for (int r = 0; r < Form::kRowTiles; ++r) {
        const auto& [low, high] = rows[i][r];
#pragma unroll
        for (int c = 0; c < Form::kColumnTiles; ++c) {
          const uint4& w = weights[i][c];
          multiply(sums[r][c], {low.x, high.x, low.y, high.y}, w.x, w.y);
          multiply(sums[r][c], {low.z, high.z, low.w, high.w}, w.z, w.w);
        }
      }
      fetch(step + i + Form::kAhead, weights[i]);
    }
  }
  store_sums(a, access, out, first_row, first_output, sums);
}

template <class X, class Out, class Form>
cudaError_t enqueue(const HeadLinear& a, const Access& access, cudaStream_t stream) {
  const auto blocks = [](int64_t size, int64_t of_block) {
    return static_cast<unsigned>((size + of_block - 1) / of_block);
  };
  const dim3 grid(blocks(a.weight.n, kWarps * Form::kTileColumns),
                  blocks(a.out.rows, Form::kTileRows), static_cast<unsigned>(a.weight.experts));
  return launch_overlapped(head_kernel<X, Out, Form>, a.out.rows, grid, kThreads, 0, stream, a,
                           access);
}

template <class X, class Out>
cudaError_t enqueue(const HeadLinear& a, cudaStream_t stream) {
  constexpr int64_t kXPiece = 16 / sizeof(X);
  const Access access = {.eights = a.weight.k % kEight == 0 && a.kept % kXPiece == 0 &&
                                   a.x.stride % kXPiece == 0 && is_aligned(a.x.data) &&
                                   is_aligned(a.weight.data),
                         .pairs = a.weight.n % 2 == 0 && a.kept % 2 == 0 && a.out.stride % 2 == 0 &&
                                  reinterpret_cast<uintptr_t>(a.out.data) % (2 * sizeof(Out)) == 0};
  return a.out.rows <= kFewRows ? enqueue<X, Out, Few>(a, access, stream)
                                : enqueue<X, Out, Many>(a, access, stream);
}

template <class X>
cudaError_t enqueue_out(const HeadLinear& a, cudaStream_t stream) {
  return a.out.dtype == DType::kBF16 ? enqueue<X, __nv_bfloat16>(a, stream)
                                     : enqueue<X, float>(a, stream);
}

cudaError_t launch(const HeadLinear& a, const Scratch&, cudaStream_t stream) {
  return a.x.dtype == DType::kBF16 ? enqueue_out<__nv_bfloat16>(a, stream)
                                   : enqueue_out<float>(a, stream);
}

bool has_row_major_weight(const HeadLinear& a) {
  return a.weight.layout == WeightLayout::kRowMajor && !a.weight.format.ordered;
}

}  // namespace

template <>
Row<HeadLinear> row<HeadLinear>() {
  return {launch, has_row_major_weight};
}

}  // namespace nereid::kernels::cuda
