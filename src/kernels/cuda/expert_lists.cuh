// Pieces, (row, selected expert) pairs, listed by line: an expert, or no expert.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {

inline constexpr int kListThreads = 1024;
inline constexpr int kLines = kListThreads;  // experts, and one line for pieces without an expert
inline constexpr int kMostListBlocks = 64, kPiecesPerListBlock = 2048;
inline constexpr size_t kListBytes = (2 * kLines + 2 + kMostListBlocks * kLines) * sizeof(int32_t);

// Pieces by line, and the first piece of each line.
struct Lists {
  int32_t* first_piece;  // [lines + 1]
  int32_t* first_chunk;  // [lines + 1], of <= kRows pieces
  int32_t* counts;       // [list blocks, kLines]
  int32_t* pieces;
};

struct Picks {
  const int32_t* experts;
  int64_t stride;
  int num_experts, picked, num_pieces;

  __device__ int line(int row, int pick) const {
    const int32_t e = experts[row * stride + pick];
    return e < 0 || e >= num_experts ? num_experts : e;
  }
};

// Inclusive prefix sum over the block's threads.
inline __device__ int running_sum(int x, int* partial) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int step = 1; step < kWarp; step *= 2) {
    const int before = __shfl_up_sync(kAllLanes, x, step);
    if (lane >= step) x += before;
  }
  if (lane == kWarp - 1) partial[warp] = x;
  __syncthreads();
  for (int w = 0; w < warp; ++w) x += partial[w];
  __syncthreads();
  return x;
}

// Calls f(piece, line) for the pieces of this thread's rows, of this block's share.
template <class F>
__device__ void for_lines(const Picks& p, F f) {
  constexpr int kAhead = 8;  // loads in flight
  const int rows = p.num_pieces / p.picked, blocks = static_cast<int>(gridDim.x);
  const int of_block = (rows + blocks - 1) / blocks;
  const int begin = static_cast<int>(blockIdx.x) * of_block, end = min(begin + of_block, rows);
  for (int row = begin + static_cast<int>(threadIdx.x); row < end; row += kListThreads)
    for (int first = 0; first < p.picked; first += kAhead) {
      int lines[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < p.picked) lines[i] = p.line(row, first + i);
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
        if (first + i < p.picked) f(row * p.picked + first + i, lines[i]);
    }
}

// Pieces of each line in each block's share.
static __global__ void __launch_bounds__(kListThreads) count_kernel(Picks p, Lists lists) {
  __shared__ int counts[kLines];
  const int line = static_cast<int>(threadIdx.x);
  counts[line] = 0;
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  for_lines(p, [&](int, int own) { atomicAdd(counts + own, 1); });
  __syncthreads();
  lists.counts[blockIdx.x * kLines + line] = counts[line];
}

// One thread per line. Several blocks: behind count_kernel().
static __global__ void __launch_bounds__(kListThreads) list_kernel(Picks p, int rows, Lists lists) {
  __shared__ int counts[kLines], partial[kListThreads / kWarp];
  const int line = static_cast<int>(threadIdx.x);
  int count = 0, before = 0;  // of the line; of it in front of this block's share
  counts[line] = 0;
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  if (gridDim.x == 1) {
    for_lines(p, [&](int, int own) { atomicAdd(counts + own, 1); });
    __syncthreads();
    count = counts[line];
  } else {
    for (unsigned block = 0; block < gridDim.x; ++block) {
      if (block == blockIdx.x) before = count;
      count += __ldcg(lists.counts + block * kLines + line);
    }
  }
  const int chunks = (count + rows - 1) / rows;
  const int end = running_sum(count, partial), chunk_end = running_sum(chunks, partial);
  counts[line] = end - count + before;
  if (blockIdx.x == 0) {
    if (line == 0) lists.first_piece[0] = lists.first_chunk[0] = 0;
    if (line <= p.num_experts) {
      lists.first_piece[line + 1] = end;
      lists.first_chunk[line + 1] = chunk_end;
    }
  }
  __syncthreads();
  for_lines(p, [&](int piece, int own) { lists.pieces[atomicAdd(counts + own, 1)] = piece; });
}

}  // namespace nereid::kernels::cuda
