// out [rows, n] = x [rows, k] . weight [n, k]^T for up to eight rows: the time is that of reading
// the weight once. A block has 32 outputs; its warps take 64 bytes of k in turn, straight from
// memory to the registers of the tensor cores' operands: since any order of k is as good as
// another, the sixteen bytes that a thread reads are parts of two products. The order of additions
// depends on n and k alone.
//
// Weights do not depend on the kernel in front: the first are fetched while it still runs.
#include <cuda_bf16.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kTiles = 2;  // of 16 outputs for a block
constexpr int kOutputs = 16 * kTiles;
constexpr int kDepthBytes = 64;  // of the columns of a step
constexpr int kAhead = 4;        // steps that are on their way
constexpr int kMaxRows = kMaxGemvRows;

struct Params {
  const void* x;
  const void* weight;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // of outputs and of rows of x, for f8e4m3
  const float* x_scales;
  void* out;
  int64_t x_stride, x_scales_stride, out_stride, n, k;
  int rows;
};

// 16 bytes that are read once.
__device__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ void multiply_as(const __nv_bfloat16*, float (&d)[4], const uint32_t (&a)[4],
                            uint32_t b0, uint32_t b1) {
  multiply(d, a, b0, b1);
}
__device__ void multiply_as(const __nv_fp8_e4m3*, float (&d)[4], const uint32_t (&a)[4],
                            uint32_t b0, uint32_t b1) {
#if defined(NEREID_HOPPER)
  multiply_f8(d, a, b0, b1);
#endif
}

// In: of x and weight.
template <class In, class Out>
__global__ void __launch_bounds__(kThreads, 2) gemv_kernel(Params p) {
  constexpr int kDepth = kDepthBytes / sizeof(In);
  __shared__ float sums[kWarps][kOutputs][kMaxRows];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t first_n = int64_t{blockIdx.x} * kOutputs;
  const int in_step = lane % 4 * (kDepth / 4);  // this thread's columns of a step
  const In* rows[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      rows[t][h] = static_cast<const In*>(p.weight) +
                   min(first_n + 16 * t + 8 * h + lane / 4, p.n - 1) * p.k;
  const bool has_x = lane / 4 < p.rows;
  const In* const x = static_cast<const In*>(p.x) + (has_x ? lane / 4 : 0) * p.x_stride;

  uint4 weights[kAhead][kTiles][2], inputs[kAhead];
  const auto load_weights = [&](int a, int64_t k) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) weights[a][t][h] = k < p.k ? load_once(rows[t][h] + k) : uint4{};
  };
  const auto load_inputs = [&](int a, int64_t k) {
    inputs[a] = has_x && k < p.k ? *reinterpret_cast<const uint4*>(x + k) : uint4{};
  };
  constexpr int kStride = kWarps * kDepth;
  const int64_t begin = warp * kDepth + in_step;
#pragma unroll
  for (int a = 0; a < kAhead; ++a) load_weights(a, begin + a * kStride);
  let_next_begin();
  wait_for_previous();
#pragma unroll
  for (int a = 0; a < kAhead; ++a) load_inputs(a, begin + a * kStride);

  float results[kTiles][4] = {};
  for (int64_t k = begin; k - in_step < p.k; k += kAhead * kStride) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const uint4 b = inputs[a];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint4 low = weights[a][t][0], high = weights[a][t][1];
        multiply_as(x, results[t], {low.x, high.x, low.y, high.y}, b.x, b.y);
        multiply_as(x, results[t], {low.z, high.z, low.w, high.w}, b.z, b.w);
      }
      load_weights(a, k + (a + kAhead) * kStride);
      load_inputs(a, k + (a + kAhead) * kStride);
    }
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      sums[warp][16 * t + 8 * (r / 2) + lane / 4][lane % 4 * 2 + r % 2] = results[t][r];
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kOutputs;
  const int output = static_cast<int>(threadIdx.x) % kOutputs;
  const int64_t n = first_n + output;
  if (row >= p.rows || n >= p.n) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) sum += sums[w][output][row];
  if (sizeof(In) == 1) sum *= p.scales[n] * p.x_scales[row * p.x_scales_stride];
  store(static_cast<Out*>(p.out) + row * p.out_stride + n, p.bias ? sum + load(p.bias + n) : sum);
}
static_assert(kThreads == kOutputs * kMaxRows);

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class In>
cudaError_t enqueue(const Linear& a, const Params& p, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((p.n + kOutputs - 1) / kOutputs);
  return launch_overlapped(
      a.out.dtype == DType::kBF16 ? gemv_kernel<In, __nv_bfloat16> : gemv_kernel<In, float>,
      a.x.rows, blocks, kThreads, 0, stream, p);
}

}  // namespace

bool takes_gemv(const Linear& a) {
  return a.x.rows <= kMaxRows && is_in_pieces(a) && is_aligned(a.x.data) &&
         is_aligned(a.weight.data);
}

cudaError_t launch_gemv(const Linear& a, cudaStream_t stream) {
  const Params p = {a.x.data,
                    a.weight.data,
                    static_cast<const __nv_bfloat16*>(a.bias.data),
                    a.weight.scales,
                    static_cast<const float*>(a.scales.data),
                    a.out.data,
                    a.x.stride,
                    a.scales.stride,
                    a.out.stride,
                    a.weight.n,
                    a.weight.k,
                    static_cast<int>(a.x.rows)};
  return a.x.dtype == DType::kF8E4M3 ? enqueue<__nv_fp8_e4m3>(a, p, stream)
                                     : enqueue<__nv_bfloat16>(a, p, stream);
}

}  // namespace nereid::kernels::cuda
