// Reference paged attention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ref/ref.h"

namespace nereid::kernels::ref {
namespace {

// Element index of a position's head vector in one layer's K or V cache.
int64_t cache_index(const Attention::Args& a, int64_t row, int64_t position, int64_t kv_head) {
  const Attention::Problem& p = a.problem;
  const int64_t block = a.block_table[row * a.max_blocks + position / p.block_tokens];
  const int64_t line = (block * p.num_kv_heads + kv_head) * p.block_tokens;
  return (line + position % p.block_tokens) * p.head_dim;
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

void store_kv(const Attention::Args& a) {
  const Attention::Problem& p = a.problem;
  for (int64_t i = 0; i < p.tokens; ++i) {
    for (int64_t head = 0; head < p.num_kv_heads; ++head) {
      const int64_t at = cache_index(a, a.row_of_token[i], a.positions[i], head);
      const std::vector<float> k = head_vector(a, i, p.num_heads + head, p.has_rope);
      const std::vector<float> v = head_vector(a, i, p.num_heads + p.num_kv_heads + head, false);
      for (int64_t c = 0; c < p.head_dim; ++c) {
        static_cast<BF16*>(a.k_cache)[at + c] = to_bf16(k[c]);
        static_cast<BF16*>(a.v_cache)[at + c] = to_bf16(v[c]);
      }
    }
  }
}

void attend(const Attention::Args& a, int64_t i, int64_t head) {
  const Attention::Problem& p = a.problem;
  const int64_t row = a.row_of_token[i], end = a.positions[i] + 1;
  const int64_t begin = p.window > 0 ? std::max<int64_t>(0, end - p.window) : 0;
  const int64_t kv_head = head / (p.num_heads / p.num_kv_heads);
  const std::vector<float> q = head_vector(a, i, head, p.has_rope);

  std::vector<double> weights;
  double largest = -INFINITY, sum = 0;
  for (int64_t at = begin; at < end; ++at) {
    const BF16* k = static_cast<const BF16*>(a.k_cache) + cache_index(a, row, at, kv_head);
    double dot = 0;
    for (int64_t c = 0; c < p.head_dim; ++c) dot += double{q[c]} * to_float(k[c]);
    weights.push_back(dot * a.scale);
    largest = std::max(largest, weights.back());
  }
  for (double& w : weights) sum += w = std::exp(w - largest);

  for (int64_t c = 0; c < p.head_dim; ++c) {
    double value = 0;
    for (int64_t at = begin; at < end; ++at) {
      const BF16* v = static_cast<const BF16*>(a.v_cache) + cache_index(a, row, at, kv_head);
      value += weights[at - begin] * to_float(v[c]);
    }
    a.out.row<BF16>(i)[head * p.head_dim + c] = to_bf16(static_cast<float>(value / sum));
  }
}

}  // namespace

void run(const Attention::Args& a) {
  store_kv(a);
  for (int64_t i = 0; i < a.problem.tokens; ++i)
    for (int64_t head = 0; head < a.problem.num_heads; ++head) attend(a, i, head);
}

}  // namespace nereid::kernels::ref
