// Reference paged attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/api/keys.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels::ref {
namespace {

// Number of a position's head vector in one layer's K or V cache.
int64_t cache_line(const Attention::Args& a, int64_t row, int64_t position, int64_t kv_head) {
  const Attention::Problem& p = a.problem;
  const int64_t block = a.block_table[row * a.max_blocks + position / p.block_tokens];
  return (block * p.num_kv_heads + kv_head) * p.block_tokens + position % p.block_tokens;
}

// One head vector of token i, rotated when `rotate`.
std::vector<float> head_vector(const Attention::Args& a, int64_t i, int64_t head, bool rotate) {
  const int64_t d = a.problem.head_dim, half = d / 2;
  const float* x = a.qkv.row<float>(i) + head * d;
  std::vector<float> y(x, x + d);
  if (!rotate) return y;
  const float* angles = a.rope_table + int64_t{a.positions[i]} * d;
  for (int64_t c = 0; c < half; ++c) {
    y[c] = x[c] * angles[c] - x[c + half] * angles[c + half];
    y[c + half] = x[c + half] * angles[c] + x[c] * angles[c + half];
  }
  return y;
}

// Elements of a line, by c, in a cache of layout `keys`.
struct Line {
  DType kv;
  KeyLayout keys;
  int64_t number, d;

  int64_t operator[](int64_t c) const { return key_index(keys, number, c, d, size_of(kv)); }
};

void store_line(const std::vector<float>& x, const Line& line, void* cache, float* scales) {
  const auto d = static_cast<int64_t>(x.size());
  const DType kv = line.kv;
  if (kv == DType::kBF16) {
    for (int64_t c = 0; c < d; ++c) static_cast<BF16*>(cache)[line[c]] = to_bf16(x[c]);
    return;
  }
  const float limit = kv == DType::kI8 ? 127 : kLargestF8E4M3;
  float amax = 0;
  bool finite = true;
  for (const float v : x) {
    amax = std::max(amax, std::fabs(v));
    finite &= std::isfinite(v);
  }
  const bool is_zero = !finite || amax < kSmallestScaled;
  scales[line.number] = !finite   ? std::numeric_limits<float>::quiet_NaN()
                        : is_zero ? 0
                                  : amax / limit;
  const float factor = is_zero ? 0 : limit / amax;
  for (int64_t c = 0; c < d; ++c) {
    const float y = is_zero ? 0 : x[c] * factor;
    if (kv == DType::kI8)
      static_cast<int8_t*>(cache)[line[c]] =
          static_cast<int8_t>(std::clamp(std::nearbyint(y), -limit, limit));
    else
      static_cast<F8E4M3*>(cache)[line[c]] = to_f8e4m3(y);
  }
}

std::vector<double> load_line(const Line& line, const void* cache, const float* scales) {
  std::vector<double> x(static_cast<size_t>(line.d));
  for (int64_t c = 0; c < line.d; ++c) {
    const int64_t at = line[c];
    if (line.kv == DType::kBF16)
      x[c] = to_float(static_cast<const BF16*>(cache)[at]);
    else if (line.kv == DType::kI8)
      x[c] = double{scales[line.number]} * static_cast<const int8_t*>(cache)[at];
    else
      x[c] = double{scales[line.number]} * to_float(static_cast<const F8E4M3*>(cache)[at]);
  }
  return x;
}

void store_kv(const Attention::Args& a) {
  const Attention::Problem& p = a.problem;
  for (int64_t i = 0; i < p.tokens; ++i) {
    for (int64_t head = 0; head < p.num_kv_heads; ++head) {
      const int64_t line = cache_line(a, a.row_of_token[i], a.positions[i], head);
      store_line(head_vector(a, i, p.num_heads + head, p.has_rope),
                 {p.kv, p.keys, line, p.head_dim}, a.k_cache, a.k_scales);
      store_line(head_vector(a, i, p.num_heads + p.num_kv_heads + head, false),
                 {p.kv, KeyLayout::kLines, line, p.head_dim}, a.v_cache, a.v_scales);
    }
  }
}

void attend(const Attention::Args& a, int64_t i, int64_t head) {
  const Attention::Problem& p = a.problem;
  const int64_t row = a.row_of_token[i], position = a.positions[i];
  const int64_t kv_head = head / (p.num_heads / p.num_kv_heads);
  const std::vector<float> q = head_vector(a, i, head, p.has_rope);

  std::vector<int64_t> lines;
  std::vector<double> weights;
  double largest = -INFINITY, sum = 0;
  for (int64_t at = 0; at <= position; ++at) {
    if (p.window > 0 && at <= position - p.window && at >= p.sink) continue;
    lines.push_back(cache_line(a, row, at, kv_head));
    const auto k = load_line({p.kv, p.keys, lines.back(), p.head_dim}, a.k_cache, a.k_scales);
    double dot = 0;
    for (int64_t c = 0; c < p.head_dim; ++c) dot += double{q[c]} * k[c];
    weights.push_back(dot * a.scale);
    largest = std::max(largest, weights.back());
  }
  for (double& w : weights) sum += w = std::exp(w - largest);

  std::vector<double> values(static_cast<size_t>(p.head_dim));
  for (size_t j = 0; j < lines.size(); ++j) {
    const auto v =
        load_line({p.kv, KeyLayout::kLines, lines[j], p.head_dim}, a.v_cache, a.v_scales);
    for (int64_t c = 0; c < p.head_dim; ++c) values[c] += weights[j] * v[c];
  }
  for (int64_t c = 0; c < p.head_dim; ++c)
    a.out.row<BF16>(i)[head * p.head_dim + c] = to_bf16(static_cast<float>(values[c] / sum));
}

}  // namespace

void run(const Attention::Args& a) {
  store_kv(a);
  for (int64_t i = 0; i < a.problem.tokens; ++i)
    for (int64_t head = 0; head < a.problem.num_heads; ++head) attend(a, i, head);
}

}  // namespace nereid::kernels::ref
