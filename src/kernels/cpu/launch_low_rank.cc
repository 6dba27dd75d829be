// Launcher of what adapters add to products.
#include <algorithm>

#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

static_assert(kMaxLowRank >= kMaxAdapterRank);

void low_rank_row(const Raw& raw, const LowRank& a, int64_t row, int64_t module) {
  const AdapterMatrix* const matrices = LowRank::matrices_of(a, row);
  if (!matrices || matrices[module].rank == 0) return;
  const AdapterMatrix& m = matrices[module];
  const auto* const weights = reinterpret_cast<const uint16_t*>(a.step.adapter_weights);
  raw.low_rank({.x = a.x.as<uint16_t>() + row * a.x.stride,
                .a = weights + m.a,
                .b = weights + m.b,
                .gain = m.gain < 0 ? nullptr : weights + m.gain,
                .y = a.out.row<float>(row) + m.column,
                .k = a.x.cols,
                .n = m.cols,
                .rank = m.rank,
                .scale = m.scale});
}

// A piece is a row by a module.
Status launch_low_rank(const Raw& raw, const LowRank& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  if (!a.step.adapters) return ok();
  constexpr int64_t kProducts = 1 << 15, kUsualRank = 16;
  const int64_t items = a.out.rows * a.num_modules;
  const int64_t grain = std::max<int64_t>(1, kProducts / (kUsualRank * (a.x.cols + a.out.cols)));
  const auto work = [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) low_rank_row(raw, a, begin / a.num_modules, begin % a.num_modules);
  };
  if (items <= grain)
    work(0, items, 0);
  else
    pool.parallel_for(items, grain, work);
  return ok();
}

}  // namespace

template <>
Table<LowRank> table<LowRank>() {
  return vectors<LowRank, launch_low_rank>();
}

}  // namespace nereid::kernels::cpu
