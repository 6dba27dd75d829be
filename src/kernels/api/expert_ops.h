// Mixture of experts: routing, expert products, weighted sum.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"
#include "kernels/api/product_ops.h"
#include "kernels/api/row_ops.h"

namespace nereid::kernels {

enum class Scoring : uint8_t { kSoftmax, kSigmoid, kSparseMixer };
inline std::span<const std::string_view> names_of(Scoring) {
  static constexpr std::string_view kNames[] = {"softmax", "sigmoid", "sparse_mixer"};
  return kNames;
}

// Selects experts per row. Scores s = softmax or sigmoid of x over experts; the largest s + bias
// are selected in descending order, ties to the lower index (NaN is below any number). Several
// groups (equal runs of experts): only the groups_kept groups with the largest sum of their
// group_best largest s + bias take part. weights = s of the selected (without bias), divided by
// their sum + 1e-20 if `renormalise`, times `scale`: renormalised softmax is that over the
// selected experts.
// Sparse mixer (Liu et al. 2023, "Sparse backpropagation for MoE training"): the largest x are
// selected; weight = `scale` * softmax of x over the experts not selected before with (own - x) /
// max(|x|, own) <= reach, in f32.
// s and s + bias are f32; without bias and with group_best = 1, x is compared (same order).
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
  float jitter_eps = 0;       // jitter eps of the sparse mixer; 0: off
  typename F::Value weights;  // f32 [n, picked]
  typename F::Value experts;  // i32 [n, picked]

  static constexpr auto fields() {
    return std::tuple(
        in("x", &RouteOf::x, {DType::kF32}), vector("bias", &RouteOf::bias).maybe().exact(),
        attribute("scoring", &RouteOf::scoring), attribute("groups", &RouteOf::groups),
        attribute("groups_kept", &RouteOf::groups_kept),
        attribute("group_best", &RouteOf::group_best),
        attribute("renormalise", &RouteOf::renormalise), attribute("scale", &RouteOf::scale),
        attribute("reach", &RouteOf::jitter_eps), out("weights", &RouteOf::weights, {DType::kF32}),
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
    if (!std::isfinite(a.jitter_eps) || a.jitter_eps < 0)
      return "the reach is negative or no number";
    if (a.scoring == Scoring::kSparseMixer && (is_given(a.bias) || a.groups > 1 || a.renormalise))
      return "the sparse mixer has no bias, no groups and does not renormalise";
    return {};
  }
  friend void reference(const RouteOf<Views>& a);
};

// Indices of a rank's experts: out = experts - first, or -1 outside [0, count).
template <class F>
struct SelectExpertsOf {
  static constexpr std::string_view kName = "select_experts";
  static constexpr bool kRowsIndependent = true;
  typename F::Value experts;  // i32 [n, picked]
  int32_t first = 0, count = 0;
  typename F::Value out;  // i32 [n, picked]

  static constexpr auto fields() {
    return std::tuple(in("experts", &SelectExpertsOf::experts, {DType::kI32}),
                      attribute("first", &SelectExpertsOf::first),
                      attribute("count", &SelectExpertsOf::count),
                      kernels::out("out", &SelectExpertsOf::out, {DType::kI32}));
  }
  static std::string_view check(const SelectExpertsOf<Views>& a) {
    if (a.experts.cols != a.out.cols) return "out is not as wide as experts";
    if (a.first < 0 || a.count < 1) return "no range of experts";
    return {};
  }
  friend void reference(const SelectExpertsOf<Views>& a);
};

// Products by selected experts: piece j of out's row i (n_out columns) = piece j of x's row i times
// the weight of experts[i][j], + its bias. x may have one piece for all. An index that is no expert
// gives 0. Rounding and scales as Linear. Gated: a matrix has rows of gates, then as many of ups;
// a piece of out is act(gate) * (up + up_offset), limit as in Glu.
template <class F>
struct ExpertLinearOf {
  static constexpr std::string_view kName = "expert_linear";
  static constexpr bool kRowsIndependent = true;
  typename F::Value x;        // bf16, f8e4m3 or i8 [n, k] or [n, picked * k]
  typename F::Value scales;   // f32 [n, 1], unless x is bf16
  typename F::Value experts;  // i32 [n, picked]
  typename F::Weight weight;  // [experts, n_out, k]
  typename F::Weight bias;    // [experts, n_out], optional
  bool gated = false;
  Activation activation = Activation::kSilu;
  float limit = 0;  // 0 = none
  float up_offset = 0;
  typename F::Value out;  // f32 or bf16 [n, picked * n_out]; gated: bf16 [n, picked * n_out / 2]

  static constexpr auto fields() {
    return std::tuple(in("x", &ExpertLinearOf::x, {DType::kBF16, DType::kF8E4M3, DType::kI8}),
                      in("scales", &ExpertLinearOf::scales, {DType::kF32}).maybe(),
                      in("experts", &ExpertLinearOf::experts, {DType::kI32}),
                      matrix("weight", &ExpertLinearOf::weight).per_expert(),
                      vector("bias", &ExpertLinearOf::bias).maybe().per_expert(),
                      attribute("gated", &ExpertLinearOf::gated),
                      attribute("activation", &ExpertLinearOf::activation),
                      attribute("limit", &ExpertLinearOf::limit),
                      attribute("up_offset", &ExpertLinearOf::up_offset),
                      kernels::out("out", &ExpertLinearOf::out, {DType::kF32, DType::kBF16}));
  }
  static std::string_view check(const ExpertLinearOf<Views>& a) {
    if (a.weight.experts > kMaxExperts) return "too many experts";
    if (const std::string_view text = check_rows(a); !text.empty()) return text;
    if (a.x.cols != a.weight.k && a.x.cols != a.experts.cols * a.weight.k)
      return "x is not as wide as the weight's rows, once or for each expert picked";
    if (a.out.cols * (a.gated ? 2 : 1) != a.experts.cols * a.weight.n)
      return "out has not one column for each row of a weight (or two, gated) and expert picked";
    if (a.gated && (a.weight.n % 2 != 0 || a.out.dtype != DType::kBF16))
      return "gated units are bf16, of a gate and an up";
    if (!std::isfinite(a.limit) || a.limit < 0) return "the limit is negative or no number";
    if (!std::isfinite(a.up_offset)) return "up_offset is not a number";
    if (is_given(a.bias) && (a.bias.k != a.weight.n || a.bias.experts != a.weight.experts))
      return "bias is not one column for each row of the weights";
    return {};
  }
  friend void reference(const ExpertLinearOf<Views>& a);
};

// out = sum of weights[j] * piece j of x, in order of j; pieces are as wide as out.
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

}  // namespace nereid::kernels
