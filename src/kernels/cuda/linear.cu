// Product without a library: one warp per output for few tokens, else 64x64 tiles. f32 sums; within
// each form their order does not depend on the number of tokens.
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weights.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFewTokens = kMaxPlainFewRows;
constexpr int kTile = 64;   // tokens and outputs per block
constexpr int kDepth = 16;  // k per stage
constexpr int kPerThread = 4;

template <class Weight, class X = __nv_bfloat16>
struct Product {
  const X* x;
  int64_t x_stride;
  Weight weight;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // per output; or null
  const float* x_scales;      // per row of x; or null
  int64_t x_scales_stride;
  int64_t tokens, n, k, out_stride;

  __device__ float result(int64_t token, int64_t output, float sum) const {
    if (scales)
      sum *= x_scales ? scales[output] * x_scales[token * x_scales_stride] : scales[output];
    return bias ? sum + load(bias + output) : sum;
  }
};

// Adds eight products of each token with one 16-byte piece of the weight row.
template <int kTokens, class Weight, class X>
__device__ void add_piece(const Product<Weight, X>& p, int64_t k, uint4 weights,
                          float (&sums)[kTokens]) {
  const float2 w[4] = {unpack(weights.x), unpack(weights.y), unpack(weights.z), unpack(weights.w)};
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    if (t >= p.tokens) continue;
    const uint4 piece = *reinterpret_cast<const uint4*>(p.x + t * p.x_stride + k);
    const float2 x[4] = {unpack(piece.x), unpack(piece.y), unpack(piece.z), unpack(piece.w)};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[t] = fmaf(x[i].x, w[i].x, sums[t]);
      sums[t] = fmaf(x[i].y, w[i].y, sums[t]);
    }
  }
}

template <int kTokens, bool kWide, class Weight, class X, class Out>
__global__ void __launch_bounds__(kThreads) few_tokens_kernel(Product<Weight, X> p, Out* out) {
  const int lane = threadIdx.x % kWarp;
  const int64_t n = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (n >= p.n) return;
  float sums[kTokens] = {};
  if constexpr (kWide) {
    for (int64_t k = lane * 8; k < p.k; k += kWarp * 8)
      add_piece<kTokens>(p, k, p.weight.piece(n, k), sums);
  } else {
    for (int64_t k = lane; k < p.k; k += kWarp) {
      const float w = p.weight.at(n, k);
#pragma unroll
      for (int t = 0; t < kTokens; ++t)
        if (t < p.tokens) sums[t] = fmaf(load(p.x + t * p.x_stride + k), w, sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0 && t < p.tokens) store(out + t * p.out_stride + n, p.result(t, n, sum));
  }
}

// Copies rows [row0, row0 + kTile) and columns from k0 (up to k0 + kDepth, < k_end) of a [rows, k]
// matrix to shared memory, transposed, as f32; zeros outside. at(row, col): a number of the matrix.
template <class At>
__device__ void stage(At at, int64_t rows, int64_t row0, int64_t k0, int64_t k_end,
                      float (&tile)[kDepth][kTile + 1]) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    const int r = i / kDepth, c = i % kDepth;
    const bool inside = row0 + r < rows && k0 + c < k_end;
    tile[c][r] = inside ? at(row0 + r, k0 + c) : 0.0f;
  }
}

template <class Weight, class X, class Out>
__global__ void __launch_bounds__(kThreads) tile_kernel(Product<Weight, X> p, Out* out) {
  __shared__ float x_tile[kDepth][kTile + 1];
  __shared__ float w_tile[kDepth][kTile + 1];
  const int64_t token0 = int64_t{blockIdx.x} * kTile, n0 = int64_t{blockIdx.y} * kTile;
  // Stride 16: adjacent threads store adjacent outputs.
  const int column = threadIdx.x % 16, line = threadIdx.x / 16;
  float sums[kPerThread][kPerThread] = {};
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    stage([&](int64_t row, int64_t col) { return load(p.x + row * p.x_stride + col); }, p.tokens,
          token0, k0, p.k, x_tile);
    stage([&](int64_t row, int64_t col) { return p.weight.at(row, col); }, p.n, n0, k0, p.k,
          w_tile);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float x[kPerThread], w[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        x[i] = x_tile[k][line + 16 * i];
        w[i] = w_tile[k][column + 16 * i];
      }
#pragma unroll
      for (int i = 0; i < kPerThread; ++i)
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) sums[i][j] = fmaf(x[i], w[j], sums[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int64_t token = token0 + line + 16 * i, n = n0 + column + 16 * j;
      if (token < p.tokens && n < p.n)
        store(out + token * p.out_stride + n, p.result(token, n, sums[i][j]));
    }
  }
}

template <class Out>
__global__ void bias_kernel(const __nv_bfloat16* bias, int64_t n, Out* out, int64_t out_stride) {
  for (int64_t c = threadIdx.x; c < n; c += kThreads)
    store(out + blockIdx.x * out_stride + c, load(bias + c));
}

// Converts rows of whole pieces from row0 to bf16.
__global__ void __launch_bounds__(kThreads)
    widen_kernel(F8Groups weight, int64_t row0, __nv_bfloat16* out) {
  const int64_t k = 8 * (int64_t{blockIdx.y} * kThreads + threadIdx.x), row = blockIdx.x;
  if (k < weight.k)
    *reinterpret_cast<uint4*>(out + row * weight.k + k) = weight.piece(row0 + row, k);
}

template <class X, class Weight>
Product<Weight, X> product_of(const Linear& a, const Weight& weight) {
  return {static_cast<const X*>(a.x.data),
          a.x.stride,
          weight,
          static_cast<const __nv_bfloat16*>(a.bias.data),
          has_f8_rows(a.weight.format) ? a.weight.scales : nullptr,
          static_cast<const float*>(a.scales.data),
          a.scales.stride,
          a.x.rows,
          a.weight.n,
          a.weight.k,
          a.out.stride};
}

bool is_aligned(const void* p, int bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

template <int kTokens, class Weight, class X, class Out>
void enqueue_few(const Product<Weight, X>& p, Out* out, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((p.n * kWarp + kThreads - 1) / kThreads);
  if constexpr (Weight::kPieceBytes > 0) {
    if (p.k % 8 == 0 && p.x_stride % 8 == 0 && is_aligned(p.x, sizeof(uint4)) &&
        is_aligned(p.weight.data, Weight::kPieceBytes)) {
      few_tokens_kernel<kTokens, true><<<blocks, kThreads, 0, stream>>>(p, out);
      return;
    }
  }
  few_tokens_kernel<kTokens, false><<<blocks, kThreads, 0, stream>>>(p, out);
}

template <class X, class Out, class Weight>
void enqueue(const Linear& a, const Weight& weight, cudaStream_t stream) {
  const Product<Weight, X> p = product_of<X>(a, weight);
  auto* out = static_cast<Out*>(a.out.data);
  if (p.tokens == 1) return enqueue_few<1>(p, out, stream);
  if (p.tokens <= kFewTokens) return enqueue_few<kFewTokens>(p, out, stream);
  const dim3 blocks(static_cast<unsigned>((p.tokens + kTile - 1) / kTile),
                    static_cast<unsigned>((p.n + kTile - 1) / kTile));
  tile_kernel<<<blocks, kThreads, 0, stream>>>(p, out);
}

template <class X, class Weight>
void enqueue_out(const Linear& a, const Weight& weight, cudaStream_t stream) {
  // f8e4m3 rows are multiplied by fp8 weights only.
  if constexpr (std::is_same_v<X, __nv_bfloat16> || std::is_same_v<Weight, F8Weight>) {
    if (a.out.dtype == DType::kBF16)
      enqueue<X, __nv_bfloat16>(a, weight, stream);
    else
      enqueue<X, float>(a, weight, stream);
  }
}

}  // namespace

cudaError_t launch_plain(const Linear& a, const Scratch&, cudaStream_t stream) {
  with_weight(a.weight, [&](const auto& weight) {
    if (a.x.dtype == DType::kF8E4M3)
      enqueue_out<__nv_fp8_e4m3>(a, weight, stream);
    else
      enqueue_out<__nv_bfloat16>(a, weight, stream);
  });
  return cudaGetLastError();
}

cudaError_t launch_widen(const WeightView& w, int64_t row0, int64_t rows, void* to,
                         cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>(rows),
                    static_cast<unsigned>((w.k / 8 + kThreads - 1) / kThreads));
  widen_kernel<<<blocks, kThreads, 0, stream>>>(f8_groups_of(w), row0,
                                                static_cast<__nv_bfloat16*>(to));
  return cudaGetLastError();
}

cudaError_t launch_bias(const Linear& a, cudaStream_t stream) {
  const auto tokens = static_cast<unsigned>(a.out.rows);
  const auto* bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  if (a.out.dtype == DType::kBF16)
    bias_kernel<<<tokens, kThreads, 0, stream>>>(
        bias, a.weight.n, static_cast<__nv_bfloat16*>(a.out.data), a.out.stride);
  else
    bias_kernel<<<tokens, kThreads, 0, stream>>>(bias, a.weight.n, static_cast<float*>(a.out.data),
                                                 a.out.stride);
  return cudaGetLastError();
}

}  // namespace nereid::kernels::cuda
