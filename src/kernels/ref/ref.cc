// Reference forms of the ops that are a few lines each.
#include "kernels/ref/ref.h"

#include <cmath>

#include "kernels/api/pack.h"

namespace nereid::kernels::ref {
namespace {

float weight_at(const WeightView& w, int64_t row, int64_t col) {
  const int64_t index =
      w.layout == WeightLayout::kPanel16 ? panel_index(row, col, w.k) : row * w.k + col;
  return to_float(static_cast<const BF16*>(w.data)[index]);
}

void store(const View& out, int64_t row, int64_t col, float value) {
  if (out.dtype == DType::kBF16)
    out.row<BF16>(row)[col] = to_bf16(value);
  else
    out.row<float>(row)[col] = value;
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x * 0.7071067811865476);
  }
  return 0;
}

}  // namespace

void run(const Embed::Args& a) {
  for (int64_t i = 0; i < a.problem.tokens; ++i) {
    int64_t id = a.tokens[i];
    if (id < 0) id = a.slot_tokens ? a.slot_tokens[-1 - id] : -1;
    const bool known = id >= 0 && id < a.problem.vocab;
    for (int64_t c = 0; c < a.problem.hidden; ++c)
      a.out.row<float>(i)[c] = known ? weight_at(a.table, id, c) : 0;
  }
}

void run(const Norm::Args& a) {
  const int64_t hidden = a.problem.hidden;
  const auto* weight = static_cast<const BF16*>(a.weight);
  for (int64_t i = 0; i < a.problem.tokens; ++i) {
    float* x = a.residual.row<float>(i);
    double squares = 0;
    for (int64_t c = 0; c < hidden; ++c) {
      if (a.problem.has_add) x[c] += a.add.row<float>(i)[c];
      squares += double{x[c]} * x[c];
    }
    const auto scale = static_cast<float>(1 / std::sqrt(squares / hidden + a.eps));
    for (int64_t c = 0; c < hidden; ++c) store(a.out, i, c, x[c] * scale * to_float(weight[c]));
  }
}

void run(const Linear::Args& a) {
  for (int64_t i = 0; i < a.problem.tokens; ++i) {
    const BF16* x = a.x.row<BF16>(i);
    for (int64_t n = 0; n < a.problem.n; ++n) {
      double sum = a.problem.has_bias ? to_float(static_cast<const BF16*>(a.bias)[n]) : 0;
      for (int64_t k = 0; k < a.problem.k; ++k)
        sum += double{to_float(x[k])} * weight_at(a.weight, n, k);
      store(a.out, i, n, static_cast<float>(sum));
    }
  }
}

void run(const Rope::Args& a) {
  const Rope::Problem& p = a.problem;
  const int64_t half = p.head_dim / 2;
  for (int64_t i = 0; i < p.tokens; ++i) {
    const float* angles = a.table + int64_t{a.positions[i]} * p.head_dim;
    for (int64_t head = 0; head < p.num_heads + p.num_kv_heads; ++head) {
      float* x = a.qkv.row<float>(i) + head * p.head_dim;
      for (int64_t c = 0; c < half; ++c) {
        const float low = x[c], high = x[c + half];
        x[c] = low * angles[c] - high * angles[c + half];
        x[c + half] = high * angles[c] + low * angles[c + half];
      }
    }
  }
}

void run(const Glu::Args& a) {
  const int64_t width = a.problem.width;
  for (int64_t i = 0; i < a.problem.tokens; ++i) {
    const float* x = a.x.row<float>(i);
    for (int64_t c = 0; c < width; ++c)
      store(a.out, i, c, static_cast<float>(activate(a.problem.activation, x[c]) * x[width + c]));
  }
}

void run(const Add::Args& a) {
  for (int64_t i = 0; i < a.problem.tokens; ++i)
    for (int64_t c = 0; c < a.problem.width; ++c) a.x.row<float>(i)[c] += a.y.row<float>(i)[c];
}

void run(const GatherRows::Args& a) {
  for (int64_t i = 0; i < a.problem.rows; ++i)
    for (int64_t c = 0; c < a.problem.width; ++c)
      a.out.row<float>(i)[c] = a.x.row<float>(a.rows[i])[c];
}

}  // namespace nereid::kernels::ref
