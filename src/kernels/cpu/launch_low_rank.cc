// Launcher of what adapters add to products.
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/api/validate.h"
#include "kernels/cpu/launch.h"

namespace nereid::kernels::cpu {
namespace {

static_assert(kMaxLowRank >= kMaxAdapterRank);

// The rows that have an adapter, those of the same one side by side.
std::vector<int64_t> rows_of_adapters(const LowRank& a) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < a.out.rows; ++i)
    if (LowRank::matrices_of(a, i)) rows.push_back(i);
  std::ranges::stable_sort(rows, {}, [&](int64_t row) { return a.step.adapters[row]; });
  return rows;
}

// Rows of one adapter for one call of a raw kernel.
using Group = std::span<const int64_t>;
std::vector<Group> groups_of(const LowRank& a, std::span<const int64_t> rows) {
  std::vector<Group> groups;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool joins = !groups.empty() && groups.back().size() < kLowRankRows &&
                       a.step.adapters[rows[i - 1]] == a.step.adapters[rows[i]];
    if (joins)
      groups.back() = {groups.back().data(), groups.back().size() + 1};
    else
      groups.push_back(rows.subspan(i, 1));
  }
  return groups;
}

void run_group(void (*kernel)(const LowRankRaw&), const LowRank& a, Group rows, int64_t module) {
  const AdapterMatrix& m = LowRank::matrices_of(a, rows[0])[module];
  if (m.rank == 0) return;
  const auto* const weights = reinterpret_cast<const uint16_t*>(a.step.adapter_weights);
  LowRankRaw raw{.x = {},
                 .a = weights + m.a,
                 .b = weights + m.b,
                 .gain = m.gain < 0 ? nullptr : weights + m.gain,
                 .y = {},
                 .rows = std::ssize(rows),
                 .k = a.x.cols,
                 .n = m.cols,
                 .rank = m.rank,
                 .scale = m.scale};
  for (size_t r = 0; r < rows.size(); ++r) {
    raw.x[r] = a.x.as<uint16_t>() + rows[r] * a.x.stride;
    raw.y[r] = a.out.row<float>(rows[r]) + m.column;
  }
  kernel(raw);
}

// A task is a group of rows by a module.
Status launch_low_rank(void (*kernel)(const LowRankRaw&), const LowRank& a, ThreadPool& pool) {
  RETURN_IF_ERROR(validate(a));
  if (!a.step.adapters) return ok();
  const std::vector<int64_t> rows = rows_of_adapters(a);
  const std::vector<Group> groups = groups_of(a, rows);
  constexpr int64_t kProducts = 1 << 15, kUsualRank = 16;
  const int64_t tasks = std::ssize(groups) * a.num_modules;
  const int64_t products = kUsualRank * kLowRankRows * (a.x.cols + a.out.cols / a.num_modules);
  const int64_t grain = std::max<int64_t>(1, kProducts / products);
  const auto work = [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin)
      run_group(kernel, a, groups[static_cast<size_t>(begin / a.num_modules)],
                begin % a.num_modules);
  };
  if (tasks <= grain)
    work(0, tasks, 0);
  else
    pool.parallel_for(tasks, grain, work);
  return ok();
}

Status launch_vectors(const Raw& raw, const LowRank& a, ThreadPool& pool) {
  return launch_low_rank(raw.low_rank, a, pool);
}
Status launch_pairs(const LowRank& a, ThreadPool& pool) {
  return launch_low_rank(low_rank_avx512_bf16, a, pool);
}

}  // namespace

template <>
Table<LowRank> table<LowRank>() {
  Table<LowRank> rows = vectors<LowRank, launch_vectors>();
  rows.push_back({"avx512_bf16", DeviceKind::kCpu,
                  [](const LowRank&, const DeviceInfo& d) { return d.has_avx512_bf16; },
                  [](const LowRank&, const DeviceInfo&) { return pairs_are_fast() ? 0.5 : 20; },
                  run<LowRank, launch_pairs>});
  return rows;
}

}  // namespace nereid::kernels::cpu
