// Norms with the residual addition folded in.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct NormParams {
  const float* add;  // or null
  int64_t add_stride;
  float* sum;
  int64_t sum_stride;
  const __nv_bfloat16* weight;
  const __nv_bfloat16* bias;  // or null
  float eps, weight_offset;
  bool centered;
  int64_t width;
};

__device__ float block_sum(float value, float* partial) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) total += partial[w];
  return total;
}

// One block for each piece of a row. Each thread reads back only what it wrote itself.
template <class X, class Out>
__global__ void norm_kernel(const X* x, int64_t x_stride, NormParams p, Out* out,
                            int64_t out_stride) {
  __shared__ float partial[kThreads / kWarp];
  const int64_t row = blockIdx.x, begin = blockIdx.y * p.width;
  const X* from = x + row * x_stride + begin;
  float* total = p.add ? p.sum + row * p.sum_stride + begin : nullptr;
  const auto at = [&](int64_t c) { return total ? total[c] : load(from + c); };
  float sum = 0;
  for (int64_t c = threadIdx.x; c < p.width; c += kThreads) {
    if (total) total[c] = load(from + c) + p.add[row * p.add_stride + begin + c];
    if (p.centered) sum += at(c);
  }
  const float mean = p.centered ? block_sum(sum, partial) / static_cast<float>(p.width) : 0;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < p.width; c += kThreads) {
    const float value = at(c) - mean;
    squares += value * value;
  }
  const float scale =
      1.0f / sqrtf(block_sum(squares, partial) / static_cast<float>(p.width) + p.eps);
  for (int64_t c = threadIdx.x; c < p.width; c += kThreads) {
    const float value = (at(c) - mean) * scale * (load(p.weight + c) + p.weight_offset);
    store(out + row * out_stride + begin + c, p.bias ? value + load(p.bias + c) : value);
  }
}

template <class X, class Out>
void enqueue(const Norm& a, cudaStream_t stream) {
  const NormParams p = {static_cast<const float*>(a.add.data),
                        a.add.stride,
                        static_cast<float*>(a.sum.data),
                        a.sum.stride,
                        static_cast<const __nv_bfloat16*>(a.weight.data),
                        static_cast<const __nv_bfloat16*>(a.bias.data),
                        a.eps,
                        a.weight_offset,
                        a.centered,
                        a.weight.k};
  const dim3 grid(static_cast<unsigned>(a.out.rows), static_cast<unsigned>(a.x.cols / a.weight.k));
  norm_kernel<X, Out><<<grid, kThreads, 0, stream>>>(static_cast<const X*>(a.x.data), a.x.stride, p,
                                                     static_cast<Out*>(a.out.data), a.out.stride);
}

template <class X>
void enqueue_out(const Norm& a, cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16)
    enqueue<X, __nv_bfloat16>(a, stream);
  else
    enqueue<X, float>(a, stream);
}

}  // namespace

cudaError_t launch(const Norm& a, cudaStream_t stream) {
  if (a.x.dtype == DType::kBF16)
    enqueue_out<__nv_bfloat16>(a, stream);
  else
    enqueue_out<float>(a, stream);
  return cudaGetLastError();
}

}  // namespace nereid::kernels::cuda
