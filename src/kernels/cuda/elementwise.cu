// Activations, gated units, quantisation to f8e4m3, soft cap, addition, rotary embedding.
#include <type_traits>

#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/pairs.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Calls f(c) for the first of each kWidth columns of this thread.
template <int kWidth, class F>
__device__ void for_columns(int64_t width, F f) {
  for (int64_t c = kWidth * (blockIdx.y * int64_t{kThreads} + threadIdx.x); c < width;
       c += kWidth * (gridDim.y * int64_t{kThreads}))
    f(c);
}

// Gated unit of kWidth adjacent numbers.
template <Activation kActivation, int kWidth, class Numbers>
__device__ Vector<kWidth> gated(const Numbers& gates, const Numbers& ups, float limit,
                                float up_offset) {
  Vector<kWidth> result;
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    result[i] = gated_unit([](float x) { return activate<kActivation>(x); }, gates[i], ups[i],
                           limit, up_offset);
  return result;
}

template <Activation kActivation, int kWidth, class X>
__global__ void glu_kernel(const X* x, int64_t x_stride, int64_t width, float limit,
                           float up_offset, __nv_bfloat16* out, int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const X* row = x + blockIdx.x * x_stride;
  for_columns<kWidth>(width, [&](int64_t c) {
    const Vector<kWidth> gates(row + c), ups(row + width + c);
    gated<kActivation, kWidth>(gates, ups, limit, up_offset)
        .store(out + blockIdx.x * out_stride + c);
  });
}

// Adjacent numbers per load: 16 bytes unless kWidth = 1.
template <class X, int kWidth>
using Taken = std::conditional_t<sizeof(X) == 2, Pairs<kWidth>, Vector<kWidth>>;
template <class X>
constexpr int kTaken = 16 / sizeof(X);

// One block per row, all of it in registers as bf16, few per thread, so that two blocks are
// resident per SM.
constexpr int kF8Threads = 1024;
constexpr int64_t kMaxF8GluWidth = 32768;  // max width of a row quantised to f8e4m3
constexpr int kMostKept = kMaxF8GluWidth / kF8Threads, kFewKept = kMostKept / 2;

template <Activation kActivation, int kWidth, int kKept, class X>
__global__ void __launch_bounds__(kF8Threads, kKept <= kFewKept ? 2 : 1)
    glu_f8_kernel(const X* x, int64_t x_stride, int64_t width, float limit, float up_offset,
                  uint8_t* out, int64_t out_stride, float* scales, int64_t scales_stride) {
  constexpr int kPieces = kKept / kWidth;
  __shared__ uint32_t partial[kF8Threads / kWarp];
  let_next_begin();
  wait_for_previous();
  const X* row = x + blockIdx.x * x_stride;
  const auto for_each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i)
      if (const int64_t c = kWidth * (threadIdx.x + i * int64_t{blockDim.x}); c < width) f(i, c);
  };
  Taken<X, kWidth> gates[kPieces], ups[kPieces];
  Pairs<kWidth> results[kPieces];
  uint32_t largest = 0;
  const auto take = [&](int i, int64_t c) {
    gates[i] = Taken<X, kWidth>(row + c);
    ups[i] = Taken<X, kWidth>(row + width + c);
  };
  const auto make = [&](int i, int64_t) {
    results[i] = Pairs<kWidth>(gated<kActivation, kWidth>(gates[i], ups[i], limit, up_offset));
    largest = largest_pair(results[i], largest);
  };
  if constexpr (sizeof(X) == 2 && kWidth > 1) {  // all loads are issued before the first use
    for_each(take);
    for_each(make);
  } else {  // too many registers for that
    for_each([&](int i, int64_t c) { take(i, c), make(i, c); });
  }
  const F8Row f8(block_largest(largest, partial), kSmallestScaled);
  for_each([&](int i, int64_t c) { store_f8(out + blockIdx.x * out_stride + c, results[i], f8); });
  if (threadIdx.x == 0) scales[blockIdx.x * scales_stride] = f8.scale;
}

// Few rows: one cluster of blocks per row, one vector per thread; blocks exchange parts' amax.
constexpr int kCluster = 8;

template <Activation kActivation, class X>
__global__ void __launch_bounds__(kF8Threads)
    glu_f8_cluster_kernel(const X* x, int64_t x_stride, int64_t width, float limit, float up_offset,
                          uint8_t* out, int64_t out_stride, float* scales, int64_t scales_stride) {
#if defined(NEREID_HOPPER)
  __shared__ uint32_t partial[kF8Threads / kWarp], others[kCluster];
  let_next_begin();
  cluster_meets();  // all blocks have started
  wait_for_previous();
  const unsigned rank = cluster_rank();
  const int64_t row = blockIdx.x / kCluster;
  const int64_t c = 4 * (int64_t{rank} * blockDim.x + threadIdx.x);
  Vector<4> result;
  uint32_t largest = 0;
  if (c < width) {
    const X* const from = x + row * x_stride + c;
    const Vector<4> gates(from), ups(from + width);
    result = gated<kActivation, 4>(gates, ups, limit, up_offset);
    largest = result.round(largest);
  }
  largest = block_max(largest, partial);
  if (threadIdx.x < kCluster) store_in_cluster(others + rank, threadIdx.x, largest);
  cluster_meets();
#pragma unroll
  for (int i = 0; i < kCluster; ++i) largest = max(largest, others[i]);
  const F8Row f8(largest, kSmallestScaled);
  if (c < width) f8.store(out + row * out_stride + c, result);
  if (rank == 0 && threadIdx.x == 0) scales[row * scales_stride] = f8.scale;
#endif
}

// One block per row; its threads keep their first pieces in registers.
constexpr int kQuantizeKept = 2;

template <int kWidth>
__global__ void __launch_bounds__(kF8Threads)
    quantize_kernel(const __nv_bfloat16* x, int64_t x_stride, int64_t width, uint8_t* out,
                    int64_t out_stride, float* scales, int64_t scales_stride) {
  __shared__ uint32_t partial[kF8Threads / kWarp];
  let_next_begin();
  wait_for_previous();
  const __nv_bfloat16* row = x + blockIdx.x * x_stride;
  const int64_t first = kWidth * threadIdx.x, stride = kWidth * int64_t{blockDim.x};
  Pairs<kWidth> kept[kQuantizeKept];
#pragma unroll
  for (int i = 0; i < kQuantizeKept; ++i)
    if (first + i * stride < width) kept[i] = Pairs<kWidth>(row + first + i * stride);
  const auto for_each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kQuantizeKept; ++i)
      if (first + i * stride < width) f(first + i * stride, kept[i]);
    for (int64_t c = first + kQuantizeKept * stride; c < width; c += stride)
      f(c, Pairs<kWidth>(row + c));
  };
  uint32_t largest = 0;
  for_each([&](int64_t, const Pairs<kWidth>& x) { largest = largest_pair(x, largest); });
  const F8Row f8(block_largest(largest, partial), kSmallestScaled);
  for_each([&](int64_t c, const Pairs<kWidth>& x) {
    store_f8(out + blockIdx.x * out_stride + c, x, f8);
  });
  if (threadIdx.x == 0) scales[blockIdx.x * scales_stride] = f8.scale;
}

template <Activation kActivation, int kWidth, class Out>
__global__ void activate_kernel(const float* x, int64_t x_stride, int64_t width, Out* out,
                                int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const float* row = x + blockIdx.x * x_stride;
  for_columns<kWidth>(width, [&](int64_t c) {
    const Vector<kWidth> from(row + c);
    Vector<kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result[i] = activate<kActivation>(from[i]);
    result.store(out + blockIdx.x * out_stride + c);
  });
}

__global__ void xielu_kernel(const float* x, int64_t x_stride, int64_t width, const float* positive,
                             const float* negative, float beta, __nv_bfloat16* out,
                             int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const float* row = x + blockIdx.x * x_stride;
  const float p = log1pf(expf(*positive)), n = beta + log1pf(expf(*negative));
  for_columns<1>(width, [&](int64_t c) {
    const float above = fmaxf(row[c], 0.0f), below = fminf(row[c], 0.0f);
    const float bent = p * above * above + n * (expm1f(below) - below);
    out[blockIdx.x * out_stride + c] = __float2bfloat16_rn(bent + beta * row[c]);
  });
}

__global__ void soft_cap_kernel(float* x, int64_t stride, int64_t width, float scale, float cap,
                                float limit) {
  let_next_begin();
  wait_for_previous();
  float* row = x + blockIdx.x * stride;
  for_columns<1>(width, [&](int64_t c) {
    const float y = cap > 0.0f ? cap * tanhf(scale * row[c] / cap) : scale * row[c];
    const bool is_beyond = limit > 0.0f && fabsf(y) > limit;
    row[c] = is_beyond ? copysignf(limit, y) : y;
  });
}

__global__ void add_kernel(float* x, int64_t x_stride, const float* y, int64_t y_stride,
                           int64_t width) {
  let_next_begin();
  wait_for_previous();
  float* to = x + blockIdx.x * x_stride;
  const float* from = y + blockIdx.x * y_stride;
  for_columns<1>(width, [&](int64_t c) { to[c] += from[c]; });
}

// `components`: of the position, for each pair; null: the position.
__global__ void rope_kernel(float* qkv, int64_t stride, const int32_t* positions,
                            const int32_t* components, const float* table, int num_heads,
                            int head_dim, int rotated, bool interleaved) {
  let_next_begin();
  wait_for_previous();
  const int half = rotated / 2;
  float* row = qkv + blockIdx.x * stride;
  for (int i = threadIdx.x; i < num_heads * half; i += kThreads) {
    float* head = row + i / half * head_dim;
    const int2 at = pair_columns(i % half, rotated, interleaved);
    const int64_t position =
        components ? positions[blockIdx.x * kPositionComponents + components[i % half]]
                   : positions[blockIdx.x];
    const float* angles = table + position * rotated + i % half;
    const float2 pair = rotate({head[at.x], head[at.y]}, angles[0], angles[half]);
    head[at.x] = pair.x;
    head[at.y] = pair.y;
  }
}

// Grid [piece of the row, token], a few elements per thread.
dim3 grid_for(int64_t rows, int64_t width) {
  const int64_t pieces = (width + 4 * kThreads - 1) / (4 * kThreads);
  return {static_cast<unsigned>(rows), static_cast<unsigned>(pieces < 1024 ? pieces : 1024)};
}

template <class Op>
bool is_vector(const Op& a) {
  return fits_vectors(a.x, a.out.cols) && fits_vectors(a.out, a.out.cols);
}

// Same for 16-byte pieces of X and the same number of columns of `out`.
template <class X, class Op>
bool is_in_pieces(const Op& a) {
  constexpr int64_t kColumns = kTaken<X>;
  const auto fits = [](const View& v) {
    return v.stride % kColumns == 0 && reinterpret_cast<uintptr_t>(v.data) %
                                               static_cast<uint64_t>(kColumns * size_of(v.dtype)) ==
                                           0;
  };
  return a.out.cols % kColumns == 0 && fits(a.x) && fits(a.out);
}

// Threads of a block for one row with `columns` columns per thread, rounded up to warps.
unsigned threads_for(int64_t width, int64_t columns) {
  const int64_t warps = (width + columns * kWarp - 1) / (columns * kWarp);
  return static_cast<unsigned>(warps * kWarp < kF8Threads ? warps * kWarp : kF8Threads);
}

constexpr int64_t kMaxClusterRows = 16;  // with more rows there are enough blocks

template <Activation kActivation, class X>
cudaError_t enqueue_glu(const Glu& a, cudaStream_t stream) {
  const auto* const x = static_cast<const X*>(a.x.data);
  const auto rows = static_cast<unsigned>(a.out.rows);
  if (!is_given(a.scales))
    return launch_overlapped(
        is_vector(a) ? glu_kernel<kActivation, 4, X> : glu_kernel<kActivation, 1, X>, a.out.rows,
        grid_for(a.out.rows, a.out.cols), kThreads, 0, stream, x, a.x.stride, a.out.cols, a.limit,
        a.up_offset, static_cast<__nv_bfloat16*>(a.out.data), a.out.stride);
  auto* const out = static_cast<uint8_t*>(a.out.data);
  auto* const scales = static_cast<float*>(a.scales.data);
  if (a.out.rows <= kMaxClusterRows && is_vector(a) &&
      a.out.cols <= int64_t{4} * kF8Threads * kCluster && compute_capability() == 90)
    return launch_overlapped_clusters(
        glu_f8_cluster_kernel<kActivation, X>, a.out.rows, kCluster * rows, kCluster,
        threads_for((a.out.cols + kCluster - 1) / kCluster, 4), 0, stream, x, a.x.stride,
        a.out.cols, a.limit, a.up_offset, out, a.out.stride, scales, a.scales.stride);
  const bool pieces = is_in_pieces<X>(a), few = a.out.cols <= kF8Threads * kFewKept;
  const auto kernel = !pieces ? glu_f8_kernel<kActivation, 1, kMostKept, X>
                      : few   ? glu_f8_kernel<kActivation, kTaken<X>, kFewKept, X>
                              : glu_f8_kernel<kActivation, kTaken<X>, kMostKept, X>;
  const unsigned threads = threads_for(a.out.cols, !pieces ? 1 : few ? kFewKept : kMostKept);
  return launch_overlapped(kernel, a.out.rows, rows, threads, 0, stream, x, a.x.stride, a.out.cols,
                           a.limit, a.up_offset, out, a.out.stride, scales, a.scales.stride);
}
template <Activation kActivation>
cudaError_t enqueue(const Glu& a, cudaStream_t stream) {
  return a.x.dtype == DType::kBF16 ? enqueue_glu<kActivation, __nv_bfloat16>(a, stream)
                                   : enqueue_glu<kActivation, float>(a, stream);
}
template <Activation kActivation, class Out>
cudaError_t enqueue_activate(const Activate& a, cudaStream_t stream) {
  return launch_overlapped(
      is_vector(a) ? activate_kernel<kActivation, 4, Out> : activate_kernel<kActivation, 1, Out>,
      a.out.rows, grid_for(a.out.rows, a.out.cols), kThreads, 0, stream,
      static_cast<const float*>(a.x.data), a.x.stride, a.out.cols, static_cast<Out*>(a.out.data),
      a.out.stride);
}
template <Activation kActivation>
cudaError_t enqueue(const Activate& a, cudaStream_t stream) {
  return a.out.dtype == DType::kF32 ? enqueue_activate<kActivation, float>(a, stream)
                                    : enqueue_activate<kActivation, __nv_bfloat16>(a, stream);
}

template <class Op>
cudaError_t enqueue_any(const Op& a, cudaStream_t stream) {
  switch (a.activation) {
    case Activation::kSilu:
      return enqueue<Activation::kSilu>(a, stream);
    case Activation::kGeluTanh:
      return enqueue<Activation::kGeluTanh>(a, stream);
    case Activation::kGelu:
      return enqueue<Activation::kGelu>(a, stream);
    case Activation::kRelu:
      return enqueue<Activation::kRelu>(a, stream);
    case Activation::kRelu2:
      return enqueue<Activation::kRelu2>(a, stream);
    case Activation::kNone:
      return enqueue<Activation::kNone>(a, stream);
    case Activation::kGeluSigmoid:
      return enqueue<Activation::kGeluSigmoid>(a, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch(const Glu& a, const Scratch&, cudaStream_t stream) {
  return enqueue_any(a, stream);
}

cudaError_t launch(const Activate& a, const Scratch&, cudaStream_t stream) {
  return enqueue_any(a, stream);
}

cudaError_t launch(const Quantize& a, const Scratch&, cudaStream_t stream) {
  constexpr int kWidth = kTaken<__nv_bfloat16>;
  const bool pieces = is_in_pieces<__nv_bfloat16>(a);
  return launch_overlapped(pieces ? quantize_kernel<kWidth> : quantize_kernel<1>, a.out.rows,
                           static_cast<unsigned>(a.out.rows),
                           threads_for(a.out.cols, pieces ? kWidth * kQuantizeKept : 1), 0, stream,
                           static_cast<const __nv_bfloat16*>(a.x.data), a.x.stride, a.out.cols,
                           static_cast<uint8_t*>(a.out.data), a.out.stride,
                           static_cast<float*>(a.scales.data), a.scales.stride);
}

cudaError_t launch(const Xielu& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(xielu_kernel, a.out.rows, grid_for(a.out.rows, a.out.cols), kThreads, 0,
                           stream, static_cast<const float*>(a.x.data), a.x.stride, a.out.cols,
                           a.positive.as_f32(), a.negative.as_f32(), a.beta,
                           static_cast<__nv_bfloat16*>(a.out.data), a.out.stride);
}

cudaError_t launch(const SoftCap& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(soft_cap_kernel, a.out.rows, grid_for(a.out.rows, a.out.cols), kThreads,
                           0, stream, static_cast<float*>(a.x.data), a.x.stride, a.out.cols,
                           a.scale, a.cap, a.limit);
}

cudaError_t launch(const Add& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(add_kernel, a.out.rows, grid_for(a.out.rows, a.out.cols), kThreads, 0,
                           stream, static_cast<float*>(a.x.data), a.x.stride,
                           static_cast<const float*>(a.y.data), a.y.stride, a.out.cols);
}

cudaError_t launch(const Rope& a, const Scratch&, cudaStream_t stream) {
  const bool has_components = a.angles.has_components && a.step.components;
  return launch_overlapped(rope_kernel, a.qkv.rows, static_cast<unsigned>(a.qkv.rows), kThreads, 0,
                           stream, static_cast<float*>(a.qkv.data), a.qkv.stride,
                           has_components ? a.step.components : a.step.positions,
                           has_components ? a.angles.components : nullptr, a.angles.data,
                           a.heads.num + a.heads.num_kv, a.heads.dim,
                           static_cast<int>(a.angles.cols), a.interleaved);
}

bool takes(const Glu& a) { return !is_given(a.scales) || a.out.cols <= kMaxF8GluWidth; }

}  // namespace

template <>
Row<Glu> row<Glu>() {
  return {launch, takes};
}
template <>
Row<Activate> row<Activate>() {
  return {launch};
}
template <>
Row<Quantize> row<Quantize>() {
  return {launch, [](const Quantize& a) { return a.out.dtype == DType::kF8E4M3; }};
}
template <>
Row<Xielu> row<Xielu>() {
  return {launch};
}
template <>
Row<SoftCap> row<SoftCap>() {
  return {launch};
}
template <>
Row<Add> row<Add>() {
  return {launch};
}
template <>
Row<Rope> row<Rope>() {
  return {launch};
}

}  // namespace nereid::kernels::cuda
