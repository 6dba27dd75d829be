// One-shot and two-shot sums over ranks whose data is its own flag; see exchange.h.
#include "kernels/cuda/comm/exchange.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr unsigned kMaxThreads = 512;
constexpr int kWords = 4;
constexpr int64_t kPacketBytes = 16;

// Each thread has packets blockIdx.x * blockDim.x + threadIdx.x, + all threads, ...: a warp's are
// one chunk, with one owner. The first stays in registers.
template <class T, int kRanks, bool kTwoShot>
__global__ void __launch_bounds__(kMaxThreads)
    all_reduce_kernel(const __grid_constant__ Peers g, const Packet<kWords>* in,
                      Packet<kWords>* out, int64_t count) {
  const Layout<kRanks, kTwoShot> layout(count);
  const int64_t first = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  wait_for_previous();
  if (g.begins_next) let_next_begin();
  const uint32_t epoch = load_epoch(g);
  Packet<kWords> kept;
  if (first < count) kept = load_packet<kWords>(in + first).sendable();
  Packet<kWords>* const half = half_of<kWords>(g, g.rank, epoch);
  for (int64_t i = first; i < count; i += step) {
    const Packet<kWords> x = i == first ? kept : load_packet<kWords>(in + i).sendable();
#pragma unroll
    for (int p = 0; p < kRanks; ++p)
      if (p != g.rank && (!kTwoShot || p == layout.owner(i)))
        store_shared_packet(half_of<kWords>(g, p, epoch) + layout.scattered(g.rank, i), x);
  }
  Waiting waiting(g, epoch);
  for (int64_t i = first; i < count; i += step) {
    if (kTwoShot && layout.owner(i) != g.rank) continue;
    const Packet<kWords> own = i == first ? kept : load_packet<kWords>(in + i);
    const Packet<kWords> sum = take_sum<T>(g, layout, half, i, own, waiting);
    if constexpr (kTwoShot) {
      const Packet<kWords> sent = sum.sendable();
#pragma unroll
      for (int p = 0; p < kRanks; ++p)
        if (p != g.rank)
          store_shared_packet(half_of<kWords>(g, p, epoch) + layout.gathered(i), sent);
    }
    store_packet(out + i, sum);
  }
  if constexpr (kTwoShot) {
    for (int64_t i = first; i < count; i += step)
      if (layout.owner(i) != g.rank) store_packet(out + i, take_gathered(layout, half, i, waiting));
  }
  __syncthreads();
  advance(g.memory[g.rank]->epochs, epoch);
}

template <class T, int kRanks, bool kTwoShot>
cudaError_t launch(const Peers& g, const Shape& shape, const void* in, void* out, int64_t packets,
                   cudaStream_t stream) {
  // Rows are not known here: up to this size a message is one of few rows.
  constexpr int64_t kFewRowsBytes = 64 << 10;
  const int64_t rows = packets * kPacketBytes <= kFewRowsBytes ? 1 : kMaxGemvRows + 1;
  const int64_t blocks = (packets + shape.threads - 1) / shape.threads;
  const auto grid = static_cast<unsigned>(blocks < shape.max_blocks ? blocks : shape.max_blocks);
  return launch_overlapped(all_reduce_kernel<T, kRanks, kTwoShot>, rows, grid, shape.threads, 0,
                           stream, g, static_cast<const Packet<kWords>*>(in),
                           static_cast<Packet<kWords>*>(out), packets);
}

}  // namespace

bool fits_half(bool two_shot, int64_t bytes, int size) {
  const int64_t chunk = 32 * kPacketBytes;
  if (two_shot) return 2 * bytes + (size + 1) * chunk <= static_cast<int64_t>(kHalfBytes);
  return size * bytes <= static_cast<int64_t>(kHalfBytes);
}

bool fits_exchange(const void* in, const void* out, int64_t bytes) {
  return is_aligned(in) && is_aligned(out) && bytes % kPacketBytes == 0;
}

cudaError_t launch_exchange(const Peers& peers, const Shape& shape, const void* in, void* out,
                            int64_t count, DType type, cudaStream_t stream) {
  const int64_t packets = count * static_cast<int64_t>(size_of(type)) / kPacketBytes;
  return with_ranks(peers.size, [&]<int kRanks>() {
    const auto run = type == DType::kBF16 ? shape.two_shot ? launch<__nv_bfloat16, kRanks, true>
                                                           : launch<__nv_bfloat16, kRanks, false>
                     : shape.two_shot ? launch<float, kRanks, true>
                                          : launch<float, kRanks, false>;
    return run(peers, shape, in, out, packets, stream);
  });
}

cudaError_t load_exchange_kernels(int size) {
  return with_ranks(size, [&]<int kRanks>() {
    for (const cudaError_t error : {load_kernel(all_reduce_kernel<__nv_bfloat16, kRanks, false>),
                                    load_kernel(all_reduce_kernel<__nv_bfloat16, kRanks, true>),
                                    load_kernel(all_reduce_kernel<float, kRanks, false>),
                                    load_kernel(all_reduce_kernel<float, kRanks, true>)})
      if (error != cudaSuccess) return error;
    return cudaSuccess;
  });
}

cudaError_t clear_peer_memory(PeerMemory* memory, cudaStream_t stream) {
  if (const cudaError_t error = cudaMemsetAsync(memory, 0, offsetof(PeerMemory, halves), stream);
      error != cudaSuccess)
    return error;
  return cudaMemsetAsync(memory->halves, 0xff, sizeof memory->halves, stream);
}

}  // namespace nereid::kernels::cuda
