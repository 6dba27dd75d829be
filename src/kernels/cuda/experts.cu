// Ops of mixture of experts, plain: one warp routes a row; one warp computes an output of all rows
// that selected an expert.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/weights.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsOfPass = 8;  // rows that share one read of the weights

struct Routing {
  const float* x;
  const float* bias;  // or null
  float* weights;
  int32_t* experts;
  int64_t x_stride, weights_stride, experts_stride;
  int num, picked, groups, groups_kept, group_best;
  bool sigmoid, sparse_mixer, renormalise, by_score;
  float scale, jitter_eps;
};

constexpr uint32_t kClosed = 0;

// Order-preserving key of a float; NaN smallest; never kClosed.
__device__ uint32_t order_of(float x) {
  if (isnan(x)) return 1;
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Index of the maximum of [begin, end), the lowest of ties; marks it kClosed.
__device__ int take_best(uint32_t* order, int begin, int end) {
  uint32_t largest = kClosed, best = ~0u;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kWarp)
    if (order[i] > largest) largest = order[i], best = i;
  if (largest != __reduce_max_sync(kAllLanes, largest)) best = ~0u;
  best = __reduce_min_sync(kAllLanes, best);
  __syncwarp();
  if (threadIdx.x == 0) order[best] = kClosed;
  __syncwarp();
  return static_cast<int>(best);
}

__device__ void score(const Routing& r, const float* x, float* scores) {
  float largest = -INFINITY;
  for (int e = threadIdx.x; e < r.num; e += kWarp) largest = fmaxf(largest, x[e]);
  largest = warp_max(largest);
  double sum = 0;
  for (int e = threadIdx.x; e < r.num; e += kWarp) sum += exp(x[e] - static_cast<double>(largest));
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  for (int e = threadIdx.x; e < r.num; e += kWarp)
    scores[e] = static_cast<float>(r.sigmoid ? 1 / (1 + exp(-static_cast<double>(x[e])))
                                             : exp(x[e] - static_cast<double>(largest)) / sum);
}

// Closes all experts outside the best groups.
__device__ void close_groups(const Routing& r, const float* ranks, uint32_t* order,
                             uint32_t* group_order) {
  const int size = r.num / r.groups;
  for (int g = 0; g < r.groups; ++g) {
    float sum = 0;
    for (int i = 0; i < r.group_best; ++i) sum += ranks[take_best(order, g * size, (g + 1) * size)];
    if (threadIdx.x == 0) group_order[g] = order_of(sum);
  }
  __syncwarp();
  for (int e = threadIdx.x; e < r.num; e += kWarp) order[e] = kClosed;
  for (int i = 0; i < r.groups_kept; ++i) {
    const int g = take_best(group_order, 0, r.groups);
    for (int e = g * size + threadIdx.x; e < (g + 1) * size; e += kWarp)
      order[e] = order_of(ranks[e]);
  }
  __syncwarp();
}

// Sparse mixer weight of an expert, relative to the experts still open; one lane.
__device__ float mixer_weight(const Routing& r, const float* x, const uint32_t* order, int picked) {
  const float own = x[picked];
  double sum = exp(static_cast<double>(own) - own);
  for (int e = 0; e < r.num; ++e)
    if (order[e] != kClosed && !((own - x[e]) / fmaxf(fabsf(x[e]), own) > r.jitter_eps))
      sum += exp(x[e] - static_cast<double>(own));
  return static_cast<float>(r.scale / sum);
}

__global__ void __launch_bounds__(kWarp) route_kernel(Routing r) {
  __shared__ float scores[kMaxExperts], ranks[kMaxExperts];
  __shared__ uint32_t order[kMaxExperts], group_order[kMaxExperts];
  const float* x = r.x + blockIdx.x * r.x_stride;
  let_next_begin();
  wait_for_previous();
  score(r, x, scores);
  for (int e = threadIdx.x; e < r.num; e += kWarp) {
    ranks[e] = !r.by_score ? x[e] : r.bias ? scores[e] + r.bias[e] : scores[e];
    order[e] = order_of(ranks[e]);
  }
  __syncwarp();
  if (r.groups_kept < r.groups) close_groups(r, ranks, order, group_order);
  int32_t* experts = r.experts + blockIdx.x * r.experts_stride;
  float* weights = r.weights + blockIdx.x * r.weights_stride;
  double sum = 1e-20;
  for (int j = 0; j < r.picked; ++j) {
    const int best = take_best(order, 0, r.num);
    if (threadIdx.x == 0) {
      experts[j] = best;
      if (r.sparse_mixer) weights[j] = mixer_weight(r, x, order, best);
    }
    __syncwarp();
    sum += scores[best];
  }
  __syncwarp();
  if (r.sparse_mixer) return;
  for (int j = threadIdx.x; j < r.picked; j += kWarp)
    weights[j] = static_cast<float>(scores[experts[j]] / (r.renormalise ? sum : 1) *
                                    static_cast<double>(r.scale));
}

template <class Weight, class X>
struct ExpertProduct {
  const X* x;
  const int32_t* experts;
  Weight weight;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // per expert and output; or null
  const float* x_scales;      // per row of x; or null
  int64_t x_scales_stride;
  int64_t x_stride, x_piece, experts_stride, out_stride;
  int64_t num_pieces, picked, num_experts, n, k;

  // `output`: row of the weight of all experts.
  __device__ float result(int64_t piece, int64_t output, float sum) const {
    if (scales)
      sum *=
          x_scales ? scales[output] * x_scales[piece / picked * x_scales_stride] : scales[output];
    return bias ? sum + load(bias + output) : sum;
  }
};

// One block: 8 columns of one expert, all pieces that selected it; the last blocks zero pieces
// without an expert.
template <class Weight, class X, class Out>
__global__ void __launch_bounds__(kThreads) expert_kernel(ExpertProduct<Weight, X> p, Out* out) {
  __shared__ int64_t found[kThreads];
  __shared__ int num_found;
  const int lane = threadIdx.x % kWarp;
  const int64_t expert = blockIdx.y;
  const int64_t n = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  const bool zeros = expert == p.num_experts;
  const int64_t output = expert * p.n + n;
  for (int64_t begin = 0; begin < p.num_pieces; begin += kThreads) {
    __syncthreads();
    if (threadIdx.x == 0) num_found = 0;
    __syncthreads();
    const int64_t piece = begin + threadIdx.x;
    if (piece < p.num_pieces) {
      const int32_t e = p.experts[piece / p.picked * p.experts_stride + piece % p.picked];
      if (zeros ? e < 0 || e >= p.num_experts : e == expert)
        found[atomicAdd(&num_found, 1)] = piece;
    }
    __syncthreads();
    if (n >= p.n) continue;
    for (int first = 0; first < num_found; first += kRowsOfPass) {
      const X* x[kRowsOfPass];
      float sums[kRowsOfPass] = {};
      const int rows = min(kRowsOfPass, num_found - first);
#pragma unroll
      for (int r = 0; r < kRowsOfPass; ++r) {
        const int64_t at = found[first + (r < rows ? r : 0)];
        x[r] = p.x + at / p.picked * p.x_stride + at % p.picked * p.x_piece;
      }
      for (int64_t k = zeros ? p.k : lane; k < p.k; k += kWarp) {
        const float w = p.weight.at(output, k);
#pragma unroll
        for (int r = 0; r < kRowsOfPass; ++r)
          if (r < rows) sums[r] = fmaf(load(x[r] + k), w, sums[r]);
      }
#pragma unroll
      for (int r = 0; r < kRowsOfPass; ++r) {
        const float sum = warp_sum(sums[r]);
        if (lane != 0 || r >= rows) continue;
        const int64_t at = found[first + r];
        store(out + at / p.picked * p.out_stride + at % p.picked * p.n + n,
              zeros ? 0.0f : p.result(at, output, sum));
      }
    }
  }
}

__global__ void weighted_sum_kernel(const float* x, int64_t x_stride, const float* weights,
                                    int64_t weights_stride, int num, int64_t width, float* out,
                                    int64_t out_stride) {
  constexpr int kAhead = 8;  // loads in flight
  const float* row = x + blockIdx.x * x_stride;
  const float* factors = weights + blockIdx.x * weights_stride;
  let_next_begin();
  wait_for_previous();
  for (int64_t c = blockIdx.y * kThreads + threadIdx.x; c < width; c += gridDim.y * kThreads) {
    float sum = 0;
    for (int j = 0; j < num; j += kAhead) {
      float numbers[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) numbers[i] = j + i < num ? row[(j + i) * width + c] : 0;
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (j + i < num) sum = fmaf(factors[j + i], numbers[i], sum);
    }
    out[blockIdx.x * out_stride + c] = sum;
  }
}

template <class X, class Out, class Weight>
void enqueue(const ExpertLinear& a, const Weight& weight, cudaStream_t stream) {
  const ExpertProduct<Weight, X> p = {static_cast<const X*>(a.x.data),
                                      static_cast<const int32_t*>(a.experts.data),
                                      weight,
                                      static_cast<const __nv_bfloat16*>(a.bias.data),
                                      has_f8_rows(a.weight.format) ? a.weight.scales : nullptr,
                                      static_cast<const float*>(a.scales.data),
                                      a.scales.stride,
                                      a.x.stride,
                                      a.x.cols == a.weight.k ? 0 : a.weight.k,
                                      a.experts.stride,
                                      a.out.stride,
                                      a.out.rows * a.experts.cols,
                                      a.experts.cols,
                                      a.weight.experts,
                                      a.weight.n,
                                      a.weight.k};
  constexpr int64_t kColumns = kThreads / kWarp;
  const dim3 blocks(static_cast<unsigned>((p.n + kColumns - 1) / kColumns),
                    static_cast<unsigned>(p.num_experts + 1));
  expert_kernel<<<blocks, kThreads, 0, stream>>>(p, static_cast<Out*>(a.out.data));
}

template <class X, class Weight>
void enqueue_out(const ExpertLinear& a, const Weight& weight, cudaStream_t stream) {
  // f8e4m3 rows are multiplied by fp8 weights only.
  if constexpr (std::is_same_v<X, __nv_bfloat16> || std::is_same_v<Weight, F8Weight>) {
    if (a.out.dtype == DType::kBF16)
      enqueue<X, __nv_bfloat16>(a, weight, stream);
    else
      enqueue<X, float>(a, weight, stream);
  }
}

cudaError_t launch(const Route& a, const Scratch&, cudaStream_t stream) {
  const Routing r = {static_cast<const float*>(a.x.data),
                     static_cast<const float*>(a.bias.data),
                     static_cast<float*>(a.weights.data),
                     static_cast<int32_t*>(a.experts.data),
                     a.x.stride,
                     a.weights.stride,
                     a.experts.stride,
                     static_cast<int>(a.x.cols),
                     static_cast<int>(a.experts.cols),
                     a.groups,
                     a.groups_kept,
                     a.group_best,
                     a.scoring == Scoring::kSigmoid,
                     a.scoring == Scoring::kSparseMixer,
                     a.renormalise,
                     is_given(a.bias) || a.group_best > 1,
                     a.scale,
                     a.jitter_eps};
  return launch_overlapped(route_kernel, a.experts.rows, static_cast<unsigned>(a.experts.rows),
                           kWarp, 0, stream, r);
}

__global__ void select_experts_kernel(const int32_t* experts, int64_t stride, int picked,
                                      int32_t first, int32_t count, int32_t* out,
                                      int64_t out_stride) {
  wait_for_previous();
  const int32_t* const from = experts + blockIdx.x * stride;
  for (int j = static_cast<int>(threadIdx.x); j < picked; j += kWarp) {
    const int32_t expert = from[j];
    const bool is_here = expert >= first && expert - first < count;
    out[blockIdx.x * out_stride + j] = is_here ? expert - first : -1;
  }
}

cudaError_t launch(const SelectExperts& a, const Scratch&, cudaStream_t stream) {
  return launch_overlapped(select_experts_kernel, a.out.rows, static_cast<unsigned>(a.out.rows),
                           kWarp, 0, stream, static_cast<const int32_t*>(a.experts.data),
                           a.experts.stride, static_cast<int>(a.out.cols), a.first, a.count,
                           static_cast<int32_t*>(a.out.data), a.out.stride);
}

cudaError_t launch(const WeightedSum& a, const Scratch&, cudaStream_t stream) {
  constexpr int64_t kManyRows = 64;
  const int64_t of_block = (a.out.rows < kManyRows ? 1 : 4) * kThreads;
  const int64_t wanted = (a.out.cols + of_block - 1) / of_block;
  const dim3 blocks(static_cast<unsigned>(a.out.rows),
                    static_cast<unsigned>(wanted < 1024 ? wanted : 1024));
  return launch_overlapped(weighted_sum_kernel, a.out.rows, blocks, kThreads, 0, stream,
                           static_cast<const float*>(a.x.data), a.x.stride,
                           static_cast<const float*>(a.weights.data), a.weights.stride,
                           static_cast<int>(a.weights.cols), a.out.cols,
                           static_cast<float*>(a.out.data), a.out.stride);
}

}  // namespace

cudaError_t launch_plain_experts(const ExpertLinear& a, const Scratch&, cudaStream_t stream) {
  with_weight(a.weight, [&](const auto& weight) {
    if (a.x.dtype == DType::kF8E4M3)
      enqueue_out<__nv_fp8_e4m3>(a, weight, stream);
    else
      enqueue_out<__nv_bfloat16>(a, weight, stream);
  });
  return cudaGetLastError();
}

template <>
Row<Route> row<Route>() {
  return {launch};
}
template <>
Row<WeightedSum> row<WeightedSum>() {
  return {launch};
}
template <>
Row<SelectExperts> row<SelectExperts>() {
  return {launch};
}

}  // namespace nereid::kernels::cuda
