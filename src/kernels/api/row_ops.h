// Row-wise ops: rounding with scales, norms, activations, sums.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"

namespace nereid::kernels {

// Scaled rows of f8e4m3 and i8: for a row x of bf16 numbers scale = amax / 448 (i8: amax / 127),
// stored = x * (448 / amax) (127 / amax), rounded to nearest even. amax < kSmallestScaled: zeros
// with scale 0; not finite: scale NaN.
inline constexpr float kSmallestScaled = 0x1p-100f;

inline std::string_view check_scales(const View& x, const View& scales) {
  if ((x.dtype == DType::kF8E4M3 || x.dtype == DType::kI8) != is_given(scales))
    return "'scales' are given where rows are f8e4m3 or i8, there alone";
  if (is_given(scales) && scales.cols != 1) return "'scales' is not one column";
  return {};
}

// out = x in f8e4m3 or i8, with a scale per row.
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

// sum = x + add (if given); with factors add is the sum of factors[j] * piece j of it, in order of
// j (experts of a mixture). Each piece y of sum (the row, or e.g. one head) becomes (y - m) /
// sqrt(mean((y - m)^2) + eps) * (weight + weight_offset) + bias; m = mean(y) if `centered`
// (LayerNorm), else 0 (RMS norm). A weight (and bias) of several pieces is repeated over the row.
// f8e4m3 results are rounded to bf16 first. `rounded`: bf16 results also as Quantize makes them.
template <class F>
struct NormOf {
  static constexpr std::string_view kName = "norm";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // f32 or bf16 [n, hidden]
  typename F::Value add;      // f32 or bf16 [n, hidden], optional; with factors [n, m * hidden]
  typename F::Value factors;  // f32 [n, m], optional
  typename F::Weight weight;  // [pieces * piece], divides hidden
  typename F::Weight bias;    // as weight, optional
  int32_t piece = 0;          // columns per piece; 0 = width of the weight
  float eps = 0;
  float weight_offset = 0;
  bool centered = false;
  typename F::Value out;      // bf16, f32 or f8e4m3 [n, hidden]
  typename F::Value sum;      // f32 [n, hidden], in place of x, with add
  typename F::Value rounded;  // f8e4m3 [n, hidden], optional, with bf16 out
  typename F::Value scales;   // f32 [n, 1], with f8e4m3 results; then a row is one piece

  static constexpr auto fields() {
    return std::tuple(in("x", &NormOf::x, {DType::kF32, DType::kBF16}),
                      in("add", &NormOf::add, {DType::kF32, DType::kBF16}).maybe(),
                      in("factors", &NormOf::factors, {DType::kF32}).maybe(),
                      vector("weight", &NormOf::weight), vector("bias", &NormOf::bias).maybe(),
                      attribute("piece", &NormOf::piece), attribute("eps", &NormOf::eps),
                      attribute("weight_offset", &NormOf::weight_offset),
                      attribute("centered", &NormOf::centered),
                      kernels::out("out", &NormOf::out, {DType::kBF16, DType::kF32, DType::kF8E4M3})
                          .may_be_in_place_of("x"),
                      kernels::out("sum", &NormOf::sum, {DType::kF32}).maybe().in_place_of("x"),
                      kernels::out("rounded", &NormOf::rounded, {DType::kF8E4M3}).maybe(),
                      kernels::out("scales", &NormOf::scales, {DType::kF32}).maybe());
  }
  static std::string_view check(const NormOf<Views>& a) {
    if (is_given(a.add) != is_given(a.sum)) return "'add' and 'sum' come together";
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    if (a.x.cols % a.weight.k != 0) return "the weight's width does not divide that of x";
    if (a.piece < 0 || (a.piece > 0 && a.weight.k % a.piece != 0))
      return "a piece's width does not divide the weight's";
    if (is_given(a.bias) && a.bias.k != a.weight.k) return "bias is not as wide as the weight";
    if (is_given(a.rounded) && (a.out.dtype != DType::kBF16 || a.rounded.cols != a.out.cols))
      return "rounded is as wide as out, which is bf16";
    if (const std::string_view text =
            check_scales(is_given(a.rounded) ? a.rounded : a.out, a.scales);
        !text.empty())
      return text;
    if (is_given(a.scales) && piece_of(a) != a.x.cols) return "a row of f8e4m3 is one piece";
    if (is_given(a.add) && a.x.dtype != DType::kF32) return "a sum is f32";
    if (is_given(a.factors) && !is_given(a.add)) return "factors are of pieces of 'add'";
    const int64_t pieces = is_given(a.factors) ? a.factors.cols : 1;
    if (is_given(a.add) && (a.add.cols != pieces * a.x.cols || a.sum.cols != a.x.cols))
      return "add or sum is not as wide as x";
    if (!std::isfinite(a.eps) || a.eps < 0) return "eps is not a small number";
    if (!std::isfinite(a.weight_offset)) return "weight_offset is not a number";
    return {};
  }
  // Columns of a piece.
  static int64_t piece_of(const NormOf<Views>& a) { return a.piece > 0 ? a.piece : a.weight.k; }
  friend void reference(const NormOf<Views>& a);
};

// kRelu2: squared. kNone: x itself. kGeluSigmoid: x * sigmoid(1.702 x).
enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu, kRelu, kRelu2, kNone, kGeluSigmoid };
inline std::span<const std::string_view> names_of(Activation) {
  static constexpr std::string_view kNames[] = {"silu",  "gelu_tanh", "gelu",        "relu",
                                                "relu2", "none",      "gelu_sigmoid"};
  return kNames;
}

// out = act(gate) * (up + up_offset), x = [gate | up]; with a limit first gate = min(gate, limit),
// up = clamp(up, -limit, limit).
template <class F>
struct GluOf {
  static constexpr std::string_view kName = "glu";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;  // f32 or bf16 [n, 2 * width]
  Activation activation = Activation::kSilu;
  float limit = 0;  // 0 = none
  float up_offset = 0;
  typename F::Value out;     // bf16, or f8e4m3 (rounded to bf16 first) [n, width]
  typename F::Value scales;  // f32 [n, 1], with f8e4m3 out

  static constexpr auto fields() {
    return std::tuple(in("x", &GluOf::x, {DType::kF32, DType::kBF16}),
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
  typename F::Value out;  // bf16 or f32 [n, width]

  static constexpr auto fields() {
    return std::tuple(in("x", &ActivateOf::x, {DType::kF32}),
                      attribute("activation", &ActivateOf::activation),
                      kernels::out("out", &ActivateOf::out, {DType::kBF16, DType::kF32}));
  }
  static std::string_view check(const ActivateOf<Views>& a) {
    if (a.x.cols != a.out.cols) return "out is not as wide as x";
    return {};
  }
  friend void reference(const ActivateOf<Views>& a);
};

// out = p * max(x, 0)^2 + n * (exp(min(x, 0)) - 1 - min(x, 0)) + beta * x with p =
// softplus(positive) and n = beta + softplus(negative) (Huang et al. 2024, "Deriving activation
// functions using integration").
template <class F>
struct XieluOf {
  static constexpr std::string_view kName = "xielu";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;                    // f32 [n, width]
  typename F::Weight positive, negative;  // f32 [1]
  float beta = 0.5;
  typename F::Value out;  // bf16 [n, width]

  static constexpr auto fields() {
    return std::tuple(
        in("x", &XieluOf::x, {DType::kF32}), vector("positive", &XieluOf::positive).exact(),
        vector("negative", &XieluOf::negative).exact(), attribute("beta", &XieluOf::beta),
        kernels::out("out", &XieluOf::out, {DType::kBF16}));
  }
  static std::string_view check(const XieluOf<Views>& a) {
    if (a.x.cols != a.out.cols) return "out is not as wide as x";
    if (a.positive.k != 1 || a.negative.k != 1) return "positive or negative is not one number";
    if (!std::isfinite(a.beta)) return "beta is not a number";
    return {};
  }
  friend void reference(const XieluOf<Views>& a);
};

// s = scale * x; with a cap: cap * tanh(s / cap); with a limit: clamped to [-limit, limit].
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

}  // namespace nereid::kernels
