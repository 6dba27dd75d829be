// Scores of one head of cross attention, divided by tokens. Plain loops: the bits are the same on
// every instruction set.
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "kernels/api/keys.h"
#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

template <class T>
float number_of(T cell) {
  if constexpr (std::is_same_v<T, int8_t>)
    return cell;
  else
    return to_float(cell);
}

// Products of a query with kKeysPerPanel keys that lie side by side.
template <class T>
void multiply_panel(const float* q, const T* panel, int64_t d, float* sums) {
  constexpr auto kInWord = static_cast<int64_t>(4 / sizeof(T));
  std::fill_n(sums, kKeysPerPanel, 0.0f);
  for (int64_t c = 0; c < d; c += kInWord, panel += kKeysPerPanel * kInWord)
    for (int64_t key = 0; key < kKeysPerPanel; ++key)
      for (int64_t i = 0; i < kInWord; ++i)
        sums[key] += q[c + i] * number_of(panel[key * kInWord + i]);
}

template <class T>
float multiply_line(const float* q, const T* line, int64_t d) {
  float sum = 0;
  for (int64_t c = 0; c < d; ++c) sum += q[c] * number_of(line[c]);
  return sum;
}

// Token i's scores; T: of the cache.
template <class T>
void score_token(const CrossScores& a, int64_t i) {
  const CacheView& cache = a.cache;
  const int32_t row = a.step.row_of_token[i];
  const int64_t length = a.step.cross_lengths ? a.step.cross_lengths[row] : 0;
  const int64_t d = a.heads.dim, tokens = cache.block_tokens;
  const int64_t first_line = a.head / (a.heads.num / a.heads.num_kv) * tokens;
  const float* const q = a.q.row<float>(i) + a.head * d;
  const bool has_panels = cache.layout == KeyLayout::kPanels;
  const int64_t step = has_panels ? kKeysPerPanel : 1;
  for (int64_t at = 0; at < length; at += step) {
    const int64_t block = a.step.cross_table[row * a.step.max_cross_blocks + at / tokens];
    const int64_t line = first_line + at % tokens;
    const T* const keys = static_cast<const T*>(cache.keys) + block * cache.block_stride + line * d;
    float sums[kKeysPerPanel];
    if (has_panels)
      multiply_panel(q, keys, d, sums);
    else
      sums[0] = multiply_line(q, keys, d);
    for (int64_t key = 0; key < std::min(step, length - at); ++key) {
      const float scale =
          has_kv_scales(cache.type) ? cache.key_scales[block * cache.scale_stride + line + key] : 1;
      a.out.row<float>(i)[at + key] = sums[key] * scale * a.scale;
    }
  }
}

Status launch_cross_scores(const CrossScores& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  const auto score = a.cache.type == DType::kI8       ? score_token<int8_t>
                     : a.cache.type == DType::kF8E4M3 ? score_token<F8E4M3>
                                                      : score_token<BF16>;
  pool.parallel_for(a.q.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) score(a, i);
  });
  return ok();
}

}  // namespace

template <>
Table<CrossScores> table<CrossScores>() {
  return generic<CrossScores, launch_cross_scores>();
}

}  // namespace nereid::kernels::cpu
