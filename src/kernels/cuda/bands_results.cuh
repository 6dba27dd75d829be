// What follows the products of bands.cu: factors, sums of several parts of k, results.
#pragma once

#include <algorithm>

#include "kernels/cuda/bands.cuh"
#include "kernels/cuda/boxes.cuh"

namespace nereid::kernels::cuda {

inline constexpr int kPair = 2;  // blocks of a cluster
inline constexpr int kMaxParts = 4;
// A thread's sums are stored by chunks: so many fours, of eight rows of x.
inline constexpr int kChunkFours = 4;
inline constexpr int kChunkRows = 8 * kChunkFours;
inline constexpr int kChunkBytes = kChunkRows * kPart * int{sizeof(__nv_bfloat16)};

template <int kTileGroups>
inline constexpr int kTile = kTileGroups* kPart;

struct BandParams {
  void* out;
  const __nv_bfloat16* bias;  // or null
  const float* scales;        // of outputs and of rows of x, for f8e4m3
  const float* x_scales;
  float4* partials;
  int32_t* counters;
  int64_t out_stride, x_scales_stride;
  int n, rows, boxes_k;
  int bands, parts, items;  // items: parts of bands of pairs of tiles
  bool vectors;             // outputs can be stored eight at a time
};

#if defined(NEREID_HOPPER)

inline constexpr int kFactorThreads = kGroupThreads - kWarp;  // of those that fetch

// A piece of work: neighbours in `item` have the parts of one tile, then its bands.
struct BandItem {
  int tile, band, part, begin, end;

  __device__ BandItem(const BandParams& p, int item, int rank) {
    const int whole = item / p.parts;
    part = item % p.parts;
    band = whole % p.bands;
    tile = whole / p.bands * kPair + rank;
    begin = p.boxes_k * part / p.parts;
    end = p.boxes_k * (part + 1) / p.parts;
  }
};

// What sums are multiplied with and what is added, in shared memory.
template <int kRows, int kTileGroups>
struct Factors {
  float scales[kTile<kTileGroups>], bias[kTile<kTileGroups>], x_scales[kRows];

  template <class In>
  __device__ void load(const BandParams& p, In, int first_n, int first_row, int thread) {
    for (int i = thread; i < kTile<kTileGroups>; i += kFactorThreads) {
      const int n = first_n + i;
      scales[i] = kIsF8<In> && n < p.n ? p.scales[n] : 0.0f;
      bias[i] = p.bias && n < p.n ? cuda::load(p.bias + n) : 0.0f;
    }
    for (int i = thread; kIsF8<In> && i < kRows; i += kFactorThreads) {
      const int row = first_row + i;
      x_scales[i] = row < p.rows ? p.x_scales[row * p.x_scales_stride] : 0.0f;
    }
  }
};

// Where a thread's sums go: outputs n and n + 8, rows of x row + 8 i and the next one.
template <class In, class Out>
struct Results {
  const BandParams& p;
  const float* x_scales;
  int first_n, n, first_row;
  float scales[2], bias[2];

  template <int kRows, int kTileGroups>
  __device__ Results(const BandParams& p, const Factors<kRows, kTileGroups>& f, int tile_n,
                     int group, int first_row)
      : p(p),
        x_scales(f.x_scales),
        first_n(tile_n + group * kPart),
        n(first_n + part_output(0)),
        first_row(first_row) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int at = group * kPart + part_output(2 * j);
      scales[j] = f.scales[at], bias[j] = f.bias[at];
    }
  }

  // Chunks that have rows.
  __device__ int chunks() const { return (p.rows - first_row + kChunkRows - 1) / kChunkRows; }

  // Stores the sums of a chunk. `staged`: two chunks of bf16 of the group, in shared memory.
  __device__ void store(int chunk, const float4 (&sums)[kChunkFours], uint8_t* staged) const {
    float v[kChunkFours][2][2];
#pragma unroll
    for (int i = 0; i < kChunkFours; ++i) {
      const float2 two =
          *reinterpret_cast<const float2*>(x_scales + x_row(kChunkFours * chunk + i, 0));
      const float all[2][2] = {{sums[i].x, sums[i].y}, {sums[i].z, sums[i].w}};
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          v[i][j][r] =
              (kIsF8<In> ? all[j][r] * (scales[j] * (r ? two.y : two.x)) : all[j][r]) + bias[j];
    }
    Out* const out = static_cast<Out*>(p.out);
    if constexpr (sizeof(Out) == sizeof(float)) {
#pragma unroll
      for (int i = 0; i < kChunkFours; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const int row = first_row + x_row(kChunkFours * chunk + i, r);
            const int n = first_n + part_output(2 * j);
            if (n < p.n && row < p.rows) out[row * p.out_stride + n] = v[i][j][r];
          }
    } else {
      uint8_t* const lines = staged + chunk % 2 * kChunkBytes;
      const int lane = threadIdx.x % kWarp, thread = threadIdx.x % kGroupThreads;
#pragma unroll
      for (int i = 0; i < kChunkFours; i += 2)
        store_transposed(
            lines + line_at(8 * (i + lane / 16) + lane % 8, thread / kWarp * 2 + lane / 8 % 2),
            {pack(v[i][0][0], v[i][0][1]), pack(v[i][1][0], v[i][1][1]),
             pack(v[i + 1][0][0], v[i + 1][0][1]), pack(v[i + 1][1][0], v[i + 1][1][1])});
      meet(1 + static_cast<int>(threadIdx.x) / kGroupThreads, kGroupThreads);
      const int n = first_n + thread % 8 * 8;
#pragma unroll
      for (int line = thread / 8; line < kChunkRows; line += kGroupThreads / 8) {
        const int row = first_row + chunk * kChunkRows + line;
        if (row >= p.rows || n >= p.n) continue;
        const auto* from = reinterpret_cast<const uint4*>(lines + line_at(line, thread % 8));
        Out* const to = out + row * p.out_stride + n;
        if (p.vectors) {
          *reinterpret_cast<uint4*>(to) = *from;
        } else {
          const auto* numbers = reinterpret_cast<const Out*>(from);
          for (int i = 0; i < min(8, p.n - n); ++i) to[i] = numbers[i];
        }
      }
    }
  }
  // Where 16 bytes of a row are, so that eight rows' lie in different banks.
  static __device__ int line_at(int row, int piece) {
    return row * kPart * int{sizeof(Out)} + (piece ^ row % 8) * 16;
  }
};

template <int kRows>
__device__ float4 four(const float (&sums)[kRows / 2], int i) {
  return make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
}

// Adds the parts of a group's sums, this block's share of the chunks, and stores them. `mine`:
// shared memory that no box needs any more. All blocks of a tile run at once (choose_form()), so
// that they may wait for each other.
template <int kRows, class In, class Out, int kTileGroups>
__device__ void finish_parts(const BandParams& p, const BandItem& item, int item_index, int rank,
                             int group, const Results<In, Out>& results,
                             const float (&sums)[kRows / 2], float4* mine, uint8_t* staged) {
  constexpr int kChunks = kRows / kChunkRows, kChunkSums = kChunkFours * kGroupThreads;
  const int thread = threadIdx.x % kGroupThreads;
  const int whole = (item_index / p.parts * kPair + rank) * kTileGroups + group;
  float4* const parts = p.partials + int64_t{whole} * p.parts * kChunks * kChunkSums + thread;
  const int first = kChunks * item.part / p.parts, last = kChunks * (item.part + 1) / p.parts;
  mine += group * kChunks * kChunkSums + thread;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    float4* const to =
        (chunk >= first && chunk < last ? mine : parts + item.part * kChunks * kChunkSums) +
        chunk * kChunkSums;
#pragma unroll
    for (int i = 0; i < kChunkFours; ++i)
      to[i * kGroupThreads] = four<kRows>(sums, kChunkFours * chunk + i);
  }
  int32_t* const counter = p.counters + whole;
  meet(1 + group, kGroupThreads);
  if (thread == 0) {
    count(counter);
    while (counted(counter) < p.parts) {
    }
    if (count(counter) == 2 * p.parts - 1) *counter = 0;  // the last that has seen all
  }
  meet(1 + group, kGroupThreads);
  for (int chunk = first; chunk < min(last, results.chunks()); ++chunk) {
    float4 got[kMaxParts][kChunkFours];
#pragma unroll
    for (int part = 0; part < kMaxParts; ++part)
#pragma unroll
      for (int i = 0; i < kChunkFours; ++i)
        if (part < p.parts) {
          const int at = chunk * kChunkSums + i * kGroupThreads;
          got[part][i] =
              part == item.part ? mine[at] : __ldcg(parts + part * kChunks * kChunkSums + at);
        }
#pragma unroll
    for (int part = 1; part < kMaxParts; ++part)
#pragma unroll
      for (int i = 0; i < kChunkFours; ++i)
        if (part < p.parts) {
          got[0][i].x += got[part][i].x, got[0][i].y += got[part][i].y;
          got[0][i].z += got[part][i].z, got[0][i].w += got[part][i].w;
        }
    results.store(chunk, got[0], staged);
  }
}

// Stores sums as they are.
template <int kRows, class In, class Out>
__device__ void finish(const Results<In, Out>& results, const float (&sums)[kRows / 2],
                       uint8_t* staged) {
#pragma unroll
  for (int chunk = 0; chunk < kRows / kChunkRows; ++chunk) {
    if (chunk >= results.chunks()) continue;
    float4 fours[kChunkFours];
#pragma unroll
    for (int i = 0; i < kChunkFours; ++i) fours[i] = four<kRows>(sums, kChunkFours * chunk + i);
    results.store(chunk, fours, staged);
  }
}

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
