// Cases of row-wise ops: norm, rope, activations, soft cap, add, quantize.
#include <cmath>

#include "kernels/testing/cases_rows.h"

namespace nereid::kernels::testing {
namespace {

constexpr Activation kActivations[] = {
    Activation::kSilu,  Activation::kGeluTanh, Activation::kGelu,       Activation::kRelu,
    Activation::kRelu2, Activation::kNone,     Activation::kGeluSigmoid};

// Allocates one scale per row, with stride 2.
Offset add_scales(Image& image, int64_t rows) {
  return image.add(static_cast<size_t>(2 * rows) * sizeof(float));
}
View scales_view(std::byte* base, Offset at, int64_t begin, int64_t count) {
  return view(base, at, DType::kF32, begin, count, 1, 2);
}

// An f8e4m3 row that represents `bf16`, each number off by at most one step: codes may be on the
// other side of a boundary; the scale's error is that of amax.
void add_f8_regions(std::vector<Region>& outputs, const Image& after, Region out, Offset scales) {
  Region scale{"scales", scales, DType::kF32, out.rows, 1, 2, {}, {}};
  for (int64_t r = 0; r < out.rows; ++r) {
    scale.tolerance.push_back(
        static_cast<float>(kStepBF16 * std::fabs(cell_value(after, scale, r, 0))));
    for (int64_t c = 0; c < out.cols; ++c)
      out.tolerance.push_back(
          static_cast<float>(std::max(0x1p-9, 0x1p-3 * std::fabs(cell_value(after, out, r, c)))));
  }
  outputs.push_back(out);
  outputs.push_back(scale);
}

Case<Quantize> quantize_case(const RowsShape& s, float size, DType type) {
  Case<Quantize> c;
  c.name = fmt::format("tokens={} width={} size={} out={}", s.tokens, s.width, size, name_of(type));
  const int64_t n = s.tokens, width = s.width, stride = width + 8, out_stride = width + 16;
  std::vector<BF16> x = noise_bf16(1, n * stride, size);
  if (n > 3) {  // zeros, infinity, NaN
    for (int64_t i = 0; i < width; ++i) x[static_cast<size_t>(stride + i)] = BF16{};
    x[static_cast<size_t>(2 * stride)] = {0x7f80};
    x[static_cast<size_t>(3 * stride + width - 1)] = {0x7fc0};
  }
  const Offset in = c.before.add(x);
  const Offset out = c.before.add(static_cast<size_t>(n * out_stride));
  const Offset scales = add_scales(c.before, n);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Quantize a;
    a.x = view(base, in, DType::kBF16, begin, count, width, stride);
    a.out = view(base, out, type, begin, count, width, out_stride);
    a.scales = scales_view(base, scales, begin, count);
    return a;
  };
  finish(c, n);
  c.outputs = {{"out", out, type, n, width, out_stride, {}, {}},
               {"scales", scales, DType::kF32, n, 1, 2, {}, {}}};
  return c;
}

struct NormShape {
  bool has_add = false, centered = false, has_bias = false;
  float weight_offset = 0;
  int64_t pieces = 1, own_pieces = 1;  // pieces per row; pieces with their own weight
  DType x = DType::kF32, out = DType::kBF16;
  bool in_place = false;
  DType add = DType::kF32;
  bool aligned = false;  // rows start at vector-aligned addresses
  int64_t factors = 0;   // 0: none
  bool rounded = false;
};

// Sets the tolerance of x + the weighted pieces, in outputs[0].
void set_sum_tolerance(Case<Norm>& c, int64_t factors) {
  Region& sum = c.outputs[0];
  const Norm a = c.args(c.before.bytes.data(), 0, c.tokens);
  for (int64_t r = 0; r < sum.rows; ++r)
    for (int64_t col = 0; col < sum.cols; ++col) {
      double norm = std::fabs(a.x.row<float>(r)[col]);
      for (int64_t j = 0; j < factors; ++j) {
        const int64_t at = j * sum.cols + col;
        const float number =
            a.add.dtype == DType::kF32 ? a.add.row<float>(r)[at] : to_float(a.add.row<BF16>(r)[at]);
        norm += std::fabs(double{a.factors.row<float>(r)[j]} * number);
      }
      sum.tolerance.push_back(
          static_cast<float>(kEpsF32 * static_cast<double>(factors + 2) * norm));
    }
}

Case<Norm> norm_case(const RowsShape& s, const NormShape& n) {
  Case<Norm> c;
  c.name = fmt::format(
      "tokens={} hidden={} add={} centered={} bias={} offset={} pieces={}/{} x={} "
      "out={} in_place={} aligned={} factors={} rounded={}",
      s.tokens, s.width, n.has_add ? name_of(n.add) : "none", n.centered, n.has_bias,
      n.weight_offset, n.pieces, n.own_pieces, name_of(n.x), name_of(n.out), n.in_place, n.aligned,
      n.factors, n.rounded);
  const int64_t hidden = s.width * n.pieces, stride = hidden + (n.aligned ? 8 : 1);
  const Offset x = n.x == DType::kF32 ? c.before.add(noise(1, s.tokens * stride, 3))
                                      : c.before.add(noise_bf16(1, s.tokens * stride, 3));
  const int64_t added = std::max<int64_t>(n.factors, 1) * hidden,
                add_stride = added + stride - hidden;
  const Offset add = n.add == DType::kF32 ? c.before.add(noise(2, s.tokens * add_stride))
                                          : c.before.add(noise_bf16(2, s.tokens * add_stride));
  const Offset factors = c.before.add(noise(5, s.tokens * (n.factors + 1)));
  const int64_t weights = s.width * n.own_pieces;
  const Offset weight = c.before.add(noise_bf16(3, weights));
  const Offset bias = c.before.add(noise_bf16(4, weights));
  const Offset out =
      n.in_place ? x : c.before.add(static_cast<size_t>(s.tokens * stride) * size_of(n.out));
  const Offset scales = add_scales(c.before, s.tokens);
  const Offset rounded = c.before.add(static_cast<size_t>(s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Norm a;
    a.x = view(base, x, n.x, begin, count, hidden, stride);
    if (n.has_add) {
      a.add = view(base, add, n.add, begin, count, added, add_stride);
      if (n.factors > 0)
        a.factors = view(base, factors, DType::kF32, begin, count, n.factors, n.factors + 1);
      a.sum = a.x;
    }
    a.weight = {base + weight, WeightLayout::kRowMajor, 1, weights};
    if (n.has_bias) a.bias = {base + bias, WeightLayout::kRowMajor, 1, weights};
    if (n.own_pieces > 1) a.piece = static_cast<int32_t>(s.width);
    a.eps = 1e-5f;
    a.weight_offset = n.weight_offset;
    a.centered = n.centered;
    a.out = view(base, out, n.out, begin, count, hidden, stride);
    if (n.rounded) a.rounded = view(base, rounded, DType::kF8E4M3, begin, count, hidden, stride);
    if (n.out == DType::kF8E4M3 || n.rounded) a.scales = scales_view(base, scales, begin, count);
    return a;
  };
  finish(c, s.tokens);
  Region region{"out", out, n.out, s.tokens, hidden, stride, {}, {}};
  if (!n.in_place) c.outputs = {{"x", x, n.x, s.tokens, hidden, stride, {}, {}}};
  if (n.factors > 0) set_sum_tolerance(c, n.factors);
  if (n.rounded)
    add_f8_regions(c.outputs, c.after,
                   {"rounded", rounded, DType::kF8E4M3, s.tokens, hidden, stride, {}, {}}, scales);
  if (n.out == DType::kF8E4M3) {
    add_f8_regions(c.outputs, c.after, region, scales);
    return c;
  }
  // Sums of `width` terms; the last addition (mean, bias) may cancel: values <= 3.5 deviations
  // times a weight <= 4.5.
  const double relative = kEpsF32 * (std::sqrt(static_cast<double>(s.width)) + 16);
  const double absolute = n.centered || n.has_bias || n.factors > 0 ? 64 * relative : 0;
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t col = 0; col < region.cols; ++col) {
      const double value = std::fabs(cell_value(c.after, region, r, col));
      region.tolerance.push_back(static_cast<float>(
          (relative + (n.out == DType::kBF16 ? kStepBF16 : 0)) * value + absolute));
    }
  c.outputs.push_back(region);
  return c;
}

Case<Rope> rope_case(int64_t tokens, int32_t heads, int32_t kv_heads, int32_t d,
                     int32_t rotated = 0, bool interleaved = false, bool has_components = false) {
  if (rotated == 0) rotated = d;
  Case<Rope> c;
  c.name =
      fmt::format("tokens={} heads={}/{} d={} rotated={}{}{}", tokens, heads, kv_heads, d, rotated,
                  interleaved ? " interleaved" : "", has_components ? " by components" : "");
  const int64_t width = int64_t{heads + 2 * kv_heads} * d, positions = 50;
  const Offset qkv = c.before.add(noise(1, tokens * width));
  std::vector<int32_t> at;
  for (int64_t i = 0; i < tokens; ++i) at.push_back(static_cast<int32_t>(i * 13 % positions));
  const Offset position = c.before.add(at);
  std::vector<float> angles;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t j = 0; j < rotated; ++j) {
      const int64_t half = rotated / 2;
      const double angle = static_cast<double>(p) * std::pow(1e-4, 2.0 * (j % half) / rotated);
      angles.push_back(static_cast<float>(j < half ? std::cos(angle) : std::sin(angle)));
    }
  const Offset table = c.before.add(angles);
  std::vector<int32_t> components, by_pair;
  for (int64_t i = 0; i < tokens * kPositionComponents; ++i)
    components.push_back(static_cast<int32_t>(i * 17 % positions));
  for (int32_t i = 0; i < rotated / 2; ++i) by_pair.push_back(i * 5 % kPositionComponents);
  const Offset parts = c.before.add(components), pairs = c.before.add(by_pair);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Rope a;
    a.heads = {heads, kv_heads, d};
    a.qkv = view(base, qkv, DType::kF32, begin, count, width, width);
    a.out = a.qkv;
    a.step.positions = ints(base, position, begin);
    a.angles = {reinterpret_cast<const float*>(base + table), rotated};
    a.interleaved = interleaved;
    if (!has_components) return a;
    a.angles.has_components = true;
    a.angles.components = ints(base, pairs, 0);
    a.step.components = ints(base, parts, begin * kPositionComponents);
    return a;
  };
  finish(c, tokens);
  // Bit-exact: fused and unfused rope agree.
  c.outputs = {{"qkv", qkv, DType::kF32, tokens, width, width, {}, {}}};
  return c;
}

Case<Glu> glu_case(const RowsShape& s, Activation activation, float limit, float up_offset,
                   DType out_type = DType::kBF16, DType x_type = DType::kF32) {
  Case<Glu> c;
  c.name = fmt::format("tokens={} width={} act={} limit={} up_offset={} x={} out={}", s.tokens,
                       s.width, static_cast<int>(activation), limit, up_offset, name_of(x_type),
                       name_of(out_type));
  const int64_t n = s.tokens, width = s.width;
  std::vector<float> x = noise(1, n * 2 * width, 3);
  const float extremes[] = {0, -0.0f, 100, -100, 1e30f, -1e30f, -20, 20, 1e-30f};
  for (size_t i = 0; i < x.size() && width > 30; i += 11) x[i] = extremes[i / 11 % 9];
  for (size_t i = 0; i < x.size(); ++i)  // products of two extremes would overflow f32
    if (i % static_cast<size_t>(2 * width) >= static_cast<size_t>(width) && std::fabs(x[i]) > 30)
      x[i] = 1;
  std::vector<BF16> narrow(x.size());
  if (x_type == DType::kBF16)
    for (size_t i = 0; i < x.size(); ++i) narrow[i] = to_bf16(x[i]), x[i] = to_float(narrow[i]);
  const Offset in = x_type == DType::kBF16 ? c.before.add(narrow) : c.before.add(x);
  const Offset out = c.before.add(static_cast<size_t>(n * width) * size_of(out_type));
  const Offset scales = add_scales(c.before, n);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Glu a;
    a.activation = activation;
    a.limit = limit;
    a.up_offset = up_offset;
    a.x = view(base, in, x_type, begin, count, 2 * width, 2 * width);
    a.out = view(base, out, out_type, begin, count, width, width);
    if (out_type == DType::kF8E4M3) a.scales = scales_view(base, scales, begin, count);
    return a;
  };
  finish(c, n);
  Region region{"out", out, out_type, n, width, width, {}, {}};
  if (out_type == DType::kF8E4M3) {
    add_f8_regions(c.outputs, c.after, region, scales);
    return c;
  }
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < width; ++j) {
      const double gate = std::fabs(x[r * 2 * width + j]),
                   up = std::fabs(x[r * 2 * width + width + j]) + up_offset;
      const double scale = std::min(gate, 30.0) * up;  // beyond that the activation is linear or 0
      region.tolerance.push_back(static_cast<float>(
          kStepBF16 * std::fabs(cell_value(c.after, region, r, j)) + 8 * kEpsF32 * scale + 1e-37));
    }
  c.outputs = {region};
  return c;
}

Case<Activate> activate_case(const RowsShape& s, Activation activation, DType type) {
  Case<Activate> c;
  c.name = fmt::format("tokens={} width={} act={}{}", s.tokens, s.width,
                       static_cast<int>(activation), type == DType::kF32 ? " f32" : "");
  const int64_t n = s.tokens, width = s.width, stride = width + 1;
  std::vector<float> x = noise(1, n * stride, 3);
  const float extremes[] = {0, -0.0f, 100, -100, -20, 20, 1e-30f};
  for (size_t i = 0; i < x.size() && width > 30; i += 11) x[i] = extremes[i / 11 % 7];
  const Offset in = c.before.add(x);
  const Offset out = c.before.add(static_cast<size_t>(n * width) * size_of(type));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Activate a;
    a.x = view(base, in, DType::kF32, begin, count, width, stride);
    a.activation = activation;
    a.out = view(base, out, type, begin, count, width, width);
    return a;
  };
  finish(c, n);
  Region region{"out", out, type, n, width, width, {}, {}};
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < width; ++j)
      region.tolerance.push_back(static_cast<float>(
          (type == DType::kF32 ? 8 * kEpsF32 : kStepBF16) *
              std::fabs(cell_value(c.after, region, r, j)) +
          8 * kEpsF32 * std::min(std::fabs(x[static_cast<size_t>(r * stride + j)]), 30.0f) +
          1e-37));
  c.outputs = {region};
  return c;
}

Case<Xielu> xielu_case(const RowsShape& s, float positive, float negative) {
  Case<Xielu> c;
  c.name = fmt::format("tokens={} width={} curves={},{}", s.tokens, s.width, positive, negative);
  const int64_t n = s.tokens, width = s.width, stride = width + 1;
  std::vector<float> x = noise(1, n * stride, 3);
  const float extremes[] = {0, -0.0f, 100, -100, -20, 20, 1e-30f, -1e-5f};
  for (size_t i = 0; i < x.size() && width > 30; i += 11) x[i] = extremes[i / 11 % 8];
  const Offset in = c.before.add(x);
  const Offset curves = c.before.add(std::vector<float>{positive, negative});
  const Offset out = c.before.add(static_cast<size_t>(n * width) * 2);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Xielu a;
    a.x = view(base, in, DType::kF32, begin, count, width, stride);
    a.positive = {base + curves, WeightLayout::kRowMajor, 1, 1, kFloat32};
    a.negative = {base + curves + sizeof(float), WeightLayout::kRowMajor, 1, 1, kFloat32};
    a.out = view(base, out, DType::kBF16, begin, count, width, width);
    return a;
  };
  finish(c, n);
  Region region{"out", out, DType::kBF16, n, width, width, {}, {}};
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < width; ++j)
      region.tolerance.push_back(static_cast<float>(
          kStepBF16 * std::fabs(cell_value(c.after, region, r, j)) +
          16 * kEpsF32 * (1 + std::fabs(x[static_cast<size_t>(r * stride + j)]))));
  c.outputs = {region};
  return c;
}

Case<SoftCap> soft_cap_case(const RowsShape& s, float scale, float cap, float limit = 0) {
  Case<SoftCap> c;
  c.name = fmt::format("tokens={} width={} scale={} cap={} limit={}", s.tokens, s.width, scale, cap,
                       limit);
  const int64_t n = s.tokens, width = s.width, stride = width + 1;
  std::vector<float> x = noise(1, n * stride, 5);
  if (width > 30) x[3] = 1e30f, x[4] = -1e30f, x[5] = 0;
  const Offset at = c.before.add(x);
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    SoftCap a;
    a.x = a.out = view(base, at, DType::kF32, begin, count, width, stride);
    a.scale = scale;
    a.cap = cap;
    a.limit = limit;
    return a;
  };
  finish(c, n);
  Region region{"x", at, DType::kF32, n, width, stride, {}, {}};
  if (cap > 0)
    region.tolerance.assign(static_cast<size_t>(n * width), static_cast<float>(16 * kEpsF32 * cap));
  else
    set_relative(c.after, region, kEpsF32);
  c.outputs = {region};
  return c;
}

Case<Add> add_case(const RowsShape& s) {
  Case<Add> c;
  c.name = fmt::format("tokens={} width={}", s.tokens, s.width);
  const int64_t n = s.tokens, width = s.width, stride = width + 1;
  const Offset x = c.before.add(noise(1, n * stride)), y = c.before.add(noise(2, n * width));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    Add a;
    a.x = view(base, x, DType::kF32, begin, count, width, stride);
    a.out = a.x;
    a.y = view(base, y, DType::kF32, begin, count, width, width);
    return a;
  };
  c.outputs = {{"x", x, DType::kF32, n, width, stride, {}, {}}};
  finish(c, n);
  return c;
}

}  // namespace

template <>
const std::vector<Case<Norm>>& cases<Norm>() {
  return over_shapes<Norm>([](const RowsShape& s, auto& list) {
    for (const bool has_add : {false, true})
      for (const DType out : {DType::kF32, DType::kBF16})
        list.push_back(norm_case(s, {.has_add = has_add, .out = out}));
    if (s.width == 1) return;  // a LayerNorm of one element is its bias
    list.push_back(norm_case(s, {.has_add = true, .centered = true, .has_bias = true}));
    list.push_back(norm_case(s, {.centered = true, .out = DType::kF32}));
    list.push_back(norm_case(s, {.has_add = true, .weight_offset = 1}));
    list.push_back(norm_case(s, {.out = DType::kF32, .in_place = true}));
    list.push_back(norm_case(s, {.has_add = true, .out = DType::kF8E4M3}));
    for (const DType out : {DType::kBF16, DType::kF8E4M3})
      list.push_back(norm_case(s, {.has_add = true, .out = out, .add = DType::kBF16}));
    list.push_back(norm_case(s, {.centered = true, .has_bias = true, .out = DType::kF8E4M3}));
    for (const DType out : {DType::kBF16, DType::kF8E4M3}) {
      list.push_back(norm_case(
          s,
          {.has_add = true, .weight_offset = 1, .out = out, .add = DType::kBF16, .aligned = true}));
      list.push_back(norm_case(s, {.has_add = true, .out = out, .aligned = true}));
    }
    for (const DType add : {DType::kF32, DType::kBF16}) {
      list.push_back(norm_case(
          s, {.has_add = true, .add = add, .aligned = true, .factors = 3, .rounded = true}));
      list.push_back(norm_case(s, {.has_add = true,
                                   .weight_offset = 1,
                                   .out = DType::kF8E4M3,
                                   .add = add,
                                   .aligned = true,
                                   .factors = 9}));
      list.push_back(norm_case(s, {.has_add = true, .add = add, .aligned = true, .rounded = true}));
    }
    if (s.width == 2048)
      for (const DType out : {DType::kBF16, DType::kF8E4M3})
        list.push_back(norm_case(
            {3, 4352}, {.has_add = true, .out = out, .add = DType::kBF16, .aligned = true}));
    if (s.width > 256) return;
    list.push_back(norm_case(s, {.pieces = 3, .out = DType::kF32, .in_place = true}));
    list.push_back(
        norm_case(s, {.weight_offset = 1, .pieces = 5, .x = DType::kBF16, .in_place = true}));
    list.push_back(norm_case(s, {.centered = true,
                                 .has_bias = true,
                                 .pieces = 6,
                                 .own_pieces = 3,
                                 .out = DType::kF32,
                                 .in_place = true}));
  });
}

template <>
const std::vector<Case<Rope>>& cases<Rope>() {
  static const std::vector<Case<Rope>> all = {rope_case(1, 1, 1, 2),
                                              rope_case(3, 4, 2, 64),
                                              rope_case(70, 3, 1, 80),
                                              rope_case(5, 8, 8, 36),
                                              rope_case(9, 2, 1, 128),
                                              rope_case(2, 5, 5, 14),
                                              rope_case(4, 3, 1, 80, 20),
                                              rope_case(4, 3, 1, 64, 64, true),
                                              rope_case(4, 3, 1, 36, 22, true),
                                              rope_case(3, 4, 2, 64, 0, false, true),
                                              rope_case(70, 3, 1, 80, 0, false, true),
                                              rope_case(4, 3, 1, 36, 22, true, true)};
  return all;
}

template <>
const std::vector<Case<Glu>>& cases<Glu>() {
  return over_shapes<Glu>([](const RowsShape& s, auto& list) {
    for (const Activation a : kActivations) list.push_back(glu_case(s, a, 0, 0));
    list.push_back(glu_case(s, Activation::kGeluSigmoid, 7, 1));
    list.push_back(glu_case(s, Activation::kSilu, 2, 0));
    list.push_back(glu_case(s, Activation::kSilu, 2, 0, DType::kF8E4M3));
    list.push_back(glu_case(s, Activation::kGelu, 0, 0, DType::kF8E4M3));
    list.push_back(glu_case(s, Activation::kSilu, 2, 1, DType::kBF16, DType::kBF16));
    list.push_back(glu_case(s, Activation::kGelu, 0, 0, DType::kF8E4M3, DType::kBF16));
    if (s.width < 2048) return;
    for (const DType x : {DType::kF32, DType::kBF16})  // wide, and more than a few rows
      list.push_back(glu_case({17, 16640}, Activation::kSilu, 0, 0, DType::kF8E4M3, x));
  });
}

template <>
const std::vector<Case<Activate>>& cases<Activate>() {
  return over_shapes<Activate>([](const RowsShape& s, auto& list) {
    for (const Activation a : kActivations)
      for (const DType type : {DType::kBF16, DType::kF32})
        list.push_back(activate_case(s, a, type));
  });
}

template <>
const std::vector<Case<Xielu>>& cases<Xielu>() {
  return over_shapes<Xielu>([](const RowsShape& s, auto& list) {
    list.push_back(xielu_case(s, 0.2f, -1.05f));
    list.push_back(xielu_case(s, -2, 3));
  });
}

template <>
const std::vector<Case<SoftCap>>& cases<SoftCap>() {
  return over_shapes<SoftCap>([](const RowsShape& s, auto& list) {
    list.push_back(soft_cap_case(s, 1, 5));
    list.push_back(soft_cap_case(s, 0.3f, 5));
    list.push_back(soft_cap_case(s, 0.0625f, 0));
    list.push_back(soft_cap_case(s, 2, 0, 0.75f));
    list.push_back(soft_cap_case(s, 1, 5, 0.5f));
  });
}

template <>
const std::vector<Case<Add>>& cases<Add>() {
  return over_shapes<Add>([](const RowsShape& s, auto& list) { list.push_back(add_case(s)); });
}

template <>
const std::vector<Case<Quantize>>& cases<Quantize>() {
  return over_shapes<Quantize>([](const RowsShape& s, auto& list) {
    for (const DType type : {DType::kF8E4M3, DType::kI8}) {
      list.push_back(quantize_case(s, 1, type));
      list.push_back(quantize_case(s, 0x1p-101f, type));
    }
    if (s.width == 2048) list.push_back(quantize_case({5, 16640}, 1, DType::kF8E4M3));
  });
}

}  // namespace nereid::kernels::testing
