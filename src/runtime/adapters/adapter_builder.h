// Builds an adapter module by module.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status.h"
#include "runtime/adapters/adapter.h"

namespace nereid::runtime {

// The module's rows of a matrix [source rows, cols], in the module's order.
template <class T>
std::vector<T> rows_of(const io::AdapterModule& module, std::span<const T> matrix, int64_t cols) {
  std::vector<T> out(static_cast<size_t>(module.n * cols));
  NEREID_CHECK(std::ssize(matrix) == module.num_source_rows() * cols);
  module.for_rows([&](int64_t row, int64_t from) {
    std::copy_n(matrix.begin() + from * cols, cols, out.begin() + row * cols);
  });
  return out;
}

class AdapterBuilder {
 public:
  explicit AdapterBuilder(const AdapterBounds& bounds) : bounds_(bounds) {}

  // InvalidArgument naming the module and the bound.
  Status check_rank(std::string_view module, int64_t rank) const;

  // Shapes: `a` [rank, k], `out` [n, rank], rows in the module's order; DoRA: `factors` [n],
  // multipliers of (model's product + adapter's product). InvalidArgument with the module.
  Status add(int32_t module, int64_t rank, double scale, std::vector<BF16> a,
             std::span<const BF16> out, std::span<const float> factors = {});

  bool empty() const { return parts_.empty(); }
  // InvalidArgument: the adapter needs more pages than the device has.
  StatusOr<std::shared_ptr<const Adapter>> finish(uint64_t task_id);

 private:
  struct Part {
    int32_t module = 0, rank = 0;
    float scale = 0;
    std::vector<BF16> weights;
    bool has_gain = false;
  };
  Status add_gain(std::span<const float> factors, Part& part) const;

  const AdapterBounds& bounds_;
  std::vector<Part> parts_;
  absl::flat_hash_set<int32_t> there_;  // modules of parts_
};

}  // namespace nereid::runtime
