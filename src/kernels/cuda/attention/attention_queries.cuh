// Queries of attention_hopper.cu in shared memory in wgmma layout: bf16, or, for 8-bit keys, two
// f8e4m3 columns with a sum about as precise as bf16.
#pragma once

#include "kernels/cuda/attention/attention_fetch.cuh"

namespace nereid::kernels::cuda {

#if defined(NEREID_HOPPER)

// Copies a group's queries, which the previous kernel wrote where results go, to a swizzled matrix.
template <int kDim>
__device__ void load_swizzled(const AttentionParams& p, const QueryTile& tile, int first_vector,
                              uint8_t* queries) {
  constexpr int kPieces = kDim / 8, kStep = kGroupThreads / kPieces;  // lines at a time
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  const int piece = thread % kPieces, first = first_vector + thread / kPieces;
  const int vectors = tile.vectors(), heads = tile.heads;
  const int tokens_on = kStep / heads, heads_on = kStep % heads;  // increments per line
  int token = first / heads, head = first % heads;
  const __nv_bfloat16* const from =
      p.out + tile.first_token * p.out_stride + tile.first_head * p.head_dim + 8 * piece;
#pragma unroll
  for (int i = 0; i < kGroupVectors / kStep; ++i) {
    const bool valid = first + i * kStep < vectors;
    copy_16(shared_address(queries +
                           place_in_matrix(kGroupVectors, thread / kPieces + i * kStep, 8 * piece)),
            valid ? from + token * p.out_stride + head * p.head_dim : from, valid);
    token += tokens_on, head += heads_on;
    if (head >= heads) ++token, head -= heads;
  }
  end_copies();
  wait_for_copies<0>();
}

inline __device__ uint32_t to_f8(float low, float high) {
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
}
inline __device__ float2 from_f8(uint32_t pair) {
  const __half2_raw raw =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair), __NV_E4M3);
  return __half22float2(__half2(raw));
}

// Same as f8e4m3: matrix of the f8e4m3 roundings, then of the remainders. Each vector is multiplied
// by a power of 2 that brings its amax to [128, 256); `units`: its reciprocals.
template <int kDim>
__device__ void load_swizzled_f8(const AttentionParams& p, const QueryTile& tile, int first_vector,
                                 uint8_t* queries, float* units) {
  constexpr int kPieces = kDim / 8;  // threads per vector
  constexpr int kExponent = 127 + 7;
#pragma unroll 2
  for (int i = threadIdx.x % kGroupThreads; i < kGroupVectors * kPieces; i += kGroupThreads) {
    const int line = i / kPieces, m = first_vector + line, piece = i % kPieces;
    uint4 eight = {};
    if (m < tile.vectors())
      eight = *reinterpret_cast<const uint4*>(result_of(p, tile, m) + 8 * piece);
    const float2 pairs[4] = {unpack(eight.x), unpack(eight.y), unpack(eight.z), unpack(eight.w)};
    uint32_t most = 0;
#pragma unroll
    for (const float2& pair : pairs) most = max(most, max(magnitude(pair.x), magnitude(pair.y)));
#pragma unroll
    for (int offset = kPieces / 2; offset > 0; offset /= 2)
      most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
    const int exponent = min(max(static_cast<int>(most >> 23), 16), 240);
    const float factor = __uint_as_float(static_cast<uint32_t>(kExponent + 127 - exponent) << 23);
    uint32_t kept[4], rest[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const float2 x = {pairs[c].x * factor, pairs[c].y * factor};
      kept[c] = to_f8(x.x, x.y);
      const float2 y = from_f8(kept[c]);
      rest[c] = to_f8(x.x - y.x, x.y - y.y);
    }
    uint8_t* const at =
        queries + place_in_matrix(kGroupVectors, line, piece / 2 * 8) + piece % 2 * 8;
    *reinterpret_cast<uint2*>(at) = {kept[0] | kept[1] << 16, kept[2] | kept[3] << 16};
    *reinterpret_cast<uint2*>(at + kGroupVectors * kLineBytes) = {rest[0] | rest[1] << 16,
                                                                  rest[2] | rest[3] << 16};
    if (piece == 0)
      units[line] = __uint_as_float(static_cast<uint32_t>(127 + exponent - kExponent) << 23);
  }
}

// d += a [64, 32] . b [128, 32]^T of f8e4m3 in rows of 128 bytes, d in rows of four as for
// multiply_64(). Without kAdd: d = the product.
#define NEREID_R(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define NEREID_R4(d, i) NEREID_R(d, i), NEREID_R(d, i + 1), NEREID_R(d, i + 2), NEREID_R(d, i + 3)
template <bool kAdd>
inline __device__ void multiply_64_f8(float (&d)[16][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, %66, 1, 1;"
      : NEREID_R4(d, 0), NEREID_R4(d, 4), NEREID_R4(d, 8), NEREID_R4(d, 12)
      : "l"(a), "l"(b), "n"(kAdd));
}
#undef NEREID_R4
#undef NEREID_R

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
