// Head ops: rotary embedding and attention.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"

namespace nereid::kernels {

// Query, key and value heads side by side: [q heads | k heads | v heads], `dim` columns each. MLA
// (multi-head latent attention, DeepSeek-AI 2024, "DeepSeek-V2"): no v heads; a value is the last
// `latent` columns of its key.
struct Heads {
  int32_t num = 0, num_kv = 0, dim = 0;
  int32_t latent = 0;  // 0 = separate values
  constexpr int64_t width() const {
    return (int64_t{num} + (latent > 0 ? 1 : 2) * int64_t{num_kv}) * dim;
  }
  constexpr int32_t value_dim() const { return latent > 0 ? latent : dim; }
  bool operator==(const Heads&) const = default;
};

inline std::string_view check_heads(const Heads& h, int64_t width) {
  if (h.num < 1 || h.num_kv < 1 || h.dim < 1 || h.num % h.num_kv != 0)
    return "the query heads are not a multiple of the key heads";
  if (h.dim % 2 != 0) return "the width of a head is odd";
  if (h.latent < 0 || h.latent > h.dim) return "a value is wider than its key";
  if (h.width() != width) return "qkv is not as wide as its heads";
  return {};
}

// Rotary embedding: rotates the first w = angles.cols columns of each query and key head by the
// angles of the token's position, in pairs (i, i + w/2), or (2i, 2i + 1) if interleaved; other
// columns are unchanged. Angles with components: pair i turns by the angle of component
// angles.components[i] of the position. Products and sums are each rounded to f32.
template <class F>
struct RopeOf {
  static constexpr std::string_view kName = "rope";
  static constexpr bool kRowsIndependent = false;
  typename F::Value qkv;  // f32 [n, heads.width()]
  Heads heads;
  typename F::Angles angles;  // cols <= heads.dim
  bool interleaved = false;
  typename F::Value out;       // in place of qkv
  typename F::Step step = {};  // positions, components

  static constexpr auto fields() {
    return std::tuple(
        in("qkv", &RopeOf::qkv, {DType::kF32}).of(OutputRows::kTokens),
        attribute("heads", &RopeOf::heads), kernels::angles("angles", &RopeOf::angles),
        attribute("interleaved", &RopeOf::interleaved),
        kernels::out("out", &RopeOf::out, {DType::kF32}).of(OutputRows::kTokens).in_place_of("qkv"),
        kernels::step(&RopeOf::step));
  }
  static std::string_view check(const RopeOf<Views>& a) {
    if (a.out.cols != a.qkv.cols) return "out is not as wide as qkv";
    if (a.angles.cols > a.heads.dim) return "the angles are wider than a head";
    if (a.angles.cols % 2 != 0) return "the width of the angles is odd";
    return check_heads(a.heads, a.qkv.cols);
  }
  friend void reference(const RopeOf<Views>& a);
};

// ALiBi slope of a head (Press, Smith and Lewis 2022, "Train short, test long") as in BLOOM and
// MPT: n = largest power of two <= number of heads; head i < n: 2^(-alibi * (i + 1) / n); the
// others: odd powers of 2^(-alibi / 2n). Falcon also scales slopes, as it does query-key products.
inline float alibi_slope(float alibi, int32_t head, int32_t num_heads, float scale = 1) {
  int32_t n = 1;
  while (n <= num_heads / 2) n *= 2;
  const double power = head < n ? head + 1 : head - n + 0.5;
  return static_cast<float>(std::exp2(-double{alibi} * power / n) * scale);
}

// Paged causal attention over a step's rows. Stores K and V of the new tokens in the cache; then
// the query at position i attends to positions j <= i with j > i - window or j < sink (without a
// window: all). Blocks that no query of the call attends to are not read: their table entries are
// arbitrary. A token in a draft tree (BatchView::after) attends, among the step's tokens, to its
// path only, and its bits are those of a chain. A token with BatchView::last attends to positions
// up to that one; its window begins where it would without. With angles, without components, Q and
// K are rotated first (fused Rope, same bits). Chunked: a query attends to its own chunk only, j >=
// i - i % window, and to sinks. Score s = scale * (query . key); with a cap: cap * tanh(s / cap);
// with ALiBi: s - alibi_slope() * (i - j). A sink logit is an additional score of each query
// without a value: it enlarges the sum of weights (and m) only. Bidirectional (encoders): the row
// has all positions of its text, and a query attends to all of them, j < the row's end; with
// BatchView::last, which rows of one text may need, j <= the row's. Relative position bias (T5):
// score + bias[head][clamp(j - i, bias_first, bias_first + bias_width - 1) - bias_first]. A bf16
// cache has rounded values. MLA: the cache has keys only, rotated and rounded like others; values
// are read from them. An i8 or f8e4m3 cache has, for a vector x of one token and head, scale = amax
// / L (L = 127 or 448) and x * (L / amax), rounded to nearest even; the value is scale * stored.
// amax < kSmallestScaled: zeros with scale 0; not finite: scale NaN.
template <class F>
struct AttentionOf {
  static constexpr std::string_view kName = "attention";
  static constexpr bool kRowsIndependent = false;
  typename F::Value qkv;  // f32 [n, heads.width()]
  Heads heads;
  typename F::Cache cache;     // cache.window is the effective window, which includes the server's
  int32_t window = 0;          // the model's; 0 = full attention
  bool chunked = false;        // attention within chunks of `window`
  bool bidirectional = false;  // window 0, no ALiBi, no draft trees
  // The step's rows are its second partition, the windows of pictures; see exec::StepMessage.
  bool in_windows = false;
  float scale = 0;        // of scores, usually 1 / sqrt(d)
  float cap = 0;          // 0 = none
  float alibi = 0;        // exponent of the smallest slope, usually 8; 0 = no ALiBi
  float alibi_scale = 1;  // factor of the slopes
  // Where ranks have some of the heads: index of the first one, and number of all; 0: heads.num.
  int32_t alibi_first = 0, alibi_heads = 0;
  typename F::Weight sinks;  // [heads.num] sink logits, optional
  typename F::Weight bias;   // f32 [heads.num, bias_width] by j - i from bias_first on, optional
  int32_t bias_first = 0, bias_width = 0;
  typename F::Angles angles;  // optional, cols <= heads.dim
  bool interleaved = false;   // as in Rope
  typename F::Value out;      // bf16 [n, heads.num * heads.value_dim()]
  typename F::Step step =
      {};  // positions, row_begin, row_of_token, block_table, after, cells, last

  static constexpr auto fields() {
    return std::tuple(
        in("qkv", &AttentionOf::qkv, {DType::kF32}).of(OutputRows::kTokens),
        attribute("heads", &AttentionOf::heads), kernels::cache("cache", &AttentionOf::cache),
        attribute("window", &AttentionOf::window), attribute("chunked", &AttentionOf::chunked),
        attribute("bidirectional", &AttentionOf::bidirectional),
        attribute("in_windows", &AttentionOf::in_windows), attribute("scale", &AttentionOf::scale),
        attribute("cap", &AttentionOf::cap), attribute("alibi", &AttentionOf::alibi),
        attribute("alibi_scale", &AttentionOf::alibi_scale),
        attribute("alibi_first", &AttentionOf::alibi_first),
        attribute("alibi_heads", &AttentionOf::alibi_heads),
        vector("sinks", &AttentionOf::sinks).maybe(),
        vector("bias", &AttentionOf::bias).exact().maybe(),
        attribute("bias_first", &AttentionOf::bias_first),
        attribute("bias_width", &AttentionOf::bias_width),
        kernels::angles("angles", &AttentionOf::angles).maybe(),
        attribute("interleaved", &AttentionOf::interleaved),
        kernels::out("out", &AttentionOf::out, {DType::kBF16}).of(OutputRows::kTokens),
        kernels::step(&AttentionOf::step));
  }
  static std::string_view check(const AttentionOf<Views>& a) {
    if (a.out.cols != int64_t{a.heads.num} * a.heads.value_dim())
      return "out is not as wide as its heads";
    if (a.angles.cols > a.heads.dim) return "the angles are wider than a head";
    if (a.angles.cols % 2 != 0) return "the width of the angles is odd";
    if (a.angles.has_components) return "angles have components";
    if (is_given(a.sinks) && a.sinks.k != a.heads.num) return "there is not one sink for each head";
    if (a.bidirectional && (a.window > 0 || a.alibi > 0))
      return "bidirectional attention has no window and no ALiBi";
    if (is_given(a.bias) ? a.bias_width < 1 || a.bias.k != int64_t{a.heads.num} * a.bias_width
                         : a.bias_width != 0)
      return "the bias has not bias_width columns for each head";
    if (a.bias_first > 0 || a.bias_first < -(1 << 20)) return "bias_first is out of range";
    if (!std::isfinite(a.cap) || a.cap < 0) return "the cap is negative or no number";
    if (!std::isfinite(a.alibi) || a.alibi < 0) return "alibi is negative or no number";
    if (!std::isfinite(a.alibi_scale) || a.alibi_scale <= 0) return "alibi_scale is not positive";
    if (a.alibi_first < 0 || a.alibi_heads < 0 ||
        (a.alibi_heads > 0 && a.alibi_first > a.alibi_heads - a.heads.num))
      return "the heads are not among all heads of ALiBi";
    if (a.window < 0) return "the window is negative";
    if (a.chunked && a.window == 0) return "chunks have no size";
    if (!std::isfinite(a.scale) || a.scale <= 0) return "the scale is not positive";
    return check_heads(a.heads, a.qkv.cols);
  }
  friend void reference(const AttentionOf<Views>& a);
};

// Cross attention: a query attends to all keys of its row's encoder output, positions [0,
// cross_lengths[row]) of the blocks in cross_table, of which cross_mask may leave out some. Score:
// scale * (query . key). A query without keys: 0. Stores nothing.
template <class F>
struct CrossAttentionOf {
  static constexpr std::string_view kName = "cross_attention";
  static constexpr bool kRowsIndependent = false;
  typename F::Value q;  // f32 [n, heads.num * heads.dim]
  Heads heads;          // latent 0
  typename F::Cache cache;
  float scale = 0;
  typename F::Value out;       // bf16 [n, heads.num * heads.dim]
  typename F::Step step = {};  // row_begin, row_of_token, cross_lengths, cross_table, cross_mask

  static constexpr auto fields() {
    return std::tuple(
        in("q", &CrossAttentionOf::q, {DType::kF32}).of(OutputRows::kTokens),
        attribute("heads", &CrossAttentionOf::heads),
        kernels::cache("cache", &CrossAttentionOf::cache),
        attribute("scale", &CrossAttentionOf::scale),
        kernels::out("out", &CrossAttentionOf::out, {DType::kBF16}).of(OutputRows::kTokens),
        kernels::step(&CrossAttentionOf::step));
  }
  static std::string_view check(const CrossAttentionOf<Views>& a) {
    if (a.heads.latent != 0) return "latent heads have no cross attention";
    if (a.out.cols != a.q.cols || a.q.cols != int64_t{a.heads.num} * a.heads.dim)
      return "q and out are not as wide as the query heads";
    if (!std::isfinite(a.scale) || a.scale <= 0) return "the scale is not positive";
    return check_heads(a.heads, a.heads.width());
  }
  friend void reference(const CrossAttentionOf<Views>& a);
};

// Scores of one query head of CrossAttention, before the softmax: out[token][position] = scale *
// (query . key), for positions [0, cross_lengths[row]) of the token's row, masked or not; other
// columns are not written. Not in plans: exec adds it to the call of CrossAttention whose scores a
// row asks for.
template <class F>
struct CrossScoresOf {
  static constexpr std::string_view kName = "cross_scores";
  static constexpr bool kRowsIndependent = false;
  typename F::Value q;  // f32 [n, heads.num * heads.dim]
  Heads heads;          // latent 0
  int32_t head = 0;     // of the query, in [0, heads.num)
  typename F::Cache cache;
  float scale = 0;
  typename F::Value out;       // f32 [n, at least the largest cross length]
  typename F::Step step = {};  // row_of_token, cross_lengths, cross_table

  static constexpr auto fields() {
    return std::tuple(
        in("q", &CrossScoresOf::q, {DType::kF32}).of(OutputRows::kTokens),
        attribute("heads", &CrossScoresOf::heads), attribute("head", &CrossScoresOf::head),
        kernels::cache("cache", &CrossScoresOf::cache), attribute("scale", &CrossScoresOf::scale),
        kernels::out("out", &CrossScoresOf::out, {DType::kF32}).of(OutputRows::kTokens),
        kernels::step(&CrossScoresOf::step));
  }
  static std::string_view check(const CrossScoresOf<Views>& a) {
    if (a.heads.latent != 0) return "latent heads have no cross attention";
    if (a.q.cols != int64_t{a.heads.num} * a.heads.dim)
      return "q is not as wide as the query heads";
    if (a.head < 0 || a.head >= a.heads.num) return "the head is not one of the query heads";
    if (!std::isfinite(a.scale) || a.scale <= 0) return "the scale is not positive";
    return check_heads(a.heads, a.heads.width());
  }
  friend void reference(const CrossScoresOf<Views>& a);
};

// Stores keys and values of an encoder's output for CrossAttention, at the tokens' positions of
// the rows' blocks; rounded and scaled as by Attention. Tokens at positions behind their row's
// cross_lengths are left out; without that array none is.
template <class F>
struct StoreKvOf {
  static constexpr std::string_view kName = "store_kv";
  static constexpr bool kRowsIndependent = false;
  typename F::Value kv;  // f32 [n, 2 * heads.num_kv * heads.dim]: keys, values
  Heads heads;           // num_kv and dim count; latent 0
  typename F::Cache cache;
  typename F::Step step = {};  // positions, row_of_token, block_table, cross_lengths

  static constexpr auto fields() {
    return std::tuple(in("kv", &StoreKvOf::kv, {DType::kF32}).of(OutputRows::kTokens),
                      attribute("heads", &StoreKvOf::heads),
                      kernels::cache("cache", &StoreKvOf::cache), kernels::step(&StoreKvOf::step));
  }
  static std::string_view check(const StoreKvOf<Views>& a) {
    if (a.heads.latent != 0) return "latent heads have no cross attention";
    if (a.kv.cols != int64_t{2} * a.heads.num_kv * a.heads.dim)
      return "kv is not as wide as keys and values";
    return check_heads(a.heads, a.heads.width());
  }
  friend void reference(const StoreKvOf<Views>& a);
};

// ALiBi slope of one of the call's heads.
inline float alibi_slope(const AttentionOf<Views>& a, int32_t head) {
  const int32_t all = a.alibi_heads > 0 ? a.alibi_heads : a.heads.num;
  return alibi_slope(a.alibi, a.alibi_first + head, all, a.alibi_scale);
}

// Effective chunk size; 0: no chunks. A cache without a window: the model has a single chunk.
inline int32_t chunk_of(const AttentionOf<Views>& a) {
  return a.chunked && a.cache.window > 0 ? a.window : 0;
}

// 8-bit KV cache types have scales.
constexpr bool has_kv_scales(DType kv) { return kv == DType::kI8 || kv == DType::kF8E4M3; }

}  // namespace nereid::kernels
