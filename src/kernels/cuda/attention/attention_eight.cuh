// One warp of attention_cluster.cu: scores of up to eight query vectors and 16 keys at a time,
// online softmax, weighted sum of values. Queries and weights are sums of two bf16: rows 0-7 of a
// tensor-core product have the high parts, rows 8-15 the remainders.
#pragma once

#include "kernels/cuda/attention/attention_steps.cuh"

namespace nereid::kernels::cuda {

constexpr int kMaxHeads = 8;  // per block

// scores[s][c]: vector lane / 4, key 8 s + 2 (lane % 4) + c. `queries`: lines of the vectors, the
// last eight are remainders.
template <int kDim>
__device__ void score_eight(const uint8_t* queries, const uint8_t* keys, float (&scores)[2][2]) {
  constexpr int kPitch = Lines<kDim>::kPitch;
  const int lane = threadIdx.x % kWarp;
  float sums[2][2][4] = {};  // of even and odd pieces: shorter dependency chains
  const uint32_t query_at = shared_address(queries) + lane % 16 * kPitch + lane / 16 * 16;
  const uint32_t key_at =
      shared_address(keys) + (lane % 8 + lane / 16 * 8) * kPitch + lane / 8 % 2 * 16;
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {
    uint32_t q[4], b[4];
    load_matrices(q, query_at + 32 * k);
    load_matrices(b, key_at + 32 * k);
    multiply(sums[k % 2][0], q, b[0], b[1]);
    multiply(sums[k % 2][1], q, b[2], b[3]);
  }
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int c = 0; c < 2; ++c)
      scores[s][c] = sums[0][s][c] + sums[1][s][c] + (sums[0][s][2 + c] + sums[1][s][2 + c]);
}

// Same with f8e4m3 keys and queries in the order of place_of_f8().
template <int kDim>
__device__ void score_eight_f8(const uint8_t* queries, const uint8_t* keys, float (&scores)[2][2]) {
  constexpr int kPitch = Lines<kDim>::kPitch, kLine = WarpMemory<Fp8Cache, kDim>::kLine;
  const int lane = threadIdx.x % kWarp;
  float sums[2][2][4] = {};
  const uint32_t query_at = shared_address(queries) + lane % 16 * kPitch + lane / 16 * 16;
  const uint8_t* const key = keys + lane / 4 * kLine + lane % 4 * 8;
#pragma unroll
  for (int k = 0; k < kDim / 32; ++k) {
    uint2 words[2];
#pragma unroll
    for (int s = 0; s < 2; ++s)
      words[s] = *reinterpret_cast<const uint2*>(key + 8 * s * kLine + 32 * k);
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      uint32_t q[4];
      load_matrices(q, query_at + 64 * k + 32 * w);
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t word = w == 0 ? words[s].x : words[s].y;
        multiply(sums[w][s], q, Fp8Cache::even_bits(word), Fp8Cache::odd_bits(word));
      }
    }
  }
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int c = 0; c < 2; ++c)
      scores[s][c] = sums[0][s][c] + sums[1][s][c] + (sums[0][s][2 + c] + sums[1][s][2 + c]);
}

// The state of a warp: this thread has vector lane / 4.
template <class Cache, int kDim>
struct EightState {
  float largest = -INFINITY, sum = 0;  // sum: this thread's share
  float value[kDim / 8][4] = {};       // registers 2 and 3: from the remainders of the weights

  // Converts scores to weights relative to the new maximum and rescales the state to it.
  __device__ void weigh(float (&scores)[2][2]) {
    float top = fmaxf(fmaxf(scores[0][0], scores[0][1]), fmaxf(scores[1][0], scores[1][1]));
    top = fmaxf(largest, top);
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 1));
    top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, 2));
    if (__any_sync(kAllLanes, top > largest && largest > -INFINITY)) {
      const float correction = weight_of(largest, top);
      sum *= correction;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) value[i][r] *= correction;
    }
    largest = top;
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        scores[s][c] = weight_of(scores[s][c], top);
        sum += scores[s][c];
      }
  }

  // Adds weights * values of 16 keys; f8e4m3: columns as in column_of().
  __device__ void add(const float (&weights)[2][2], const uint8_t* values) {
    constexpr int kPitch = kIsFp8<Cache> ? WarpMemory<Fp8Cache, kDim>::kLine : Lines<kDim>::kPitch;
    const int lane = threadIdx.x % kWarp;
    const uint32_t at = shared_address(values) + lane % 16 * kPitch + lane / 16 * 16;
    uint32_t a[4];
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      a[2 * s] = pack(weights[s][0], weights[s][1]);
      const float2 kept = unpack(a[2 * s]);
      a[2 * s + 1] = pack(weights[s][0] - kept.x, weights[s][1] - kept.y);
    }
    if constexpr (kIsFp8<Cache>) {
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        uint32_t b[4];  // words of two columns of two keys
        load_transposed(b, at + 32 * i);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          multiply(value[4 * i + 2 * h], a, Fp8Cache::even_bits(b[2 * h]),
                   Fp8Cache::even_bits(b[2 * h + 1]));
          multiply(value[4 * i + 2 * h + 1], a, Fp8Cache::odd_bits(b[2 * h]),
                   Fp8Cache::odd_bits(b[2 * h + 1]));
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kDim / 16; ++i) {
        uint32_t b[4];
        load_transposed(b, at + 32 * i);
        multiply(value[2 * i], a, b[0], b[1]);
        multiply(value[2 * i + 1], a, b[2], b[3]);
      }
    }
  }
};

// Soft cap, ALiBi and mask; of the 16 keys from `first`, those < `end` exist. The row's token sees
// all its keys.
inline __device__ void judge_eight(const AttentionParams& p, const KeyRange& range, int position,
                                   float slope, int first, int end, float (&scores)[2][2]) {
#pragma unroll
  for (int s = 0; s < 2; ++s)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int key = first + 8 * s + 2 * (static_cast<int>(threadIdx.x) % 4) + c;
      float& score = scores[s][c];
      if (p.cap > 0) score = p.cap * kLog2E * tanhf(score / (p.cap * kLog2E));
      if (p.alibi > 0) score -= slope * static_cast<float>(position - range.position(key));
      if (key >= end) score = -INFINITY;
    }
}

// Multiplies by the scales of this thread's keys; lane i has the scale of key i.
template <class Cache>
__device__ void multiply_scales(float mine, float (&x)[2][2]) {
  const int first = 2 * (static_cast<int>(threadIdx.x) % 4);
  if constexpr (Cache::kHasScales) {
#pragma unroll
    for (int s = 0; s < 2; ++s)
#pragma unroll
      for (int c = 0; c < 2; ++c) x[s][c] *= __shfl_sync(kAllLanes, mine, 8 * s + first + c);
  }
}

// A warp's loop over its keys: 16 of every `stride` from `first`. The first loads have been issued;
// the next keys are loaded once the scores are computed, the next values once the values are added.
template <class Cache, int kDim>
__device__ void walk(const AttentionParams& p, const QueryTile& tile, const KeyRange& range,
                     const uint8_t* queries, int position, float slope, Found found, int first,
                     int end, int stride, uint8_t* memory, EightState<Cache, kDim>& state) {
  uint8_t* const keys = memory;
  uint8_t* const values = keys + kStepKeys * WarpMemory<Cache, kDim>::kLine;
  uint8_t* const wide = values + kStepKeys * WarpMemory<Cache, kDim>::kLine;
#pragma unroll 1
  for (; first < end; first += stride) {
    const int next = first + stride;
    float scores[2][2];
    wait_for_copies<1>();
    __syncwarp();
    if constexpr (kIsFp8<Cache>)
      score_eight_f8<kDim>(queries, keys, scores);
    else
      score_eight<kDim>(queries, widen<Cache, kDim>(keys, wide), scores);
    __syncwarp();
    Found next_found;
    if (next < end) {
      next_found = find<Cache>(p, tile, range, next, end);
      fetch<Cache, kDim>(p, p.k_cache, next_found.place, end - next, keys);
    }
    end_copies();
    multiply_scales<Cache>(found.key_scale, scores);
    judge_eight(p, range, position, slope, first, end, scores);
    state.weigh(scores);
    multiply_scales<Cache>(found.value_scale, scores);
    wait_for_copies<1>();
    __syncwarp();
    state.add(scores, widen<Cache, kDim>(values, wide));
    __syncwarp();
    if (next < end) fetch<Cache, kDim>(p, p.v_cache, next_found.place, end - next, values);
    end_copies();
    found = next_found;
  }
  wait_for_copies<0>();
}

}  // namespace nereid::kernels::cuda
