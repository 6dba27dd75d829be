// Products with weights, and LoRA.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"
#include "kernels/api/row_ops.h"
#include "kernels/api/token_ops.h"

namespace nereid::kernels {

inline constexpr int64_t kMaxByteColumns = int64_t{1} << 17;  // i8 sums fit in 32 bits

// Checks a product's x and scales.
template <class Op>
std::string_view check_rows(const Op& a) {
  if (a.x.dtype == DType::kF8E4M3 && a.weight.format.scheme != Scheme::kFloat8)
    return "an x of f8e4m3 goes with a weight of fp8";
  if (a.x.dtype == DType::kI8 && a.weight.format.inputs != DType::kI8)
    return "an x of i8 goes with a weight that asks for it";
  if (a.x.dtype == DType::kI8 && a.weight.k > kMaxByteColumns) return "rows of i8 are too long";
  return check_scales(a.x, a.scales);
}

// out = x . weight^T + bias. Products bf16 x bf16 (integer weights are dequantised to bf16), sums
// f32. If x or the weight is f8e4m3, or x is i8: stored numbers are multiplied, and the sum is
// multiplied by its rows' scales before the bias. Sums of i8 products are exact.
template <class F>
struct LinearOf {
  static constexpr std::string_view kName = "linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // bf16, f8e4m3 or i8 [n, k]
  typename F::Value scales;   // f32 [n, 1], unless x is bf16
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

// Width of a row of partial sums of squares: one per block, so the maximum blocks of a launch.
inline constexpr int64_t kFusedSquares = 512;

// Product for few rows with fused prologue and epilogue: rounding of x, second half of the
// preceding norm, gated activation, residual add, first half of the next norm. Not in plans:
// created when a plan is bound.
//   x' = x; with `rounds`: Quantize(x) in f8e4m3, a scale per row
//   f  = 1; with x_squares: 1 / sqrt(sum of its row / k + eps)
//   y  = f * (x' . weight^T) + bias, as Linear
// gated:     out = act(gate) * (up + up_offset), y = [gate | up], limit as in Glu
// residual:  sum = residual + y; out = sum * (norm + norm_offset); the row of squares sums to the
// sum of squares of sum's row, unused entries are 0
// otherwise: out = y
// An RMS norm between two of them: the first multiplies by its weight, the second by f. Differs
// from Norm by rounding only.
template <class F>
struct FusedLinearOf {
  static constexpr std::string_view kName = "fused_linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;          // bf16 [n, k]
  typename F::Value x_squares;  // f32 [n, kFusedSquares], optional
  float eps = 0;
  bool rounds = false;        // for fp8 weights with a scale per row
  typename F::Weight weight;  // [n_out, k]
  typename F::Weight bias;    // [n_out], optional
  bool gated = false;
  Activation activation = Activation::kSilu;
  float limit = 0;  // 0 = none
  float up_offset = 0;
  typename F::Value residual;  // f32 [n, n_out], optional; excludes gated
  typename F::Weight norm;     // [n_out], with residual
  float norm_offset = 0;
  typename F::Value out;  // bf16 or f32 [n, n_out]; gated bf16 [n, n_out / 2]; bf16 with residual
  typename F::Value sum;  // f32, in place of residual
  typename F::Value squares;  // f32 [n, kFusedSquares], with residual

  static constexpr auto fields() {
    return std::tuple(
        in("x", &FusedLinearOf::x, {DType::kBF16}),
        in("x_squares", &FusedLinearOf::x_squares, {DType::kF32}).maybe(),
        attribute("eps", &FusedLinearOf::eps), attribute("rounds", &FusedLinearOf::rounds),
        matrix("weight", &FusedLinearOf::weight), vector("bias", &FusedLinearOf::bias).maybe(),
        attribute("gated", &FusedLinearOf::gated),
        attribute("activation", &FusedLinearOf::activation),
        attribute("limit", &FusedLinearOf::limit),
        attribute("up_offset", &FusedLinearOf::up_offset),
        in("residual", &FusedLinearOf::residual, {DType::kF32}).maybe(),
        vector("norm", &FusedLinearOf::norm).maybe(),
        attribute("norm_offset", &FusedLinearOf::norm_offset),
        kernels::out("out", &FusedLinearOf::out, {DType::kF32, DType::kBF16}),
        kernels::out("sum", &FusedLinearOf::sum, {DType::kF32}).maybe().in_place_of("residual"),
        kernels::out("squares", &FusedLinearOf::squares, {DType::kF32}).maybe());
  }
  static std::string_view check(const FusedLinearOf<Views>& a) {
    if (a.x.cols != a.weight.k) return "x is not as wide as the weight's rows";
    if (is_given(a.x_squares) && a.x_squares.cols != kFusedSquares)
      return "x_squares is not a row of sums of squares";
    if (a.rounds && (a.weight.format.scheme != Scheme::kFloat8 || a.weight.format.group != 0))
      return "x is rounded for a weight of fp8 with a scale for each row";
    if (is_given(a.bias) && a.bias.k != a.weight.n) return "bias is not as wide as y";
    if (!std::isfinite(a.eps) || a.eps < 0) return "eps is not a small number";
    if (!std::isfinite(a.limit) || a.limit < 0) return "the limit is negative or no number";
    if (!std::isfinite(a.up_offset)) return "up_offset is not a number";
    if (!std::isfinite(a.norm_offset)) return "norm_offset is not a number";
    return check_ends(a);
  }
  friend void reference(const FusedLinearOf<Views>& a);

 private:
  static std::string_view check_ends(const FusedLinearOf<Views>& a) {
    const bool adds = is_given(a.residual);
    if (adds != is_given(a.norm) || adds != is_given(a.sum) || adds != is_given(a.squares))
      return "'residual', 'norm', 'sum' and 'squares' come together";
    if (adds && a.gated) return "gated units are not added to a residual stream";
    if (a.out.cols * (a.gated ? 2 : 1) != a.weight.n)
      return "out has not one column for each row of the weight, or for two of gated units";
    if ((adds || a.gated) && a.out.dtype != DType::kBF16)
      return "out is bf16 where it is not y itself";
    if (!adds) return {};
    if (a.residual.cols != a.weight.n || a.sum.cols != a.weight.n || a.norm.k != a.weight.n)
      return "residual, sum or norm is not as wide as y";
    return a.squares.cols == kFusedSquares ? std::string_view()
                                           : "squares is not a row of sums of squares";
  }
};

// Per-head products: x has a piece of kept + k columns per head, out one of kept + n_out. The first
// `kept` columns are copied; the other k, rounded to bf16, are multiplied by the head's weight.
// Rounding as Linear.
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

// LoRA: out = y + the row's adapter. For each module m in [first_module, first_module +
// num_modules): scale * its own scale * b^T (a x) in the module's columns (bf16 products, f32
// sums), then its gain, f32. Modules have disjoint columns. Rows without an adapter are unchanged.
// With `experts`: for each piece j of y's row i, with piece j of x's row i (or all of it) and the
// num_modules modules of experts[i][j], which follow those of the previous experts. An index that
// is no expert adds nothing.
// Without x: x is the row's token, one of k; a x is row `token` of a [k, rank]. A token outside [0,
// k) (external embedding, failed sample) adds nothing.
template <class F>
struct LowRankOf {
  static constexpr std::string_view kName = "low_rank";
  static constexpr bool kRowsIndependent = false;  // depends on the step's adapters
  typename F::Value x;                             // bf16 [n, k] or [n, picked * k], optional
  typename F::Value experts;                       // i32 [n, picked], optional
  typename F::Value y;                             // f32 [n, n_out] or [n, picked * n_out]
  int64_t k = 0;
  int32_t first_module = 0, num_modules = 1;  // per expert
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
  // The matrices of the row's adapter, and of a piece's expert; null: no adapter.
  static const LoraMatrix* matrices_of(const LowRankOf<Views>& a, int64_t row, int64_t piece) {
    const int32_t adapter = a.step.adapters ? a.step.adapters[row] : -1;
    const int32_t expert = is_given(a.experts) ? a.experts.template row<int32_t>(row)[piece] : 0;
    if (adapter < 0 || expert < 0 || expert >= a.num_experts) return nullptr;
    return a.step.adapter_matrices + int64_t{adapter} * a.step.num_adapter_modules +
           a.first_module + int64_t{expert} * a.num_modules;
  }
  // The token in place of x: an id below k, or -1.
  static int64_t token_of(const LowRankOf<Views>& a, int64_t row) {
    const int64_t id = id_of(a.step, row);
    return id < a.k ? id : -1;
  }
  friend void reference(const LowRankOf<Views>& a);
};

}  // namespace nereid::kernels
