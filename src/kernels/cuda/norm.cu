// Norms with fused residual addition, one block per piece of a row.
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/residual_norm.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kMaxThreads = kMaxNormThreads;
constexpr int64_t kMaxF8NormWidth = 8192;  // max width of a row quantised to f8e4m3
static_assert(kMaxF8NormWidth == kMaxThreads * kMostNumbers);

struct NormParams {
  const void* x;
  int64_t x_stride;
  const void* add;  // or null
  int64_t add_stride;
  bool add_bf16;  // else f32
  float* sum;
  int64_t sum_stride;
  const __nv_bfloat16* weight;
  const __nv_bfloat16* bias;  // or null
  float eps, weight_offset;
  bool centered;
  int64_t width, weight_pieces;  // width: per piece; weight_pieces: pieces with their own weight
  void* out;
  int64_t out_stride;
  float* scales;  // f8e4m3 output
  int64_t scales_stride;
  const float* factors;  // of the pieces of `add`, or null
  int64_t factors_stride;
  int num_factors;
  __nv_bfloat16* whole;  // the results of an f8e4m3 output in bf16, or null
  int64_t whole_stride;
};

__device__ float block_sum(float value, float* partial) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) total += partial[w];
  return total;
}

// Each thread has the vectors threadIdx.x + i * blockDim.x, the first ones in registers; the others
// are read again from where this thread wrote them, or from x.
// Out = uint8_t: f8e4m3, all of a row in registers.
template <class X, class Out, int kWidth, int kKeptNumbers>
__global__ void __launch_bounds__(kMaxThreads, kKeptNumbers <= kFewNumbers ? 3 : 1)
    norm_kernel(NormParams p) {
  constexpr int kKept = kKeptNumbers / kWidth;
  __shared__ float partial[kMaxThreads / kWarp];
  const int64_t row = blockIdx.x, begin = blockIdx.y * p.width;
  const int64_t first = blockIdx.y % p.weight_pieces * p.width;  // of the weight
  const X* from = static_cast<const X*>(p.x) + row * p.x_stride + begin;
  float* total = p.add ? p.sum + row * p.sum_stride + begin : nullptr;
  let_next_begin();
  // Calls f(i, first column) for each of this thread's vectors in registers.
  const auto for_kept = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (const int64_t c = kWidth * (threadIdx.x + int64_t{i} * blockDim.x); c < p.width) f(i, c);
  };
  const auto for_others = [&](auto f) {
    for (int64_t c = kWidth * (threadIdx.x + int64_t{kKept} * blockDim.x); c < p.width;
         c += kWidth * blockDim.x)
      f(c);
  };
  // Weights do not depend on the previous kernel.
  Vector<kWidth> kept[kKept], weights[kKept];
  for_kept([&](int i, int64_t c) { weights[i] = Vector<kWidth>(p.weight + first + c); });
  wait_for_previous();
  // Calls f(vector, weight vector, first column) for each of this thread's vectors.
  const auto for_each = [&](auto f) {
    for_kept([&](int i, int64_t c) { f(kept[i], weights[i], c); });
    for_others([&](int64_t c) {
      Vector<kWidth> again = total ? Vector<kWidth>(total + c) : Vector<kWidth>(from + c);
      f(again, Vector<kWidth>(p.weight + first + c), c);
    });
  };
  float sum = 0;
  const auto take = [&](Vector<kWidth>& x, const Vector<kWidth>& add, int64_t c) {
    if (p.add) {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[j] += add[j];
      x.store(total + c);
    }
    if (p.centered)
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum += x[j];
  };
  // All loads to registers are issued before the first store.
  const int64_t first_add = row * p.add_stride + begin;
  const float* const wide = static_cast<const float*>(p.add) + first_add;
  const __nv_bfloat16* const narrow = static_cast<const __nv_bfloat16*>(p.add) + first_add;
  Vector<kWidth> adds[kKept];
  for_kept([&](int i, int64_t c) { kept[i] = Vector<kWidth>(from + c); });
  if (p.add && p.add_bf16)
    for_kept([&](int i, int64_t c) { adds[i] = Vector<kWidth>(narrow + c); });
  else if (p.add)
    for_kept([&](int i, int64_t c) { adds[i] = Vector<kWidth>(wide + c); });
  for_kept([&](int i, int64_t c) { take(kept[i], adds[i], c); });
  for_others([&](int64_t c) {
    Vector<kWidth> x(from + c), more;
    if (p.add) more = p.add_bf16 ? Vector<kWidth>(narrow + c) : Vector<kWidth>(wide + c);
    take(x, more, c);
  });
  const float mean = p.centered ? block_sum(sum, partial) / static_cast<float>(p.width) : 0;
  float squares = 0;
  for_each([&](const Vector<kWidth>& x, const Vector<kWidth>&, int64_t) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) squares += (x[j] - mean) * (x[j] - mean);
  });
  const float scale =
      1.0f / sqrtf(block_sum(squares, partial) / static_cast<float>(p.width) + p.eps);
  uint32_t largest = 0;
  for_each([&](Vector<kWidth>& x, const Vector<kWidth>& weight, int64_t c) {
    Vector<kWidth> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j)
      result[j] = (x[j] - mean) * scale * (weight[j] + p.weight_offset);
    if (p.bias) {
      const Vector<kWidth> bias(p.bias + first + c);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result[j] += bias[j];
    }
    if constexpr (sizeof(Out) == 1)
      largest = result.round(largest), x = result;
    else
      result.store(static_cast<Out*>(p.out) + row * p.out_stride + begin + c);
  });
  if constexpr (sizeof(Out) == 1) {
    __syncthreads();
    const F8Row f8(block_max(largest, reinterpret_cast<uint32_t*>(partial)), kSmallestScaled);
    for_each([&](const Vector<kWidth>& x, const Vector<kWidth>&, int64_t c) {
      f8.store(static_cast<uint8_t*>(p.out) + row * p.out_stride + c, x);
    });
    if (threadIdx.x == 0) p.scales[row * p.scales_stride] = f8.scale;
  }
}

// A warp for each narrow piece: norms of heads.
constexpr int kHeadWarps = 8, kMostHeadVectors = 2;
constexpr int64_t kMaxHeadWidth = 4 * kWarp * kMostHeadVectors;

template <class X, class Out>
__global__ void __launch_bounds__(kHeadWarps* kWarp)
    head_norm_kernel(NormParams p, int pieces, int64_t total) {
  const int64_t at = blockIdx.x * int64_t{kHeadWarps} + threadIdx.x / kWarp;
  const int64_t row = at / pieces, begin = at % pieces * p.width;
  const int64_t first = at % pieces % p.weight_pieces * p.width;  // of the weight
  let_next_begin();
  wait_for_previous();
  if (at >= total) return;
  const X* const from = static_cast<const X*>(p.x) + row * p.x_stride + begin;
  Out* const to = static_cast<Out*>(p.out) + row * p.out_stride + begin;
  const auto for_each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kMostHeadVectors; ++i)
      if (const int c = 4 * (static_cast<int>(threadIdx.x) % kWarp + i * kWarp); c < p.width)
        f(i, c);
  };
  Vector<4> kept[kMostHeadVectors], weights[kMostHeadVectors];
  float squares = 0;
  for_each([&](int i, int c) { kept[i] = Vector<4>(from + c); });
  for_each([&](int i, int c) { weights[i] = Vector<4>(p.weight + first + c); });
  for_each([&](int i, int) {
#pragma unroll
    for (int j = 0; j < 4; ++j) squares += kept[i][j] * kept[i][j];
  });
  const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p.width) + p.eps);
  for_each([&](int i, int c) {
#pragma unroll
    for (int j = 0; j < 4; ++j) kept[i][j] = kept[i][j] * scale * (weights[i][j] + p.weight_offset);
    kept[i].store(to + c);
  });
}

// Four columns of the sum of factors[j] * piece j.
template <class T>
__device__ Vector<4> weighted_pieces(const T* pieces, int width, const float* factors, int count) {
  constexpr int kAhead = 8;  // loads in flight
  Vector<4> sum = {};
  for (int j = 0; j < count; j += kAhead) {
    Vector<4> numbers[kAhead];
    float by[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (j + i < count)
        numbers[i] = Vector<4>(pieces + (j + i) * int64_t{width}), by[i] = factors[j + i];
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (j + i < count)
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[c] = fmaf(by[i], numbers[i][c], sum[c]);
  }
  return sum;
}

// `add` in four columns: one row of f32 or bf16, or weighted pieces of one.
__device__ Vector<4> added(const NormParams& p, int64_t row, int c, int width) {
  const int64_t at = row * p.add_stride + c;
  const auto* const narrow = static_cast<const __nv_bfloat16*>(p.add) + at;
  const auto* const wide = static_cast<const float*>(p.add) + at;
  if (!p.factors) return p.add_bf16 ? Vector<4>(narrow) : Vector<4>(wide);
  const float* const factors = p.factors + row * p.factors_stride;
  return p.add_bf16 ? weighted_pieces(narrow, width, factors, p.num_factors)
                    : weighted_pieces(wide, width, factors, p.num_factors);
}

// The usual case in one pass, see residual_norm.cuh. kAny: any `add`, not one row of bf16.
template <class Out, int kKeptNumbers, bool kAny>
__global__ void __launch_bounds__(kMaxThreads, kKeptNumbers <= kFewNumbers && !kAny ? 3 : 2)
    residual_norm_kernel(NormParams p, int width, float per_width) {
  constexpr int kKept = kKeptNumbers / 4;
  constexpr bool kIsF8 = sizeof(Out) == 1;
  __shared__ RowSums partial[kMaxThreads / kWarp];
  const int64_t row = blockIdx.x;
  let_next_begin();
  const auto for_each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (const int c = 4 * (threadIdx.x + i * blockDim.x); c < width) f(i, c);
  };
  Pairs<4> weights[kKept];
  std::conditional_t<kAny, Vector<4>, Pairs<4>> adds[kKept];
  Vector<4> kept[kKept];
  // Weights do not depend on the previous kernel.
  for_each([&](int i, int c) { weights[i] = Pairs<4>(p.weight + c); });
  wait_for_previous();
  const float* const x = static_cast<const float*>(p.x) + row * p.x_stride;
  const auto* const add = static_cast<const __nv_bfloat16*>(p.add) + row * p.add_stride;
  float* const total = p.sum + row * p.sum_stride;
  for_each([&](int i, int c) { kept[i] = Vector<4>(x + c); });
  for_each([&](int i, int c) {
    if constexpr (kAny)
      adds[i] = added(p, row, c, width);
    else
      adds[i] = Pairs<4>(add + c);
  });
  float squares = 0, largest = 0;
  for_each([&](int i, int c) {
    add_residual<kIsF8>(kept[i], adds[i], weights[i], p.weight_offset, total + c, squares, largest);
  });
  const RowSums mine = warp_sums(squares, largest);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = mine;
  __syncthreads();
  const RowSums sums = sum_warps(partial, blockDim.x / kWarp);
  write_normed(kept, sums, per_width, p.eps, static_cast<Out*>(p.out) + row * p.out_stride,
               kIsF8 && threadIdx.x == 0 ? p.scales + row * p.scales_stride : nullptr, for_each,
               p.whole ? p.whole + row * p.whole_stride : nullptr);
}

bool is_of_heads(const Norm& a) {
  return !is_given(a.add) && !a.centered && !is_given(a.bias) && !is_given(a.scales) &&
         Norm::piece_of(a) <= kMaxHeadWidth;
}

bool is_vector(const Norm& a) {
  const int64_t width = Norm::piece_of(a);
  const auto fits = [](const WeightView& w) {
    return !is_given(w) || reinterpret_cast<uintptr_t>(w.data) % 8 == 0;
  };
  return fits_vectors(a.x, width) && fits_vectors(a.out, width) && fits(a.weight) && fits(a.bias) &&
         (!is_given(a.add) || (fits_vectors(a.add, width) && fits_vectors(a.sum, width))) &&
         (!is_given(a.rounded) || fits_vectors(a.rounded, width));
}

// Forms of the residual kernel alone.
bool needs_residual(const Norm& a) { return is_given(a.factors) || is_given(a.rounded); }

// Depends on the operands only, not on the number of rows: a row has the same bits in any batch.
bool is_residual(const Norm& a) {
  return a.x.dtype == DType::kF32 && is_given(a.add) &&
         (a.add.dtype == DType::kBF16 || needs_residual(a)) && !a.centered && !is_given(a.bias) &&
         Norm::piece_of(a) == a.x.cols && a.x.cols <= int64_t{kMaxThreads} * kMostNumbers;
}

template <class Out, bool kAny>
cudaError_t enqueue_residual(const NormParams& p, int64_t rows, cudaStream_t stream) {
  const bool few = p.width <= kMaxThreads * kFewNumbers;
  const auto kernel = few ? residual_norm_kernel<Out, kFewNumbers, kAny>
                          : residual_norm_kernel<Out, kMostNumbers, kAny>;
  return launch_overlapped(kernel, rows, static_cast<unsigned>(rows),
                           static_cast<unsigned>(residual_norm_threads(p.width)), 0, stream, p,
                           static_cast<int>(p.width), 1.0f / static_cast<float>(p.width));
}

template <class X, class Out>
cudaError_t enqueue(const Norm& a, cudaStream_t stream) {
  const int64_t width = Norm::piece_of(a);
  NormParams p = {a.x.data,
                  a.x.stride,
                  a.add.data,
                  a.add.stride,
                  a.add.dtype == DType::kBF16,
                  static_cast<float*>(a.sum.data),
                  a.sum.stride,
                  static_cast<const __nv_bfloat16*>(a.weight.data),
                  static_cast<const __nv_bfloat16*>(a.bias.data),
                  a.eps,
                  a.weight_offset,
                  a.centered,
                  width,
                  a.weight.k / width,
                  a.out.data,
                  a.out.stride,
                  static_cast<float*>(a.scales.data),
                  a.scales.stride};
  const bool vectors = is_vector(a);
  if constexpr (sizeof(Out) > 1)
    if (vectors && is_of_heads(a)) {
      const int64_t pieces = a.x.cols / width, total = a.out.rows * pieces;
      return launch_overlapped(head_norm_kernel<X, Out>, a.out.rows,
                               static_cast<unsigned>((total + kHeadWarps - 1) / kHeadWarps),
                               kHeadWarps * kWarp, 0, stream, p, static_cast<int>(pieces), total);
    }
  const int64_t lanes = (width + (vectors ? 4 : 1) - 1) / (vectors ? 4 : 1);
  const int64_t threads = lanes < kMaxThreads ? (lanes + kWarp - 1) / kWarp * kWarp : kMaxThreads;
  const dim3 grid(static_cast<unsigned>(a.out.rows), static_cast<unsigned>(a.x.cols / width));
  if (is_given(a.factors)) {
    p.factors = static_cast<const float*>(a.factors.data);
    p.factors_stride = a.factors.stride, p.num_factors = static_cast<int>(a.factors.cols);
  }
  if (needs_residual(a) && !vectors) return cudaErrorMisalignedAddress;
  if constexpr (sizeof(X) == 4 && sizeof(Out) <= 2)
    if (vectors && is_residual(a)) {
      const bool any = is_given(a.factors) || a.add.dtype != DType::kBF16;
      if (!is_given(a.rounded))
        return any ? enqueue_residual<Out, true>(p, a.out.rows, stream)
                   : enqueue_residual<Out, false>(p, a.out.rows, stream);
      p.whole = static_cast<__nv_bfloat16*>(a.out.data), p.whole_stride = a.out.stride;
      p.out = a.rounded.data, p.out_stride = a.rounded.stride;
      return any ? enqueue_residual<uint8_t, true>(p, a.out.rows, stream)
                 : enqueue_residual<uint8_t, false>(p, a.out.rows, stream);
    }
  const auto kernel = !vectors                             ? norm_kernel<X, Out, 1, kMostNumbers>
                      : width <= kMaxThreads * kFewNumbers ? norm_kernel<X, Out, 4, kFewNumbers>
                                                           : norm_kernel<X, Out, 4, kMostNumbers>;
  return launch_overlapped(kernel, a.out.rows, grid, static_cast<unsigned>(threads), 0, stream, p);
}

template <class X>
cudaError_t enqueue_out(const Norm& a, cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16) return enqueue<X, __nv_bfloat16>(a, stream);
  if (a.out.dtype == DType::kF8E4M3) return enqueue<X, uint8_t>(a, stream);
  return enqueue<X, float>(a, stream);
}

cudaError_t launch(const Norm& a, const Scratch&, cudaStream_t stream) {
  if (a.x.dtype == DType::kBF16) return enqueue_out<__nv_bfloat16>(a, stream);
  return enqueue_out<float>(a, stream);
}

bool takes(const Norm& a) {
  constexpr int64_t kMaxPieces = 65535;  // max grid.y
  return a.x.cols / Norm::piece_of(a) <= kMaxPieces &&
         (!is_given(a.scales) || a.x.cols <= kMaxF8NormWidth) &&
         (!needs_residual(a) ||
          (is_residual(a) && a.out.dtype != DType::kF32 && a.x.cols % 4 == 0));
}

}  // namespace

template <>
Row<Norm> row<Norm>() {
  return {launch, takes};
}

}  // namespace nereid::kernels::cuda
