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
