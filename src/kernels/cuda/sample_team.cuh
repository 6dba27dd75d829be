// Blocks that sample a row together. A team is a cluster of blocks, each with a contiguous part of
// the vocabulary; without clusters, one block. All threads of a team make the same calls and get
// the same results.
#pragma once

#include "kernels/api/sample.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxTeam = 8;        // blocks
constexpr int kMaxNumbers = 8;     // summed at once by a team; a power of two
constexpr int kFew = 128;          // ids ranked individually
constexpr int kCountedIds = 6144;  // ids whose tokens are counted in one pass over the history

static_assert(kFew >= kMaxTopTokens && kThreads % kFew == 0);
static_assert(kMaxTeam <= kMaxNumbers && kMaxNumbers <= kWarps);

// Static shared memory of a block.
struct Scratch {
  uint64_t partial[2][kMaxNumbers][kWarps];  // of warps; two buffers: one barrier
  uint64_t sent[2][kMaxTeam][kMaxNumbers];   // by the team's blocks, double-buffered
  uint64_t arrived[2];                       // barriers that count a turn's bytes
  double sums[kWarps];
  uint64_t own[kFew];      // elements found by this block
  uint64_t few[kFew];      // elements of all blocks
  uint64_t weights[kFew];  // of `few`, or the top elements in order
  uint64_t element, before;
  uint32_t counts[kCountedIds];
  int num_own, found, last;
};

__device__ uint64_t from_lane(uint64_t x, int lane) {
  return __shfl_sync(kAllLanes, static_cast<unsigned long long>(x), lane);
}

class Team {
 public:
  // `blocks`: of a cluster, all of which call it.
  __device__ explicit Team(int blocks, Scratch& scratch) : s(&scratch), size_(blocks) {
#if defined(NEREID_HOPPER)
    if (blocks == 1) return;
    rank_ = static_cast<int>(cluster_rank());
    if (threadIdx.x == 0) {
      for (uint64_t& barrier : s->arrived) barrier_init(&barrier, 1);
      barriers_are_ready();
    }
    __syncwarp();
    cluster_arrives();
    cluster_waits();  // no block sends before all have started
#endif
  }

  __device__ int rank() const { return rank_; }
  __device__ bool is_first_thread() const { return rank_ == 0 && threadIdx.x == 0; }

  // Team barrier; makes earlier writes visible to all.
  __device__ void meet() const {
#if defined(NEREID_HOPPER)
    if (size_ > 1) {
      cluster_meets();
      return;
    }
#endif
    __syncthreads();
  }

  // Reduces each number over all threads; 0 is neutral. Lane l of a warp gets x[l % kCount]'s.
  template <int kCount, class Op>
  __device__ uint64_t combine(uint64_t (&x)[kCount], Op op) {
    static_assert(kCount <= kMaxNumbers && (kCount & (kCount - 1)) == 0);
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const int turn = num_turns_ % 2;
    uint64_t mine = combine_in_warp(x, op);
    if (lane < kCount) s->partial[turn][lane][warp] = mine;
    __syncthreads();
    if (warp < kCount) {
      uint64_t all[1] = {lane < kWarps ? s->partial[turn][warp][lane] : 0};
      mine = combine_in_warp(all, op);
      if (lane < size_) send(&s->sent[turn][rank_][warp], lane, mine);
    }
    receive(size_ * kCount);
    mine = 0;
#pragma unroll 1
    for (int r = lane / kCount; r < size_; r += kWarp / kCount)
      mine = op(mine, s->sent[turn][r][lane % kCount]);
#pragma unroll
    for (int step = kCount; step < kWarp; step *= 2) mine = op(mine, exchange(mine, step));
    return mine;
  }

  template <int kCount>
  __device__ uint64_t add(uint64_t (&x)[kCount]) {
    return combine(x, [](uint64_t a, uint64_t b) { return a + b; });
  }
  __device__ uint64_t sum(uint64_t x) {
    uint64_t one[1] = {x};
    return add(one);
  }
  __device__ uint64_t largest(uint64_t x) {
    uint64_t one[1] = {x};
    return combine(one, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }

  // Concatenates s->own[0 .. s->num_own) of all blocks to s->few, unordered; returns the count.
  // Precondition: they fit.
  __device__ int gather() {
    __syncthreads();
    const int num_own = s->num_own;
    uint64_t ends[kMaxTeam];  // prefix sums of the blocks' counts
#pragma unroll
    for (int r = 0; r < kMaxTeam; ++r) ends[r] = threadIdx.x == 0 && r >= rank_ ? num_own : 0;
    const uint64_t end = add(ends);  // of the block with rank = lane
    const int first = rank_ > 0 ? static_cast<int>(from_lane(end, rank_ - 1)) : 0;
    const int count = static_cast<int>(from_lane(end, kMaxTeam - 1));
#pragma unroll 1
    for (int i = threadIdx.x; i < num_own * size_; i += kThreads)
      send(&s->few[first + i / size_], i % size_, s->own[i / size_]);
    receive(count);
    return count;
  }

  Scratch* s;

 private:
  static __device__ uint64_t exchange(uint64_t x, int step) {
    return __shfl_xor_sync(kAllLanes, static_cast<unsigned long long>(x), step);
  }

  // Lane l gets x[l % kCount] reduced over all lanes.
  template <int kCount, class Op>
  static __device__ uint64_t combine_in_warp(uint64_t (&x)[kCount], Op op) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2)
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const bool upper = lane & half;
        const uint64_t given = exchange(upper ? x[i] : x[i + half], half);
        x[i] = op(upper ? x[i + half] : x[i], given);
      }
#pragma unroll
    for (int step = kCount; step < kWarp; step *= 2) x[0] = op(x[0], exchange(x[0], step));
    return x[0];
  }

  // Writes to the same location in a block's shared memory. Double buffering is safe: a block reads
  // a turn's data only when all has arrived, and a turn's buffer is reused two turns later, after
  // every block has received from every other.
  __device__ void send(uint64_t* at, int rank, uint64_t x) {
#if defined(NEREID_HOPPER)
    if (size_ > 1) {
      send_in_cluster(at, static_cast<unsigned>(rank), x, &s->arrived[num_turns_ % 2]);
      return;
    }
#endif
    *at = x;
  }

  // Ends a turn in which each block receives `numbers` numbers.
  __device__ void receive(int numbers) {
    const int turn = num_turns_++;
#if defined(NEREID_HOPPER)
    if (size_ > 1) {
      uint64_t* const barrier = &s->arrived[turn % 2];
      if (threadIdx.x == 0)
        barrier_expect(barrier, static_cast<uint32_t>(numbers) * sizeof(uint64_t));
      barrier_wait(barrier, turn / 2 % 2);
      return;
    }
#endif
    __syncthreads();
  }

  int size_;
  int rank_ = 0;
  int num_turns_ = 0;
};

}  // namespace
}  // namespace nereid::kernels::cuda
