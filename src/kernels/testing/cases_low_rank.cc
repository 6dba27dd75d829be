// Cases of adapters' low-rank updates.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

struct LowRankShape {
  int64_t tokens, k, modules, cols;  // cols: per module
  int32_t adapters = 3, rank = 8;
  int64_t picked = 0, experts = 1;  // picked: pieces per row; 0: row without experts
  bool shares_x = false;            // all pieces read the same columns
  bool of_tokens = false;           // x is the token
};

double magnitude_of_low(const LowRank& a, const LoraMatrix& m, int64_t j, int64_t row,
                        int64_t piece) {
  const BF16* const weights = a.step.adapter_weights + m.a;
  if (!is_given(a.x))
    return std::fabs(
        to_float(weights[std::max<int64_t>(0, LowRank::token_of(a, row)) * m.rank + j]));
  const BF16* const x = a.x.row<BF16>(row) + (a.x.cols == a.k ? 0 : piece * a.k);
  double low = 0;
  for (int64_t k = 0; k < a.k; ++k)
    low += std::fabs(double{to_float(x[k])} * to_float(weights[j * a.k + k]));
  return low;
}

// Errors of two consecutive sums, each <= eps * terms * sum of |terms|.
void set_low_rank_tolerance(Case<LowRank>& c, const LowRank& a) {
  Region& region = c.outputs[0];
  region.tolerance.assign(static_cast<size_t>(region.rows * region.cols), 0);
  const int64_t pieces = LowRank::pieces_of(a), width = a.out.cols / pieces;
  for (int64_t at = 0; at < c.tokens * pieces; ++at) {
    const int64_t i = at / pieces, piece = at % pieces;
    const LoraMatrix* const matrices = LowRank::matrices_of(a, i, piece);
    for (int32_t m = 0; matrices && m < a.num_modules; ++m) {
      std::vector<double> low;
      for (int64_t j = 0; j < matrices[m].rank; ++j)
        low.push_back(magnitude_of_low(a, matrices[m], j, i, piece));
      const double scale = std::fabs(double{matrices[m].scale} * a.scale);
      for (int64_t n = 0; n < matrices[m].cols; ++n) {
        double size = 0;
        for (int64_t j = 0; j < matrices[m].rank; ++j)
          size +=
              low[static_cast<size_t>(j)] *
              std::fabs(to_float(a.step.adapter_weights[matrices[m].b + j * matrices[m].cols + n]));
        const int64_t column = piece * width + matrices[m].column + n;
        const double y = std::fabs(cell_value(c.before, region, i, column));
        double error = static_cast<double>(a.k + matrices[m].rank + 3) * size * scale + 2 * y;
        if (matrices[m].gain >= 0) {
          const BF16* const gain = a.step.adapter_weights + matrices[m].gain + n;
          const double factor = 1 + std::fabs(to_float(gain[0]));
          error = error * factor + 2 * (y + size * scale) * factor +
                  2 * std::fabs(to_float(gain[matrices[m].cols]));
        }
        region.tolerance[static_cast<size_t>(i * region.cols + column)] =
            static_cast<float>(kEpsF32 * error);
      }
    }
  }
}

// Ranks differ, some modules have none, some a gain. Sets `weights` to the number of weights.
std::vector<LoraMatrix> matrices_of(const LowRankShape& s, int64_t first, int64_t total,
                                    int64_t& weights) {
  std::vector<LoraMatrix> matrices;
  for (int64_t adapter = 0; adapter < s.adapters; ++adapter)
    for (int64_t m = 0; m < total; ++m) {
      const bool is_own = m >= first && m < first + s.experts * s.modules;
      LoraMatrix matrix{
          .column = static_cast<int32_t>(is_own ? (m - first) % s.modules * s.cols + 1 : 0),
          .cols = static_cast<int32_t>(s.cols),
          .scale = 0.5f * static_cast<float>(adapter + 1)};
      const bool has = is_own && (adapter + m) % 4 != 3;
      matrix.rank = has ? std::max(1, s.rank - static_cast<int32_t>(adapter)) : 0;
      matrix.a = weights;
      matrix.b = weights + matrix.rank * s.k;
      weights = matrix.b + matrix.rank * s.cols;
      if (has && (adapter + m) % 3 != 0) matrix.gain = std::exchange(weights, weights + 2 * s.cols);
      matrices.push_back(matrix);
    }
  return matrices;
}

// Ids inside and outside the table, sampled ids, a failed sample, external embeddings.
std::vector<int32_t> tokens_of(const LowRankShape& s) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < s.tokens; ++i) {
    const auto id = static_cast<int32_t>(i * 5 % (s.k + 2));
    tokens.push_back(i % 4 == 1   ? -1 - static_cast<int32_t>(i % 3)
                     : i % 7 == 6 ? kFirstEmbedding + 1
                                  : id);
  }
  return tokens;
}

// Rows alternate among the adapters and none, pieces among the experts and none.
Case<LowRank> low_rank_case(const LowRankShape& s) {
  Case<LowRank> c;
  c.name = fmt::format("tokens={} k={} modules={} cols={} rank={} picked={}{}{}", s.tokens, s.k,
                       s.modules, s.cols, s.rank, s.picked, s.shares_x ? " of one x" : "",
                       s.of_tokens ? " by token" : "");
  const int64_t total = s.experts * s.modules + 2, first = 1;
  const int64_t num = std::max<int64_t>(1, s.picked);
  const int64_t width = num * (s.modules * s.cols + 3), y_stride = width + 1;
  const int64_t x_cols = s.of_tokens ? 0 : s.shares_x ? s.k : num * s.k, x_stride = x_cols + 2;
  int64_t num_weights = 0;
  const std::vector<LoraMatrix> matrices = matrices_of(s, first, total, num_weights);
  std::vector<int32_t> adapters, experts;
  for (int64_t i = 0; i < s.tokens; ++i) {
    adapters.push_back(static_cast<int32_t>((i * 7 / 3 + 1) % (s.adapters + 1)) - 1);
    for (int64_t j = 0; j < s.picked; ++j)
      experts.push_back(static_cast<int32_t>((i * 3 + j * 2) % (s.experts + 2)) - 1);
  }
  const Offset table = c.before.add(matrices), rows = c.before.add(adapters);
  const Offset weights = c.before.add(noise_bf16(1, num_weights));
  const Offset x = c.before.add(noise_bf16(2, s.tokens * x_stride));
  const Offset y = c.before.add(noise(3, s.tokens * y_stride));
  const Offset picked = c.before.add(experts), tokens = c.before.add(tokens_of(s));
  const Offset drawn = c.before.add(std::vector<int32_t>{0, static_cast<int32_t>(s.k) - 1, -1});
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    LowRank a;
    a.step.adapters = reinterpret_cast<const int32_t*>(base + rows) + begin;
    a.step.adapter_matrices = reinterpret_cast<const LoraMatrix*>(base + table);
    a.step.adapter_weights = reinterpret_cast<const BF16*>(base + weights);
    a.step.num_adapter_modules = static_cast<int32_t>(total);
    a.step.tokens = reinterpret_cast<const int32_t*>(base + tokens) + begin;
    a.step.slot_tokens = reinterpret_cast<const int32_t*>(base + drawn);
    if (!s.of_tokens)
      a.x = {base + x + begin * x_stride * 2, DType::kBF16, count, x_cols, x_stride};
    if (s.picked > 0)
      a.experts = {base + picked + begin * s.picked * 4, DType::kI32, count, s.picked, s.picked};
    a.y = a.out = {base + y + begin * y_stride * 4, DType::kF32, count, width, y_stride};
    a.k = s.k;
    a.first_module = first;
    a.num_modules = static_cast<int32_t>(s.modules);
    a.num_experts = static_cast<int32_t>(s.experts);
    a.scale = s.of_tokens ? 1.5f : 1;
    return a;
  };
  c.outputs = {{"out", y, DType::kF32, s.tokens, width, y_stride, {}, {}}};
  c.tokens = s.tokens;
  c.after = c.before;
  reference(c.args(c.after.bytes.data(), 0, s.tokens));
  set_low_rank_tolerance(c, c.args(c.before.bytes.data(), 0, s.tokens));
  for (const int64_t size : {1, 3, 16})
    if (size < s.tokens) c.splits.push_back(pieces(s.tokens, size));
  return c;
}

}  // namespace

template <>
const std::vector<Case<LowRank>>& cases<LowRank>() {
  static const std::vector<Case<LowRank>> all = [] {
    std::vector<Case<LowRank>> list;
    for (const LowRankShape& s :
         {LowRankShape{1, 1, 1, 1}, LowRankShape{2, 16, 1, 16}, LowRankShape{3, 17, 2, 33},
          LowRankShape{9, 256, 3, 128}, LowRankShape{70, 100, 2, 40, 5, 3},
          LowRankShape{5, 64, 1, 48, 1, 64}, LowRankShape{4, 768, 1, 256, 2, 16},
          LowRankShape{3, 33, 1, 20, 2, kMaxAdapterRank},
          LowRankShape{.tokens = 29, .k = 40, .modules = 1, .cols = 37, .picked = 2, .experts = 5},
          LowRankShape{.tokens = 40,
          .k = 33,
          .modules = 2,
          .cols = 24,
          .adapters = 2,
          .picked = 3,
          .experts = 4,
          .shares_x = true},
          LowRankShape{
              .tokens = 45, .k = 11, .modules = 1, .cols = 50, .rank = 5, .of_tokens = true}})
      list.push_back(low_rank_case(s));
    return list;
  }();
  return all;
}

}  // namespace nereid::kernels::testing
