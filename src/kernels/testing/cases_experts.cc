// Cases of route, expert_linear, head_linear and weighted_sum.
#include <cmath>
#include <span>

#include "kernels/api/pack.h"
#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

View matrix_at(std::byte* base, Offset offset, DType dtype, int64_t begin, int64_t rows,
               int64_t cols, int64_t stride) {
  return {base + offset + begin * stride * static_cast<int64_t>(size_of(dtype)), dtype, rows, cols,
          stride};
}

template <class Op>
void finish_experts(Case<Op>& c, int64_t tokens) {
  c.tokens = tokens;
  c.after = c.before;
  reference(c.args(c.after.bytes.data(), 0, tokens));
  // Large cases are for kernels with large tiles, and slow in ref.
  constexpr int64_t kLarge = 99;
  for (int64_t size : {1, 2, 3, 7, 16, 33})
    if (size < tokens && (tokens <= kLarge || size == 33)) c.splits.push_back(pieces(tokens, size));
}

struct Routing {
  int64_t tokens, experts, picked;
  Scoring scoring = Scoring::kSoftmax;
  bool renormalise = false, has_bias = false;
  int32_t groups = 1, groups_kept = 1, group_best = 1;
  float scale = 1, jitter_eps = 0;
};

Case<Route> route_case(const Routing& s) {
  Case<Route> c;
  c.name = fmt::format(
      "tokens={} experts={} picked={} scoring={} norm={} bias={} groups={}/{}/{} jitter_eps={}",
      s.tokens, s.experts, s.picked, static_cast<int>(s.scoring), s.renormalise, s.has_bias,
      s.groups, s.groups_kept, s.group_best, s.jitter_eps);
  const int64_t stride = s.experts + 1, n = s.tokens;
  std::vector<float> x = noise(1, n * stride, 3);
  // Many ties: multiples of 1/4. Rows of equal values, extremes and NaN.
  for (float& v : x) v = std::round(v * 4) / 4;
  for (int64_t i = 0; i < n; ++i) {
    float* row = x.data() + i * stride;
    if (i % 7 == 3) std::fill(row, row + s.experts, 0.5f);
    if (i % 7 == 4) row[i % s.experts] = 100, row[(i + 1) % s.experts] = -100;
    if (i % 7 == 5) row[i % s.experts] = NAN;
    if (i % 7 == 6) std::fill(row, row + s.experts, NAN);
  }
  const Offset in = c.before.add(x);
  std::vector<float> biases;  // few values, so that sums tie; two that are equal in bf16
  for (int64_t e = 0; e < s.experts; ++e)
    biases.push_back(static_cast<float>(e * 5 % 3) * 0.25f + (e % 4 == 1 ? 0x1p-12f : 0));
  const Offset bias = c.before.add(biases);
  const int64_t out_stride = s.picked + 2;
  const Offset weights = c.before.add(static_cast<size_t>(n * out_stride) * 4);
  const Offset experts = c.before.add(static_cast<size_t>(n * out_stride) * 4);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Route a;
    a.x = matrix_at(base, in, DType::kF32, begin, count, s.experts, stride);
    if (s.has_bias) a.bias = {base + bias, WeightLayout::kRowMajor, 1, s.experts, kFloat32};
    a.scoring = s.scoring, a.renormalise = s.renormalise, a.scale = s.scale;
    a.jitter_eps = s.jitter_eps;
    a.groups = s.groups, a.groups_kept = s.groups_kept, a.group_best = s.group_best;
    a.weights = matrix_at(base, weights, DType::kF32, begin, count, s.picked, out_stride);
    a.experts = matrix_at(base, experts, DType::kI32, begin, count, s.picked, out_stride);
    return a;
  };
  finish_experts(c, n);
  Region out{"weights", weights, DType::kF32, n, s.picked, out_stride, {}, {}};
  // A score and its sum, each rounded: a few ulps.
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < s.picked; ++j)
      out.tolerance.push_back(
          static_cast<float>(16 * kEpsF32 * std::fabs(cell_value(c.after, out, i, j)) + 1e-37));
  c.outputs = {{"experts", experts, DType::kI32, n, s.picked, out_stride, {}, {}}, out};
  return c;
}

struct ExpertShape {
  int64_t tokens, picked, experts, n, k;
  bool one_x = true;  // else one piece of x per selected expert
};

// A product of one expert and one piece of x: its value, and the sum of magnitudes.
struct Dot {
  double value = 0, norm = 0.01;
};

// Gated units: |d act(g) * (u + b)| <= 1.2 |dg| |u + b| + |act(g)| |du| + 1.2 |dg du|, since no
// activation is steeper than 1.2; x_scale and scales are in the dequantised numbers.
double gated_error(const ExpertLinear& a, const Dot& gate, const Dot& up, double factor) {
  const double dg = factor * gate.norm, du = factor * up.norm;
  const double most = std::fabs(gate.value) + dg;  // of |act(g)|
  return 1.2 * dg * (std::fabs(up.value) + std::fabs(a.up_offset)) + most * du + 1.2 * dg * du;
}

void set_gated_tolerance(const ExpertLinear& a, const ExpertShape& s,
                         const std::vector<BF16>& x_values, const std::vector<BF16>& weights,
                         const Image& after, Region& out) {
  const double factor = sum_error(s.k, a.x.dtype == DType::kF8E4M3);
  const int64_t width = s.n / 2;
  for (int64_t i = 0; i < s.tokens; ++i)
    for (int64_t c = 0; c < s.picked * width; ++c) {
      const int32_t expert = a.experts.row<int32_t>(i)[c / width];
      const bool is_expert = expert >= 0 && expert < s.experts;
      const BF16* const x = x_values.data() + i * a.x.cols + (s.one_x ? 0 : c / width * s.k);
      const auto dot = [&](int64_t row) {
        Dot out;
        if (!is_expert) return out;
        const int64_t at = expert * s.n + row;
        for (int64_t k = 0; k < s.k; ++k) {
          const double product =
              double{to_float(x[k])} * to_float(weights[static_cast<size_t>(at * s.k + k)]);
          out.value += product, out.norm += std::fabs(product);
        }
        if (is_given(a.bias)) out.value += to_float(a.bias.as_bf16()[at]);
        return out;
      };
      const Dot gate = dot(c % width), up = dot(c % width + width);
      const double step = kStepBF16 * std::fabs(cell_value(after, out, i, c));
      out.tolerance.push_back(
          is_expert ? static_cast<float>(gated_error(a, gate, up, factor) + step) : 0);
      const bool widens = !a.weight.format.is_float() && a.x.dtype == DType::kBF16;
      const double most = std::min(1.0, 8 / std::sqrt(static_cast<double>(s.k)));
      if (widens)
        out.operand_tolerance.push_back(
            is_expert ? static_cast<float>(gated_error(a, gate, up, most)) : 0);
    }
}

// As for linear. `x_values`: dequantised rows of x.
void set_tolerance(const ExpertLinear& a, const ExpertShape& s, const std::vector<BF16>& x_values,
                   const std::vector<BF16>& weights, const Image& after, Region& out) {
  if (a.gated) return set_gated_tolerance(a, s, x_values, weights, after, out);
  const bool fp8_rows = a.x.dtype == DType::kF8E4M3;
  const double factor = sum_error(s.k, fp8_rows);
  for (int64_t i = 0; i < s.tokens; ++i)
    for (int64_t c = 0; c < s.picked * s.n; ++c) {
      const int32_t expert = a.experts.row<int32_t>(i)[c / s.n];
      const bool is_expert = expert >= 0 && expert < s.experts;
      const BF16* w = weights.data() + (is_expert ? (expert * s.n + c % s.n) * s.k : 0);
      const BF16* x = x_values.data() + i * a.x.cols + (s.one_x ? 0 : c / s.n * s.k);
      double norm = 0.01;
      for (int64_t k = 0; k < s.k; ++k) norm += std::fabs(to_float(x[k]) * to_float(w[k]));
      double tolerance = factor * norm;
      if (out.dtype == DType::kBF16)
        tolerance += kStepBF16 * std::fabs(cell_value(after, out, i, c));
      out.tolerance.push_back(is_expert ? static_cast<float>(tolerance) : 0);
      if (!a.weight.format.is_float() && a.weight.format != kFp8PerRow && a.x.dtype == DType::kBF16)
        out.operand_tolerance.push_back(
            is_expert
                ? static_cast<float>(norm * std::min(1.0, 8 / std::sqrt(static_cast<double>(s.k))))
                : 0);
    }
}

// Few experts for most rows, some rows without one, the same expert twice in a row.
std::vector<int32_t> picked_experts(const ExpertShape& s, int64_t stride) {
  std::vector<int32_t> ids(static_cast<size_t>(s.tokens * stride), -7);
  for (int64_t i = 0; i < s.tokens; ++i)
    for (int64_t j = 0; j < s.picked; ++j)
      ids[i * stride + j] = static_cast<int32_t>(
          i % 11 == 9 ? (j % 2 ? s.experts : -1) : (i * i * 3 + j * (1 + i % 4)) % s.experts);
  return ids;
}

struct ExpertTypes {
  WeightFormat format = {};
  DType x = DType::kBF16, out = DType::kF32;
  bool has_bias = false, gated = false;
  Activation activation = Activation::kSilu;
  float limit = 0, up_offset = 0;
};

Case<ExpertLinear> expert_case(const ExpertShape& s, WeightLayout layout, const ExpertTypes& t) {
  Case<ExpertLinear> result;
  result.name = fmt::format(
      "tokens={} picked={} experts={} n={} k={} x={} {} weight={} layout={} bias={} out={} "
      "gated={}",
      s.tokens, s.picked, s.experts, s.n, s.k, s.one_x ? "one" : "each", name_of(t.x),
      text_of(t.format), static_cast<int>(layout), t.has_bias, name_of(t.out), t.gated);
  const auto seed = static_cast<uint64_t>(s.tokens * 1000003 + s.n * 1009 + s.k);
  const int64_t x_cols = s.one_x ? s.k : s.picked * s.k, x_stride = x_cols + 16 - x_cols % 2;
  const int64_t out_cols = s.picked * (t.gated ? s.n / 2 : s.n), out_stride = out_cols + 3,
                id_stride = s.picked + 1;
  const bool scaled = t.x != DType::kBF16;
  Image& image = result.before;
  std::vector<BF16> values = noise_bf16(seed, s.tokens * x_cols);
  // NaN columns after each row of x, which a kernel must not multiply.
  const Offset x = image.add(static_cast<size_t>(s.tokens * x_stride) * size_of(t.x));
  const int64_t scales_stride = 2;
  const Offset scales = image.add(static_cast<size_t>(s.tokens * scales_stride) * sizeof(float));
  for (int64_t i = 0; i < s.tokens; ++i) {
    const auto row =
        std::span(values).subspan(static_cast<size_t>(i * x_cols), static_cast<size_t>(x_cols));
    float& scale = image.at<float>(scales)[i * scales_stride];
    if (t.x == DType::kF8E4M3)
      store_scaled_row(row, image.at<F8E4M3>(x) + i * x_stride, scale);
    else if (t.x == DType::kI8)
      store_scaled_row(row, image.at<int8_t>(x) + i * x_stride, scale);
    else
      std::copy(row.begin(), row.end(), image.at<BF16>(x) + i * x_stride);
  }
  const Offset experts = image.add(picked_experts(s, id_stride));
  std::vector<BF16> weights = noise_bf16(seed + 1, s.experts * s.n * s.k, 0.1f);
  WeightView shape = {nullptr, layout, s.n, s.k, t.format};
  shape.experts = s.experts;
  const StoredWeight weight = add_weight(image, weights, shape);
  const Offset bias = image.add(noise_bf16(seed + 2, s.experts * s.n));
  const Offset out = image.add(static_cast<size_t>(s.tokens * out_stride) * size_of(t.out));
  result.args = [=](std::byte* base, int64_t begin, int64_t count) {
    ExpertLinear a;
    a.x = matrix_at(base, x, t.x, begin, count, x_cols, x_stride);
    if (scaled) a.scales = matrix_at(base, scales, DType::kF32, begin, count, 1, scales_stride);
    a.experts = matrix_at(base, experts, DType::kI32, begin, count, s.picked, id_stride);
    a.weight = weight.at(base);
    if (t.has_bias) {
      a.bias = {base + bias, WeightLayout::kRowMajor, 1, s.n};
      a.bias.experts = s.experts;
    }
    a.gated = t.gated, a.activation = t.activation, a.limit = t.limit, a.up_offset = t.up_offset;
    a.out = matrix_at(base, out, t.out, begin, count, out_cols, out_stride);
    return a;
  };
  finish_experts(result, s.tokens);
  result.outputs = {{"out", out, t.out, s.tokens, out_cols, out_stride, {}, {}}};
  set_tolerance(result.args(result.after.bytes.data(), 0, s.tokens), s, values, weights,
                result.after, result.outputs[0]);
  return result;
}

// Integer and fp8 weights: groups with a short last one, zero points, minima, f8e4m3 and i8 rows.
void add_rounded_experts(std::vector<Case<ExpertLinear>>& list, WeightLayout layout) {
  WeightFormat int4_zeros = kInt4Groups;
  int4_zeros.zeros = true;
  WeightFormat int4_minima = kInt4Groups;
  int4_minima.minima = true;
  for (const ExpertTypes& types :
       {ExpertTypes{kInt8PerRow}, ExpertTypes{kInt4Groups}, ExpertTypes{int4_zeros},
        ExpertTypes{int4_minima}, ExpertTypes{kFp8PerRow}, ExpertTypes{kFp8PerRow, DType::kF8E4M3},
        ExpertTypes{kInt8Both, DType::kI8}, ExpertTypes{kFp8Groups}})
    for (const ExpertShape& s :
         {ExpertShape{1, 2, 4, 17, 33}, ExpertShape{9, 3, 5, 40, 65, false},
          ExpertShape{70, 2, 4, 48, 160, false}, ExpertShape{18, 1, 3, 112, 264},
          ExpertShape{100, 2, 6, 72, 272, false}, ExpertShape{170, 2, 4, 136, 288}}) {
      ExpertTypes t = types;
      t.has_bias = s.n % 3 != 0;
      if (s.k % 2) t.out = DType::kBF16;
      list.push_back(expert_case(s, layout, t));
    }
}

// Both layouts; the last groups of a row and of a box, several boxes and pieces of rows.
void add_mxfp4_experts(std::vector<Case<ExpertLinear>>& list) {
  for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kFragments})
    for (const ExpertShape& s :
         {ExpertShape{1, 1, 1, 1, 32}, ExpertShape{1, 2, 4, 17, 64},
          ExpertShape{9, 3, 5, 40, 288, false}, ExpertShape{70, 2, 4, 48, 160, false},
          ExpertShape{18, 1, 3, 112, 512}, ExpertShape{100, 2, 6, 72, 1056, false},
          ExpertShape{170, 2, 4, 136, 320}})
      list.push_back(expert_case(s, layout,
                                 {.format = kMxfp4,
                                  .out = s.k % 64 ? DType::kBF16 : DType::kF32,
                                  .has_bias = s.n % 3 != 0}));
}

// Gates and ups in one product: halves that are no whole tile, limits, several chunks of rows.
void add_gated_experts(std::vector<Case<ExpertLinear>>& list) {
  const ExpertTypes gated = {.out = DType::kBF16, .gated = true};
  ExpertTypes fp8 = gated, int4 = gated, int8 = gated, mxfp4 = gated, plain = gated;
  fp8.format = kFp8PerRow, fp8.x = DType::kF8E4M3;
  int4.format = kInt4Groups, int8.format = kInt8PerRow, mxfp4.format = kMxfp4;
  mxfp4.activation = Activation::kGeluSigmoid, mxfp4.limit = 0.5f, mxfp4.up_offset = 1;
  for (const ExpertTypes& types : {plain, fp8, int4, int8, mxfp4})
    for (const ExpertShape& s : {ExpertShape{1, 2, 4, 16, 32}, ExpertShape{9, 3, 5, 48, 256},
                                 ExpertShape{41, 2, 4, 144, 96}, ExpertShape{100, 2, 6, 80, 544},
                                 ExpertShape{300, 3, 5, 272, 288}}) {
      ExpertTypes t = types;
      t.has_bias = s.n % 3 != 0;
      // Halves of MXFP4 are whole blocks of its layout.
      ExpertShape own = s;
      const bool fragments = t.format == kMxfp4;
      if (fragments) own.n = (s.n + 127) / 128 * 128;
      list.push_back(
          expert_case(own, fragments ? WeightLayout::kFragments : WeightLayout::kRowMajor, t));
    }
}

struct HeadShape {
  int64_t tokens, heads, kept, n, k;
  DType x = DType::kF32, out = DType::kF32;
  bool odd_strides = true;
};

// Sum over k of |x w| of a cell, as for experts; kept columns are exact except for rounding.
void set_tolerance(const HeadLinear& a, const std::vector<BF16>& weights, const Image& after,
                   Region& out) {
  const int64_t n = a.weight.n, k = a.weight.k, piece = a.kept + n;
  const double factor = sum_error(k);
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c) {
      const int64_t head = c / piece, row = c % piece - a.kept;
      double norm = row < 0 ? 0 : 0.01;
      for (int64_t j = 0; row >= 0 && j < k; ++j) {
        const int64_t at = head * (a.kept + k) + a.kept + j;
        const float x = a.x.dtype == DType::kBF16 ? to_float(a.x.row<BF16>(i)[at])
                                                  : to_float(to_bf16(a.x.row<float>(i)[at]));
        norm += std::fabs(x * to_float(weights[static_cast<size_t>((head * n + row) * k + j)]));
      }
      double tolerance = factor * norm;
      if (out.dtype == DType::kBF16 && row >= 0)
        tolerance += kStepBF16 * std::fabs(cell_value(after, out, i, c));
      out.tolerance.push_back(static_cast<float>(tolerance));
    }
}

Case<HeadLinear> head_case(const HeadShape& s, WeightLayout layout) {
  Case<HeadLinear> result;
  result.name =
      fmt::format("tokens={} heads={} kept={} n={} k={} layout={} x={} out={}", s.tokens, s.heads,
                  s.kept, s.n, s.k, static_cast<int>(layout), name_of(s.x), name_of(s.out));
  const auto seed = static_cast<uint64_t>(s.tokens * 1000003 + s.n * 1009 + s.k);
  const int64_t x_cols = s.heads * (s.kept + s.k), x_stride = x_cols + (s.odd_strides ? 3 : 8);
  const int64_t out_cols = s.heads * (s.kept + s.n),
                out_stride = out_cols + (s.odd_strides ? 5 : 2);
  Image& image = result.before;
  const Offset x = s.x == DType::kF32 ? image.add(noise(seed, s.tokens * x_stride))
                                      : image.add(noise_bf16(seed, s.tokens * x_stride));
  std::vector<BF16> weights = noise_bf16(seed + 1, s.heads * s.n * s.k, 0.1f);
  WeightView shape = {nullptr, layout, s.n, s.k};
  shape.experts = s.heads;
  const StoredWeight weight = add_weight(image, weights, shape);
  const Offset out = image.add(static_cast<size_t>(s.tokens * out_stride) * size_of(s.out));
  result.args = [=](std::byte* base, int64_t begin, int64_t count) {
    HeadLinear a;
    a.x = matrix_at(base, x, s.x, begin, count, x_cols, x_stride);
    a.weight = weight.at(base);
    a.kept = static_cast<int32_t>(s.kept);
    a.out = matrix_at(base, out, s.out, begin, count, out_cols, out_stride);
    return a;
  };
  finish_experts(result, s.tokens);
  result.outputs = {{"out", out, s.out, s.tokens, out_cols, out_stride, {}, {}}};
  set_tolerance(result.args(result.after.bytes.data(), 0, s.tokens), weights, result.after,
                result.outputs[0]);
  return result;
}

Case<WeightedSum> sum_case(int64_t tokens, int64_t num_pieces, int64_t width) {
  Case<WeightedSum> c;
  c.name = fmt::format("tokens={} pieces={} width={}", tokens, num_pieces, width);
  const int64_t cols = num_pieces * width, stride = cols + 1;
  const std::vector<float> values = noise(1, tokens * stride),
                           factors = noise(2, tokens * num_pieces);
  const Offset x = c.before.add(values), weights = c.before.add(factors);
  const Offset out = c.before.add(static_cast<size_t>(tokens * width) * 4);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    WeightedSum a;
    a.x = matrix_at(base, x, DType::kF32, begin, count, cols, stride);
    a.weights = matrix_at(base, weights, DType::kF32, begin, count, num_pieces, num_pieces);
    a.out = matrix_at(base, out, DType::kF32, begin, count, width, width);
    return a;
  };
  finish_experts(c, tokens);
  Region region{"out", out, DType::kF32, tokens, width, width, {}, {}};
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t k = 0; k < width; ++k) {
      double norm = 0;
      for (int64_t j = 0; j < num_pieces; ++j)
        norm += std::fabs(double{values[i * stride + j * width + k]} * factors[i * num_pieces + j]);
      region.tolerance.push_back(
          static_cast<float>(kEpsF32 * static_cast<double>(num_pieces + 1) * norm));
    }
  c.outputs = {region};
  return c;
}

Case<SelectExperts> select_case(int64_t tokens, int64_t picked, int32_t first, int32_t count) {
  Case<SelectExperts> c;
  c.name = fmt::format("tokens={} picked={} first={} count={}", tokens, picked, first, count);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens * picked; ++i)
    ids.push_back(static_cast<int32_t>(i * 7 % (first + 2 * count + 1)) - 1);
  const Offset experts = c.before.add(ids);
  const Offset out = c.before.add(static_cast<size_t>(tokens * picked) * 4);
  c.args = [=](std::byte* base, int64_t begin, int64_t count_of_rows) {
    SelectExperts a;
    a.experts = matrix_at(base, experts, DType::kI32, begin, count_of_rows, picked, picked);
    a.first = first, a.count = count;
    a.out = matrix_at(base, out, DType::kI32, begin, count_of_rows, picked, picked);
    return a;
  };
  finish_experts(c, tokens);
  c.outputs = {{"out", out, DType::kI32, tokens, picked, picked, {}, {}}};
  return c;
}

}  // namespace

template <>
const std::vector<Case<SelectExperts>>& cases<SelectExperts>() {
  static const std::vector<Case<SelectExperts>> all = {
      select_case(1, 1, 0, 1), select_case(5, 2, 3, 4), select_case(70, 40, 64, 64)};
  return all;
}

template <>
const std::vector<Case<Route>>& cases<Route>() {
  static const std::vector<Case<Route>> all = [] {
    constexpr Scoring kSigmoid = Scoring::kSigmoid;
    std::vector<Case<Route>> list;
    for (const Routing& s :
         {Routing{1, 1, 1, kSigmoid}, Routing{40, 4, 2, Scoring::kSoftmax, true},
          Routing{9, 128, 8, Scoring::kSoftmax, true}, Routing{33, 60, 4},
          Routing{20, 8, 8, Scoring::kSoftmax, false, true},
          Routing{25, 8, 2, kSigmoid, true, true, 4, 2, 2, 2.5f},
          Routing{14, 256, 8, kSigmoid, true, true, 8, 4, 2, 2.5f},
          Routing{14, 160, 6, Scoring::kSoftmax, false, false, 8, 3, 1, 16},
          Routing{7, 1024, 32, kSigmoid, false, true}, Routing{1, 5, 3, kSigmoid, true},
          Routing{40, 16, 2, Scoring::kSparseMixer, false, false, 1, 1, 1, 1, 0.02f},
          Routing{20, 8, 8, Scoring::kSparseMixer, false, false, 1, 1, 1, 2, 0.5f}})
      list.push_back(route_case(s));
    return list;
  }();
  return all;
}

template <>
const std::vector<Case<ExpertLinear>>& cases<ExpertLinear>() {
  static const std::vector<Case<ExpertLinear>> all = [] {
    std::vector<Case<ExpertLinear>> list;
    for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor}) {
      for (const ExpertShape& s :
           {ExpertShape{1, 1, 1, 1, 1}, ExpertShape{1, 2, 4, 16, 32}, ExpertShape{2, 8, 60, 17, 33},
            ExpertShape{5, 3, 3, 40, 65, false}, ExpertShape{41, 2, 4, 80, 96},
            ExpertShape{41, 2, 4, 48, 64, false}, ExpertShape{70, 4, 9, 33, 128, false},
            ExpertShape{18, 1, 3, 112, 256}, ExpertShape{100, 2, 5, 72, 264},
            ExpertShape{170, 2, 4, 136, 328, false}, ExpertShape{7, 3, 90, 200, 1032},
            ExpertShape{6, 4, 700, 16, 32}})
        list.push_back(expert_case(
            s, layout, {.out = s.k % 2 ? DType::kBF16 : DType::kF32, .has_bias = s.n % 3 != 0}));
      list.push_back(
          expert_case({13, 2, 4, 48, 768}, layout, {.out = DType::kBF16, .has_bias = true}));
      add_rounded_experts(list, layout);
    }
    add_mxfp4_experts(list);
    add_gated_experts(list);
    list.push_back(expert_case({300, 2, 3, 32, 64}, WeightLayout::kPanel16, {}));
    return list;
  }();
  return all;
}

template <>
const std::vector<Case<HeadLinear>>& cases<HeadLinear>() {
  static const std::vector<Case<HeadLinear>> all = [] {
    constexpr DType kBF16 = DType::kBF16, kF32 = DType::kF32;
    std::vector<Case<HeadLinear>> list;
    for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor})
      for (const HeadShape& s :
           {HeadShape{1, 1, 0, 1, 1}, HeadShape{1, 4, 8, 16, 16}, HeadShape{9, 3, 2, 17, 33},
            HeadShape{70, 4, 8, 48, 24, kF32, kF32}, HeadShape{70, 5, 0, 24, 48, kBF16, kBF16},
            HeadShape{3, 2, 5, 33, 65, kF32, kBF16}, HeadShape{20, 2, 64, 512, 128},
            HeadShape{5, 16, 0, 32, 512, kBF16, kBF16}, HeadShape{4, 2, 3, 20, 12, kBF16, kF32},
            HeadShape{20, 3, 64, 72, 128, kF32, kF32, false},
            HeadShape{65, 2, 0, 136, 520, kBF16, kBF16, false},
            HeadShape{100, 3, 8, 130, 40, kF32, kBF16, false},
            HeadShape{7, 2, 16, 34, 296, kBF16, kF32, false}})
        list.push_back(head_case(s, layout));
    return list;
  }();
  return all;
}

template <>
const std::vector<Case<WeightedSum>>& cases<WeightedSum>() {
  static const std::vector<Case<WeightedSum>> all = {sum_case(1, 1, 1), sum_case(3, 2, 17),
                                                     sum_case(70, 8, 130), sum_case(5, 3, 2048)};
  return all;
}

}  // namespace nereid::kernels::testing
