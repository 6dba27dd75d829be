// The ops: declarations and contracts (op.h says how they are read). Activations are token-packed:
// n rows, no padding. Sums are accumulated in f32; every op fixes its reduction order independently
// of n, so a row's result never depends on its neighbours (on CPU).
//
// Where numbers are rounded, on every device, each number once:
//   f32   the residual stream and what is added to it, sums, norms, logits; what an op other than
//         a product takes from a product (queries, keys, values, gate and up); attention's scores
//         and weights
//   bf16  what a product reads; keys and values in a bf16 cache
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <variant>

#include "kernels/api/op.h"
#include "kernels/api/sample.h"

namespace nereid::kernels {

// The id of token i of the step, -1 where it has none: its embedding is given, or its draw failed.
inline int64_t id_of(const StepView& step, int64_t i) {
  const int64_t id = step.tokens[i];
  if (id >= 0 || id < kFirstEmbedding / 2) return id < 0 ? -1 : id;
  return step.slot_tokens ? std::max(-1, step.slot_tokens[-1 - id]) : -1;
}

// out[i] = table[token(i)]; a token id t < 0 stands for slot_tokens[-1 - t] (sampled by the step
// before, host unaware) or, from kFirstEmbedding on, for a row of step.embeddings in place of the
// table's. An id outside the table (such as the -1 of a failed draw) and a row that is not there
// give zeros. The row is multiplied by `scale`.
template <class F>
struct EmbedOf {
  static constexpr std::string_view kName = "embed";
  static constexpr bool kRowsIndependent = false;  // it reads the step's tokens
  typename F::Weight table;                        // [vocab, hidden]
  float scale = 1;
  typename F::Value out;       // f32 [n, hidden]
  typename F::Step step = {};  // tokens, slot_tokens, embeddings

  static constexpr auto fields() {
    return std::tuple(matrix("table", &EmbedOf::table), attribute("scale", &EmbedOf::scale),
                      kernels::out("out", &EmbedOf::out, {DType::kF32}).of(Rows::kTokens),
                      kernels::step(&EmbedOf::step));
  }
  static std::string_view check(const EmbedOf<Views>& a) {
    if (a.out.cols != a.table.k) return "out is not as wide as the table";
    if (!std::isfinite(a.scale)) return "the scale is not a number";
    return {};
  }
  friend void reference(const EmbedOf<Views>& a);
};

// out[i] = x[i] + table[position(i)]: learned positions. A position outside the table adds nothing.
template <class F>
struct AddPositionsOf {
  static constexpr std::string_view kName = "add_positions";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;         // f32 [n, hidden]
  typename F::Weight table;    // [positions, hidden]
  typename F::Value out;       // in place of x
  typename F::Step step = {};  // positions

  static constexpr auto fields() {
    return std::tuple(
        in("x", &AddPositionsOf::x, {DType::kF32}).of(Rows::kTokens),
        matrix("table", &AddPositionsOf::table),
        kernels::out("out", &AddPositionsOf::out, {DType::kF32}).of(Rows::kTokens).in_place_of("x"),
        kernels::step(&AddPositionsOf::step));
  }
  static std::string_view check(const AddPositionsOf<Views>& a) {
    if (a.x.cols != a.table.k || a.out.cols != a.x.cols) return "x and the table differ in width";
    return {};
  }
  friend void reference(const AddPositionsOf<Views>& a);
};

// Rows of f8e4m3 and i8 come with a scale each: a row x of bf16 numbers has scale = amax / 448 (i8:
// amax / 127) and is stored as x * (448 / amax) (127 / amax), rounded to nearest even. A row with
// amax < kSmallestScaled is stored as zeros with scale 0; one that is not finite gets the scale
// NaN.
inline constexpr float kSmallestScaled = 0x1p-100f;

inline std::string_view check_scales(const View& x, const View& scales) {
  if ((x.dtype == DType::kF8E4M3 || x.dtype == DType::kI8) != is_given(scales))
    return "'scales' are given where rows are f8e4m3 or i8, there alone";
  if (is_given(scales) && scales.cols != 1) return "'scales' is not one column";
  return {};
}

// out = x in f8e4m3 or i8, with the scale of each row.
template <class F>
struct QuantizeOf {
  static constexpr std::string_view kName = "quantize";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;       // bf16 [n, width]
  typename F::Value out;     // f8e4m3 or i8 [n, width]
  typename F::Value scales;  // f32 [n, 1]

  static constexpr auto fields() {
    return std::tuple(in("x", &QuantizeOf::x, {DType::kBF16}),
                      kernels::out("out", &QuantizeOf::out, {DType::kF8E4M3, DType::kI8}),
                      kernels::out("scales", &QuantizeOf::scales, {DType::kF32}));
  }
  static std::string_view check(const QuantizeOf<Views>& a) {
    if (a.x.cols != a.out.cols) return "out is not as wide as x";
    return check_scales(a.out, a.scales);
  }
  friend void reference(const QuantizeOf<Views>& a);
};

// sum = x + add (when add is given). Then each piece y of sum (all of it, or for example one head)
// becomes (y - m) / sqrt(mean((y - m)^2) + eps) * (weight + weight_offset) + bias, with m = mean(y)
// when `centered` (LayerNorm), else 0 (RMS norm). A weight (and bias) that is several pieces wide
// has its own numbers for each, and begins again after the last. Where out is f8e4m3, the result is
// rounded to bf16 first.
template <class F>
struct NormOf {
  static constexpr std::string_view kName = "norm";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // f32 or bf16 [n, hidden]
  typename F::Value add;      // f32 [n, hidden], optional
  typename F::Weight weight;  // [pieces * piece], divides hidden
  typename F::Weight bias;    // likewise, optional
  int32_t piece = 0;          // columns of a piece; 0 = those of the weight
  float eps = 0;
  float weight_offset = 0;
  bool centered = false;
  typename F::Value out;     // bf16, f32 or f8e4m3 [n, hidden]
  typename F::Value sum;     // f32 [n, hidden] in place of x, given when add is
  typename F::Value scales;  // f32 [n, 1], given when out is f8e4m3; a row is one piece then

  static constexpr auto fields() {
    return std::tuple(in("x", &NormOf::x, {DType::kF32, DType::kBF16}),
                      in("add", &NormOf::add, {DType::kF32}).maybe(),
                      vector("weight", &NormOf::weight), vector("bias", &NormOf::bias).maybe(),
                      attribute("piece", &NormOf::piece), attribute("eps", &NormOf::eps),
                      attribute("weight_offset", &NormOf::weight_offset),
                      attribute("centered", &NormOf::centered),
                      kernels::out("out", &NormOf::out, {DType::kBF16, DType::kF32, DType::kF8E4M3})
                          .may_be_in_place_of("x"),
                      kernels::out("sum", &NormOf::sum, {DType::kF32}).maybe().in_place_of("x"),
                      kernels::out("scales", &NormOf::scales, {DType::kF32}).maybe());
  }
  static std::string_view check(const NormOf<Views>& a) {
    if (is_given(a.add) != is_given(a.sum)) return "'add' and 'sum' come together";
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    if (a.x.cols % a.weight.k != 0) return "the weight's width does not divide that of x";
    if (a.piece < 0 || (a.piece > 0 && a.weight.k % a.piece != 0))
      return "a piece's width does not divide the weight's";
    if (is_given(a.bias) && a.bias.k != a.weight.k) return "bias is not as wide as the weight";
    if (const std::string_view text = check_scales(a.out, a.scales); !text.empty()) return text;
    if (is_given(a.scales) && piece_of(a) != a.x.cols) return "a row of f8e4m3 is one piece";
    if (is_given(a.add) && a.x.dtype != DType::kF32) return "a sum is f32";
    if (is_given(a.add) && (a.add.cols != a.x.cols || a.sum.cols != a.x.cols))
      return "add or sum is not as wide as x";
    if (!std::isfinite(a.eps) || a.eps < 0) return "eps is not a small number";
    if (!std::isfinite(a.weight_offset)) return "weight_offset is not a number";
    return {};
  }
  // Columns of a piece.
  static int64_t piece_of(const NormOf<Views>& a) { return a.piece > 0 ? a.piece : a.weight.k; }
  friend void reference(const NormOf<Views>& a);
};

inline constexpr int64_t kMaxByteColumns = int64_t{1} << 17;  // sums of i8 products fit in 32 bits

// Of a product's x.
template <class Op>
std::string_view check_rows(const Op& a) {
  if (a.x.dtype == DType::kF8E4M3 && a.weight.format.scheme != Scheme::kFloat8)
    return "an x of f8e4m3 goes with a weight of fp8";
  if (a.x.dtype == DType::kI8 && a.weight.format.inputs != DType::kI8)
    return "an x of i8 goes with a weight that asks for it";
  if (a.x.dtype == DType::kI8 && a.weight.k > kMaxByteColumns) return "rows of i8 are too long";
  return check_scales(a.x, a.scales);
}

// out = x . weight^T + bias. Products bf16 x bf16 (what a weight of integers stands for is rounded
// to bf16), sums f32. Where x or the weight are f8e4m3, or x is i8, their numbers are multiplied as
// they are stored, and the sum is multiplied with the scales of its rows before the bias is added.
// Sums of i8 products are exact.
template <class F>
struct LinearOf {
  static constexpr std::string_view kName = "linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // bf16, f8e4m3 or i8 [n, k]
  typename F::Value scales;   // f32 [n, 1], given when x is not bf16
  typename F::Weight weight;  // [n_out, k]
  typename F::Weight bias;    // [n_out], optional
  typename F::Value out;      // f32 or bf16 [n, n_out]

  static constexpr auto fields() {
    return std::tuple(in("x", &LinearOf::x, {DType::kBF16, DType::kF8E4M3, DType::kI8}),
                      in("scales", &LinearOf::scales, {DType::kF32}).maybe(),
                      matrix("weight", &LinearOf::weight), vector("bias", &LinearOf::bias).maybe(),
                      kernels::out("out", &LinearOf::out, {DType::kF32, DType::kBF16}));
  }
  static std::string_view check(const LinearOf<Views>& a) {
    if (a.x.cols != a.weight.k) return "x is not as wide as the weight's rows";
    if (const std::string_view text = check_rows(a); !text.empty()) return text;
    if (a.out.cols != a.weight.n) return "out has not one column for each row of the weight";
    if (is_given(a.bias) && a.bias.k != a.weight.n) return "bias is not as wide as out";
    return {};
  }
  friend void reference(const LinearOf<Views>& a);
};

// out = y + what the row's adapter adds: for each module m in [first_module, first_module +
// num_modules) scale * its own scale * b^T (a x) in the columns of its AdapterMatrix, products of
// bf16 numbers, sums f32; and then what its gain makes of them, f32. The columns of two modules
// have nothing in common. Rows without an adapter stay as they are.
// With `experts` this is done for each piece j of y's row i: with piece j of x's row i (or all of
// it) and the num_modules modules of experts[i][j], which lie behind those of the experts before.
// An index that is no expert adds nothing.
// Without x, x is the row's token of the step, one of k: a x is that token's row of a, which is
// [k, rank] then. A token that is no id below k (a given embedding, a failed draw) adds nothing.
template <class F>
struct LowRankOf {
  static constexpr std::string_view kName = "low_rank";
  static constexpr bool kRowsIndependent = false;  // it reads the step's adapters
  typename F::Value x;                             // bf16 [n, k] or [n, picked * k], optional
  typename F::Value experts;                       // i32 [n, picked], optional
  typename F::Value y;                             // f32 [n, n_out] or [n, picked * n_out]
  int64_t k = 0;
  int32_t first_module = 0, num_modules = 1;  // of an expert
  int32_t num_experts = 1;
  float scale = 1;
  typename F::Value out;       // in place of y
  typename F::Step step = {};  // adapters, adapter_matrices, adapter_weights, tokens, slot_tokens

  static constexpr auto fields() {
    return std::tuple(in("x", &LowRankOf::x, {DType::kBF16}).maybe(),
                      in("experts", &LowRankOf::experts, {DType::kI32}).maybe(),
                      in("y", &LowRankOf::y, {DType::kF32}), attribute("k", &LowRankOf::k),
                      attribute("first_module", &LowRankOf::first_module),
                      attribute("num_modules", &LowRankOf::num_modules),
                      attribute("num_experts", &LowRankOf::num_experts),
                      attribute("scale", &LowRankOf::scale),
                      kernels::out("out", &LowRankOf::out, {DType::kF32}).in_place_of("y"),
                      kernels::step(&LowRankOf::step));
  }
  static std::string_view check(const LowRankOf<Views>& a) {
    if (a.out.cols != a.y.cols) return "out is not as wide as y";
    if (a.first_module < 0 || a.num_modules < 1) return "there is no module";
    if (a.num_experts < 1 || a.num_experts > kMaxExperts) return "too many experts, or none";
    if (a.k < 1) return "k is not positive";
    if (!std::isfinite(a.scale)) return "the scale is not a number";
    if (is_given(a.experts)) {
      if (a.out.cols % a.experts.cols != 0) return "out is not a piece for each expert picked";
      if (a.x.cols != a.k && a.x.cols != a.experts.cols * a.k)
        return "x is not k wide, once or for each expert picked";
    } else if (a.num_experts != 1 || (is_given(a.x) && a.x.cols != a.k)) {
      return "x is not k wide, or experts are missing";
    }
    return {};
  }
  static int64_t pieces_of(const LowRankOf<Views>& a) {
    return is_given(a.experts) ? a.experts.cols : 1;
  }
  // Of the row's adapter, and of a piece's expert; null without one.
  static const AdapterMatrix* matrices_of(const LowRankOf<Views>& a, int64_t row, int64_t piece) {
    const int32_t adapter = a.step.adapters ? a.step.adapters[row] : -1;
    const int32_t expert = is_given(a.experts) ? a.experts.template row<int32_t>(row)[piece] : 0;
    if (adapter < 0 || expert < 0 || expert >= a.num_experts) return nullptr;
    return a.step.adapter_matrices + int64_t{adapter} * a.step.num_adapter_modules +
           a.first_module + int64_t{expert} * a.num_modules;
  }
  // What stands for x where there is none: an id below k, or -1.
  static int64_t token_of(const LowRankOf<Views>& a, int64_t row) {
    const int64_t id = id_of(a.step, row);
    return id < a.k ? id : -1;
  }
  friend void reference(const LowRankOf<Views>& a);
};

// Query, key and value heads side by side: [q heads | k heads | v heads], each of `dim` columns.
// Latent heads (multi-head latent attention, DeepSeek-AI 2024, "DeepSeek-V2") have no v heads: a
// value is the last `latent` columns of its key.
struct Heads {
  int32_t num = 0, num_kv = 0, dim = 0;
  int32_t latent = 0;  // 0 = values of their own
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

// Rotates the first w = angles.cols columns of each query and key head by the row of the angles for
// the token's position, in pairs (i, i + w/2), or (2i, 2i + 1) when interleaved; the other columns
// stay. Products and sums are each rounded to f32.
template <class F>
struct RopeOf {
  static constexpr std::string_view kName = "rope";
  static constexpr bool kRowsIndependent = false;
  typename F::Value qkv;  // f32 [n, heads.width()]
  Heads heads;
  typename F::Angles angles;  // at most as wide as a head
  bool interleaved = false;
  typename F::Value out;       // in place of qkv
  typename F::Step step = {};  // positions

  static constexpr auto fields() {
    return std::tuple(
        in("qkv", &RopeOf::qkv, {DType::kF32}).of(Rows::kTokens),
        attribute("heads", &RopeOf::heads), kernels::angles("angles", &RopeOf::angles),
        attribute("interleaved", &RopeOf::interleaved),
        kernels::out("out", &RopeOf::out, {DType::kF32}).of(Rows::kTokens).in_place_of("qkv"),
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

// Slope of ALiBi (Press, Smith and Lewis 2022, "Train short, test long") for a head, as BLOOM and
// MPT have it: with n the largest power of two up to the number of heads, the first n heads take
// the powers of 2^(-alibi / n), the others the odd powers of 2^(-alibi / 2n). Falcon scales the
// slopes as it does the product of query and key.
inline float alibi_slope(float alibi, int32_t head, int32_t num_heads, float scale = 1) {
  int32_t n = 1;
  while (n <= num_heads / 2) n *= 2;
  const double power = head < n ? head + 1 : head - n + 0.5;
  return static_cast<float>(std::exp2(-double{alibi} * power / n) * scale);
}

// Paged causal attention over a step's rows. First stores K and V of the new tokens in the cache,
// then the query at position i attends to the cached positions j <= i with j > i - window or j <
// sink (without a window: all). A block that no query of the call sees is not looked at: its entry
// in the table may be anything. A token in a tree (StepView::after) sees of the step's tokens those
// that it comes after, and they count as positions; its bits are those that it would have if there
// were no others. With angles given, Q and K are rotated on the way (the fused form of Rope, to the
// same bits).
// A score is s = scale * (query . key), then cap * tanh(s / cap) with a cap, then with ALiBi
// s - slope * (i - j), alibi_slope() being the head's. Sink logits take part as one more score of
// each query, without a value: they enlarge the sum of weights (and m) only.
// A bf16 cache holds rounded values. With latent heads the cache has keys alone, rotated and
// rounded as others are, and a value is read from its key. An i8 or f8e4m3 cache holds, for a
// vector x of one token and head, scale = amax / L (L = 127 or 448) and x * (L / amax), rounded to
// nearest even; it stands for scale * stored. A vector with amax < kSmallestScaled is stored as
// zeros with scale 0; one that is not finite gets the scale NaN.
template <class F>
struct AttentionOf {
  static constexpr std::string_view kName = "attention";
  static constexpr bool kRowsIndependent = false;
  typename F::Value qkv;  // f32 [n, heads.width()]
  Heads heads;
  typename F::Cache cache;     // the window in force is the cache's: it depends on the server, too
  int32_t window = 0;          // the model's own; 0 = all positions
  float scale = 0;             // of the scores, usually 1 / sqrt(d)
  float cap = 0;               // 0 = none
  float alibi = 0;             // exponent of the smallest slope, usually 8; 0 = no ALiBi
  float alibi_scale = 1;       // of the slopes
  typename F::Weight sinks;    // [heads.num] sink logits, optional
  typename F::Angles angles;   // optional, at most as wide as a head
  bool interleaved = false;    // of the angles, as in Rope
  typename F::Value out;       // bf16 [n, heads.num * heads.value_dim()]
  typename F::Step step = {};  // positions, row_begin, row_of_token, block_table, after, cells

  static constexpr auto fields() {
    return std::tuple(
        in("qkv", &AttentionOf::qkv, {DType::kF32}).of(Rows::kTokens),
        attribute("heads", &AttentionOf::heads), kernels::cache("cache", &AttentionOf::cache),
        attribute("window", &AttentionOf::window), attribute("scale", &AttentionOf::scale),
        attribute("cap", &AttentionOf::cap), attribute("alibi", &AttentionOf::alibi),
        attribute("alibi_scale", &AttentionOf::alibi_scale),
        vector("sinks", &AttentionOf::sinks).maybe(),
        kernels::angles("angles", &AttentionOf::angles).maybe(),
        attribute("interleaved", &AttentionOf::interleaved),
        kernels::out("out", &AttentionOf::out, {DType::kBF16}).of(Rows::kTokens),
        kernels::step(&AttentionOf::step));
  }
  static std::string_view check(const AttentionOf<Views>& a) {
    if (a.out.cols != int64_t{a.heads.num} * a.heads.value_dim())
      return "out is not as wide as its heads";
    if (a.angles.cols > a.heads.dim) return "the angles are wider than a head";
    if (a.angles.cols % 2 != 0) return "the width of the angles is odd";
    if (is_given(a.sinks) && a.sinks.k != a.heads.num) return "there is not one sink for each head";
    if (!std::isfinite(a.cap) || a.cap < 0) return "the cap is negative or no number";
    if (!std::isfinite(a.alibi) || a.alibi < 0) return "alibi is negative or no number";
    if (!std::isfinite(a.alibi_scale) || a.alibi_scale <= 0) return "alibi_scale is not positive";
    if (a.window < 0) return "the window is negative";
    if (!std::isfinite(a.scale) || a.scale <= 0) return "the scale is not positive";
    return check_heads(a.heads, a.qkv.cols);
  }
  friend void reference(const AttentionOf<Views>& a);
};

// Types of a KV cache; those of one byte have scales.
constexpr bool has_kv_scales(DType kv) { return kv == DType::kI8 || kv == DType::kF8E4M3; }

// kRelu2: squared. kNone: x itself. kGeluSigmoid: x * sigmoid(1.702 x).
enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu, kRelu, kRelu2, kNone, kGeluSigmoid };
inline std::span<const std::string_view> names_of(Activation) {
  static constexpr std::string_view kNames[] = {"silu",  "gelu_tanh", "gelu",        "relu",
                                                "relu2", "none",      "gelu_sigmoid"};
  return kNames;
}

// out = act(gate) * (up + up_offset), with x = [gate | up]; with a limit gate is at most that and
// up within [-limit, limit] before.
template <class F>
struct GluOf {
  static constexpr std::string_view kName = "glu";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;  // f32 [n, 2 * width]
  Activation activation = Activation::kSilu;
  float limit = 0;  // 0 = none
  float up_offset = 0;
  typename F::Value out;     // bf16 or f8e4m3 (of the result rounded to bf16) [n, width]
  typename F::Value scales;  // f32 [n, 1], given when out is f8e4m3

  static constexpr auto fields() {
    return std::tuple(in("x", &GluOf::x, {DType::kF32}),
                      attribute("activation", &GluOf::activation),
                      attribute("limit", &GluOf::limit), attribute("up_offset", &GluOf::up_offset),
                      kernels::out("out", &GluOf::out, {DType::kBF16, DType::kF8E4M3}),
                      kernels::out("scales", &GluOf::scales, {DType::kF32}).maybe());
  }
  static std::string_view check(const GluOf<Views>& a) {
    if (a.x.cols != 2 * a.out.cols) return "x is not twice as wide as out";
    if (!std::isfinite(a.limit) || a.limit < 0) return "the limit is negative or no number";
    if (!std::isfinite(a.up_offset)) return "up_offset is not a number";
    return check_scales(a.out, a.scales);
  }
  friend void reference(const GluOf<Views>& a);
};

// out = act(x).
template <class F>
struct ActivateOf {
  static constexpr std::string_view kName = "activate";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;  // f32 [n, width]
  Activation activation = Activation::kSilu;
  typename F::Value out;  // bf16 [n, width]

  static constexpr auto fields() {
    return std::tuple(in("x", &ActivateOf::x, {DType::kF32}),
                      attribute("activation", &ActivateOf::activation),
                      kernels::out("out", &ActivateOf::out, {DType::kBF16}));
  }
  static std::string_view check(const ActivateOf<Views>& a) {
    if (a.x.cols != a.out.cols) return "out is not as wide as x";
    return {};
  }
  friend void reference(const ActivateOf<Views>& a);
};

// s = scale * x, then cap * tanh(s / cap) with a cap; with a limit nothing is beyond it on either
// side of zero.
template <class F>
struct SoftCapOf {
  static constexpr std::string_view kName = "soft_cap";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;  // f32 [n, width]
  float scale = 1;
  float cap = 0, limit = 0;  // 0 = none
  typename F::Value out;     // in place of x

  static constexpr auto fields() {
    return std::tuple(in("x", &SoftCapOf::x, {DType::kF32}), attribute("scale", &SoftCapOf::scale),
                      attribute("cap", &SoftCapOf::cap), attribute("limit", &SoftCapOf::limit),
                      kernels::out("out", &SoftCapOf::out, {DType::kF32}).in_place_of("x"));
  }
  static std::string_view check(const SoftCapOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    if (!std::isfinite(a.scale)) return "the scale is not a number";
    if (!std::isfinite(a.cap) || a.cap < 0) return "the cap is negative or no number";
    if (!std::isfinite(a.limit) || a.limit < 0) return "the limit is negative or no number";
    return {};
  }
  friend void reference(const SoftCapOf<Views>& a);
};

// out = x + y.
template <class F>
struct AddOf {
  static constexpr std::string_view kName = "add";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x, y;  // f32 [n, width]
  typename F::Value out;   // in place of x

  static constexpr auto fields() {
    return std::tuple(in("x", &AddOf::x, {DType::kF32}), in("y", &AddOf::y, {DType::kF32}),
                      kernels::out("out", &AddOf::out, {DType::kF32}).in_place_of("x"));
  }
  static std::string_view check(const AddOf<Views>& a) {
    if (a.y.cols != a.x.cols || a.out.cols != a.x.cols) return "x, y and out differ in width";
    return {};
  }
  friend void reference(const AddOf<Views>& a);
};

enum class Scoring : uint8_t { kSoftmax, kSigmoid, kSparseMixer };
inline std::span<const std::string_view> names_of(Scoring) {
  static constexpr std::string_view kNames[] = {"softmax", "sigmoid", "sparse_mixer"};
  return kNames;
}

// Picks experts for each row. Scores s = softmax or sigmoid of x over the experts; those with the
// largest s + bias are picked, in falling order, the lower index first where they are equal (a NaN
// is less than any number). With several groups (runs of experts of one size) only the
// groups_kept groups with the largest sum of their group_best largest s + bias take part. weights =
// s of the picked (without bias), divided by their sum + 1e-20 when `renormalise`, times `scale`:
// renormalised softmax is the softmax over the picked alone.
// With the sparse mixer (Liu et al. 2023, "Sparse backpropagation for MoE training") the largest x
// are picked, and the weight of each is `scale` times its softmax over those of the experts not
// picked before it whose x is near its own: (own - x) / max(|x|, own) <= reach in f32.
// s and s + bias are f32; without a bias and with group_best = 1 x itself is compared, which is in
// the same order, so that rounding decides nothing.
template <class F>
struct RouteOf {
  static constexpr std::string_view kName = "route";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;      // f32 [n, experts]
  typename F::Weight bias;  // f32 [experts], optional
  Scoring scoring = Scoring::kSoftmax;
  int32_t groups = 1, groups_kept = 1, group_best = 1;
  bool renormalise = false;
  float scale = 1;
  float reach = 0;            // of the sparse mixer
  typename F::Value weights;  // f32 [n, picked]
  typename F::Value experts;  // i32 [n, picked]

  static constexpr auto fields() {
    return std::tuple(
        in("x", &RouteOf::x, {DType::kF32}), vector("bias", &RouteOf::bias).maybe().exact(),
        attribute("scoring", &RouteOf::scoring), attribute("groups", &RouteOf::groups),
        attribute("groups_kept", &RouteOf::groups_kept),
        attribute("group_best", &RouteOf::group_best),
        attribute("renormalise", &RouteOf::renormalise), attribute("scale", &RouteOf::scale),
        attribute("reach", &RouteOf::reach), out("weights", &RouteOf::weights, {DType::kF32}),
        out("experts", &RouteOf::experts, {DType::kI32}));
  }
  static std::string_view check(const RouteOf<Views>& a) {
    if (a.x.cols > kMaxExperts) return "too many experts";
    if (a.experts.cols != a.weights.cols) return "experts and weights differ in width";
    if (is_given(a.bias) && a.bias.k != a.x.cols) return "bias is not as wide as x";
    if (a.groups < 1 || a.x.cols % a.groups != 0) return "the groups do not divide the experts";
    if (a.groups_kept < 1 || a.groups_kept > a.groups) return "more groups kept than there are";
    const int64_t size = a.x.cols / a.groups;
    if (a.group_best < 1 || a.group_best > size) return "a group has fewer experts than group_best";
    if (a.experts.cols > size * a.groups_kept) return "more experts picked than take part";
    if (!std::isfinite(a.scale)) return "the scale is not a number";
    if (!std::isfinite(a.reach) || a.reach < 0) return "the reach is negative or no number";
    if (a.scoring == Scoring::kSparseMixer && (is_given(a.bias) || a.groups > 1 || a.renormalise))
      return "the sparse mixer has no bias, no groups and does not renormalise";
    return {};
  }
  friend void reference(const RouteOf<Views>& a);
};

// Products by picked experts: piece j of out's row i (n_out columns of it) = piece j of x's row i
// by the weight of experts[i][j], + its bias. x may be one piece for all. An index that is no
// expert gives zeros. Rounding and scales as linear's.
template <class F>
struct ExpertLinearOf {
  static constexpr std::string_view kName = "expert_linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // bf16, f8e4m3 or i8 [n, k] or [n, picked * k]
  typename F::Value scales;   // f32 [n, 1], given when x is not bf16
  typename F::Value experts;  // i32 [n, picked]
  typename F::Weight weight;  // [experts, n_out, k]
  typename F::Weight bias;    // [experts, n_out], optional
  typename F::Value out;      // f32 or bf16 [n, picked * n_out]

  static constexpr auto fields() {
    return std::tuple(in("x", &ExpertLinearOf::x, {DType::kBF16, DType::kF8E4M3, DType::kI8}),
                      in("scales", &ExpertLinearOf::scales, {DType::kF32}).maybe(),
                      in("experts", &ExpertLinearOf::experts, {DType::kI32}),
                      matrix("weight", &ExpertLinearOf::weight).per_expert(),
                      vector("bias", &ExpertLinearOf::bias).maybe().per_expert(),
                      kernels::out("out", &ExpertLinearOf::out, {DType::kF32, DType::kBF16}));
  }
  static std::string_view check(const ExpertLinearOf<Views>& a) {
    if (a.weight.experts > kMaxExperts) return "too many experts";
    if (const std::string_view text = check_rows(a); !text.empty()) return text;
    if (a.x.cols != a.weight.k && a.x.cols != a.experts.cols * a.weight.k)
      return "x is not as wide as the weight's rows, once or for each expert picked";
    if (a.out.cols != a.experts.cols * a.weight.n)
      return "out has not one column for each row of a weight and expert picked";
    if (is_given(a.bias) && (a.bias.k != a.weight.n || a.bias.experts != a.weight.experts))
      return "bias is not one column for each row of the weights";
    return {};
  }
  friend void reference(const ExpertLinearOf<Views>& a);
};

// Products by head: x has a piece of kept + k columns for each head, out one of kept + n_out. The
// first `kept` columns of a piece are x's; the others are the rest of x's piece, rounded to bf16,
// by the head's weight. Rounding of the products as linear's.
template <class F>
struct HeadLinearOf {
  static constexpr std::string_view kName = "head_linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // f32 or bf16 [n, heads * (kept + k)]
  typename F::Weight weight;  // [heads, n_out, k]
  int32_t kept = 0;
  typename F::Value out;  // f32 or bf16 [n, heads * (kept + n_out)]

  static constexpr auto fields() {
    return std::tuple(in("x", &HeadLinearOf::x, {DType::kF32, DType::kBF16}),
                      matrix("weight", &HeadLinearOf::weight).per_expert(),
                      attribute("kept", &HeadLinearOf::kept),
                      kernels::out("out", &HeadLinearOf::out, {DType::kF32, DType::kBF16}));
  }
  static std::string_view check(const HeadLinearOf<Views>& a) {
    if (a.weight.experts > kMaxExperts) return "too many heads";
    if (!a.weight.format.is_float()) return "the weights of heads are not bf16";
    if (a.kept < 0) return "a negative number of columns is kept";
    if (a.x.cols != a.weight.experts * (a.kept + a.weight.k))
      return "x is not a piece for each head";
    if (a.out.cols != a.weight.experts * (a.kept + a.weight.n))
      return "out is not a piece for each head";
    return {};
  }
  friend void reference(const HeadLinearOf<Views>& a);
};

// out = the pieces of x (each as wide as out) times their weights, summed in order.
template <class F>
struct WeightedSumOf {
  static constexpr std::string_view kName = "weighted_sum";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // f32 [n, pieces * width]
  typename F::Value weights;  // f32 [n, pieces]
  typename F::Value out;      // f32 [n, width]

  static constexpr auto fields() {
    return std::tuple(in("x", &WeightedSumOf::x, {DType::kF32}),
                      in("weights", &WeightedSumOf::weights, {DType::kF32}),
                      kernels::out("out", &WeightedSumOf::out, {DType::kF32}));
  }
  static std::string_view check(const WeightedSumOf<Views>& a) {
    if (a.x.cols != a.weights.cols * a.out.cols) return "x is not one piece for each weight";
    return {};
  }
  friend void reference(const WeightedSumOf<Views>& a);
};

// out[i] = x[step.logit_tokens[i]].
template <class F>
struct GatherRowsOf {
  static constexpr std::string_view kName = "gather_rows";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;         // f32 [n, width]
  typename F::Value out;       // f32 [m, width]
  typename F::Step step = {};  // logit_tokens

  static constexpr auto fields() {
    return std::tuple(in("x", &GatherRowsOf::x, {DType::kF32}).of(Rows::kTokens),
                      kernels::out("out", &GatherRowsOf::out, {DType::kF32}).of(Rows::kSampled),
                      kernels::step(&GatherRowsOf::step));
  }
  static std::string_view check(const GatherRowsOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    return {};
  }
  friend void reference(const GatherRowsOf<Views>& a);
};

// All ops of a plan, in the form F.
template <class F>
using OpIn =
    std::variant<EmbedOf<F>, AddPositionsOf<F>, NormOf<F>, LinearOf<F>, RopeOf<F>, AttentionOf<F>,
                 GluOf<F>, ActivateOf<F>, AddOf<F>, SoftCapOf<F>, RouteOf<F>, ExpertLinearOf<F>,
                 HeadLinearOf<F>, WeightedSumOf<F>, GatherRowsOf<F>, QuantizeOf<F>, LowRankOf<F>>;

template <class... Ops>
constexpr bool lists_all_members(std::variant<Ops...>*) {
  return (lists_all_members<Ops>() && ...);
}
static_assert(lists_all_members(static_cast<OpIn<Ids>*>(nullptr)), "a field is not declared");

// Nodes of a graph and calls of a plan.
namespace ids {
using Embed = EmbedOf<Ids>;
using AddPositions = AddPositionsOf<Ids>;
using Norm = NormOf<Ids>;
using Linear = LinearOf<Ids>;
using Rope = RopeOf<Ids>;
using Attention = AttentionOf<Ids>;
using Glu = GluOf<Ids>;
using Activate = ActivateOf<Ids>;
using Add = AddOf<Ids>;
using SoftCap = SoftCapOf<Ids>;
using Route = RouteOf<Ids>;
using ExpertLinear = ExpertLinearOf<Ids>;
using HeadLinear = HeadLinearOf<Ids>;
using WeightedSum = WeightedSumOf<Ids>;
using GatherRows = GatherRowsOf<Ids>;
using Quantize = QuantizeOf<Ids>;
using LowRank = LowRankOf<Ids>;
}  // namespace ids

// What kernels get.
using Embed = EmbedOf<Views>;
using AddPositions = AddPositionsOf<Views>;
using Norm = NormOf<Views>;
using Linear = LinearOf<Views>;
using Rope = RopeOf<Views>;
using Attention = AttentionOf<Views>;
using Glu = GluOf<Views>;
using Activate = ActivateOf<Views>;
using Add = AddOf<Views>;
using SoftCap = SoftCapOf<Views>;
using Route = RouteOf<Views>;
using ExpertLinear = ExpertLinearOf<Views>;
using HeadLinear = HeadLinearOf<Views>;
using WeightedSum = WeightedSumOf<Views>;
using GatherRows = GatherRowsOf<Views>;
using Quantize = QuantizeOf<Views>;
using LowRank = LowRankOf<Views>;

}  // namespace nereid::kernels
