// Grouped products with selected experts by wgmma. Piece: a (row, selected expert) pair. One block
// lists the pieces per expert, or each block does if there are few; then each SM takes tiles:
// outputs of an expert for up to kRows of its pieces. Producer warps load weight boxes by TMA and
// gather rows of x; the others multiply. Tiles with the same outputs of an expert are adjacent, so
// that the weight is read from memory once. The order of sums over k is fixed; f8e4m3 results still
// depend on kRows.
#include <algorithm>

#include "kernels/cuda/boxes.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/overlap.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kListThreads = 1024;
constexpr int kLines = kListThreads;  // experts, and one line for pieces without an expert
constexpr int kProducers = 128;
constexpr size_t kListBytes = (2 * kLines + 2) * sizeof(int32_t);

template <int kRows>
constexpr int kThreads = kGroups<kRows>* kGroupThreads + kProducers;

// Pieces by line, and the first piece of each line.
struct Lists {
  int32_t* first_piece;  // [lines + 1]
  int32_t* first_chunk;  // [lines + 1], of <= kRows pieces
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
__device__ int running_sum(int x, int* partial) {
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

// Calls f(piece, line) for the pieces of this thread's rows (stride kListThreads).
template <class F>
__device__ void for_lines(const Picks& p, F f) {
  constexpr int kAhead = 8;  // loads in flight
  const int rows = p.num_pieces / p.picked;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += kListThreads)
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

// One block, one thread per line.
__global__ void __launch_bounds__(kListThreads) list_kernel(Picks p, int rows, Lists lists) {
  __shared__ int counts[kLines], partial[kListThreads / kWarp];
  const int line = static_cast<int>(threadIdx.x);
  counts[line] = 0;
  __syncthreads();
  wait_for_previous();
  let_next_begin();
  for_lines(p, [&](int, int own) { atomicAdd(counts + own, 1); });
  __syncthreads();
  const int count = counts[line], chunks = (count + rows - 1) / rows;
  const int end = running_sum(count, partial), chunk_end = running_sum(chunks, partial);
  counts[line] = end - count;
  if (line == 0) lists.first_piece[0] = lists.first_chunk[0] = 0;
  if (line <= p.num_experts) {
    lists.first_piece[line + 1] = end;
    lists.first_chunk[line + 1] = chunk_end;
  }
  __syncthreads();
  for_lines(p, [&](int piece, int own) { lists.pieces[atomicAdd(counts + own, 1)] = piece; });
}

struct Params {
  Picks picks;
  const uint8_t* x;
  void* out;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // f8e4m3: of outputs and of rows of x
  const float* x_scales;
  Lists lists;
  BoxIntegers integers;
  int64_t x_stride, x_piece;  // bytes
  int64_t out_stride, x_scales_stride;
  int n, k, boxes_k, tiles;
  bool lists_pieces;  // each block builds the lists in shared memory
};

#if defined(NEREID_HOPPER)

constexpr int kRowPieces = kDepthBytes / 16;        // of a row of x in a box
constexpr int kTurnRows = kProducers / kRowPieces;  // gathered at once

// Outputs of an expert for some of its pieces.
struct Tile {
  int expert, tile;  // tile: of kGroups * kPart outputs
  int first, rows;   // in the list of pieces
};

template <int kRows>
struct Work {
  int first_piece[kLines + 1], first_chunk[kLines + 1];
  const int32_t* pieces;
  int32_t own_pieces[kThreads<kRows>];
  int partial[kThreads<kRows> / kWarp];

  // All threads.
  __device__ void list(const Params& p) {
    if (threadIdx.x == 0) pieces = p.lists_pieces ? own_pieces : p.lists.pieces;
    if (p.lists_pieces)
      make(p);
    else
      for (int i = static_cast<int>(threadIdx.x); i <= p.picks.num_experts + 1;
           i += kThreads<kRows>)
        first_piece[i] = p.lists.first_piece[i], first_chunk[i] = p.lists.first_chunk[i];
    __syncthreads();
  }
  // The lists of list_kernel(), at most one piece per thread, stable order: the same in all blocks.
  __device__ void make(const Params& p) {
    const int piece = static_cast<int>(threadIdx.x), lines = p.picks.num_experts + 1;
    for (int i = piece; i < lines; i += kThreads<kRows>) first_piece[i] = 0;
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
    const int of_thread = (lines + kThreads<kRows> - 1) / kThreads<kRows>;
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
  __device__ void for_each(const Params& p, F f) const {
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
      f(Tile{low, own / chunks, first, min(kRows, first_piece[low + 1] - first)});
    }
  }
};

// Fills boxes and signals each kLag boxes later, when the copies of its rows have arrived.
template <int kRows, class In>
struct Gather {
  static constexpr int kTurns = kRows / kTurnRows;
  static constexpr int kLag = kStages<kRows, In> > 6 ? 4 : 2;
  static constexpr int kXSize = kIsF8<In> ? 1 : 2;
  Ring<kRows, In> ring, arrived;
  int pending = 0;

  __device__ void say_arrived() {
    writes_are_ready();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(arrived.full + arrived.stage);
    arrived.step();
    --pending;
  }
  __device__ void fill(const Params& p, const CUtensorMap* weights, const Tile& t, int box,
                       const uint8_t* const (&rows)[kTurns]) {
    constexpr int kBoxColumns = kIsInteger<In> ? kDepthBytes : kDepth<In>;  // integers: bytes
    const int thread = static_cast<int>(threadIdx.x) % kProducers;
    barrier_wait(ring.empty + ring.stage, ring.parity ^ 1);
    if (thread == 0) {
      barrier_expect(ring.full + ring.stage, kGroups<kRows> * kPartBytes);
#pragma unroll
      for (int g = 0; g < kGroups<kRows>; ++g)
        copy_box(ring.weight(ring.stage) + g * kPartBytes, weights, box * kBoxColumns,
                 t.expert * p.n + (t.tile * kGroups<kRows> + g) * kPart, ring.full + ring.stage);
    }
    const int piece = thread % kRowPieces;
    const uint32_t to = shared_address(ring.x(ring.stage));
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (!rows[turn]) continue;  // no such row
      const int row = turn * kTurnRows + thread / kRowPieces;
#pragma unroll
      for (int i = 0; i < kXBoxes<In>; ++i) {
        const int column = box * kDepth<In> + i * kXDepth<In> + piece * (16 / kXSize);
        copy_16(to + (i * kRows + row) * kDepthBytes + (piece ^ row % 8) * 16,
                rows[turn] + column * kXSize, column < p.k);
      }
    }
    end_copies();
    ring.step();
    if (++pending > kLag) {
      wait_for_copies<kLag>();
      say_arrived();
    }
  }
};

template <int kRows, class In>
__device__ void produce(const Params& p, const CUtensorMap* weights, const Ring<kRows, In>& ring,
                        const Work<kRows>& work) {
  using Rows = Gather<kRows, In>;
  Rows gather = {ring, ring};
  work.for_each(p, [&](const Tile& t) {
    if (t.expert == p.picks.num_experts) return;
    const uint8_t* rows[Rows::kTurns];
#pragma unroll
    for (int turn = 0; turn < Rows::kTurns; ++turn) {
      const int row = turn * kTurnRows + static_cast<int>(threadIdx.x) % kProducers / kRowPieces;
      const int piece = row < t.rows ? work.pieces[t.first + row] : 0;
      rows[turn] = row < t.rows ? p.x + piece / p.picks.picked * p.x_stride +
                                      piece % p.picks.picked * p.x_piece
                                : nullptr;
    }
    for (int box = 0; box < p.boxes_k; ++box) gather.fill(p, weights, t, box, rows);
  });
  wait_for_copies<0>();
  while (gather.pending > 0) gather.say_arrived();
}

template <int kRows, class In, class Out>
__device__ void store_tile(const Params& p, const int32_t* pieces, const Tile& t, int group,
                           const float (&sums)[kRows / 2]) {
  const bool zero = t.expert == p.picks.num_experts;
  const int n = (t.tile * kGroups<kRows> + group) * kPart + part_output(0);
  float bias[2] = {}, scale[2] = {1, 1};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (zero || n + 8 * r >= p.n) continue;
    const int64_t output = int64_t{t.expert} * p.n + n + 8 * r;
    if (p.bias) bias[r] = load(p.bias + output);
    if (kIsF8<In>) scale[r] = p.scales[output];
  }
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int row = x_row(i, c);
      if (row >= t.rows) continue;
      const int piece = pieces[t.first + row], x = piece / p.picks.picked;
      Out* const out =
          static_cast<Out*>(p.out) + x * p.out_stride + int64_t{piece % p.picks.picked} * p.n;
      const float x_scale = kIsF8<In> ? p.x_scales[x * p.x_scales_stride] : 1.0f;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float sum = sums[4 * i + 2 * r + c];
        if (kIsF8<In>) sum *= scale[r] * x_scale;
        if (n + 8 * r < p.n) store(out + n + 8 * r, zero ? 0.0f : sum + bias[r]);
      }
    }
}

template <int kRows, class In, class Out>
__device__ void consume(const Params& p, Ring<kRows, In> ring, const Work<kRows>& work) {
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  work.for_each(p, [&](const Tile& t) {
    float sums[kRows / 2] = {};
    if (t.expert < p.picks.num_experts) {
      const int64_t first = int64_t{t.expert} * p.n;
      add_boxes(p.integers, ring, group, first + (t.tile * kGroups<kRows> + group) * kPart,
                first + p.n - 1, 0, p.boxes_k, sums);
    }
    store_tile<kRows, In, Out>(p, work.pieces, t, group, sums);
  });
}

#endif  // NEREID_HOPPER

template <int kRows, class In, class Out>
__global__ void __launch_bounds__(kThreads<kRows>)
    product_kernel(const __grid_constant__ CUtensorMap weights, Params p) {
#if defined(NEREID_HOPPER)
  extern __shared__ __align__(1024) uint8_t boxes[];
  __shared__ uint64_t full[kStages<kRows, In>], empty[kStages<kRows, In>];
  __shared__ Work<kRows> work;
  const Ring<kRows, In> ring = {boxes, full, empty};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages<kRows, In>; ++i) {
      barrier_init(full + i, 1 + kProducers / kWarp);
      barrier_init(empty + i, kGroups<kRows> * kGroupThreads / kWarp);
    }
    barriers_are_ready();
  }
  wait_for_previous();
  let_next_begin();
  work.list(p);
  if (threadIdx.x < kGroups<kRows> * kGroupThreads)
    consume<kRows, In, Out>(p, ring, work);
  else
    produce<kRows, In>(p, &weights, ring, work);
#endif
}

template <int kRows, class In, class Out>
cudaError_t enqueue(const ExpertLinear& a, const Scratch& scratch, cudaStream_t stream) {
  CUtensorMap weights;
  const int64_t row_bytes = a.weight.k * kBits<In> / 8;
  if (const cudaError_t error =
          describe_rows(kBits<In> == 16, a.weight.data, a.weight.experts * a.weight.n, row_bytes,
                        row_bytes, kPart, weights);
      error != cudaSuccess)
    return error;
  const auto picked = static_cast<int>(a.experts.cols);
  const bool one_x = a.x.cols == a.weight.k;
  constexpr int64_t kXSize = kIsF8<In> ? 1 : 2;
  Params p = {};
  p.x = static_cast<const uint8_t*>(a.x.data);
  p.x_stride = a.x.stride * kXSize, p.x_piece = one_x ? 0 : a.weight.k * kXSize;
  if constexpr (kIsInteger<In>) {
    Linear ordered;
    ordered.x = a.x, ordered.weight = a.weight;
    if (!one_x) ordered.x.rows *= picked, ordered.x.cols = ordered.x.stride = a.weight.k;
    if (const cudaError_t error = launch_order(ordered, scratch.unpacked, stream);
        error != cudaSuccess)
      return error;
    p.x = static_cast<const uint8_t*>(scratch.unpacked);
    p.x_stride = a.x.cols * kXSize;
    p.integers = box_integers(a.weight);
  }
  p.out = a.out.data, p.out_stride = a.out.stride;
  p.bias = static_cast<const __nv_bfloat16*>(a.bias.data);
  p.scales = a.weight.scales;
  p.x_scales = static_cast<const float*>(a.scales.data), p.x_scales_stride = a.scales.stride;
  auto* const lists = static_cast<int32_t*>(scratch.workspace);
  p.lists = {lists, lists + kLines + 1, lists + 2 * kLines + 2};
  p.n = static_cast<int>(a.weight.n), p.k = static_cast<int>(a.weight.k);
  p.boxes_k = (p.k + kDepth<In> - 1) / kDepth<In>;
  constexpr int kTile = kGroups<kRows> * kPart;
  p.tiles = (p.n + kTile - 1) / kTile;

  p.picks = {static_cast<const int32_t*>(a.experts.data), a.experts.stride,
             static_cast<int>(a.weight.experts), picked, static_cast<int>(a.out.rows) * picked};
  p.lists_pieces = p.picks.num_pieces <= kThreads<kRows>;
  if (!p.lists_pieces)
    if (const cudaError_t error = launch_overlapped(list_kernel, a.out.rows, 1, kListThreads, 0,
                                                    stream, p.picks, kRows, p.lists);
        error != cudaSuccess)
      return error;
  constexpr int kBytes = kStages<kRows, In> * kStageBytes<kRows, In>;
  return launch_overlapped(product_kernel<kRows, In, Out>, a.out.rows,
                           static_cast<unsigned>(scratch.num_units), kThreads<kRows>, kBytes,
                           stream, weights, p);
}

// `rows`: expected pieces per expert.
template <class In, class Out>
cudaError_t enqueue_rows(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                         cudaStream_t stream) {
  if (rows <= 12) return enqueue<16, In, Out>(a, scratch, stream);
  if constexpr (!kIsInteger<In>)
    if (rows > 80) return enqueue<128, In, Out>(a, scratch, stream);
  return enqueue<64, In, Out>(a, scratch, stream);
}

template <class In>
cudaError_t enqueue_out(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                        cudaStream_t stream) {
  if (a.out.dtype == DType::kBF16) return enqueue_rows<In, __nv_bfloat16>(a, rows, scratch, stream);
  return enqueue_rows<In, float>(a, rows, scratch, stream);
}

// x with permuted columns must fit into Scratch::unpacked.
cudaError_t enqueue_integers(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                             cudaStream_t stream) {
  constexpr int64_t kMaxGridY = 65535;
  const int64_t pieces = a.x.cols / a.weight.k;
  const int64_t most = std::min(kUnpackedBytes / (2 * a.x.cols), kMaxGridY / pieces);
  for (int64_t row = 0; row < a.out.rows; row += most) {
    ExpertLinear part = a;
    const auto skip = [&](View& v) {
      v.data =
          static_cast<std::byte*>(v.data) + row * v.stride * static_cast<int64_t>(size_of(v.dtype));
      v.rows = std::min(most, a.out.rows - row);
    };
    skip(part.x), skip(part.experts), skip(part.out);
    const cudaError_t error = a.weight.format.bits == 4
                                  ? enqueue_out<Integers<4>>(part, rows, scratch, stream)
                                  : enqueue_out<Integers<8>>(part, rows, scratch, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t enqueue_in(const ExpertLinear& a, int64_t rows, const Scratch& scratch,
                       cudaStream_t stream) {
  if (a.weight.format.scheme == Scheme::kInteger) return enqueue_integers(a, rows, scratch, stream);
  if (a.x.dtype == DType::kF8E4M3) return enqueue_out<__nv_fp8_e4m3>(a, rows, scratch, stream);
  return enqueue_out<__nv_bfloat16>(a, rows, scratch, stream);
}

}  // namespace

bool takes_hopper_experts(const ExpertLinear& a, const Scratch& scratch) {
  const bool one_x = a.x.cols == a.weight.k, fp8 = a.x.dtype == DType::kF8E4M3;
  const bool integers = a.weight.format.scheme == Scheme::kInteger;
  const int64_t pieces = a.out.rows * a.experts.cols, outputs = a.weight.experts * a.weight.n;
  constexpr int64_t kMost = 1 << 30;  // tiles are counted in 32 bits
  return scratch.sm == 90 && encode_tiled() != nullptr && is_aligned(a.x.data) &&
         is_aligned(a.weight.data) && a.weight.experts < kLines && outputs < kMost &&
         pieces * (a.weight.n / kPart + 1) < kMost &&
         kListBytes + static_cast<size_t>(pieces) * sizeof(int32_t) <= scratch.workspace_bytes &&
         a.x.stride % (fp8 ? 16 : 8) == 0 &&
         (!integers || ((one_x || a.x.stride == a.x.cols) && 2 * a.x.cols <= kUnpackedBytes));
}

cudaError_t launch_hopper_experts(const ExpertLinear& a, const Scratch& scratch,
                                  cudaStream_t stream) {
  // Assumes uniform routing.
  const int64_t rows = a.out.rows * a.experts.cols / std::max<int64_t>(a.weight.experts, 1);
  return enqueue_in(a, rows, scratch, stream);
}
cudaError_t launch_invariant_experts(const ExpertLinear& a, const Scratch& scratch,
                                     cudaStream_t stream) {
  constexpr int64_t kRows = 64;
  return enqueue_in(a, kRows, scratch, stream);
}

bool can_be_hopper_experts(const ExpertLinear& a) {
  const int64_t k = a.weight.k;
  if (a.weight.format.ordered || a.weight.layout != WeightLayout::kRowMajor) return false;
  if (a.x.dtype == DType::kF8E4M3) return k % 16 == 0;
  return a.weight.format.is_float() ? k % 8 == 0 : fits_boxes(a.weight.format, k);
}

}  // namespace nereid::kernels::cuda
