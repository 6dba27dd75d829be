// What adapters add to products: a block for each row and module.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;

__global__ void __launch_bounds__(kThreads) low_rank_kernel(LowRank a) {
  let_next_begin();
  wait_for_previous();
  const int32_t adapter = a.step.adapters[blockIdx.x];
  if (adapter < 0) return;
  const AdapterMatrix m = a.step.adapter_matrices[int64_t{adapter} * a.step.num_adapter_modules +
                                                  a.first_module + blockIdx.y];
  if (m.rank == 0) return;
  __shared__ float low[kMaxAdapterRank];
  const auto* const weights = reinterpret_cast<const __nv_bfloat16*>(a.step.adapter_weights);
  const auto* const x = static_cast<const __nv_bfloat16*>(a.x.data) + blockIdx.x * a.x.stride;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int j = static_cast<int>(threadIdx.x) / kWarp; j < m.rank; j += kThreads / kWarp) {
    const __nv_bfloat16* const row = weights + m.a + j * a.x.cols;
    float sum = 0;
    for (int64_t c = lane; c < a.x.cols; c += kWarp) sum += load(row + c) * load(x + c);
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) low[j] = sum;
  }
  __syncthreads();
  float* const y = static_cast<float*>(a.out.data) + blockIdx.x * a.out.stride + m.column;
  for (int64_t c = threadIdx.x; c < m.cols; c += kThreads) {
    float sum = 0;
    for (int j = 0; j < m.rank; ++j) sum += low[j] * load(weights + m.b + j * int64_t{m.cols} + c);
    float changed = y[c] + m.scale * sum;
    if (m.gain >= 0) {
      const __nv_bfloat16* const gain = weights + m.gain + c;
      changed += load(gain) * changed + load(gain + m.cols);
    }
    y[c] = changed;
  }
}

cudaError_t launch(const LowRank& a, const Scratch&, cudaStream_t stream) {
  if (!a.step.adapters) return cudaSuccess;
  const dim3 blocks(static_cast<unsigned>(a.out.rows), static_cast<unsigned>(a.num_modules));
  return launch_overlapped(low_rank_kernel, a.out.rows, blocks, kThreads, 0, stream, a);
}

bool has_few_modules(const LowRank& a) { return a.num_modules <= 65535; }

}  // namespace

template <>
Row<LowRank> row<LowRank>() {
  return {launch, has_few_modules};
}

}  // namespace nereid::kernels::cuda
