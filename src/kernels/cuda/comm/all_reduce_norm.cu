// One-shot and two-shot sums over ranks with residual and RMS norm; see exchange.h. A row is the
// work of one block, or of a cluster of blocks that are numbered as one, so the norm's sums are
// those of Norm's kernel, bit by bit.
#include "kernels/cuda/comm/exchange.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/residual_norm.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kMaxWarps = kMaxNormThreads / kWarp;
constexpr unsigned kMaxCluster = 8;
constexpr int kWords = 2;  // four numbers
constexpr int64_t kPacketBytes = 8;

// Vectors of four numbers in a row's place in the buffers: some are not used.
template <int kKept>
__host__ __device__ constexpr int64_t packets_per_row(int64_t threads) {
  return kKept * threads;
}

// A row's sums over all its warps; all threads of the row call it.
inline __device__ RowSums row_sums(const RowSums& mine, RowSums* partial, unsigned warps,
                                   unsigned cluster, unsigned first_warp) {
  const unsigned warp = first_warp + threadIdx.x / kWarp;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (cluster > 1) {
    cluster_waits();  // all blocks have started
    const auto* const to = reinterpret_cast<const uint32_t*>(&partial[warp]);
    if (const unsigned lane = threadIdx.x % kWarp; lane < cluster) {
      store_in_cluster(to, lane, __float_as_uint(mine.squares));
      store_in_cluster(to + 1, lane, mine.largest);
    }
    cluster_meets();
    return sum_warps(partial, warps);
  }
#endif
  if (threadIdx.x % kWarp == 0) partial[warp] = mine;
  __syncthreads();
  return sum_warps(partial, warps);
}

template <class Out, int kRanks, bool kTwoShot, int kKeptNumbers>
__global__ void __launch_bounds__(kMaxNormThreads)
    all_reduce_norm_kernel(const __grid_constant__ Peers g, const __grid_constant__ NormRows p,
                           unsigned cluster, float per_width) {
  constexpr int kKept = kKeptNumbers / 4;
  __shared__ alignas(8) RowSums partial[kMaxWarps];
  const int64_t row = blockIdx.x / cluster;
  const unsigned threads = blockDim.x * cluster;  // of a row
  const unsigned thread = blockIdx.x % cluster * blockDim.x + threadIdx.x;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (cluster > 1) cluster_arrives();
#endif
  const auto for_each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (const int c = static_cast<int>(4 * (thread + i * threads)); c < p.width) f(i, c);
  };
  // Weights do not depend on the previous kernel.
  Pairs<4> weights[kKept];
  const auto* const weight = static_cast<const __nv_bfloat16*>(p.weight);
  for_each([&](int i, int c) { weights[i] = Pairs<4>(weight + c); });
  wait_for_previous();
  if (g.begins_next) let_next_begin();
  const uint32_t epoch = load_epoch(g);
  const Layout<kRanks, kTwoShot> layout(p.rows * packets_per_row<kKept>(threads));
  const auto packet = [&](int i) {
    return row * packets_per_row<kKept>(threads) + i * threads + thread;
  };
  Packet<kWords> x[kKept];
  const auto* const from = static_cast<const __nv_bfloat16*>(p.x) + row * p.width;
  for_each([&](int i, int c) { x[i] = load_packet<kWords>(from + c).sendable(); });
  float* const total = p.sum + row * p.sum_stride;
  for_each([&](int i, int) {
#pragma unroll
    for (int q = 0; q < kRanks; ++q)
      if (q != g.rank && (!kTwoShot || q == layout.owner(packet(i))))
        store_shared_packet(half_of<kWords>(g, q, epoch) + layout.scattered(g.rank, packet(i)),
                            x[i]);
  });
  Vector<4> kept[kKept];
  for_each([&](int i, int c) { kept[i] = Vector<4>(total + c); });
  Packet<kWords>* const half = half_of<kWords>(g, g.rank, epoch);
  Waiting waiting(g, epoch);
  for_each([&](int i, int) {
    if (kTwoShot && layout.owner(packet(i)) != g.rank) return;
    x[i] = take_sum<__nv_bfloat16>(g, layout, half, packet(i), x[i], waiting);
    if constexpr (kTwoShot) {
      const Packet<kWords> sent = x[i].sendable();
#pragma unroll
      for (int q = 0; q < kRanks; ++q)
        if (q != g.rank)
          store_shared_packet(half_of<kWords>(g, q, epoch) + layout.gathered(packet(i)), sent);
    }
  });
  if constexpr (kTwoShot)
    for_each([&](int i, int) {
      if (layout.owner(packet(i)) != g.rank) x[i] = take_gathered(layout, half, packet(i), waiting);
    });
  float squares = 0, largest = 0;
  for_each([&](int i, int c) {
    Pairs<4> add;
    add.words[0] = x[i].words[0], add.words[1] = x[i].words[1];
    add_residual<sizeof(Out) == 1>(kept[i], add, weights[i], p.weight_offset, total + c, squares,
                                   largest);
  });
  const RowSums sums = row_sums(warp_sums(squares, largest), partial, threads / kWarp, cluster,
                                blockIdx.x % cluster * (blockDim.x / kWarp));
  write_normed(kept, sums, per_width, p.eps, static_cast<Out*>(p.out) + row * p.out_stride,
               sizeof(Out) == 1 && thread == 0 ? p.scales + row * p.scales_stride : nullptr,
               for_each);
  advance(g.memory[g.rank]->epochs, epoch);
}

// Blocks of a row: as many as keep all blocks resident beside each other.
unsigned cluster_of(const NormRows& p, int num_units) {
  const auto warps = static_cast<unsigned>(residual_norm_threads(p.width) / kWarp);
  unsigned cluster = kMaxCluster;
  while (cluster > 1 && (warps % cluster != 0 || p.rows * cluster > num_units)) cluster /= 2;
  return cluster;
}

template <class Out, int kRanks, bool kTwoShot>
cudaError_t launch(const Peers& g, const NormRows& p, unsigned cluster, cudaStream_t stream) {
  const auto kernel = p.width <= kMaxNormThreads * kFewNumbers
                          ? all_reduce_norm_kernel<Out, kRanks, kTwoShot, kFewNumbers>
                          : all_reduce_norm_kernel<Out, kRanks, kTwoShot, kMostNumbers>;
  const auto threads = static_cast<unsigned>(residual_norm_threads(p.width));
  return launch_overlapped_clusters(kernel, p.rows, static_cast<unsigned>(p.rows) * cluster,
                                    cluster, threads / cluster, 0, stream, g, p, cluster,
                                    1.0f / static_cast<float>(p.width));
}

}  // namespace

bool fits_exchange_norm(const NormRows& p, bool two_shot, int size, int num_units) {
  const auto is_vector = [](const void* data, int64_t stride, int bytes) {
    return reinterpret_cast<uintptr_t>(data) % bytes == 0 && stride % 4 == 0;
  };
  const int kept = p.width <= kMaxNormThreads * kFewNumbers ? kFewNumbers : kMostNumbers;
  const int64_t packets = p.rows * kept / 4 * residual_norm_threads(p.width);
  // Two ranks of one card need room for both.
  return p.width % 4 == 0 && p.width <= kMaxNormThreads * kMostNumbers && p.rows > 0 &&
         p.rows <= num_units && p.rows <= kMaxExchangeBlocks &&
         fits_half(two_shot, packets * kPacketBytes, size) && is_vector(p.x, 0, 8) &&
         is_vector(p.sum, p.sum_stride, 16) && is_vector(p.weight, 0, 8) &&
         is_vector(p.out, p.out_stride, p.scales ? 4 : 8);
}

cudaError_t launch_exchange_norm(const Peers& peers, const NormRows& rows, bool two_shot,
                                 int num_units, bool clusters, cudaStream_t stream) {
  const unsigned cluster = clusters ? cluster_of(rows, num_units) : 1;
  return with_ranks(peers.size, [&]<int kRanks>() {
    const auto run = rows.scales
                         ? two_shot ? launch<uint8_t, kRanks, true> : launch<uint8_t, kRanks, false>
                     : two_shot ? launch<__nv_bfloat16, kRanks, true>
                                : launch<__nv_bfloat16, kRanks, false>;
    return run(peers, rows, cluster, stream);
  });
}

cudaError_t load_exchange_norm_kernels(int size) {
  const auto load = [&]<class Out, int kRanks, bool kTwoShot>() {
    const cudaError_t error =
        load_kernel(all_reduce_norm_kernel<Out, kRanks, kTwoShot, kFewNumbers>);
    return error != cudaSuccess
               ? error
               : load_kernel(all_reduce_norm_kernel<Out, kRanks, kTwoShot, kMostNumbers>);
  };
  return with_ranks(size, [&]<int kRanks>() {
    for (const cudaError_t error : {load.template operator()<uint8_t, kRanks, true>(),
                                    load.template operator()<uint8_t, kRanks, false>(),
                                    load.template operator()<__nv_bfloat16, kRanks, true>(),
                                    load.template operator()<__nv_bfloat16, kRanks, false>()})
      if (error != cudaSuccess) return error;
    return cudaSuccess;
  });
}

}  // namespace nereid::kernels::cuda
