// Low-rank updates of products by adapters (LoRA): grid of row, module and piece.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarp = 32;

// Token id of the step; -1 for an external embedding or a failed sample.
__device__ int64_t token_of(const LowRank& a) {
  const int64_t id = a.step.tokens[blockIdx.x];
  if (id >= 0 || id < kFirstFeature / 2 || !a.step.slot_tokens) return id;
  return a.step.slot_tokens[-1 - id];
}

// low[j] = a[j] . x, one warp per row of a.
__device__ void make_low(const __nv_bfloat16* rows, const __nv_bfloat16* x, int64_t k, int rank,
                         float* low) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int j = static_cast<int>(threadIdx.x) / kWarp; j < rank; j += kThreads / kWarp) {
    const __nv_bfloat16* const row = rows + j * k;
    float sum = 0;
    for (int64_t c = lane; c < k; c += kWarp) sum += load(row + c) * load(x + c);
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (lane == 0) low[j] = sum;
  }
}

__global__ void __launch_bounds__(kThreads) low_rank_kernel(LowRank a) {
  let_next_begin();
  wait_for_previous();
  const int32_t adapter = a.step.adapters[blockIdx.x];
  if (adapter < 0) return;
  const bool has_experts = a.experts.cols > 0;
  const int32_t expert =
      has_experts
          ? static_cast<const int32_t*>(a.experts.data)[blockIdx.x * a.experts.stride + blockIdx.z]
          : 0;
  if (expert < 0 || expert >= a.num_experts) return;
  const LoraMatrix m =
      a.step.adapter_matrices[int64_t{adapter} * a.step.num_adapter_modules + a.first_module +
                              int64_t{expert} * a.num_modules + blockIdx.y];
  if (m.rank == 0) return;
  __shared__ float low[kMaxAdapterRank];
  const auto* const weights = reinterpret_cast<const __nv_bfloat16*>(a.step.adapter_weights);
  if (a.x.cols > 0) {
    const auto* const x = static_cast<const __nv_bfloat16*>(a.x.data) + blockIdx.x * a.x.stride;
    make_low(weights + m.a, x + (a.x.cols == a.k ? 0 : blockIdx.z * a.k), a.k, m.rank, low);
  } else {
    const int64_t token = token_of(a);
    if (token < 0 || token >= a.k) return;
    for (int j = static_cast<int>(threadIdx.x); j < m.rank; j += kThreads)
      low[j] = load(weights + m.a + token * m.rank + j);
  }
  __syncthreads();
  const int64_t width = a.out.cols / (has_experts ? a.experts.cols : 1);
  float* const y =
      static_cast<float*>(a.out.data) + blockIdx.x * a.out.stride + blockIdx.z * width + m.column;
  for (int64_t c = threadIdx.x; c < m.cols; c += kThreads) {
    float sum = 0;
    for (int j = 0; j < m.rank; ++j) sum += low[j] * load(weights + m.b + j * int64_t{m.cols} + c);
    float changed = y[c] + m.scale * a.scale * sum;
    if (m.gain >= 0) {
      const __nv_bfloat16* const gain = weights + m.gain + c;
      changed += load(gain) * changed + load(gain + m.cols);
    }
    y[c] = changed;
  }
}

cudaError_t launch(const LowRank& a, const Scratch&, cudaStream_t stream) {
  if (!a.step.adapters) return cudaSuccess;
  const dim3 blocks(static_cast<unsigned>(a.out.rows), static_cast<unsigned>(a.num_modules),
                    static_cast<unsigned>(LowRank::pieces_of(a)));
  return launch_overlapped(low_rank_kernel, a.out.rows, blocks, kThreads, 0, stream, a);
}

bool has_few_modules(const LowRank& a) { return a.num_modules <= 65535; }

}  // namespace

template <>
Row<LowRank> row<LowRank>() {
  return {launch, has_few_modules};
}

}  // namespace nereid::kernels::cuda
