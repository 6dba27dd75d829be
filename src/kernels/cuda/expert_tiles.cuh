// Tiles of the grouped products with experts (experts_hopper.cu), and the pieces that each has.
#pragma once

#include "kernels/cuda/boxes.cuh"
#include "kernels/cuda/expert_lists.cuh"

namespace nereid::kernels::cuda {

struct ExpertParams {
  Picks picks;
  const uint8_t* x;
  const uint8_t* weight;  // MXFP4
  void* out;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // f8e4m3: of outputs and of rows of x
  const float* x_scales;
  Lists lists;
  BoxIntegers integers;
  int64_t x_stride, x_piece;  // bytes
  int64_t out_stride, x_scales_stride;
  int n, x_columns, boxes_k, tiles;  // n: rows of an expert's weight
  Activation activation;             // gated
  float limit, up_offset;
  bool lists_pieces;  // each block builds the lists in shared memory
  bool stores_pairs;  // bf16 results can be stored two at a time
};

#if defined(NEREID_HOPPER)

// Outputs of an expert for some of its pieces.
struct ExpertTile {
  int expert, tile;  // tile: of kTileParts * kOutputs outputs
  int first, rows;   // in the list of pieces
};

// A tile's rows: where a piece of out begins, in elements, and the scale of x.
template <int kRows>
struct RowTable {
  int64_t out[kRows];
  float scale[kRows];
};

template <int kRows, int kBlockThreads>
struct Work {
  int first_piece[kLines + 1], first_chunk[kLines + 1];
  const int32_t* pieces;
  int32_t own_pieces[kBlockThreads];
  int partial[kBlockThreads / kWarp];
  RowTable<kRows> rows[2];  // of tiles in turn

  // All threads.
  __device__ void list(const ExpertParams& p) {
    if (threadIdx.x == 0) pieces = p.lists_pieces ? own_pieces : p.lists.pieces;
    if (p.lists_pieces)
      make(p);
    else
      for (int i = static_cast<int>(threadIdx.x); i <= p.picks.num_experts + 1; i += kBlockThreads)
        first_piece[i] = p.lists.first_piece[i], first_chunk[i] = p.lists.first_chunk[i];
    __syncthreads();
  }
  // The lists of list_kernel(), at most one piece per thread, stable order: the same in all blocks.
  __device__ void make(const ExpertParams& p) {
    const int piece = static_cast<int>(threadIdx.x), lines = p.picks.num_experts + 1;
    for (int i = piece; i < lines; i += kBlockThreads) first_piece[i] = 0;
    const bool exists = piece < p.picks.num_pieces;
    const int line = exists ? p.picks.line(piece / p.picks.picked, piece % p.picks.picked) : -1;
    __syncthreads();
    int before = 0;  // earlier pieces of its line
    for (int first = 0; first < p.picks.num_pieces; first += kWarp) {
      if (piece / kWarp == first / kWarp) {
        const unsigned same = __match_any_sync(kAllLanes, line);
        if (exists) before = first_piece[line] + __popc(same & ((1u << piece % kWarp) - 1));
        __syncwarp();
        if (exists && same >> piece % kWarp == 1) first_piece[line] = before + 1;
      }
      __syncthreads();
    }
    // Adjacent lines per thread.
    const int of_thread = (lines + kBlockThreads - 1) / kBlockThreads;
    const int begin = piece * of_thread, end = min(begin + of_thread, lines);
    const auto chunks_of = [](int count) { return (count + kRows - 1) / kRows; };
    int count = 0, chunks = 0;
    for (int i = begin; i < end; ++i) count += first_piece[i], chunks += chunks_of(first_piece[i]);
    int at = running_sum(count, partial) - count, chunk = running_sum(chunks, partial) - chunks;
    for (int i = begin; i < end; ++i) {
      const int here = first_piece[i];
      first_piece[i] = at, first_chunk[i] = chunk;
      at += here, chunk += chunks_of(here);
      if (i + 1 == lines) first_piece[lines] = at, first_chunk[lines] = chunk;
    }
    __syncthreads();
    if (exists) own_pieces[first_piece[line] + before] = piece;
  }
  // Calls f for each tile of this block.
  template <class F>
  __device__ void for_each(const ExpertParams& p, F f) const {
    const int num_tiles = first_chunk[p.picks.num_experts + 1] * p.tiles;
    for (int i = static_cast<int>(blockIdx.x); i < num_tiles; i += static_cast<int>(gridDim.x)) {
      // The last expert with first_chunk <= chunk.
      int low = 0, high = p.picks.num_experts;
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (first_chunk[middle] <= i / p.tiles)
          low = middle;
        else
          high = middle - 1;
      }
      const int own = i - first_chunk[low] * p.tiles;
      const int chunks = first_chunk[low + 1] - first_chunk[low];
      const int first = first_piece[low] + own % chunks * kRows;
      f(ExpertTile{low, own / chunks, first, min(kRows, first_piece[low + 1] - first)});
    }
  }
};

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
