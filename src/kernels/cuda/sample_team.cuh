// The blocks that draw a row together, and what they tell each other. A team is a cluster of
// blocks, each with a part of the vocabulary, in the order of ids; where there are no clusters it
// is a block with everything. All threads of a team make the same calls and get the same results.
#pragma once

#include "kernels/api/sample.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kMaxTeam = 8;        // blocks
constexpr int kMaxNumbers = 8;     // that a team adds up at once; a power of two
constexpr int kFew = 128;          // ids that are ordered one by one
constexpr int kCountedIds = 6144;  // ids whose tokens are counted in one pass of the history

static_assert(kFew >= kMaxTopTokens && kThreads % kFew == 0);
static_assert(kMaxTeam <= kMaxNumbers && kMaxNumbers <= kWarps);

// Static shared memory of a block.
struct Scratch {
  uint64_t partial[2][kMaxNumbers][kWarps];  // of warps, in turns: a block's barrier lies between
  uint64_t sent[2][kMaxTeam][kMaxNumbers];   // by the blocks of the team, in turns
  uint64_t arrived[2];                       // barriers that count the bytes of a turn
  double sums[kWarps];
  uint64_t own[kFew];      // elements that this block found
  uint64_t few[kFew];      // and all blocks
  uint64_t weights[kFew];  // of `few`, or those in order
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
    cluster_waits();  // nobody sends before
#endif
  }

  __device__ int rank() const { return rank_; }
  __device__ bool is_first_thread() const { return rank_ == 0 && threadIdx.x == 0; }

  // A barrier for all threads; memory that they wrote before it is there for the others.
  __device__ void meet() const {
#if defined(NEREID_HOPPER)
    if (size_ > 1) {
      cluster_meets();
      return;
    }
#endif
    __syncthreads();
  }

  // Combines each number with those of all threads; 0 changes nothing. Lane l of each warp gets
  // that of x[l % kCount].
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

  // Brings s->own[0 .. s->num_own) of all blocks together in s->few, in no order; returns how many.
  // The caller knows that there is room for them.
  __device__ int gather() {
    __syncthreads();
    const int num_own = s->num_own;
    uint64_t ends[kMaxTeam];  // of each block's, one behind the other
#pragma unroll
    for (int r = 0; r < kMaxTeam; ++r) ends[r] = threadIdx.x == 0 && r >= rank_ ? num_own : 0;
    const uint64_t end = add(ends);  // of the block whose rank is the lane's number
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

  // Lane l gets x[l % kCount] of all lanes together.
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

  // To the same place in a block's shared memory. Nobody reads what a turn sends before all of it
  // is there, and nobody sends in the next turn but one before all have read it: between the two
  // each block waits for something from every other.
  __device__ void send(uint64_t* at, int rank, uint64_t x) {
#if defined(NEREID_HOPPER)
    if (size_ > 1) {
      send_in_cluster(at, static_cast<unsigned>(rank), x, &s->arrived[num_turns_ % 2]);
      return;
    }
#endif
    *at = x;
  }

  // Ends a turn, in which so many numbers come to each block.
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
