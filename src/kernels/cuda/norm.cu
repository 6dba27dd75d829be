// RMS norm with the residual addition folded in: one block per token.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <class Out>
__global__ void norm_kernel(float* residual, int64_t residual_stride, const float* add,
                            int64_t add_stride, const __nv_bfloat16* weight, float eps,
                            int64_t hidden, Out* out, int64_t out_stride) {
  __shared__ float partial[kThreads / kWarp];
  float* x = residual + blockIdx.x * residual_stride;
  float squares = 0;
  for (int64_t c = threadIdx.x; c < hidden; c += kThreads) {
    float value = x[c];
    if (add) {
      value += add[blockIdx.x * add_stride + c];
      x[c] = value;
    }
    squares += value * value;
  }
  squares = warp_sum(squares);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = squares;
  __syncthreads();
  float total = 0;
  for (int w = 0; w < kThreads / kWarp; ++w) total += partial[w];
  const float scale = 1.0f / sqrtf(total / static_cast<float>(hidden) + eps);
  // Each thread reads back what it wrote itself above.
  for (int64_t c = threadIdx.x; c < hidden; c += kThreads)
    store(out + blockIdx.x * out_stride + c, x[c] * scale * load(weight + c));
}

template <class Out>
void enqueue(const Norm& a, cudaStream_t stream) {
  norm_kernel<Out><<<static_cast<unsigned>(a.out.rows), kThreads, 0, stream>>>(
      static_cast<float*>(a.x.data), a.x.stride,
      is_given(a.add) ? static_cast<const float*>(a.add.data) : nullptr, a.add.stride,
      static_cast<const __nv_bfloat16*>(a.weight.data), a.eps, a.x.cols,
      static_cast<Out*>(a.out.data), a.out.stride);
}

}  // namespace

cudaError_t launch(const Norm& a, cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16)
    enqueue<__nv_bfloat16>(a, stream);
  else
    enqueue<float>(a, stream);
  return cudaGetLastError();
}

}  // namespace nereid::kernels::cuda
