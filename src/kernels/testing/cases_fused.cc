// Cases of fused_linear: each epilogue alone and combined, odd widths, all weight formats of steps
// of few rows.
#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

enum class End : uint8_t { kPlain, kGated, kResidual };

struct FusedShape {
  int64_t tokens, n, k;
  WeightFormat format = {};
  WeightLayout layout = WeightLayout::kRowMajor;
};

struct Ends {
  End end = End::kPlain;
  bool has_squares = false, rounds = false, has_bias = false;
  Activation activation = Activation::kSilu;
  float limit = 0, up_offset = 0, norm_offset = 0;
  DType out = DType::kBF16;
};

// Error bounds of y: sums as for Linear, the norm's divisor, operands that kernels do not round.
struct Errors {
  std::vector<double> y, sums, operands;  // [tokens, n]: y itself, and its two error bounds
};

// The definition without an epilogue, and the same for magnitudes.
Errors errors_of(const FusedShape& s, const FusedLinear& args, std::vector<BF16> weight,
                 std::span<const BF16> x) {
  FusedLinear plain = args;
  std::vector<float> y(static_cast<size_t>(s.tokens * s.n));
  plain.gated = false;
  plain.residual = plain.sum = plain.squares = {};
  plain.norm = {};
  plain.out = View::matrix(y.data(), DType::kF32, s.tokens, s.n);
  reference(plain);
  const double root = std::sqrt(static_cast<double>(s.k));
  const double share = kEpsF32 * (4 * root + 16) + (args.rounds ? kEpsFp8Sum : 0.0);
  for (BF16& w : weight) w = to_bf16(std::fabs(to_float(w)));
  Errors errors;
  for (int64_t m = 0; m < s.tokens; ++m) {
    double factor = 1;
    if (is_given(args.x_squares)) {
      double squares = 0;
      for (int64_t c = 0; c < kFusedSquares; ++c) squares += args.x_squares.row<float>(m)[c];
      factor = 1 / std::sqrt(squares / static_cast<double>(s.k) + args.eps);
    }
    for (int64_t n = 0; n < s.n; ++n) {
      double norm = 0.01;
      for (int64_t k = 0; k < s.k; ++k)
        norm += std::fabs(to_float(x[static_cast<size_t>(m * s.k + k)])) *
                to_float(weight[static_cast<size_t>(n * s.k + k)]);
      errors.y.push_back(y[static_cast<size_t>(m * s.n + n)]);
      errors.sums.push_back(share * norm * factor);
      const bool scales_sums = !s.format.is_float() && s.format != kFp8PerRow;
      errors.operands.push_back(scales_sums ? norm * factor * std::min(1.0, 8 / root) : 0);
    }
  }
  return errors;
}

// Error of a gated unit for its inputs' errors: but for ReLU^2, |act'| <= 1.2 and |act(x)| <= |x|.
double gated_error(const Ends& e, double gate, double up, double gate_error, double up_error) {
  const bool squares = e.activation == Activation::kRelu2;
  const double size = std::fabs(gate) + gate_error;
  const double rise = squares ? 2 * size : 1.2;
  return rise * gate_error * (std::fabs(up) + up_error + std::fabs(e.up_offset)) +
         (squares ? size * size : size) * up_error;
}

void set_tolerances(const FusedShape& s, const Ends& e, const Errors& errors, const FusedLinear& a,
                    const Image& after, std::vector<Region>& outputs) {
  Region& out = outputs[0];
  const double step = e.out == DType::kBF16 ? kStepBF16 : kEpsF32;
  for (int64_t m = 0; m < s.tokens; ++m)
    for (int64_t c = 0; c < out.cols; ++c) {
      const auto i = static_cast<size_t>(m * s.n + c);
      double error = errors.sums[i], operand = errors.operands[i];
      if (e.end == End::kGated) {
        const auto up = static_cast<size_t>(m * s.n + out.cols + c);
        operand = gated_error(e, errors.y[i], errors.y[up], operand, errors.operands[up]);
        error = gated_error(e, errors.y[i], errors.y[up], error, errors.sums[up]) +
                8 * kEpsF32 *
                    gated_error(e, errors.y[i], errors.y[up], std::fabs(errors.y[i]),
                                std::fabs(errors.y[up]));
      }
      if (e.end == End::kResidual) {
        error += kEpsF32 * std::fabs(cell_value(after, outputs[1], m, c));
        outputs[1].tolerance.push_back(static_cast<float>(error));
        outputs[1].operand_tolerance.push_back(static_cast<float>(operand));
        const double weight = std::fabs(to_float(a.norm.as_bf16()[c]) + a.norm_offset);
        error *= weight, operand *= weight;
      }
      out.tolerance.push_back(
          static_cast<float>(error + step * std::fabs(cell_value(after, out, m, c)) + 1e-37));
      out.operand_tolerance.push_back(static_cast<float>(operand));
    }
}

double sum_of_row(const Image& image, const Region& squares, int64_t row) {
  double sum = 0;
  for (int64_t c = 0; c < squares.cols; ++c) sum += cell_value(image, squares, row, c);
  return sum;
}

// Compares outputs by cell; rows of squares by their sum: that of the squares of the adjacent sums.
Status check_fused(const Case<FusedLinear>& c, const Image& got, double operand_epsilon) {
  for (const Region& region : c.outputs) {
    if (region.name != "squares") {
      RETURN_IF_ERROR(compare(got, c.after, region, operand_epsilon));
      continue;
    }
    const Region& sum = c.outputs[1];
    for (int64_t row = 0; row < region.rows; ++row) {
      double want = 0;
      for (int64_t col = 0; col < sum.cols; ++col)
        want += std::pow(cell_value(got, sum, row, col), 2);
      const double have = sum_of_row(got, region, row);
      const double share = kEpsF32 * (std::sqrt(static_cast<double>(sum.cols)) + 16);
      if (!(std::fabs(have - want) <= share * want))
        return internal_error("squares: those of row {} add up to {}, wanted {}", row, have, want);
    }
  }
  return ok();
}

std::string name_of_case(const FusedShape& s, const Ends& e) {
  static constexpr std::string_view kEnds[] = {"plain", "gated", "residual"};
  return fmt::format(
      "tokens={} n={} k={} weight={} layout={} {} squares={} rounds={} bias={} act={} limit={} "
      "up_offset={} norm_offset={} out={}",
      s.tokens, s.n, s.k, text_of(s.format), static_cast<int>(s.layout),
      kEnds[static_cast<size_t>(e.end)], e.has_squares, e.rounds, e.has_bias,
      names_of(e.activation)[static_cast<size_t>(e.activation)], e.limit, e.up_offset,
      e.norm_offset, name_of(e.out));
}

// The operands of the product; `rounds`: quantised as by Quantize.
std::vector<BF16> factors_of(const FusedShape& s, const Ends& e, std::vector<BF16> x) {
  std::vector<F8E4M3> stored(static_cast<size_t>(s.k));
  float scale = 0;
  for (int64_t m = 0; e.rounds && m < s.tokens; ++m)
    store_scaled_row(std::span(x).subspan(static_cast<size_t>(m * s.k), static_cast<size_t>(s.k)),
                     stored.data(), scale);
  return x;
}

Case<FusedLinear> fused_case(const FusedShape& s, const Ends& e) {
  Case<FusedLinear> c;
  c.name = name_of_case(s, e);
  const uint64_t seed = static_cast<uint64_t>(s.tokens * 1000003 + s.n * 1009 + s.k);
  Image& image = c.before;
  const std::vector<BF16> x = noise_bf16(seed, s.tokens * s.k, 3);
  std::vector<BF16> matrix = noise_bf16(seed + 1, s.n * s.k, 0.1f);
  // Several large entries and many zeros, as left by kernels.
  std::vector<float> squares(static_cast<size_t>(s.tokens * kFusedSquares));
  for (size_t i = 0; i < squares.size(); ++i)
    if (i % static_cast<size_t>(kFusedSquares) < 132)
      squares[i] = static_cast<float>(s.k) * (0.01f + 0.001f * static_cast<float>(i % 7));
  const int64_t width = e.end == End::kGated ? s.n / 2 : s.n;
  const int64_t out_stride = width + (width % 8 ? 3 : 8), sum_stride = s.n + 3;
  const Offset x_at = image.add(x), squares_at = image.add(squares);
  const StoredWeight weight = add_weight(image, matrix, {nullptr, s.layout, s.n, s.k, s.format});
  const Offset bias = image.add(noise_bf16(seed + 2, s.n));
  const Offset norm = image.add(noise_bf16(seed + 3, s.n));
  const Offset sum = image.add(noise(seed + 4, s.tokens * sum_stride, 2));
  const Offset out = image.add(static_cast<size_t>(s.tokens * out_stride) * size_of(e.out));
  const Offset made = image.add(squares.size() * sizeof(float));
  c.tokens = s.tokens;
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    const auto at = [&](Offset offset, DType type, int64_t cols, int64_t stride) -> View {
      return {base + offset + begin * stride * static_cast<int64_t>(size_of(type)), type, count,
              cols, stride};
    };
    FusedLinear a{.x = at(x_at, DType::kBF16, s.k, s.k), .eps = 1e-5f, .rounds = e.rounds};
    if (e.has_squares) a.x_squares = at(squares_at, DType::kF32, kFusedSquares, kFusedSquares);
    a.weight = weight.at(base);
    if (e.has_bias) a.bias = {base + bias, WeightLayout::kRowMajor, 1, s.n};
    a.gated = e.end == End::kGated;
    a.activation = e.activation;
    a.limit = e.limit, a.up_offset = e.up_offset, a.norm_offset = e.norm_offset;
    a.out = at(out, e.out, width, out_stride);
    if (e.end != End::kResidual) return a;
    a.residual = a.sum = at(sum, DType::kF32, s.n, sum_stride);
    a.norm = {base + norm, WeightLayout::kRowMajor, 1, s.n};
    a.squares = at(made, DType::kF32, kFusedSquares, kFusedSquares);
    return a;
  };
  c.after = image;
  Image given = image;
  const FusedLinear args = c.args(given.bytes.data(), 0, s.tokens);
  reference(c.args(c.after.bytes.data(), 0, s.tokens));
  c.outputs = {{"out", out, e.out, s.tokens, width, out_stride, {}, {}}};
  if (e.end == End::kResidual) {
    c.outputs.push_back({"sum", sum, DType::kF32, s.tokens, s.n, sum_stride, {}, {}});
    c.outputs.push_back(
        {"squares", made, DType::kF32, s.tokens, kFusedSquares, kFusedSquares, {}, {}});
  }
  const Errors errors = errors_of(s, args, matrix, factors_of(s, e, x));
  set_tolerances(s, e, errors, args, c.after, c.outputs);
  c.check = check_fused;
  if (s.tokens > 1) c.splits = {pieces(s.tokens, 1)};
  return c;
}

// Epilogues of a layer's products: qkv, attention output, gate and up, down, single families'.
std::vector<Ends> ends_for(const FusedShape& s, bool rounds) {
  const bool is_even = s.n % 2 == 0;
  std::vector<Ends> all = {
      {.has_squares = true, .rounds = rounds, .out = DType::kF32},
      {.has_squares = true, .rounds = rounds, .has_bias = true},
      {.end = End::kResidual, .rounds = rounds},
      {.end = End::kResidual,
       .has_squares = true,
       .rounds = rounds,
       .has_bias = true,
       .norm_offset = 1},
  };
  if (!is_even) return all;
  all.push_back({.end = End::kGated, .has_squares = true, .rounds = rounds});
  all.push_back({.end = End::kGated,
                 .rounds = rounds,
                 .has_bias = true,
                 .activation = Activation::kGeluTanh});
  all.push_back({.end = End::kGated,
                 .has_squares = true,
                 .rounds = rounds,
                 .activation = Activation::kGeluSigmoid,
                 .limit = 2,
                 .up_offset = 1});
  return all;
}

std::vector<Case<FusedLinear>> fused_cases() {
  WeightFormat int4_zeros = kInt4Groups, int8_groups = kInt8PerRow, int4_wide = kInt4Groups;
  int4_zeros.zeros = true;
  int8_groups.group = 64, int8_groups.zeros = true;
  int4_wide.group = 256;
  std::vector<Case<FusedLinear>> all;
  const auto add = [&](const FusedShape& s, bool rounds) {
    for (const Ends& ends : ends_for(s, rounds)) all.push_back(fused_case(s, ends));
  };
  for (const WeightFormat& format :
       {WeightFormat{}, kFp8PerRow, kInt8PerRow, kInt4Groups, int4_zeros, int8_groups, int4_wide}) {
    const bool rounds = format == kFp8PerRow;
    for (const int64_t tokens : {1, 2, 3, 4, 8}) add({tokens, 40, 512, format}, rounds);
    add({1, 1, 256, format}, rounds);
    add({2, 37, 336, format}, rounds);
    add({1, 120, 1024, format}, rounds);
  }
  for (const int64_t tokens : {1, 4}) {
    add({tokens, 17, 33}, false);
    add({tokens, 22, 100, kInt8PerRow}, false);
    add({tokens, 40, 64, kFp8PerRow}, false);
    add({tokens, 40, 64, {}, WeightLayout::kPanel16}, false);
    add({tokens, 40, 64, kFp8PerRow, WeightLayout::kPanel16}, true);
  }
  // Several steps of k per thread, and more columns than units of a device.
  for (const int64_t tokens : {1, 2}) {
    add({tokens, 6, 14336}, false);
    add({tokens, 6, 14336, kFp8PerRow}, true);
    add({tokens, 6, 14336, kInt4Groups}, false);
    add({tokens, 700, 128}, false);
    add({tokens, 700, 128, kFp8PerRow}, true);
    add({tokens, 700, 128, kInt4Groups}, false);
  }
  for (const Activation activation :
       {Activation::kGelu, Activation::kRelu, Activation::kRelu2, Activation::kNone})
    all.push_back(fused_case({2, 48, 128},
                             {.end = End::kGated, .has_squares = true, .activation = activation}));
  return all;
}

}  // namespace

template <>
const std::vector<Case<FusedLinear>>& cases<FusedLinear>() {
  static const std::vector<Case<FusedLinear>> all = fused_cases();
  return all;
}

}  // namespace nereid::kernels::testing
