// Reference paged attention, cross attention, and storing of keys and values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/api/keys.h"
#include "kernels/ref/ref.h"

namespace nereid::kernels {
namespace {

// Location of a position's head vector in a layer's K or V cache: the block's first element, the
// vector's number in the block, the index of its scale.
struct LineAddress {
  int64_t block = 0, line = 0, scale = 0;
};

// Cell of a position as seen (or stored) by token i.
LineAddress place_of(const Attention& a, int64_t i, int32_t position, int64_t kv_head) {
  const int64_t tokens = a.cache.block_tokens, cell = cell_of(a.step, i, position);
  const int64_t block =
      a.step.block_table[a.step.row_of_token[i] * a.step.max_blocks + cell / tokens];
  const int64_t line = kv_head * tokens + cell % tokens;
  return {block * a.cache.block_stride, line, block * a.cache.scale_stride + line};
}

// One head vector of token i, with rotary embedding if `rotate`.
std::vector<float> head_vector(const Attention& a, int64_t i, int64_t head, bool rotate) {
  const int64_t d = a.heads.dim;
  const float* x = a.qkv.row<float>(i) + head * d;
  std::vector<float> y(x, x + d);
  if (rotate)
    ref::rotate(y.data(), a.angles.data + int64_t{a.step.positions[i]} * a.angles.cols,
                a.angles.cols, a.interleaved);
  return y;
}

// Elements of a line, by column c, in a cache of layout `keys`.
struct Line {
  DType kv;
  KeyLayout keys;
  LineAddress place;
  int64_t d;

  int64_t operator[](int64_t c) const {
    return place.block + key_index(keys, place.line, c, d, size_of(kv));
  }
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
  scales[line.place.scale] = !finite   ? std::numeric_limits<float>::quiet_NaN()
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

// Reads a line's elements as stored, in units of scale_of().
template <class T>
void load_line(const Line& line, const void* cache, double* x) {
  const auto* const elements = static_cast<const T*>(cache);
  for (int64_t c = 0; c < line.d; ++c) {
    const T element = elements[line[c]];
    if constexpr (std::is_same_v<T, int8_t>)
      x[c] = element;
    else
      x[c] = to_float(element);
  }
}

void load_line(const Line& line, const void* cache, double* x) {
  if (line.kv == DType::kBF16) return load_line<BF16>(line, cache, x);
  if (line.kv == DType::kI8) return load_line<int8_t>(line, cache, x);
  load_line<F8E4M3>(line, cache, x);
}

double scale_of(const Line& line, const float* scales) {
  return has_kv_scales(line.kv) ? scales[line.place.scale] : 1;
}

// Key and value lines of a position in the cache.
Line key_line(const CacheView& c, LineAddress place, int64_t d) {
  return {c.type, c.layout, place, d};
}
Line value_line(const CacheView& c, LineAddress place, int64_t d) {
  return {c.type, KeyLayout::kLines, place, d};
}

void store_tokens(const Attention& a) {
  const Heads& h = a.heads;
  const CacheView& cache = a.cache;
  for (int64_t i = 0; i < a.qkv.rows; ++i) {
    if (a.step.cross_lengths && a.step.positions[i] >= a.step.cross_lengths[a.step.row_of_token[i]])
      continue;
    for (int64_t head = 0; head < h.num_kv; ++head) {
      const LineAddress line = place_of(a, i, a.step.positions[i], head);
      store_line(head_vector(a, i, h.num + head, is_given(a.angles)), key_line(cache, line, h.dim),
                 cache.keys, cache.key_scales);
      if (h.latent > 0) continue;
      store_line(head_vector(a, i, h.num + h.num_kv + head, false), value_line(cache, line, h.dim),
                 cache.values, cache.value_scales);
    }
  }
}

// Attention score of a query-key product; `ahead`: the key's position after the query's.
double score_of(const Attention& a, double dot, int64_t head, int64_t ahead) {
  double score = dot * a.scale;
  if (a.cap > 0) score = a.cap * std::tanh(score / a.cap);
  if (a.alibi > 0)
    score += double{alibi_slope(a, static_cast<int32_t>(head))} * static_cast<double>(ahead);
  if (is_given(a.bias)) {
    const int64_t end = int64_t{a.bias_first} + a.bias_width;
    const int64_t column = std::clamp<int64_t>(ahead, a.bias_first, end - 1) - a.bias_first;
    score += static_cast<const float*>(a.bias.data)[head * a.bias_width + column];
  }
  return score;
}

// Visible keys and values of token i for one head, [dim] per position, in units of their scales.
// Latent cache: value = last `latent` elements of the key.
struct Seen {
  std::vector<int32_t> positions;
  std::vector<double> keys, values, key_scales, value_scales;
};

std::vector<int32_t> positions_seen_by(const Attention& a, int64_t i) {
  const CacheView& cache = a.cache;
  std::vector<int32_t> positions;
  if (a.bidirectional) {
    const int32_t end = a.step.row_begin[a.step.row_of_token[i] + 1];
    const int32_t last = (a.step.last ? a.step.last : a.step.positions)[end - 1];
    for (int32_t at = 0; at <= last; ++at) positions.push_back(at);
    return positions;
  }
  const int32_t own = a.step.positions[i], chunk = chunk_of(a);
  const int32_t last = a.step.last ? a.step.last[i] : own;
  const int32_t first = chunk > 0 ? own - own % chunk : 0;
  for (int32_t at = 0; at <= last; ++at)
    if (cache.window <= 0 || at > std::max(own - cache.window, first - 1) || at < cache.sink)
      positions.push_back(at);
  return positions;
}

Seen load_seen(const Attention& a, int64_t i, int64_t kv_head, std::vector<int32_t> positions) {
  const CacheView& cache = a.cache;
  const int64_t d = a.heads.dim;
  Seen seen;
  seen.positions = std::move(positions);
  seen.keys.resize(seen.positions.size() * static_cast<size_t>(d));
  if (a.heads.latent == 0) seen.values.resize(seen.keys.size());
  for (size_t j = 0; j < seen.positions.size(); ++j) {
    const LineAddress place = place_of(a, i, seen.positions[j], kv_head);
    const Line key = key_line(cache, place, d), value = value_line(cache, place, d);
    load_line(key, cache.keys, &seen.keys[j * static_cast<size_t>(d)]);
    seen.key_scales.push_back(scale_of(key, cache.key_scales));
    if (a.heads.latent > 0) continue;
    load_line(value, cache.values, &seen.values[j * static_cast<size_t>(d)]);
    seen.value_scales.push_back(scale_of(value, cache.value_scales));
  }
  return seen;
}

void attend(const Attention& a, int64_t i, int64_t head, const Seen& seen) {
  const int64_t d = a.heads.dim;
  const int32_t position = a.step.positions ? a.step.positions[i] : 0;
  const std::vector<float> q = head_vector(a, i, head, is_given(a.angles));
  const double sink = is_given(a.sinks) ? double{to_float(a.sinks.as_bf16()[head])} : -INFINITY;
  double largest = sink;
  std::vector<double> weights;
  for (size_t j = 0; j < seen.positions.size(); ++j) {
    const double* const k = &seen.keys[j * static_cast<size_t>(d)];
    double dot = 0;
    for (int64_t c = 0; c < d; ++c) dot += double{q[c]} * k[c];
    weights.push_back(score_of(a, dot * seen.key_scales[j], head, seen.positions[j] - position));
    largest = std::max(largest, weights.back());
  }
  double sum = std::exp(sink - largest);
  for (double& w : weights) sum += w = std::exp(w - largest);

  const bool is_latent = a.heads.latent > 0;
  const int64_t width = a.heads.value_dim();
  std::vector<double> out(static_cast<size_t>(width));
  for (size_t j = 0; j < weights.size(); ++j) {
    const double* const of = is_latent ? seen.keys.data() + (j + 1) * static_cast<size_t>(d) - width
                                       : seen.values.data() + j * static_cast<size_t>(d);
    const double scaled = weights[j] * (is_latent ? seen.key_scales : seen.value_scales)[j];
    for (int64_t c = 0; c < width; ++c) out[c] += scaled * of[c];
  }
  for (int64_t c = 0; c < width; ++c)
    a.out.row<BF16>(i)[head * width + c] =
        to_bf16(weights.empty() ? 0 : static_cast<float>(out[c] / sum));
}

// The queries of token i in all heads.
void attend_token(const Attention& a, int64_t i, const std::vector<int32_t>& positions) {
  const int64_t group = a.heads.num / a.heads.num_kv;
  for (int64_t kv_head = 0; kv_head < a.heads.num_kv; ++kv_head) {
    const Seen seen = load_seen(a, i, kv_head, positions);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
      attend(a, i, head, seen);
  }
}

// Heads and cache of cross attention as an Attention, with the blocks of the encoder's output.
template <class Op>
Attention cross_of(const Op& a) {
  Attention b = {.qkv = a.q, .heads = a.heads, .cache = a.cache, .scale = a.scale};
  b.step.row_of_token = a.step.row_of_token;
  b.step.block_table = a.step.cross_table;
  b.step.max_blocks = a.step.max_cross_blocks;
  return b;
}

std::vector<int32_t> positions_of_encoder(const BatchView& step, int64_t i) {
  std::vector<int32_t> positions;
  if (step.cross_lengths)
    positions.resize(static_cast<size_t>(step.cross_lengths[step.row_of_token[i]]));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

}  // namespace

void reference(const Attention& a) {
  Attention own = a;
  own.step.cross_lengths = nullptr;
  store_tokens(own);
  for (int64_t i = 0; i < a.qkv.rows; ++i) attend_token(a, i, positions_seen_by(a, i));
}

void reference(const CrossAttention& a) {
  Attention b = cross_of(a);
  b.out = a.out;
  for (int64_t i = 0; i < a.q.rows; ++i) {
    std::vector<int32_t> positions = positions_of_encoder(a.step, i);
    std::erase_if(positions, [&](int32_t at) { return !sees_encoder(a.step, i, at); });
    attend_token(b, i, positions);
  }
}

void reference(const CrossScores& a) {
  const Attention b = cross_of(a);
  const int64_t d = a.heads.dim, kv_head = a.head / (a.heads.num / a.heads.num_kv);
  for (int64_t i = 0; i < a.q.rows; ++i) {
    const float* const q = a.q.row<float>(i) + a.head * d;
    const Seen seen = load_seen(b, i, kv_head, positions_of_encoder(a.step, i));
    for (size_t j = 0; j < seen.positions.size(); ++j) {
      double dot = 0;
      for (int64_t c = 0; c < d; ++c)
        dot += double{q[c]} * seen.keys[j * static_cast<size_t>(d) + static_cast<size_t>(c)];
      a.out.row<float>(i)[j] = static_cast<float>(a.scale * dot * seen.key_scales[j]);
    }
  }
}

void reference(const StoreKv& a) {
  Attention b = {.qkv = a.kv, .heads = {0, a.heads.num_kv, a.heads.dim}, .cache = a.cache};
  b.step.positions = a.step.positions;
  b.step.row_of_token = a.step.row_of_token;
  b.step.block_table = a.step.block_table;
  b.step.max_blocks = a.step.max_blocks;
  b.step.cross_lengths = a.step.cross_lengths;
  store_tokens(b);
}

}  // namespace nereid::kernels
