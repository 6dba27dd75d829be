// Ops of exchange between the ranks of a model. They have no kernels: exec calls the rank's
// comm::Communicator, in stream order with the kernels. All ranks of a group make the same calls
// with the same numbers of rows. TakeColumns copies columns on its own rank.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"
#include "kernels/api/row_ops.h"

namespace nereid::kernels {

// Begin of rank r's share of `units` among `ranks`; the end is the next rank's begin.
constexpr int64_t share_begin(int64_t units, int64_t ranks, int64_t r) { return units * r / ranks; }

// out = sum of x over the tensor ranks, in f32, in the order of a balanced pairwise tree
// (comm::Communicator::all_reduce).
template <class F>
struct AllReduceOf {
  static constexpr std::string_view kName = "all_reduce";
  static constexpr bool kRowsIndependent = true;
  static constexpr bool kIsExchange = true;
  typename F::Value x;    // f32 or bf16 [n, width]
  typename F::Value out;  // as x

  static constexpr auto fields() {
    return std::tuple(in("x", &AllReduceOf::x, {DType::kF32, DType::kBF16}),
                      kernels::out("out", &AllReduceOf::out, {DType::kF32, DType::kBF16})
                          .may_be_in_place_of("x"));
  }
  static std::string_view check(const AllReduceOf<Views>& a) {
    if (a.x.cols != a.out.cols || a.x.dtype != a.out.dtype) return "out is not like x";
    return {};
  }
};

// AllReduce of x, added to the residual stream and normed: sum = residual + AllReduce(x), out and
// scales = RMS Norm of sum, a row as one piece. x is overwritten.
template <class F>
struct AllReduceNormOf {
  static constexpr std::string_view kName = "all_reduce_norm";
  static constexpr bool kRowsIndependent = true;
  static constexpr bool kIsExchange = true;
  typename F::Value x;         // f32 or bf16 [n, width]
  typename F::Value residual;  // f32 [n, width]
  typename F::Weight weight;   // [width]
  float eps = 0;
  float weight_offset = 0;
  typename F::Value out;     // bf16, f32 or f8e4m3 [n, width]
  typename F::Value sum;     // f32 [n, width], in place of residual
  typename F::Value scales;  // f32 [n, 1], with f8e4m3 out

  static constexpr auto fields() {
    return std::tuple(
        in("x", &AllReduceNormOf::x, {DType::kF32, DType::kBF16}),
        in("residual", &AllReduceNormOf::residual, {DType::kF32}),
        vector("weight", &AllReduceNormOf::weight), attribute("eps", &AllReduceNormOf::eps),
        attribute("weight_offset", &AllReduceNormOf::weight_offset),
        kernels::out("out", &AllReduceNormOf::out, {DType::kBF16, DType::kF32, DType::kF8E4M3}),
        kernels::out("sum", &AllReduceNormOf::sum, {DType::kF32}).in_place_of("residual"),
        kernels::out("scales", &AllReduceNormOf::scales, {DType::kF32}).maybe());
  }
  static std::string_view check(const AllReduceNormOf<Views>& a) {
    if (a.out.cols != a.x.cols || a.residual.cols != a.x.cols || a.sum.cols != a.x.cols ||
        a.weight.k != a.x.cols)
      return "x, residual, weight, out or sum differ in width";
    if (!std::isfinite(a.eps) || a.eps < 0) return "eps is not a small number";
    if (!std::isfinite(a.weight_offset)) return "weight_offset is not a number";
    return check_scales(a.out, a.scales);
  }
};

// Columns of all tensor ranks side by side, in `pieces` equal pieces. A piece of out has units of
// `unit` columns; rank r's piece of x begins with units [share_begin(r), share_begin(r + 1)) of it.
template <class F>
struct AllGatherOf {
  static constexpr std::string_view kName = "all_gather";
  static constexpr bool kRowsIndependent = true;
  static constexpr bool kIsExchange = true;
  typename F::Value x;  // f32 or bf16 [n, pieces * local]
  int64_t unit = 1;
  int32_t pieces = 1;
  typename F::Value out;  // as x, [n, pieces * units * unit]

  static constexpr auto fields() {
    return std::tuple(in("x", &AllGatherOf::x, {DType::kF32, DType::kBF16}),
                      attribute("unit", &AllGatherOf::unit),
                      attribute("pieces", &AllGatherOf::pieces),
                      kernels::out("out", &AllGatherOf::out, {DType::kF32, DType::kBF16}));
  }
  static std::string_view check(const AllGatherOf<Views>& a) {
    if (a.x.dtype != a.out.dtype) return "out is not of x's type";
    if (a.unit < 1 || a.pieces < 1) return "unit or pieces is not positive";
    if (a.x.cols % a.pieces != 0 || a.out.cols % a.pieces != 0 ||
        a.x.cols / a.pieces % a.unit != 0 || a.out.cols / a.pieces % a.unit != 0)
      return "the columns are not whole units in each piece";
    if (a.x.cols > a.out.cols) return "x is wider than out";
    return {};
  }
};

// out = columns [column, column + cols of out) of x, written over `over`.
template <class F>
struct TakeColumnsOf {
  static constexpr std::string_view kName = "take_columns";
  static constexpr bool kRowsIndependent = true;
  static constexpr bool kIsExchange = true;
  typename F::Value x;     // f32 or bf16 [n, width]
  typename F::Value over;  // as x, [n, cols]
  int64_t column = 0;
  typename F::Value out;  // in place of over

  static constexpr auto fields() {
    return std::tuple(
        in("x", &TakeColumnsOf::x, {DType::kF32, DType::kBF16}),
        in("over", &TakeColumnsOf::over, {DType::kF32, DType::kBF16}),
        attribute("column", &TakeColumnsOf::column),
        kernels::out("out", &TakeColumnsOf::out, {DType::kF32, DType::kBF16}).in_place_of("over"));
  }
  static std::string_view check(const TakeColumnsOf<Views>& a) {
    if (a.x.dtype != a.out.dtype || a.over.dtype != a.out.dtype)
      return "x, over, out differ in type";
    if (a.over.cols != a.out.cols) return "out is not as wide as over";
    if (a.column < 0 || a.column > a.x.cols - a.out.cols) return "the columns are not in x";
    return {};
  }
};

// Sends x to the same tensor rank of pipeline stage `stage`, whose recv is the next one from here.
template <class F>
struct SendOf {
  static constexpr std::string_view kName = "send";
  static constexpr bool kRowsIndependent = true;
  static constexpr bool kIsExchange = true;
  typename F::Value x;  // f32, bf16 or i32 [n, width]
  int32_t stage = 0;
  typename F::Value out;  // in place of x

  static constexpr auto fields() {
    return std::tuple(in("x", &SendOf::x, {DType::kF32, DType::kBF16, DType::kI32}),
                      attribute("stage", &SendOf::stage),
                      kernels::out("out", &SendOf::out, {DType::kF32, DType::kBF16, DType::kI32})
                          .in_place_of("x"));
  }
  static std::string_view check(const SendOf<Views>& a) {
    if (a.x.cols != a.out.cols || a.x.dtype != a.out.dtype) return "out is not like x";
    return a.stage < 0 ? "stage is negative" : std::string_view();
  }
};

// Receives out from the same tensor rank of pipeline stage `stage`.
template <class F>
struct RecvOf {
  static constexpr std::string_view kName = "recv";
  static constexpr bool kRowsIndependent = true;
  static constexpr bool kIsExchange = true;
  int32_t stage = 0;
  typename F::Value out;  // f32, bf16 or i32 [n, width]

  static constexpr auto fields() {
    return std::tuple(attribute("stage", &RecvOf::stage),
                      kernels::out("out", &RecvOf::out, {DType::kF32, DType::kBF16, DType::kI32}));
  }
  static std::string_view check(const RecvOf<Views>& a) {
    return a.stage < 0 ? "stage is negative" : std::string_view();
  }
};

template <class Op>
inline constexpr bool kIsExchange = requires {
  Op::kIsExchange;
};

}  // namespace nereid::kernels
