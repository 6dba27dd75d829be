// FusedLinear of one or two rows with f8e4m3 weights: each block quantises x. Bound by one read of
// the weight, so few instructions per byte: wgmma takes f8e4m3 from registers unpermuted, in any
// order of k, and x from shared memory.
//
// A block takes tiles of 16 outputs in turn; its eight warps take 64 bytes of k of the sixteen rows
// in turn, loaded directly to registers. A thread's 16 bytes of a row are used as an operand
// unpermuted: words 0 and 2 as row i of the product's left matrix, words 1 and 3 as row i + 8. So a
// row of x is two columns of the right matrix; the results are (i, column) and (i + 8, column + 1).
// The four warps of a wgmma would share x: each has its own columns and ignores the sums of the
// others'. The order of additions depends on k only.
//
// Weights do not depend on the previous kernel: the first are loaded while it still runs. x must
// not wait for them, neither in the load queue (up to 3 us) nor for the scoreboard that the
// compiler shares among register loads. So TMA loads it; the issuing warp loads its weights later.
#include <algorithm>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/product_end.cuh"

namespace nereid::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kProductWarps = 4;              // per wgmma
constexpr int kOutputs = 16;                  // per tile
constexpr int kStepBytes = 64;                // of a weight row, per warp
constexpr int kStride = kWarps * kStepBytes;  // per block
constexpr int kMaxRows = 2;  // x of four does not fit for long rows; for other lengths slower
// Steps whose products are in flight.
template <int kRows>
constexpr int kGroup = kRows == 1 ? 4 : 2;

constexpr int kPiece = 8;                  // columns of x staged by a thread at once
constexpr int kStage = kThreads * kPiece;  // per block
// Pieces of a row kept by a thread between the two passes over x.
template <int kRows>
constexpr int kKept = 8 / kRows;
constexpr size_t kMaxShared = 49 * 1024;  // per block: two are resident per SM

struct Params {
  const __nv_bfloat16* x;
  int64_t x_stride;
  const uint8_t* weight;
  EndParams end;
  int k, stages;  // stages: of x
};

// Shared memory of x: per step of four warps two matrices of 16 bytes of k, each with two columns
// per row of a warp.
template <int kRows>
constexpr int kMatrixBytes = kProductWarps* kRows * 2 * 16;
template <int kRows>
constexpr int kStageBytes = kStage* kRows;

template <int kRows>
struct Shared {
  typename ProductEnd<kRows, kOutputs, kThreads, true>::Shared end;
  __align__(16) uint32_t largest[kRows][kWarps];  // magnitudes of rows of x
  __align__(16) float squares[kRows][kFusedSquares];
  uint64_t is_there;  // barrier: x and squares have arrived
};

// Bytes of a row's pieces kept by a block.
template <int kRows>
__host__ __device__ constexpr int kept_bytes(int stages) {
  return (stages < kKept<kRows> ? stages : kKept<kRows>)*kStage *
         static_cast<int>(sizeof(__nv_bfloat16));
}

#if defined(NEREID_HOPPER)

constexpr int kAhead = 8;  // steps in flight
constexpr int kChain = 2;  // steps accumulated by a tensor core before f32
constexpr int kPieceBytes = 16;
constexpr int kStageSteps = kStage / kStride;

// Unswizzled matrices: eight columns by 16 bytes of k are contiguous.
template <int kRows>
__device__ uint64_t plain_matrix(uint32_t address) {
  return static_cast<uint64_t>(address >> 4 & 0x3fff) | uint64_t{kMatrixBytes<kRows> >> 4} << 16 |
         uint64_t{128 >> 4} << 32;
}

// Destinations of a thread's pieces of x: each is words 2 i and 2 i + 1 of the four of a wgmma
// thread. Lanes with the second matrix start with the second column: no bank conflicts.
template <int kRows>
struct Places {
  static constexpr int kRowBytes = 2 * 16;
  uint32_t first, second;
  bool swaps;

  __device__ explicit Places(uint32_t matrices) {
    const int piece = static_cast<int>(threadIdx.x), matrix = piece % 2, unit = piece / 8;
    const uint32_t at =
        matrices +
        static_cast<uint32_t>(unit / kProductWarps * 2 * kMatrixBytes<kRows> +
                              matrix * kMatrixBytes<kRows> +
                              unit % kProductWarps * kRows * kRowBytes + piece / 2 % 4 * 4);
    swaps = matrix != 0;
    first = at + 16 * matrix, second = at + 16 * (1 - matrix);
    asm volatile("" : "+r"(first), "+r"(second));  // computed once
  }
  __device__ void put(int stage, int row, uint2 codes) const {
    const auto offset = static_cast<uint32_t>(stage * kStageBytes<kRows> + row * kRowBytes);
    store_shared(first + offset, swaps ? codes.y : codes.x);
    store_shared(second + offset, swaps ? codes.x : codes.y);
  }

 private:
  __device__ static void store_shared(uint32_t address, uint32_t word) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
  }
};

// 16 bytes, or zeros.
__device__ uint4 load_shared(uint32_t address, bool exists) {
  uint4 v = {};
  if (exists)
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address)
                 : "memory");
  return v;
}
// As F8Row::code(); zero times infinity is NaN, and so is the row's scale then.
__device__ uint32_t two_codes(uint32_t pair, float factor) {
  const float2 x = unpack(pair);
  return __nv_cvt_float2_to_fp8x2({__fmul_rn(x.x, factor), __fmul_rn(x.y, factor)}, __NV_SATFINITE,
                                  __NV_E4M3);
}
__device__ uint2 codes_of(const uint4& x, float factor) {
  return {two_codes(x.x, factor) | two_codes(x.y, factor) << 16,
          two_codes(x.z, factor) | two_codes(x.w, factor) << 16};
}

// Max magnitudes at even and at odd indices; signs are arbitrary; NaN is above all.
__device__ uint32_t larger_pair(uint32_t most, uint32_t pair) {
  asm("max.NaN.xorsign.abs.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(pair));
  return most;
}
__device__ uint32_t larger_piece(uint32_t most, const uint4& x) {
  return larger_pair(larger_pair(larger_pair(larger_pair(most, x.x), x.y), x.z), x.w);
}

// Max of a row's parts, one per warp.
__device__ uint32_t largest_of(const uint32_t (&parts)[kWarps]) {
  const uint4 a = reinterpret_cast<const uint4*>(parts)[0];
  const uint4 b = reinterpret_cast<const uint4*>(parts)[1];
  return max(max(max(a.x, a.y), max(a.z, a.w)), max(max(b.x, b.y), max(b.z, b.w)));
}

// Issues loads of x's first pieces and the sums of squares, by one thread.
template <int kRows>
__device__ void ask_for_rows(const Params& p, uint8_t* to, Shared<kRows>& shared) {
  constexpr auto kSquaresBytes = static_cast<uint32_t>(sizeof(shared.squares[0]));
  const int kept = kept_bytes<kRows>(p.stages);
  const auto bytes =
      static_cast<uint32_t>(min(p.k * static_cast<int>(sizeof(__nv_bfloat16)), kept));
  const bool has_squares = p.end.x_squares != nullptr;
  barrier_expect(&shared.is_there, kRows * (bytes + (has_squares ? kSquaresBytes : 0)));
  for (int row = 0; row < kRows; ++row) {
    copy_bytes(to + row * kept, p.x + row * p.x_stride, bytes, &shared.is_there);
    if (has_squares)
      copy_bytes(shared.squares[row], p.end.x_squares + row * p.end.x_squares_stride, kSquaresBytes,
                 &shared.is_there);
  }
}

// Quantises the loaded x into the matrices, each row as Quantize does. Codes overwrite the pieces.
template <int kRows>
__device__ void stage(const Params& p, uint8_t* to, Shared<kRows>& shared) {
  const int first = static_cast<int>(threadIdx.x) * kPiece;
  const auto exists = [&](int s) { return s * kStage + first < p.k; };
  const auto load_piece = [&](int row, int s) {
    if (!exists(s)) return uint4{};
    return *reinterpret_cast<const uint4*>(p.x + row * p.x_stride + s * kStage + first);
  };
  uint32_t pieces = shared_address(to) + threadIdx.x * kPieceBytes;
  asm volatile("" : "+r"(pieces));  // computed once
  const Places<kRows> places(shared_address(to));
  uint4 kept[kRows][kKept<kRows>];
  barrier_wait(&shared.is_there, 0);
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    uint32_t most = 0;
#pragma unroll
    for (int s = 0; s < kKept<kRows>; ++s)
      if (s < p.stages) {
        const int at = row * kept_bytes<kRows>(p.stages) + s * kThreads * kPieceBytes;
        kept[row][s] = load_shared(pieces + static_cast<uint32_t>(at), exists(s));
        most = larger_piece(most, kept[row][s]);
      }
#pragma unroll 1
    for (int s = kKept<kRows>; s < p.stages; ++s) most = larger_piece(most, load_piece(row, s));
    constexpr uint32_t kMagnitude = 0x7fff0000u;
    most = __reduce_max_sync(kAllLanes, max(most << 16 & kMagnitude, most & kMagnitude));
    if (threadIdx.x % kWarp == 0) shared.largest[row][threadIdx.x / kWarp] = most;
  }
  __syncthreads();
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float factor = F8Row(largest_of(shared.largest[row]), kSmallestScaled).factor;
#pragma unroll
    for (int s = 0; s < kKept<kRows>; ++s)
      if (s < p.stages) places.put(s, row, codes_of(kept[row][s], factor));
#pragma unroll 1
    for (int s = kKept<kRows>; s < p.stages; ++s)
      places.put(s, row, codes_of(load_piece(row, s), factor));
  }
}

// This warp's products of a group of steps: sums of its outputs with this thread's row of x, whose
// columns are in block `block` of eight.
template <int kRows>
__device__ void multiply_group(const uint4 (&weights)[kGroup<kRows>][2], uint32_t matrix, int block,
                               float (&results)[2]) {
  constexpr int kSums = kGroup<kRows> / kChain;
  constexpr int kStepMatrices = kWarps / kProductWarps * 2 * kMatrixBytes<kRows>;
  const uint64_t x = plain_matrix<kRows>(matrix);
  float sums[kSums][2][4 * kRows];
  products_begin();
#pragma unroll
  for (int s = 0; s < kGroup<kRows>; ++s)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4& w = weights[s][h];
      const uint64_t b = x + (s * kStepMatrices >> 4);
      if (s % kChain == 0)
        multiply_64_f8<false>(sums[s / kChain][h], {w.x, w.y, w.z, w.w}, b);
      else
        multiply_64_f8<true>(sums[s / kChain][h], {w.x, w.y, w.z, w.w}, b);
    }
  products_end();
  wait_for_products<0>();
#pragma unroll
  for (int i = 0; i < kSums; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float(&d)[4 * kRows] = sums[i][h];
      float sum = d[0] + d[3];
#pragma unroll
      for (int j = 1; j < kRows; ++j)
        if (j == block) sum = d[4 * j] + d[4 * j + 3];
      results[h] += sum;
    }
}

template <int kRows>
__device__ void run(const Params& p) {
  constexpr int kSteps = kGroup<kRows>, kGroups = kAhead / kSteps;
  extern __shared__ __align__(128) uint8_t matrices[];
  __shared__ Shared<kRows> shared;
  ProductEnd<kRows, kOutputs, kThreads, true> end(p.end, shared.end);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int blocks = static_cast<int>(gridDim.x);
  const int groups = p.stages * (kStageSteps / kSteps);  // per tile
  const int tiles = (p.end.tiles - static_cast<int>(blockIdx.x) + blocks - 1) / blocks;
  const int total = tiles * groups;

  // Beyond k: zeros or stale weights, multiplied by x's zeros.
  uint4 weights[kGroups][kSteps][2] = {};
  // The next group to load: its tile, its number, remaining bytes of the rows.
  int tile = static_cast<int>(blockIdx.x), next = 0, left;
  const uint8_t* rows[2];
  const auto find_rows = [&] {
    const int first_byte = warp * kStepBytes + lane % 4 * 16;  // of this thread
    left = p.k - first_byte;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = min(end.weight_row(tile, 8 * h + lane / 4), p.end.n - 1);
      rows[h] = p.weight + int64_t{row} * p.k + first_byte;
    }
  };
  const auto fetch = [&](int g) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
      if (s * kStride < left)
#pragma unroll
        for (int h = 0; h < 2; ++h) weights[g][s][h] = load_once(rows[h] + s * kStride);
    if (++next < groups) {
      left -= kSteps * kStride;
#pragma unroll
      for (int h = 0; h < 2; ++h) rows[h] += kSteps * kStride;
    } else {
      next = 0, tile += blocks;
      find_rows();
    }
  };
  if (threadIdx.x == 0) {
    barrier_init(&shared.is_there, 1);
    barriers_are_ready();
  }
  __syncthreads();
  let_next_begin();
  // Weight loads fill the queues for microseconds: one warp loads x before its weights.
  if (warp == kWarps - 1) {
    wait_for_previous();
    if (lane == 0) ask_for_rows<kRows>(p, matrices, shared);
    __syncwarp();
  }
  find_rows();
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
    if (g < total) fetch(g);
  end.begin();
  wait_for_previous();
  end.begin_behind();
  stage<kRows>(p, matrices, shared);
  writes_are_ready();
  __syncthreads();
  end.make_factors(
      [&](int row) { return F8Row(largest_of(shared.largest[row]), kSmallestScaled).scale; },
      [&](int row) { return shared.squares[row]; });

  // This warp's rows of x are column pairs from `mine`; this thread has one of each four.
  const int mine = warp % kProductWarps * kRows, block = mine / 4;
  const int row = 4 * block + lane % 4 - mine;
  const bool has_row = row >= 0 && row < kRows;
  uint32_t first_matrix = shared_address(matrices) +
                          static_cast<uint32_t>(warp / kProductWarps * 2 * kMatrixBytes<kRows>);
  asm volatile("" : "+r"(first_matrix));  // computed once
  float results[2] = {};
  int in_tile = 0, buffers = 0;
  int pending = 0, ended = 0;  // tiles of this block with finished products; tiles ended
  const auto put_tile = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (has_row) end.put(buffers + pending, warp, row, 8 * h + lane / 4, results[h]);
      results[h] = 0;
    }
    in_tile = 0, ++pending;
  };
  const auto end_tiles = [&] {
    __syncthreads();
    end.end(ended, pending, buffers);
    ended += pending, pending = 0, buffers ^= kTilesTogether;
  };
  for (int first = 0; first < total; first += kGroups) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (first + g >= total) break;
      constexpr int kGroupBytes = kStageBytes<kRows> * kSteps / kStageSteps;
      multiply_group<kRows>(weights[g], first_matrix + static_cast<uint32_t>(in_tile * kGroupBytes),
                            block, results);
      if (first + g + kGroups < total) fetch(g);
      if (++in_tile == groups) put_tile();
    }
    if (pending > 0) end_tiles();
  }
  end.end_all();
}

#endif

template <int kRows>
__global__ void __launch_bounds__(kThreads, kGemvBlocksPerUnit) gemv_rounding_kernel(Params p) {
#if defined(NEREID_HOPPER)
  run<kRows>(p);
#endif
}

// Calls f with the row count as a constant.
template <class F>
auto with_rows(int64_t rows, F f) {
  return rows == 1 ? f.template operator()<1>() : f.template operator()<kMaxRows>();
}

int stages_of(int64_t k) { return static_cast<int>((k + kStage - 1) / kStage); }

// Bytes of shared memory for x, apart from Shared.
template <int kRows>
size_t shared_bytes(int stages) {
  return static_cast<size_t>(
      std::max(kRows * kept_bytes<kRows>(stages), stages * kStageBytes<kRows>));
}

}  // namespace

bool takes_rounding_gemv(const FusedLinear& a) {
  if (!a.rounds || a.x.rows > kMaxRows || a.weight.k % 16 != 0 || a.x.stride % kPiece != 0 ||
      a.x_squares.stride % 4 != 0)
    return false;
  return with_rows(a.x.rows, [&]<int kRows>() {
    return shared_bytes<kRows>(stages_of(a.weight.k)) + sizeof(Shared<kRows>) <= kMaxShared;
  });
}

cudaError_t launch_rounding_gemv(const FusedLinear& a, const Scratch& scratch,
                                 cudaStream_t stream) {
  Params p = {static_cast<const __nv_bfloat16*>(a.x.data),
              a.x.stride,
              a.weight.as_bytes(),
              end_of(a),
              static_cast<int>(a.weight.k),
              stages_of(a.weight.k)};
  p.end.tiles = tiles_of(p.end, kOutputs);
  const auto blocks =
      static_cast<unsigned>(std::min(p.end.tiles, kGemvBlocksPerUnit * scratch.num_units));
  return with_rows(a.x.rows, [&]<int kRows>() {
    const auto kernel = gemv_rounding_kernel<kRows>;
    const size_t shared = shared_bytes<kRows>(p.stages);
    return launch_overlapped(kernel, a.x.rows, blocks, kThreads, shared, stream, p);
  });
}

}  // namespace nereid::kernels::cuda
