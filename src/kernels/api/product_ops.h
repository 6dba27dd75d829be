// Products by weights, and what adapters add to them.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"
#include "kernels/api/row_ops.h"
#include "kernels/api/token_ops.h"

namespace nereid::kernels {

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

// Entries in a row of sums of squares: as many as a launch may have blocks, each of which writes
// its own.
inline constexpr int64_t kFusedSquares = 512;

// A product of few rows that does what the ops beside it would: it rounds x, ends the norm in front
// of it, makes gated units, adds to the residual stream, begins the norm behind it. No plan has it:
// it is made of a plan's calls when they are bound to a device.
//   x' = x, or with `rounds` x as Quantize makes it f8e4m3, a scale for each row
//   f  = 1, or with x_squares 1 / sqrt(the sum of its row / k + eps)
//   y  = f * (x' . weight^T) + bias, as Linear's
// gated:     out = act(gate) * (up + up_offset) with y = [gate | up] and the limit as in Glu
// residual:  sum = residual + y; out = sum * (norm + norm_offset); the entries of squares' row add
//            up to the sum of the squares of sum's row, those that are not needed are 0
// otherwise: out = y
// So an RMS norm lies between two of them: the one in front multiplies by its weight, the one
// behind by what its row is divided by. That differs from Norm by rounding alone.
template <class F>
struct FusedLinearOf {
  static constexpr std::string_view kName = "fused_linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;          // bf16 [n, k]
  typename F::Value x_squares;  // f32 [n, kFusedSquares], optional
  float eps = 0;
  bool rounds = false;        // for weights of fp8 with a scale for each row
  typename F::Weight weight;  // [n_out, k]
  typename F::Weight bias;    // [n_out], optional
  bool gated = false;
  Activation activation = Activation::kSilu;
  float limit = 0;  // 0 = none
  float up_offset = 0;
  typename F::Value residual;  // f32 [n, n_out], optional; not of gated units
  typename F::Weight norm;     // [n_out], given with residual
  float norm_offset = 0;
  typename F::Value out;  // bf16 or f32 [n, n_out]; gated bf16 [n, n_out / 2]; bf16 with residual
  typename F::Value sum;  // f32 in place of residual, given with it
  typename F::Value squares;  // f32 [n, kFusedSquares], likewise

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

}  // namespace nereid::kernels
