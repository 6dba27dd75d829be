// out [rows, n] = x [rows, k] . weight [n, k]^T, 8- or 4-bit weights: f8e4m3 with <= 4 f8e4m3 rows;
// integers with groups of whole warp steps and <= 2 bf16 rows. Bound by one read of the weight, so
// few instructions per byte: wgmma takes f8e4m3 and int8 from registers unpermuted, in any order of
// k, and x from shared memory.
//
// A block takes tiles of 16 outputs in turn; its eight warps take 64 bytes of k of the sixteen rows
// in turn, loaded directly to registers. The four warps of a wgmma would share x: each has its own
// columns of it and ignores the sums of the others' columns.
//
// Integers: per warp step, x is scaled by a power of two to 16-bit integers, multiplied exactly as
// two 8-bit parts. Numbers >= 1/128 of the step's amax are exact, others lose <= 2^-16 of it. The
// order of additions depends on k only.
//
// Weights do not depend on the previous kernel: the first are loaded while it still runs.
#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/narrow_x.cuh"
#include "kernels/cuda/overlap.cuh"
#include "kernels/cuda/product_end.cuh"

namespace nereid::kernels::cuda {
namespace {

using namespace narrow;

struct Params {
  XParams x;
  EndParams end;
  const uint8_t* weight;
  const float* scales;   // of groups, or null
  const uint8_t* zeros;  // of groups, or null
  int groups;
  int group_bits;  // a column's group is column >> group_bits
  int zero;        // default zero point; 0 for f8e4m3
};

#if defined(NEREID_HOPPER)

// Unswizzled matrices in shared memory: eight columns by 16 bytes of k are contiguous.
__device__ uint64_t plain_matrix(const void* p, int matrix_bytes) {
  return (static_cast<uint64_t>(shared_address(p)) >> 4 & 0x3fff) |
         static_cast<uint64_t>(matrix_bytes >> 4) << 16 | uint64_t{128 >> 4} << 32;
}

// A step's products, sums in f32 or int. `nothing` is 0: without it the compiler permutes the words
// right after each load, which waits for every load.
template <Form kForm, int kRows>
__device__ void multiply_step(const uint4 (&w)[2], const uint8_t* x, uint32_t nothing,
                              float (&sums)[kAll<kForm, kRows> / 2]) {
  uint32_t a[kProducts<kForm>][4];
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i)
#pragma unroll
    for (int r = 0; r < 4; ++r) a[i][r] = word_of(w[r % 2], 2 * i + r / 2) ^ nothing;
  products_begin();
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i) {
    const uint64_t b =
        plain_matrix(x + i * kProductBytes<kForm, kRows>, kMatrixBytes<kForm, kRows>);
    if (i == 0)
      multiply_64_f8<false>(sums, a[i], b);
    else
      multiply_64_f8<true>(sums, a[i], b);
  }
  products_end();
  wait_for_products<0>();
}
template <Form kForm, int kRows>
__device__ void multiply_step(const uint4 (&w)[2], const uint8_t* x, uint32_t,
                              int (&sums)[kAll<kForm, kRows> / 2]) {
  uint32_t a[kProducts<kForm>][4];
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if constexpr (kForm == Form::kInt4) {
        // 16 * (integer - 8)
        const uint32_t word = word_of(w[h], i);
        a[i][h] = (word << 4 & 0xf0f0f0f0u) ^ 0x80808080u;
        a[i][2 + h] = (word & 0xf0f0f0f0u) ^ 0x80808080u;
      } else {
        a[i][h] = word_of(w[h], 2 * i) ^ 0x80808080u;
        a[i][2 + h] = word_of(w[h], 2 * i + 1) ^ 0x80808080u;
      }
    }
  products_begin();
#pragma unroll
  for (int i = 0; i < kProducts<kForm>; ++i) {
    const uint64_t b =
        plain_matrix(x + i * kProductBytes<kForm, kRows>, kMatrixBytes<kForm, kRows>);
    if (i == 0)
      multiply_64_s8<false>(sums, a[i], b);
    else
      multiply_64_s8<true>(sums, a[i], b);
  }
  products_end();
  wait_for_products<0>();
}

// Element r of block `i` of sums, uniform in a warp.
template <int kSize, class T>
__device__ T sum_of(const T (&sums)[kSize], int i, int r) {
  T v = sums[r];
#pragma unroll
  for (int j = 1; j < kSize / 4; ++j)
    if (i == j) v = sums[4 * j + r];
  return v;
}

template <Form kForm, int kRows>
__device__ void run(const Params& p) {
  constexpr bool kF8 = kForm == Form::kF8;
  constexpr int kSteps = kAhead<kForm>;
  extern __shared__ __align__(128) uint8_t matrices[];
  using End = ProductEnd<kRows, kOutputs, kThreads, false>;
  __shared__ typename End::Shared of_end;
  End end(p.end, of_end);
  const int steps = p.x.steps;  // per tile
  auto* const units = reinterpret_cast<UnitScale*>(matrices + steps * (kWarps / kProductWarps) *
                                                                  kGroupStepBytes<kForm, kRows>);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int first_byte = warp * kStepBytes + lane % 4 * 16;  // of this thread
  const auto row_bytes = static_cast<int>(p.x.row_bytes);
  const int total = (p.end.tiles - static_cast<int>(blockIdx.x) + static_cast<int>(gridDim.x) - 1) /
                    static_cast<int>(gridDim.x) * steps;

  uint4 weights[kSteps][2];
  float scales[kSteps][2];
  int zeros[kSteps][2];
  // The next step to load: its tile, its number.
  int tile = static_cast<int>(blockIdx.x), next = 0;
  const uint8_t* rows[2];
  int first_groups[2];
  const auto find_rows = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = min(end.weight_row(tile, 8 * h + lane / 4), p.end.n - 1);
      rows[h] = p.weight + row * p.x.row_bytes;
      first_groups[h] = row * p.groups;
    }
  };
  find_rows();
  const auto fetch = [&](int a) {
    const int byte = first_byte + next * kStride;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      weights[a][h] = byte < row_bytes ? load_once(rows[h] + byte) : uint4{};
      if constexpr (!kF8) {
        const int unit = next * kWarps + warp;
        const bool exists = unit * kStepBytes < row_bytes;
        const int at = first_groups[h] + (unit * kColumns<kForm> >> p.group_bits);
        scales[a][h] = exists ? __ldg(p.scales + at) : 0.0f;
        zeros[a][h] = p.zeros && exists ? __ldg(p.zeros + at) : p.zero;
      }
    }
    if (++next < steps) return;
    next = 0, tile += static_cast<int>(gridDim.x);
    find_rows();
  };
#pragma unroll
  for (int a = 0; a < kSteps; ++a)
    if (a < total) fetch(a);
  end.begin();
  let_next_begin();
  wait_for_previous();
  const auto begin_behind = [&] { end.begin_behind(); };
  if constexpr (kF8) {
    begin_behind();
    stage_f8<kRows>(p.x, matrices);
  } else {
    stage_integers<kForm, kRows>(p.x, matrices, units, begin_behind);
  }
  writes_are_ready();
  __syncthreads();

  // This warp's columns of x in the products: in block `mine` of eight.
  const int in_product = warp % kProductWarps * kMine<kForm, kRows>;
  const int mine = in_product / 8;
  const int column = lane % 4 * 2 - in_product % 8;  // of this warp's, for a thread's first sums
  // Integers: a thread has both columns of a row.
  const int row = kF8 ? column : column / 2;
  const bool has_row = column >= 0 && row < kRows;
  float results[2][2] = {};  // of outputs, and of two f8e4m3 rows
  int in_tile = 0, buffers = 0;
  int pending = 0, ended = 0;  // tiles of this block with finished products; tiles ended
  const auto put_tile = [&] {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int c = 0; c < (kF8 ? 2 : 1); ++c) {
        if (kF8 ? column + c >= 0 && column + c < kRows : has_row)
          end.put(buffers + pending, warp, row + c, 8 * h + lane / 4, results[h][c]);
        results[h][c] = 0;
      }
    in_tile = 0, ++pending;
  };
  const auto end_tiles = [&] {
    __syncthreads();
    end.end(ended, pending, buffers);
    ended += pending, pending = 0, buffers ^= kTilesTogether;
  };
  const auto multiply = [&](int a) {
    const uint8_t* const x =
        matrices +
        (in_tile * (kWarps / kProductWarps) + warp / kProductWarps) * kGroupStepBytes<kForm, kRows>;
    std::conditional_t<kF8, float, int> sums[kAll<kForm, kRows> / 2];
    multiply_step<kForm, kRows>(weights[a], x, static_cast<uint32_t>(p.zero), sums);
    if constexpr (kF8) {
#pragma unroll
      for (int r = 0; r < 4; ++r) results[r / 2][r % 2] += sum_of(sums, mine, r);
    } else {
      const UnitScale unit = units[(in_tile * kWarps + warp) * kRows + (has_row ? row : 0)];
      constexpr int kZero = kForm == Form::kInt4 ? 8 : 128;  // already subtracted
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int sum = sum_of(sums, mine, 2 * h) * 256 + sum_of(sums, mine, 2 * h + 1);
        const float moved = static_cast<float>(kZero - zeros[a][h]) * unit.sum;
        results[h][0] =
            fmaf(scales[a][h], fmaf(unit.scale, static_cast<float>(sum), moved), results[h][0]);
      }
    }
  };
  for (int first = 0; first < total; first += kSteps) {
#pragma unroll
    for (int a = 0; a < kSteps; ++a) {
      if (first + a >= total) break;
      multiply(a);
      if (first + a + kSteps < total) fetch(a);
      if (++in_tile == steps) put_tile();
    }
    if (pending > 0) end_tiles();
  }
  end.end_all();
}

#endif

template <Form kForm, int kRows>
__global__ void __launch_bounds__(kThreads, kGemvBlocksPerUnit) gemv_narrow_kernel(Params p) {
#if defined(NEREID_HOPPER)
  run<kForm, kRows>(p);
#endif
}

Form form_of(const WeightFormat& format) {
  return format.scheme == Scheme::kFloat8 ? Form::kF8
         : format.bits == 8               ? Form::kInt8
                                          : Form::kInt4;
}

// Calls f with the form and the rows as constants.
template <class F>
auto with_form(const WeightFormat& format, int64_t rows, F f) {
  const auto with_rows = [&]<Form kForm>() {
    if (rows == 1) return f.template operator()<kForm, 1>();
    if (rows == 2) return f.template operator()<kForm, 2>();
    return f.template operator()<kForm, kMaxRows<kForm>>();
  };
  switch (form_of(format)) {
    case Form::kF8:
      return with_rows.template operator()<Form::kF8>();
    case Form::kInt8:
      return with_rows.template operator()<Form::kInt8>();
    default:
      return with_rows.template operator()<Form::kInt4>();
  }
}

int steps_of(const WeightView& w) {
  const int ahead = form_of(w.format) == Form::kF8 ? kAhead<Form::kF8> : kAhead<Form::kInt4>;
  return cuda::steps_of(w.format.row_bytes(w.k), kStride, ahead);
}

// Whether a warp step is within one group.
bool has_wide_groups(const WeightView& w) {
  const int64_t group = w.format.group_size(w.k);
  const int64_t step = w.format.bits == 4 ? kColumns<Form::kInt4> : kColumns<Form::kInt8>;
  return w.format.num_groups(w.k) == 1 ||
         (std::has_single_bit(static_cast<uint64_t>(group)) && group >= step);
}

}  // namespace

bool takes_narrow_gemv(const Linear& a, int sm) {
  const WeightFormat& format = a.weight.format;
  if (sm != 90 || format.is_float()) return false;
  const bool f8 = form_of(format) == Form::kF8;
  if (a.x.rows > (f8 ? kMaxRows<Form::kF8> : kMaxRows<Form::kInt4>)) return false;
  if (f8 != (a.x.dtype == DType::kF8E4M3) || format.minima || (!f8 && !has_wide_groups(a.weight)))
    return false;
  if (format.row_bytes(a.weight.k) % 16 != 0 || a.x.stride % (f8 ? 16 : 8) != 0 ||
      !is_aligned(a.x.data) || !is_aligned(a.weight.data))
    return false;
  return with_form(format, a.x.rows, [&]<Form kForm, int kRows>() {
    return shared_bytes<kForm, kRows>(steps_of(a.weight)) <= kMaxShared;
  });
}

cudaError_t launch_narrow_gemv(const Linear& a, const Scratch& scratch, cudaStream_t stream) {
  const WeightView& w = a.weight;
  Params p = {};
  p.end = end_of(a);
  p.x = {a.x.data, a.x.stride, w.format.row_bytes(w.k), p.end.rows, steps_of(w)};
  p.weight = w.as_bytes();
  p.scales = w.scales;
  p.zeros = w.zeros;
  p.groups = static_cast<int>(w.format.num_groups(w.k));
  p.end.tiles = tiles_of(p.end, kOutputs);
  p.group_bits =
      p.groups == 1 ? 31 : std::countr_zero(static_cast<uint64_t>(w.format.group_size(w.k)));
  p.zero = form_of(w.format) == Form::kF8 ? 0 : w.format.default_zero();
  const auto blocks =
      static_cast<unsigned>(std::min(p.end.tiles, kGemvBlocksPerUnit * scratch.num_units));
  return with_form(w.format, a.x.rows, [&]<Form kForm, int kRows>() {
    const auto kernel = gemv_narrow_kernel<kForm, kRows>;
    const size_t shared = shared_bytes<kForm, kRows>(p.x.steps);
    return launch_overlapped(kernel, a.x.rows, blocks, kThreads, shared, stream, p);
  });
}

}  // namespace nereid::kernels::cuda
