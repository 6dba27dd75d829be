// Kernels that can run a call. One kernel serves all row counts of a call, so that a row's bits do
// not depend on the number of rows in the step.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/api/registry.h"

namespace nereid::graph {

// Kernels are compared at kTypicalRows rows (a busy decode step); a candidate must run 1 row and a
// large prefill, too.
inline constexpr int64_t kTypicalRows = 16;
inline constexpr std::array<int64_t, 3> kRowCounts = {1, kTypicalRows, 8192};

template <class K>
K with_rows(K problem, int64_t rows) {
  kernels::set_rows(problem, rows, rows);
  return problem;
}

// The device's kernels that can run `problem` (without addresses) with each of kRowCounts rows.
template <class K>
kernels::Table<K> candidates(const kernels::Registry& registry, const K& problem,
                             const DeviceInfo& device) {
  kernels::Table<K> found;
  for (const kernels::Kernel<K>& kernel : registry.table<K>())
    if (kernel.device == device.kind && std::ranges::all_of(kRowCounts, [&](int64_t rows) {
          return kernel.can(with_rows(problem, rows), device);
        }))
      found.push_back(kernel);
  return found;
}

}  // namespace nereid::graph
