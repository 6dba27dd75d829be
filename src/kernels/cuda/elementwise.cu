// Ops without a reduction: activations, soft cap, addition, rotary embedding.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// 1 / (1 + exp(-x)) by the quick instructions, whose errors are far below what bf16 keeps: with
// expf() and a division that rounds correctly, arithmetic would take longer than reading and
// writing.
__device__ float sigmoid(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + power_of_2(-kLog2E * x)));
  return result;
}

template <Activation kActivation>
__device__ float activate(float x) {
  if constexpr (kActivation == Activation::kSilu) return x * sigmoid(x);
  if constexpr (kActivation == Activation::kGeluTanh)
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
  if constexpr (kActivation == Activation::kRelu) return fmaxf(x, 0.0f);
  if constexpr (kActivation == Activation::kRelu2) return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
  if constexpr (kActivation == Activation::kNone) return x;
  if constexpr (kActivation == Activation::kGeluSigmoid) return x * sigmoid(1.702f * x);
  return 0.5f * x * erfcf(-x * 0.7071067811865476f);
}

// Calls f(c) for the first of every kWidth columns that are this thread's.
template <int kWidth, class F>
__device__ void for_columns(int64_t width, F f) {
  for (int64_t c = kWidth * (blockIdx.y * int64_t{kThreads} + threadIdx.x); c < width;
       c += kWidth * (gridDim.y * int64_t{kThreads}))
    f(c);
}

template <Activation kActivation, int kWidth, class X>
__device__ Vector<kWidth> gated(const X* gates, const X* ups, float limit, float up_offset) {
  Vector<kWidth> gate(gates), up(ups), result;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    if (limit > 0.0f) {
      gate[i] = fminf(gate[i], limit);
      up[i] = fminf(fmaxf(up[i], -limit), limit);
    }
    result[i] = activate<kActivation>(gate[i]) * (up[i] + up_offset);
  }
  return result;
}

template <Activation kActivation, int kWidth, class X>
__global__ void glu_kernel(const X* x, int64_t x_stride, int64_t width, float limit,
                           float up_offset, __nv_bfloat16* out, int64_t out_stride) {
  let_next_begin();
  wait_for_previous();
  const X* row = x + blockIdx.x * x_stride;
  for_columns<kWidth>(width, [&](int64_t c) {
    gated<kActivation, kWidth>(row + c, row + width + c, limit, up_offset)
        .store(out + blockIdx.x * out_stride + c);
  });
}

// A block for each row, all of it in registers as bf16: as few as do, so that two blocks run at
// once.
constexpr int kF8Threads = 1024;
constexpr int64_t kMaxF8GluWidth = 32768;  // of a row that becomes f8e4m3
constexpr int kMostKept = kMaxF8GluWidth / kF8Threads, kFewKept = kMostKept / 2;

template <Activation kActivation, int kWidth, int kKept, class X>
__global__ void __launch_bounds__(kF8Threads, kKept <= kFewKept ? 2 : 1)
    glu_f8_kernel(const X* x, int64_t x_stride, int64_t width, float limit, float up_offset,
                  uint8_t* out, int64_t out_stride, float* scales, int64_t scales_stride) {
  __shared__ uint32_t partial[kF8Threads / kWarp];
  let_next_begin();
  wait_for_previous();
  const X* row = x + blockIdx.x * x_stride;
  constexpr int kWords = (kWidth + 1) / 2;  // of a vector
  uint32_t results[kKept / kWidth][kWords];
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kKept / kWidth; ++i)
    if (const int64_t c = kWidth * (threadIdx.x + i * int64_t{blockDim.x}); c < width) {
      Vector<kWidth> result =
          gated<kActivation, kWidth>(row + c, row + width + c, limit, up_offset);
      largest = result.round(largest);
#pragma unroll
      for (int w = 0; w < kWords; ++w)
        results[i][w] = pack(result[2 * w], kWidth > 1 ? result[2 * w + 1] : 0.0f);
    }
  const F8Row f8(block_max(largest, partial), kSmallestScaled);
#pragma unroll
  for (int i = 0; i < kKept / kWidth; ++i)
    if (const int64_t c = kWidth * (threadIdx.x + i * int64_t{blockDim.x}); c < width) {
      Vector<kWidth> result;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        const float2 pair = unpack(results[i][j / 2]);
        result[j] = j % 2 == 0 ? pair.x : pair.y;
      }
      f8.store(out + blockIdx.x * out_stride + c, result);
    }
  if (threadIdx.x == 0) scales[blockIdx.x * scales_stride] = f8.scale;
}

// Few rows: each by a cluster of blocks, a vector for each thread; the blocks tell each other the
// largest number of their parts.
constexpr int kCluster = 8;

template <Activation kActivation, class X>
__global__ void __launch_bounds__(kF8Threads)
    glu_f8_cluster_kernel(const X* x, int64_t x_stride, int64_t width, float limit, float up_offset,
                          uint8_t* out, int64_t out_stride, float* scales, int64_t scales_stride) {
#if defined(NEREID_HOPPER)
  __shared__ uint32_t partial[kF8Threads / kWarp], others[kCluster];
  let_next_begin();
  cluster_meets();  // all blocks are there
  wait_for_previous();
  const unsigned rank = cluster_rank();
  const int64_t row = blockIdx.x / kCluster;
  const int64_t c = 4 * (int64_t{rank} * blockDim.x + threadIdx.x);
  Vector<4> result;
  uint32_t largest = 0;
  if (c < width) {
    const X* const gates = x + row * x_stride + c;
    result = gated<kActivation, 4>(gates, gates + width, limit, up_offset);
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

// A block for each row, whose threads keep their first vectors.
constexpr int kQuantizeKept = 4;

template <int kWidth>
__global__ void __launch_bounds__(kF8Threads)
    quantize_kernel(const __nv_bfloat16* x, int64_t x_stride, int64_t width, uint8_t* out,
                    int64_t out_stride, float* scales, int64_t scales_stride) {
  __shared__ uint32_t partial[kF8Threads / kWarp];
  let_next_begin();
  wait_for_previous();
  const __nv_bfloat16* row = x + blockIdx.x * x_stride;
  const int64_t first = kWidth * threadIdx.x, stride = kWidth * int64_t{blockDim.x};
  Vector<kWidth> kept[kQuantizeKept];
#pragma unroll
  for (int i = 0; i < kQuantizeKept; ++i)
    if (first + i * stride < width) kept[i] = Vector<kWidth>(row + first + i * stride);
  const auto for_each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kQuantizeKept; ++i)
      if (first + i * stride < width) f(first + i * stride, kept[i]);
    for (int64_t c = first + kQuantizeKept * stride; c < width; c += stride)
      f(c, Vector<kWidth>(row + c));
  };
  uint32_t largest = 0;
  for_each([&](int64_t, Vector<kWidth> x) { largest = x.round(largest); });
  const F8Row f8(block_max(largest, partial), kSmallestScaled);
  for_each(
      [&](int64_t c, const Vector<kWidth>& x) { f8.store(out + blockIdx.x * out_stride + c, x); });
  if (threadIdx.x == 0) scales[blockIdx.x * scales_stride] = f8.scale;
}

template <Activation kActivation, int kWidth>
__global__ void activate_kernel(const float* x, int64_t x_stride, int64_t width, __nv_bfloat16* out,
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

__global__ void rope_kernel(float* qkv, int64_t stride, const int32_t* positions,
                            const float* table, int num_heads, int head_dim, int rotated,
                            bool interleaved) {
  let_next_begin();
  wait_for_previous();
  const int half = rotated / 2;
  const float* angles = table + static_cast<int64_t>(positions[blockIdx.x]) * rotated;
  float* row = qkv + blockIdx.x * stride;
  for (int i = threadIdx.x; i < num_heads * half; i += kThreads) {
    float* head = row + i / half * head_dim;
    const int2 at = pair_columns(i % half, rotated, interleaved);
    const float2 pair = rotate({head[at.x], head[at.y]}, angles[i % half], angles[half + i % half]);
    head[at.x] = pair.x;
    head[at.y] = pair.y;
  }
}

// A block per token and per piece of the row, a few elements for each thread.
dim3 grid_for(int64_t rows, int64_t width) {
  const int64_t pieces = (width + 4 * kThreads - 1) / (4 * kThreads);
  return {static_cast<unsigned>(rows), static_cast<unsigned>(pieces < 1024 ? pieces : 1024)};
}

template <class Op>
bool is_vector(const Op& a) {
  return fits_vectors(a.x, a.out.cols) && fits_vectors(a.out, a.out.cols);
}

// Threads of a block that has a row, four columns for each where vectors are read.
unsigned threads_for(int64_t width, bool vectors) {
  const int64_t threads = (width / (vectors ? 4 : 1) + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(threads < kF8Threads ? (threads > kWarp ? threads : kWarp)
                                                    : kF8Threads);
}

constexpr int64_t kMaxClusterRows = 16;  // with more rows there are blocks enough

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
        threads_for((a.out.cols + kCluster - 1) / kCluster, true), 0, stream, x, a.x.stride,
        a.out.cols, a.limit, a.up_offset, out, a.out.stride, scales, a.scales.stride);
  const auto kernel = !is_vector(a) ? glu_f8_kernel<kActivation, 1, kMostKept, X>
                      : a.out.cols <= kF8Threads * kFewKept
                          ? glu_f8_kernel<kActivation, 4, kFewKept, X>
                          : glu_f8_kernel<kActivation, 4, kMostKept, X>;
  return launch_overlapped(kernel, a.out.rows, rows, threads_for(a.out.cols, is_vector(a)), 0,
                           stream, x, a.x.stride, a.out.cols, a.limit, a.up_offset, out,
                           a.out.stride, scales, a.scales.stride);
}
template <Activation kActivation>
cudaError_t enqueue(const Glu& a, cudaStream_t stream) {
  return a.x.dtype == DType::kBF16 ? enqueue_glu<kActivation, __nv_bfloat16>(a, stream)
                                   : enqueue_glu<kActivation, float>(a, stream);
}
template <Activation kActivation>
cudaError_t enqueue(const Activate& a, cudaStream_t stream) {
  return launch_overlapped(
      is_vector(a) ? activate_kernel<kActivation, 4> : activate_kernel<kActivation, 1>, a.out.rows,
      grid_for(a.out.rows, a.out.cols), kThreads, 0, stream, static_cast<const float*>(a.x.data),
      a.x.stride, a.out.cols, static_cast<__nv_bfloat16*>(a.out.data), a.out.stride);
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
  // Many rows: small blocks, so that some read while others write.
  constexpr int64_t kManyRows = 512;
  const int64_t share = a.out.rows < kManyRows ? 1 : kQuantizeKept;
  return launch_overlapped(is_vector(a) ? quantize_kernel<4> : quantize_kernel<1>, a.out.rows,
                           static_cast<unsigned>(a.out.rows),
                           threads_for((a.out.cols + share - 1) / share, is_vector(a)), 0, stream,
                           static_cast<const __nv_bfloat16*>(a.x.data), a.x.stride, a.out.cols,
                           static_cast<uint8_t*>(a.out.data), a.out.stride,
                           static_cast<float*>(a.scales.data), a.scales.stride);
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
  return launch_overlapped(rope_kernel, a.qkv.rows, static_cast<unsigned>(a.qkv.rows), kThreads, 0,
                           stream, static_cast<float*>(a.qkv.data), a.qkv.stride, a.step.positions,
                           a.angles.data, a.heads.num + a.heads.num_kv, a.heads.dim,
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
