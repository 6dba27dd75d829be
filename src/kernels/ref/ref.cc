// Reference forms of small ops.
#include "kernels/ref/ref.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "kernels/api/pack.h"
#include "kernels/api/quantize.h"

namespace nereid::kernels {
namespace {

float load(const View& x, int64_t row, int64_t col) {
  if (x.dtype == DType::kF8E4M3) return to_float(x.row<F8E4M3>(row)[col]);
  if (x.dtype == DType::kI8) return x.row<int8_t>(row)[col];
  return x.dtype == DType::kBF16 ? to_float(x.row<BF16>(row)[col]) : x.row<float>(row)[col];
}

void store(const View& out, int64_t row, int64_t col, float value) {
  if (out.dtype == DType::kBF16)
    out.row<BF16>(row)[col] = to_bf16(value);
  else
    out.row<float>(row)[col] = value;
}

// Writes a row of results, quantised to f8e4m3 through bf16 if scales are given.
void store_row(const View& out, const View& scales, int64_t row, const std::vector<float>& values) {
  if (!is_given(scales)) {
    for (size_t c = 0; c < values.size(); ++c) store(out, row, static_cast<int64_t>(c), values[c]);
    return;
  }
  std::vector<BF16> rounded(values.size());
  for (size_t c = 0; c < values.size(); ++c) rounded[c] = to_bf16(values[c]);
  *scales.row<float>(row) = quantize_row(rounded, out.row<F8E4M3>(row));
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x * 0.7071067811865476);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
    case Activation::kNone:
      return x;
    case Activation::kGeluSigmoid:
      return x / (1 + std::exp(-1.702 * x));
  }
  return 0;
}

}  // namespace

void reference(const Embed& a) {
  for (int64_t i = 0; i < a.out.rows; ++i) {
    int64_t id = a.step.tokens[i];
    float* const out = a.out.row<float>(i);
    if (id < kFirstFeature / 2) {
      const BF16* const row =
          id == kRowEnd ? a.row_end.as_bf16() : given_row(a.step, id, a.out.cols);
      for (int64_t c = 0; c < a.out.cols; ++c) out[c] = row ? to_float(row[c]) * a.scale : 0;
      continue;
    }
    if (id < 0) id = a.step.slot_tokens ? a.step.slot_tokens[-1 - id] : -1;
    const bool known = id >= 0 && id < a.table.n;
    for (int64_t c = 0; c < a.out.cols; ++c)
      out[c] = known ? weight_at(a.table, id, c) * a.scale : 0;
  }
}

void reference(const Quantize& a) {
  for (int64_t i = 0; i < a.out.rows; ++i) {
    const std::span<const BF16> row(a.x.row<BF16>(i), static_cast<size_t>(a.x.cols));
    *a.scales.row<float>(i) = a.out.dtype == DType::kI8 ? quantize_row(row, a.out.row<int8_t>(i))
                                                        : quantize_row(row, a.out.row<F8E4M3>(i));
  }
}

void reference(const Norm& a) {
  const int64_t width = Norm::piece_of(a);
  std::vector<float> results(static_cast<size_t>(a.x.cols));
  std::vector<float> y(static_cast<size_t>(width));
  for (int64_t i = 0; i < a.out.rows; ++i) {
    for (int64_t begin = 0; begin < a.x.cols; begin += width) {
      double mean = 0, squares = 0;
      for (int64_t c = 0; c < width; ++c) {
        y[c] = load(a.x, i, begin + c);
        const int64_t added = is_given(a.factors) ? a.factors.cols : is_given(a.add) ? 1 : 0;
        double more = 0;
        for (int64_t j = 0; j < added; ++j)
          more += (is_given(a.factors) ? double{a.factors.row<float>(i)[j]} : 1.0) *
                  load(a.add, i, j * a.x.cols + begin + c);
        if (added > 0) y[c] += static_cast<float>(more);
        if (is_given(a.sum)) a.sum.row<float>(i)[begin + c] = y[c];
        if (a.centered) mean += y[c];
      }
      mean /= static_cast<double>(width);
      for (int64_t c = 0; c < width; ++c) squares += (y[c] - mean) * (y[c] - mean);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + a.eps);
      for (int64_t c = 0; c < width; ++c) {
        const int64_t at = (begin + c) % a.weight.k;
        const double weight = double{to_float(a.weight.as_bf16()[at])} + a.weight_offset;
        const double bias = is_given(a.bias) ? to_float(a.bias.as_bf16()[at]) : 0;
        results[static_cast<size_t>(begin + c)] =
            static_cast<float>((y[c] - mean) * scale * weight + bias);
      }
    }
    if (is_given(a.rounded)) {
      store_row(a.out, {}, i, results);
      store_row(a.rounded, a.scales, i, results);
    } else {
      store_row(a.out, a.scales, i, results);
    }
  }
}

namespace {

// Rows of x multiplied by rows of a weight [n, k]. A block of rows is summed side by side, each in
// the order of k.
class InputRows {
 public:
  InputRows(size_t rows, size_t k)
      : rows_(rows), k_(k), x_((rows + kSide - 1) / kSide * kSide * k) {}

  void set(size_t row, size_t c, float value) { x_[at(row, c)] = value; }
  void set_row(size_t row, const View& x, int64_t row_of_x, int64_t first_col) {
    for (size_t c = 0; c < k_; ++c)
      set(row, c, load(x, row_of_x, first_col + static_cast<int64_t>(c)));
  }

  // Calls use(row, sum) for the products with row n of the weight.
  template <class Use>
  void multiply(const WeightView& weight, int64_t n, Use use) const {
    std::vector<double> factors(k_);
    for (size_t c = 0; c < k_; ++c) factors[c] = factor_at(weight, n, static_cast<int64_t>(c));
    for (size_t first = 0; first < rows_; first += kSide) {
      const double* x = x_.data() + at(first, 0);
      double sums[kSide] = {};
      for (const double factor : factors) {
        for (size_t j = 0; j < kSide; ++j) sums[j] += x[j] * factor;
        x += kSide;
      }
      for (size_t j = 0; j < kSide && first + j < rows_; ++j) use(first + j, sums[j]);
    }
  }

 private:
  static constexpr size_t kSide = 8;
  size_t at(size_t row, size_t c) const { return (row / kSide * k_ + c) * kSide + row % kSide; }

  size_t rows_, k_;
  std::vector<double> x_;  // [rows / 8][k][8]
};

}  // namespace

void reference(const Linear& a) {
  InputRows x(static_cast<size_t>(a.x.rows), static_cast<size_t>(a.weight.k));
  for (int64_t i = 0; i < a.x.rows; ++i) x.set_row(static_cast<size_t>(i), a.x, i, 0);
  for (int64_t n = 0; n < a.weight.n; ++n)
    x.multiply(a.weight, n, [&](size_t i, double sum) {
      const auto row = static_cast<int64_t>(i);
      sum *= row_scale(a.weight, n);
      if (is_given(a.scales)) sum *= *a.scales.row<float>(row);
      if (is_given(a.bias)) sum += to_float(a.bias.as_bf16()[n]);
      store(a.out, row, n, static_cast<float>(sum));
    });
}

namespace {

// act(gate) * (up + up_offset) with the op's limit.
template <class Op>
float gated_unit(const Op& a, double gate, double up) {
  if (a.limit > 0) {
    gate = std::min(gate, double{a.limit});
    up = std::clamp(up, -double{a.limit}, double{a.limit});
  }
  return static_cast<float>(activate(a.activation, gate) * (up + a.up_offset));
}

}  // namespace

namespace {

// Reads row i of x as multiplied. Returns the factor of its sums.
double read_row(const FusedLinear& a, int64_t i, InputRows& x) {
  const auto k = static_cast<size_t>(a.weight.k), at = static_cast<size_t>(i);
  const std::span<const BF16> row(a.x.row<BF16>(i), k);
  std::vector<F8E4M3> rounded(k);
  const double factor = a.rounds ? quantize_row(row, rounded.data()) : 1;
  for (size_t c = 0; c < k; ++c) x.set(at, c, a.rounds ? to_float(rounded[c]) : to_float(row[c]));
  if (!is_given(a.x_squares)) return factor;
  double squares = 0;
  for (int64_t c = 0; c < kFusedSquares; ++c) squares += a.x_squares.row<float>(i)[c];
  return factor / std::sqrt(squares / static_cast<double>(a.weight.k) + a.eps);
}

void end_row(const FusedLinear& a, int64_t i, std::span<const float> y) {
  double squares = 0;
  for (int64_t c = 0; c < a.out.cols; ++c) {
    float value = y[static_cast<size_t>(c)];
    if (a.gated) value = gated_unit(a, value, y[static_cast<size_t>(a.out.cols + c)]);
    if (is_given(a.residual)) {
      value += a.residual.row<float>(i)[c];
      a.sum.row<float>(i)[c] = value;
      squares += double{value} * value;
      value *= to_float(a.norm.as_bf16()[c]) + a.norm_offset;
    }
    store(a.out, i, c, value);
  }
  if (!is_given(a.squares)) return;
  std::fill_n(a.squares.row<float>(i), kFusedSquares, 0.0f);
  *a.squares.row<float>(i) = static_cast<float>(squares);
}

}  // namespace

void reference(const FusedLinear& a) {
  const auto rows = static_cast<size_t>(a.out.rows), width = static_cast<size_t>(a.weight.n);
  InputRows x(rows, static_cast<size_t>(a.weight.k));
  std::vector<double> factors;
  for (int64_t i = 0; i < a.out.rows; ++i) factors.push_back(read_row(a, i, x));
  std::vector<float> y(rows * width);
  for (int64_t n = 0; n < a.weight.n; ++n)
    x.multiply(a.weight, n, [&](size_t i, double sum) {
      sum *= factors[i] * row_scale(a.weight, n);
      if (is_given(a.bias)) sum += to_float(a.bias.as_bf16()[n]);
      y[i * width + static_cast<size_t>(n)] = static_cast<float>(sum);
    });
  for (size_t i = 0; i < rows; ++i)
    end_row(a, static_cast<int64_t>(i), std::span(y).subspan(i * width, width));
}

namespace {

// Row j of a module's A times x; without x: column `token` of A.
double low_of(const LowRank& a, const LoraMatrix& matrix, int64_t j, int64_t row, int64_t first_col,
              int64_t token) {
  const BF16* const weights = a.step.adapter_weights + matrix.a;
  if (!is_given(a.x)) return to_float(weights[token * matrix.rank + j]);
  double sum = 0;
  for (int64_t c = 0; c < a.k; ++c)
    sum += double{load(a.x, row, first_col + c)} * to_float(weights[j * a.k + c]);
  return sum;
}

void add_module(const LowRank& a, const LoraMatrix& matrix, const std::vector<double>& low,
                float* y) {
  for (int64_t c = 0; c < matrix.cols; ++c) {
    double sum = 0;
    for (int64_t j = 0; j < matrix.rank; ++j)
      sum += low[static_cast<size_t>(j)] *
             to_float(a.step.adapter_weights[matrix.b + j * matrix.cols + c]);
    sum = y[c] + double{matrix.scale} * a.scale * sum;
    if (matrix.gain >= 0) {
      const BF16* const gain = a.step.adapter_weights + matrix.gain;
      sum += to_float(gain[c]) * sum + to_float(gain[matrix.cols + c]);
    }
    y[c] = static_cast<float>(sum);
  }
}

}  // namespace

void reference(const LowRank& a) {
  const int64_t pieces = LowRank::pieces_of(a), width = a.out.cols / pieces;
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t p = 0; p < pieces; ++p) {
      const LoraMatrix* const matrices = LowRank::matrices_of(a, i, p);
      if (!matrices) continue;
      const int64_t token = is_given(a.x) ? 0 : LowRank::token_of(a, i);
      if (token < 0) continue;
      const int64_t first_col = a.x.cols == a.k ? 0 : p * a.k;
      for (int32_t m = 0; m < a.num_modules; ++m) {
        std::vector<double> low;
        for (int64_t j = 0; j < matrices[m].rank; ++j)
          low.push_back(low_of(a, matrices[m], j, i, first_col, token));
        add_module(a, matrices[m], low, a.out.row<float>(i) + p * width + matrices[m].column);
      }
    }
}

namespace {

struct Piece {
  int64_t row, piece;
};

// The pieces of each expert [experts + 1]; last entry: pieces without a known expert.
std::vector<std::vector<Piece>> pieces_by_expert(const ExpertLinear& a) {
  std::vector<std::vector<Piece>> out(static_cast<size_t>(a.weight.experts) + 1);
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t piece = 0; piece < a.experts.cols; ++piece) {
      const int64_t expert = a.experts.row<int32_t>(i)[piece];
      const bool known = expert >= 0 && expert < a.weight.experts;
      out[static_cast<size_t>(known ? expert : a.weight.experts)].push_back({i, piece});
    }
  return out;
}

void multiply_expert(const ExpertLinear& a, int64_t expert, std::span<const Piece> pieces) {
  const WeightView matrix = expert_of(a.weight, expert);
  InputRows x(pieces.size(), static_cast<size_t>(matrix.k));
  for (size_t p = 0; p < pieces.size(); ++p)
    x.set_row(p, a.x, pieces[p].row, a.x.cols == matrix.k ? 0 : pieces[p].piece * matrix.k);
  const int64_t width = a.gated ? matrix.n / 2 : matrix.n;
  std::vector<double> gates(pieces.size());
  for (int64_t n = 0; n < width; ++n)
    for (const int64_t from : {n, n + width}) {
      if (from == n + width && !a.gated) continue;
      x.multiply(matrix, from, [&](size_t p, double sum) {
        const auto [row, piece] = pieces[p];
        sum *= row_scale(matrix, from);
        if (is_given(a.scales)) sum *= *a.scales.row<float>(row);
        if (is_given(a.bias)) sum += to_float(a.bias.as_bf16()[expert * matrix.n + from]);
        const double result = from == n ? sum : gated_unit(a, gates[p], sum);
        gates[p] = sum;
        store(a.out, row, piece * width + n, static_cast<float>(result));
      });
    }
}

}  // namespace

void reference(const ExpertLinear& a) {
  const auto pieces = pieces_by_expert(a);
  for (int64_t expert = 0; expert < a.weight.experts; ++expert)
    if (!pieces[static_cast<size_t>(expert)].empty())
      multiply_expert(a, expert, pieces[static_cast<size_t>(expert)]);
  const int64_t width = a.out.cols / a.experts.cols;
  for (const auto& [row, piece] : pieces.back())
    for (int64_t n = 0; n < width; ++n) store(a.out, row, piece * width + n, 0);
}

void reference(const HeadLinear& a) {
  const int64_t in = a.kept + a.weight.k, out = a.kept + a.weight.n;
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c) {
      const int64_t head = c / out, n = c % out - a.kept;
      const WeightView weight = expert_of(a.weight, head);
      double sum = n < 0 ? load(a.x, i, head * in + c % out) : 0;
      for (int64_t j = 0; n >= 0 && j < a.weight.k; ++j)
        sum += double{to_float(to_bf16(load(a.x, i, head * in + a.kept + j)))} *
               weight_at(weight, n, j);
      store(a.out, i, c, static_cast<float>(sum));
    }
}

void reference(const WeightedSum& a) {
  const int64_t width = a.out.cols;
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < a.weights.cols; ++j)
        sum += double{a.weights.row<float>(i)[j]} * a.x.row<float>(i)[j * width + c];
      a.out.row<float>(i)[c] = static_cast<float>(sum);
    }
}

void reference(const SelectExperts& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t j = 0; j < a.out.cols; ++j) {
      const int32_t expert = a.experts.row<int32_t>(i)[j];
      const bool is_here = expert >= a.first && expert - a.first < a.count;
      a.out.row<int32_t>(i)[j] = is_here ? expert - a.first : -1;
    }
}

void ref::rotate(float* head, const float* angles, int64_t cols, bool interleaved) {
  const int64_t half = cols / 2;
  for (int64_t c = 0; c < half; ++c) {
    float& x = head[interleaved ? 2 * c : c];
    float& y = head[interleaved ? 2 * c + 1 : c + half];
    const float low = x, high = y;
    x = low * angles[c] - high * angles[c + half];
    y = high * angles[c] + low * angles[c + half];
  }
}

void reference(const Rope& a) {
  const int64_t d = a.heads.dim, half = a.angles.cols / 2;
  std::vector<float> angles(static_cast<size_t>(a.angles.cols));
  for (int64_t i = 0; i < a.qkv.rows; ++i) {
    for (int64_t c = 0; c < half; ++c) {
      int64_t position = a.step.positions[i];
      if (a.angles.has_components && a.step.components)
        position = a.step.components[i * kPositionComponents + a.angles.components[c]];
      angles[static_cast<size_t>(c)] = a.angles.data[position * a.angles.cols + c];
      angles[static_cast<size_t>(half + c)] = a.angles.data[position * a.angles.cols + half + c];
    }
    for (int64_t head = 0; head < a.heads.num + a.heads.num_kv; ++head) {
      ref::rotate(a.qkv.row<float>(i) + head * d, angles.data(), a.angles.cols, a.interleaved);
    }
  }
}

void reference(const Glu& a) {
  const int64_t width = a.out.cols;
  std::vector<float> results(static_cast<size_t>(width));
  for (int64_t i = 0; i < a.out.rows; ++i) {
    for (int64_t c = 0; c < width; ++c)
      results[static_cast<size_t>(c)] = gated_unit(a, load(a.x, i, c), load(a.x, i, width + c));
    store_row(a.out, a.scales, i, results);
  }
}

void reference(const Activate& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c)
      store(a.out, i, c, static_cast<float>(activate(a.activation, a.x.row<float>(i)[c])));
}

void reference(const Xielu& a) {
  const double positive = std::log1p(std::exp(double{a.positive.as_f32()[0]}));
  const double negative = a.beta + std::log1p(std::exp(double{a.negative.as_f32()[0]}));
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c) {
      const double x = a.x.row<float>(i)[c], above = std::max(x, 0.0), below = std::min(x, 0.0);
      const double bent = positive * above * above + negative * (std::expm1(below) - below);
      store(a.out, i, c, static_cast<float>(bent + a.beta * x));
    }
}

void reference(const SoftCap& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c) {
      const double s = double{a.scale} * a.x.row<float>(i)[c];
      const double capped = a.cap > 0 ? a.cap * std::tanh(s / a.cap) : s;
      const double limit = a.limit > 0 ? a.limit : std::numeric_limits<double>::infinity();
      a.out.row<float>(i)[c] = static_cast<float>(std::clamp(capped, -limit, limit));
    }
}

void reference(const AddFeatures& a) {
  for (int64_t i = 0; i < a.out.rows; ++i) {
    const BF16* const row = feature_of(a.step, a.step.tokens[i], a.column, a.out.cols);
    for (int64_t c = 0; c < a.out.cols; ++c)
      a.out.row<float>(i)[c] = a.x.row<float>(i)[c] + (row ? to_float(row[c]) : 0);
  }
}

void reference(const AddTilePositions& a) {
  if (!a.step.components) return;
  double factor = 1;
  if (is_given(a.gate)) factor = std::tanh(double{a.gate.as_f32()[0]});
  if (a.is_rest) factor = 1 - factor;
  for (int64_t i = 0; i < a.out.rows; ++i) {
    const int64_t row = tile_row(a.step.components, i, a.component, a.rows, a.table.n);
    for (int64_t c = 0; row >= 0 && c < a.out.cols; ++c)
      a.out.row<float>(i)[c] =
          static_cast<float>(a.x.row<float>(i)[c] + factor * weight_at(a.table, row, c));
  }
}

void reference(const GateRows& a) {
  const double factor = is_given(a.gate) ? std::tanh(double{a.gate.as_f32()[0]}) : 1;
  for (int64_t i = 0; i < a.out.rows; ++i) {
    const bool has_place = a.places == 0 || !a.step.components ||
                           a.step.components[i * kPositionComponents + 1] < a.places;
    const bool is_kept = has_place && (!a.needs_keys || sees_any_key(a.step, i));
    for (int64_t c = 0; c < a.out.cols; ++c)
      a.out.row<float>(i)[c] = is_kept ? static_cast<float>(factor * a.x.row<float>(i)[c]) : 0;
  }
}

namespace {

// The bilinear mean of four rows of the table.
double plane_position(const AddPositions& a, int64_t i, int64_t c) {
  if (!a.step.components) return 0;
  const auto place = [&](int component) {
    const int64_t last = a.step.row_begin[a.step.row_of_token[i] + 1] - 1;
    const auto of = [&](int64_t token) {
      return a.step.components[token * kPositionComponents + component];
    };
    return stretched_place(of(i), of(last) + 1, a.side);
  };
  const StretchedPlace y = place(1), x = place(2);
  const auto line = [&](int32_t row) {
    const int64_t first = int64_t{row} * a.side;
    return (1.0 - x.fraction) * weight_at(a.table, first + x.first, c) +
           x.fraction * double{weight_at(a.table, first + x.next, c)};
  };
  return (1.0 - y.fraction) * line(y.first) + y.fraction * line(y.next);
}

}  // namespace

void reference(const AddPositions& a) {
  for (int64_t i = 0; i < a.out.rows; ++i) {
    if (a.side > 0) {
      for (int64_t c = 0; c < a.out.cols; ++c)
        a.out.row<float>(i)[c] = static_cast<float>(a.x.row<float>(i)[c] + plane_position(a, i, c));
      continue;
    }
    const int64_t position = a.step.positions[i];
    if (position >= a.table.n) continue;
    for (int64_t c = 0; c < a.out.cols; ++c)
      a.out.row<float>(i)[c] = a.x.row<float>(i)[c] + weight_at(a.table, position, c);
  }
}

void reference(const ScaleByPosition& a) {
  for (int64_t i = 0; i < a.out.rows; ++i) {
    const int64_t periods = (int64_t{a.step.positions[i]} + a.offset) / a.period;
    const double scale = 1 + a.growth * std::log1p(static_cast<double>(periods));
    for (int64_t c = 0; c < a.out.cols; ++c)
      a.out.row<float>(i)[c] = static_cast<float>(a.x.row<float>(i)[c] * scale);
  }
}

void reference(const Add& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c)
      a.out.row<float>(i)[c] = a.x.row<float>(i)[c] + a.y.row<float>(i)[c];
}

void reference(const GatherRows& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c)
      store(a.out, i, c,
            load(a.x, a.step.logit_tokens[i] - a.count + 1 + c / a.x.cols, c % a.x.cols));
}

void reference(const BlendRows& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c) {
      const BlendedRow blend = a.step.blends ? a.step.blends[i] : BlendedRow{};
      float sum = 0;
      for (int j = 0; j < 4; ++j) sum += blend.weights[j] * a.x.row<float>(blend.tokens[j])[c];
      a.out.row<float>(i)[c] = sum;
    }
}

void reference(const ShiftRows& a) {
  for (int64_t i = 0; i < a.out.rows; ++i)
    for (int64_t c = 0; c < a.out.cols; ++c)
      a.out.row<float>(i)[c] = a.step.positions[i] == 0 ? 0 : a.x.row<float>(i - 1)[c];
}

}  // namespace nereid::kernels
