// Device functions of the exchange between GPUs: words that are their own flags, bounded waits, the
// sum over ranks. See exchange.h.
#pragma once

#include "kernels/cuda/comm/exchange.h"
#include "kernels/cuda/device.cuh"

namespace nereid::kernels::cuda {

// kWords words that are read and written at once.
template <int kWords>
struct Packet {
  uint32_t words[kWords];

  __device__ bool is_full() const {
    bool full = true;
#pragma unroll
    for (const uint32_t word : words) full = full && word != kEmpty;
    return full;
  }
  // Without kEmpty: another NaN.
  __device__ Packet sendable() const {
    Packet other;
#pragma unroll
    for (int w = 0; w < kWords; ++w) other.words[w] = words[w] == kEmpty ? 0x7fffffffu : words[w];
    return other;
  }
};

// Relaxed accesses at system scope: not kept in the L1 cache, visible to the other cards.
inline __device__ Packet<4> load_shared_packet(const Packet<4>* p) {
  Packet<4> x;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.words[0]), "=r"(x.words[1]), "=r"(x.words[2]), "=r"(x.words[3])
               : "l"(p)
               : "memory");
  return x;
}
inline __device__ Packet<2> load_shared_packet(const Packet<2>* p) {
  Packet<2> x;
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.words[0]), "=r"(x.words[1])
               : "l"(p)
               : "memory");
  return x;
}
inline __device__ void store_shared_packet(Packet<4>* p, const Packet<4>& x) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.words[0]),
               "r"(x.words[1]), "r"(x.words[2]), "r"(x.words[3])
               : "memory");
}
inline __device__ void store_shared_packet(Packet<2>* p, const Packet<2>& x) {
  asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(x.words[0]),
               "r"(x.words[1])
               : "memory");
}
template <int kWords>
inline __device__ void empty(Packet<kWords>* p) {
  Packet<kWords> x;
#pragma unroll
  for (uint32_t& word : x.words) word = kEmpty;
  store_shared_packet(p, x);
}
template <int kWords>
inline __device__ Packet<kWords> load_packet(const void* from) {
  if constexpr (kWords == 4) {
    const uint4 x = *static_cast<const uint4*>(from);
    return {x.x, x.y, x.z, x.w};
  } else {
    const uint2 x = *static_cast<const uint2*>(from);
    return {x.x, x.y};
  }
}
inline __device__ void store_packet(void* to, const Packet<4>& x) {
  *static_cast<uint4*>(to) = make_uint4(x.words[0], x.words[1], x.words[2], x.words[3]);
}

inline __device__ uint32_t load_shared_word(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
inline __device__ void store_shared_word(uint32_t* p, uint32_t x) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
inline __device__ uint32_t load_acquired(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
inline __device__ void store_released(uint32_t* p, uint32_t x) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
inline __device__ uint64_t nanoseconds() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// This call's number; the half of the buffers follows from it.
inline __device__ uint32_t load_epoch(const Peers& g) {
  return load_shared_word(&g.memory[g.rank]->epochs[blockIdx.x]) + 1;
}
// Called by all threads of a block when none of them will read the epoch again.
inline __device__ void advance(uint32_t* counters, uint32_t epoch) {
  for (unsigned i = blockIdx.x + threadIdx.x * gridDim.x; i < kMaxExchangeBlocks;
       i += blockDim.x * gridDim.x)
    store_shared_word(&counters[i], epoch);
}

// A thread's waits in a call.
class Waiting {
 public:
  __device__ Waiting(const Peers& g, uint32_t epoch) : g_(g), epoch_(epoch) {}

  // Called after each look in vain: whether the group has ended, and waiting with it. `peer`: for
  // whom, for the message.
  __device__ bool ended(int peer) {
    constexpr uint32_t kLooks = 1024;
    if (ended_) return true;
    if (++looks_ % kLooks != 0) return false;
    return look_at_clock(peer);
  }
  __device__ bool has_ended() const { return ended_; }

 private:
  __device__ bool look_at_clock(int peer) {
    const uint64_t time = nanoseconds();
    if (start_ == 0) start_ = time;
    if (load_shared_word(&g_.control->ended) != 0) return ended_ = true;
    if (time - start_ < g_.limit_ns) return false;
    Control::Waited* const waited = &g_.control->waited[g_.rank];
    store_shared_word(&waited->epoch, epoch_);
    store_shared_word(&waited->peer, static_cast<uint32_t>(peer) + 1);
    store_released(&g_.control->ended, 1);
    return ended_ = true;
  }

  const Peers& g_;
  const uint32_t epoch_;
  uint32_t looks_ = 0;
  bool ended_ = false;
  uint64_t start_ = 0;  // of the waits of this call
};

// Number i of a packet as f32.
template <class T, int kWords>
inline __device__ float number(const Packet<kWords>& x, int i) {
  if constexpr (sizeof(T) == 4) return __uint_as_float(x.words[i]);
  const float2 pair = unpack(x.words[i / 2]);
  return i % 2 == 0 ? pair.x : pair.y;
}

// Sum of number i over ranks [kFirst, kFirst + kCount), see Communicator.
template <class T, int kFirst, int kCount, class Packets>
inline __device__ float tree_sum(const Packets& x, int i) {
  if constexpr (kCount == 1) {
    return number<T>(x[kFirst], i);
  } else {
    constexpr int kHalf = kCount > 4 ? 4 : kCount > 2 ? 2 : 1;  // power of two below kCount <= 8
    return __fadd_rn(tree_sum<T, kFirst, kHalf>(x, i),
                     tree_sum<T, kFirst + kHalf, kCount - kHalf>(x, i));
  }
}

// Sum over all ranks, rounded to T once.
template <class T, int kRanks, int kWords>
inline __device__ Packet<kWords> sum_over_ranks(const Packet<kWords> (&x)[kRanks]) {
  Packet<kWords> sum;
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    if constexpr (sizeof(T) == 4)
      sum.words[w] = __float_as_uint(tree_sum<T, 0, kRanks>(x, w));
    else
      sum.words[w] = pack(tree_sum<T, 0, kRanks>(x, 2 * w), tree_sum<T, 0, kRanks>(x, 2 * w + 1));
  }
  return sum;
}

// Where the packets of a message of `count` packets lie in a half, in units of packets.
//   one-shot: a slot of `count` for each sender.
//   two-shot: chunks of 32 packets, owned in turn. At its owner a slot for each sender, with the
//   owner's chunks; behind them the sums, `count`.
template <int kRanks, bool kTwoShot>
struct Layout {
  int64_t slot;
  __device__ __host__ explicit Layout(int64_t count)
      : slot(kTwoShot ? ((count + 31) / 32 + kRanks - 1) / kRanks * 32 : count) {}
  __device__ static int owner(int64_t i) { return static_cast<int>(i / 32 % kRanks); }
  __device__ int64_t scattered(int from, int64_t i) const {
    return from * slot + (kTwoShot ? i / 32 / kRanks * 32 + i % 32 : i);
  }
  __device__ int64_t gathered(int64_t i) const { return kRanks * slot + i; }
};

template <int kWords>
inline __device__ Packet<kWords>* half_of(const Peers& g, int rank, uint32_t epoch) {
  return reinterpret_cast<Packet<kWords>*>(g.memory[rank]->halves[epoch % 2]);
}

// Waits for packet i of all other ranks, empties their places; returns the sum.
template <class T, int kRanks, bool kTwoShot, int kWords>
inline __device__ Packet<kWords> take_sum(const Peers& g, const Layout<kRanks, kTwoShot>& layout,
                                          Packet<kWords>* half, int64_t i,
                                          const Packet<kWords>& own, Waiting& waiting) {
  Packet<kWords> x[kRanks];
  for (;;) {
    int missing = -1;
#pragma unroll
    for (int p = 0; p < kRanks; ++p)
      if (p != g.rank) x[p] = load_shared_packet(half + layout.scattered(p, i));
#pragma unroll
    for (int p = 0; p < kRanks; ++p)
      if (p != g.rank && !x[p].is_full()) missing = p;
    if (missing < 0 || waiting.ended(missing)) break;
  }
#pragma unroll
  for (int p = 0; p < kRanks; ++p) {
    if (p == g.rank)
      x[p] = own;
    else
      empty(half + layout.scattered(p, i));
  }
  return sum_over_ranks<T, kRanks>(x);
}

// Waits for sum i of its owner, and empties its place.
template <int kRanks, bool kTwoShot, int kWords>
inline __device__ Packet<kWords> take_gathered(const Layout<kRanks, kTwoShot>& layout,
                                               Packet<kWords>* half, int64_t i, Waiting& waiting) {
  Packet<kWords>* const at = half + layout.gathered(i);
  Packet<kWords> x = load_shared_packet(at);
  while (!x.is_full() && !waiting.ended(layout.owner(i))) x = load_shared_packet(at);
  empty(at);
  return x;
}

// Calls f with the number of ranks as template argument; cudaErrorInvalidValue: not 2 to kMaxPeers.
template <class F>
cudaError_t with_ranks(int size, const F& f) {
  switch (size) {
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    case 4:
      return f.template operator()<4>();
    case 5:
      return f.template operator()<5>();
    case 6:
      return f.template operator()<6>();
    case 7:
      return f.template operator()<7>();
    case 8:
      return f.template operator()<8>();
    default:
      return cudaErrorInvalidValue;
  }
}

// Loads a kernel on the current device.
template <class Kernel>
cudaError_t load_kernel(Kernel kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace nereid::kernels::cuda
