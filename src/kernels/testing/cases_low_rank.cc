// Cases of what adapters add to products.
#include <cmath>
#include <utility>

#include "kernels/testing/cases.h"

namespace nereid::kernels::testing {
namespace {

struct LowRankShape {
  int64_t tokens, k, modules, cols;  // cols: of each module
  int32_t adapters = 3, rank = 8;
};

// Errors of two sums one behind the other, at most eps * terms * sum of |terms| each.
void set_low_rank_tolerance(Case<LowRank>& c, const LowRank& a) {
  Region& region = c.outputs[0];
  region.tolerance.assign(static_cast<size_t>(region.rows * region.cols), 0);
  for (int64_t i = 0; i < region.rows; ++i) {
    const AdapterMatrix* const matrices = LowRank::matrices_of(a, i);
    for (int32_t m = 0; matrices && m < a.num_modules; ++m)
      for (int64_t n = 0; n < matrices[m].cols; ++n) {
        double size = 0;
        for (int64_t j = 0; j < matrices[m].rank; ++j) {
          double low = 0;
          for (int64_t k = 0; k < a.x.cols; ++k)
            low += std::fabs(double{to_float(a.x.row<BF16>(i)[k])} *
                             to_float(a.step.adapter_weights[matrices[m].a + j * a.x.cols + k]));
          size +=
              low *
              std::fabs(to_float(a.step.adapter_weights[matrices[m].b + j * matrices[m].cols + n]));
        }
        const int64_t column = matrices[m].column + n;
        const double y = std::fabs(cell_value(c.before, region, i, column));
        double error = static_cast<double>(a.x.cols + matrices[m].rank + 2) * size *
                           std::fabs(matrices[m].scale) +
                       2 * y;
        if (matrices[m].gain >= 0) {
          const BF16* const gain = a.step.adapter_weights + matrices[m].gain + n;
          const double factor = 1 + std::fabs(to_float(gain[0]));
          error = error * factor + 2 * (y + size * std::fabs(matrices[m].scale)) * factor +
                  2 * std::fabs(to_float(gain[matrices[m].cols]));
        }
        region.tolerance[static_cast<size_t>(i * region.cols + column)] =
            static_cast<float>(kEpsF32 * error);
      }
  }
}

// Ranks differ, some modules have none, some a gain; rows take turns among the adapters and none.
Case<LowRank> low_rank_case(const LowRankShape& s) {
  Case<LowRank> c;
  c.name = fmt::format("tokens={} k={} modules={} cols={} rank={}", s.tokens, s.k, s.modules,
                       s.cols, s.rank);
  const int64_t total = s.modules + 2, first = 1;
  const int64_t width = s.modules * s.cols + 3, x_stride = s.k + 2, y_stride = width + 1;
  std::vector<AdapterMatrix> matrices;
  int64_t at = 0;
  for (int64_t adapter = 0; adapter < s.adapters; ++adapter)
    for (int64_t m = 0; m < total; ++m) {
      AdapterMatrix matrix{.column = static_cast<int32_t>((m - first) * s.cols + 1),
                           .cols = static_cast<int32_t>(s.cols),
                           .scale = 0.5f * static_cast<float>(adapter + 1)};
      const bool has = m >= first && m < first + s.modules && (adapter + m) % 4 != 3;
      matrix.rank = has ? std::max(1, s.rank - static_cast<int32_t>(adapter)) : 0;
      matrix.a = at;
      matrix.b = at + matrix.rank * s.k;
      at = matrix.b + matrix.rank * s.cols;
      if (has && (adapter + m) % 3 != 0) matrix.gain = std::exchange(at, at + 2 * s.cols);
      matrices.push_back(matrix);
    }
  std::vector<int32_t> adapters;
  for (int64_t i = 0; i < s.tokens; ++i)
    adapters.push_back(static_cast<int32_t>((i * 7 / 3 + 1) % (s.adapters + 1)) - 1);
  const Offset table = c.before.add(matrices), rows = c.before.add(adapters);
  const Offset weights = c.before.add(noise_bf16(1, at));
  const Offset x = c.before.add(noise_bf16(2, s.tokens * x_stride));
  const Offset y = c.before.add(noise(3, s.tokens * y_stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    LowRank a;
    a.step.adapters = reinterpret_cast<const int32_t*>(base + rows) + begin;
    a.step.adapter_matrices = reinterpret_cast<const AdapterMatrix*>(base + table);
    a.step.adapter_weights = reinterpret_cast<const BF16*>(base + weights);
    a.step.num_adapter_modules = static_cast<int32_t>(total);
    a.x = {base + x + begin * x_stride * 2, DType::kBF16, count, s.k, x_stride};
    a.y = a.out = {base + y + begin * y_stride * 4, DType::kF32, count, width, y_stride};
    a.first_module = first;
    a.num_modules = static_cast<int32_t>(s.modules);
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
          LowRankShape{3, 33, 1, 20, 2, kMaxAdapterRank}})
      list.push_back(low_rank_case(s));
    return list;
  }();
  return all;
}

}  // namespace nereid::kernels::testing
