// Exchange by the addresses of `in` and `out`, with a barrier in front and behind: sums of large
// messages, columns, broadcasts, messages of two ranks. See exchange.h.
#include "kernels/cuda/comm/exchange.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr unsigned kThreads = 512;

struct Ends {
  const void* in;
  void* out;
  int64_t out_stride;
};

inline __device__ void post(Mail* to, const Ends& ends, uint32_t epoch) {
  to->in = ends.in;
  to->out = ends.out;
  to->out_stride = ends.out_stride;
  store_released(&to->arrived, epoch);
}
// False: the group has ended.
inline __device__ bool take(const Mail* from, uint32_t epoch, int peer, Waiting& waiting,
                            Ends& ends) {
  while (load_acquired(&from->arrived) != epoch)
    if (waiting.ended(peer)) return false;
  const volatile Mail* const mail = from;
  ends = {mail->in, mail->out, mail->out_stride};
  return true;
}
inline __device__ void wait_until_done(const Mail* from, uint32_t epoch, int peer,
                                       Waiting& waiting) {
  while (load_acquired(&from->done) != epoch && !waiting.ended(peer)) {
  }
}

// All ranks meet; each does its share of `work` on all ranks' memory; all meet again.
template <class Work>
__global__ void __launch_bounds__(kThreads)
    meet_kernel(const __grid_constant__ Peers g, const Ends mine,
                const __grid_constant__ Work work) {
  __shared__ Ends ends[kMaxPeers];
  wait_for_previous();
  if (g.begins_next) let_next_begin();
  const uint32_t epoch = load_epoch(g);
  Waiting waiting(g, epoch);
  const int peer = static_cast<int>(threadIdx.x);
  const bool meets = peer < g.size && peer != g.rank;
  Mail* const from = meets ? &g.memory[g.rank]->mail[peer][blockIdx.x] : nullptr;
  Mail* const to = meets ? &g.memory[peer]->mail[g.rank][blockIdx.x] : nullptr;
  bool came = true;
  if (meets) {
    post(to, mine, epoch);
    came = take(from, epoch, peer, waiting, ends[peer]);
  } else if (peer == g.rank) {
    ends[peer] = mine;
  }
  if (__syncthreads_and(came)) {
    work(g, ends);
    __syncthreads();
    if (meets) {
      store_released(&to->done, epoch);
      wait_until_done(from, epoch, peer, waiting);
    }
  }
  __syncthreads();
  advance(g.memory[g.rank]->epochs, epoch);
}

template <class Work>
cudaError_t launch_meeting(const Peers& g, const Ends& ends, const Work& work, unsigned blocks,
                           cudaStream_t stream) {
  return launch_overlapped(meet_kernel<Work>, kMaxGemvRows + 1, blocks, kThreads, 0, stream, g,
                           ends, work);
}

inline __device__ bool is_packets(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

// Rank r adds up items [r * count / size, ...) of all ranks and writes them to all; with kScatter
// row r, which it keeps.
template <class T, int kRanks, bool kScatter>
struct SumShare {
  int64_t count;  // numbers; with kScatter of a row

  __device__ void operator()(const Peers& g, const Ends* ends) const {
    constexpr int64_t kPacket = 16 / sizeof(T);
    bool packets = count % kPacket == 0 && is_packets(ends[g.rank].out);
    for (int p = 0; p < kRanks; ++p)
      packets = packets && is_packets(ends[p].in) && is_packets(ends[p].out);
    if (packets)
      run<4>(g, ends, count / kPacket);
    else
      run_numbers(g, ends);
  }

  static __device__ int64_t share(int64_t items, int rank) { return items * rank / kRanks; }

  template <int kWords>
  __device__ void run(const Peers& g, const Ends* ends, int64_t items) const {
    using X = Packet<kWords>;
    const int64_t begin = kScatter ? 0 : share(items, g.rank);
    const int64_t end = kScatter ? items : share(items, g.rank + 1);
    const int64_t row = kScatter ? g.rank * items : 0;
    const X* in[kRanks];
    X* out[kRanks];
#pragma unroll
    for (int p = 0; p < kRanks; ++p) {
      in[p] = static_cast<const X*>(ends[p].in) + row;
      // Each rank begins with its own, so that not all write to the same card.
      out[p] = static_cast<X*>(ends[kScatter ? p : (g.rank + p) % kRanks].out);
    }
    // Several packets on their way.
    constexpr int kAtOnce = kRanks <= 4 ? 4 : kRanks <= 6 ? 2 : 1;
    const int64_t step = int64_t{gridDim.x} * blockDim.x;
    for (int64_t i = begin + blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < end;
         i += kAtOnce * step) {
      X x[kAtOnce][kRanks];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
#pragma unroll
        for (int p = 0; p < kRanks; ++p)
          if (i + k * step < end) x[k][p] = load_shared_packet(in[p] + i + k * step);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        if (i + k * step >= end) break;
        const X sum = sum_over_ranks<T, kRanks>(x[k]);
#pragma unroll
        for (int p = 0; p < kRanks; ++p)
          if (!kScatter || p == g.rank) store_packet(out[p] + i + k * step, sum);
      }
    }
  }

  __device__ void run_numbers(const Peers& g, const Ends* ends) const {
    const int64_t begin = kScatter ? 0 : share(count, g.rank);
    const int64_t end = kScatter ? count : share(count, g.rank + 1);
    const int64_t row = kScatter ? g.rank * count : 0;
    for (int64_t i = begin + blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < end;
         i += int64_t{gridDim.x} * blockDim.x) {
      float x[kRanks];
#pragma unroll
      for (int p = 0; p < kRanks; ++p) x[p] = load(static_cast<const T*>(ends[p].in) + row + i);
      const float sum = tree_sum<float, 0, kRanks>(Numbers{x}, 0);
#pragma unroll
      for (int p = 0; p < kRanks; ++p)
        if (!kScatter || p == g.rank) store(static_cast<T*>(ends[p].out) + i, sum);
    }
  }
  // One number of each rank, as packets of one word.
  struct Numbers {
    const float* x;
    __device__ Packet<1> operator[](int p) const { return {{__float_as_uint(x[p])}}; }
  };
};

// Copies `rows` rows of `bytes`; all threads of the grid.
template <class X>
inline __device__ void copy_items(const void* from, int64_t from_stride, void* to,
                                  int64_t to_stride, int64_t rows, int64_t bytes) {
  const int64_t items = bytes / static_cast<int64_t>(sizeof(X));
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < rows * items;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / items, column = i % items;
    reinterpret_cast<X*>(static_cast<char*>(to) + row * to_stride)[column] =
        reinterpret_cast<const X*>(static_cast<const char*>(from) + row * from_stride)[column];
  }
}
inline __device__ void copy_rows(const void* from, int64_t from_stride, void* to, int64_t to_stride,
                                 int64_t rows, int64_t bytes) {
  if (from == to) return;
  const auto low = (reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) |
                    static_cast<uintptr_t>(bytes) |
                    (rows > 1 ? static_cast<uintptr_t>(from_stride | to_stride) : 0)) %
                   16;
  if (low == 0)
    copy_items<uint4>(from, from_stride, to, to_stride, rows, bytes);
  else if (low % 4 == 0)
    copy_items<uint32_t>(from, from_stride, to, to_stride, rows, bytes);
  else if (low % 2 == 0)
    copy_items<uint16_t>(from, from_stride, to, to_stride, rows, bytes);
  else
    copy_items<uint8_t>(from, from_stride, to, to_stride, rows, bytes);
}

struct WriteColumns {
  int64_t in_stride, rows, bytes, at;

  __device__ void operator()(const Peers& g, const Ends* ends) const {
    if (rows == 0 || bytes == 0) return;
    for (int p = 0; p < g.size; ++p)
      copy_rows(ends[g.rank].in, in_stride, static_cast<char*>(ends[p].out) + at,
                ends[p].out_stride, rows, bytes);
  }
};

// Waits for the receiver's address, writes there.
__global__ void __launch_bounds__(kThreads)
    send_kernel(const __grid_constant__ Peers g, const void* data, int64_t bytes, int to) {
  __shared__ Ends there;
  wait_for_previous();
  if (g.begins_next) let_next_begin();
  PeerMemory& mine = *g.memory[g.rank];
  const uint32_t number = load_shared_word(&mine.sent[to][blockIdx.x]) + 1;
  bool came = true;
  if (threadIdx.x == 0) {
    Waiting waiting(g, number);
    came = take(&mine.to[to][blockIdx.x], number, to, waiting, there);
  }
  if (__syncthreads_and(came)) {
    copy_rows(data, 0, there.out, 0, 1, bytes);
    __syncthreads();
    if (threadIdx.x == 0) store_released(&g.memory[to]->from[g.rank][blockIdx.x].done, number);
  }
  __syncthreads();
  advance(mine.sent[to], number);
}

__global__ void __launch_bounds__(kThreads)
    recv_kernel(const __grid_constant__ Peers g, void* data, int from) {
  wait_for_previous();
  if (g.begins_next) let_next_begin();
  PeerMemory& mine = *g.memory[g.rank];
  const uint32_t number = load_shared_word(&mine.received[from][blockIdx.x]) + 1;
  if (threadIdx.x == 0) {
    Waiting waiting(g, number);
    post(&g.memory[from]->to[g.rank][blockIdx.x], {nullptr, data, 0}, number);
    wait_until_done(&mine.from[from][blockIdx.x], number, from, waiting);
  }
  __syncthreads();
  advance(mine.received[from], number);
}

// Grid of a message between two ranks: both sides compute the same.
unsigned blocks_of(int64_t bytes) {
  constexpr int64_t kBytes = 16 * kThreads, kMost = 32;
  const int64_t blocks = (bytes + kBytes - 1) / kBytes;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < kMost ? blocks : kMost);
}

}  // namespace

cudaError_t launch_direct_sum(const Peers& peers, const void* in, void* out, int64_t count,
                              DType type, bool scatter, unsigned blocks, cudaStream_t stream) {
  return with_ranks(peers.size, [&]<int kRanks>() {
    const auto run = [&]<class T>(T) {
      const Ends ends = {in, out, 0};
      if (scatter)
        return launch_meeting(peers, ends, SumShare<T, kRanks, true>{count}, blocks, stream);
      return launch_meeting(peers, ends, SumShare<T, kRanks, false>{count}, blocks, stream);
    };
    return type == DType::kBF16 ? run(__nv_bfloat16()) : run(float());
  });
}

cudaError_t launch_columns(const Peers& peers, const Columns& c, unsigned blocks,
                           cudaStream_t stream) {
  return launch_meeting(peers, {c.in, c.out, c.out_stride},
                        WriteColumns{c.in_stride, c.rows, c.bytes, c.at}, blocks, stream);
}

cudaError_t launch_send(const Peers& peers, const void* data, int64_t bytes, int to,
                        cudaStream_t stream) {
  return launch_overlapped(send_kernel, kMaxGemvRows + 1, blocks_of(bytes), kThreads, 0, stream,
                           peers, data, bytes, to);
}

cudaError_t launch_recv(const Peers& peers, void* data, int64_t bytes, int from,
                        cudaStream_t stream) {
  return launch_overlapped(recv_kernel, kMaxGemvRows + 1, blocks_of(bytes), kThreads, 0, stream,
                           peers, data, from);
}

cudaError_t load_direct_kernels(int size) {
  return with_ranks(size, [&]<int kRanks>() {
    for (const cudaError_t error :
         {load_kernel(meet_kernel<SumShare<__nv_bfloat16, kRanks, false>>),
          load_kernel(meet_kernel<SumShare<__nv_bfloat16, kRanks, true>>),
          load_kernel(meet_kernel<SumShare<float, kRanks, false>>),
          load_kernel(meet_kernel<SumShare<float, kRanks, true>>),
          load_kernel(meet_kernel<WriteColumns>), load_kernel(send_kernel),
          load_kernel(recv_kernel)})
      if (error != cudaSuccess) return error;
    return cudaSuccess;
  });
}

}  // namespace nereid::kernels::cuda
