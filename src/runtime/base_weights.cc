#include "runtime/base_weights.h"

#include <cmath>
#include <utility>
#include <variant>

#include "base/check.h"
#include "kernels/api/pack.h"

namespace nereid::runtime {

StatusOr<std::shared_ptr<const BaseWeights>> BaseWeights::open(
    const std::filesystem::path& engine) {
  ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
  return std::shared_ptr<const BaseWeights>(new BaseWeights(std::move(file)));
}

// A module's product is the one whose result its low_rank call changes.
BaseWeights::BaseWeights(io::EngineFile file) : file_(std::move(file)) {
  const io::Plan& plan = file_.plan();
  parts_.resize(plan.modules.size());
  for (const io::Call& call : plan.calls) {
    const auto* const low_rank = std::get_if<kernels::ids::LowRank>(&call.op);
    if (!low_rank) continue;
    for (const io::Call& other : plan.calls) {
      const auto* const linear = std::get_if<kernels::ids::Linear>(&other.op);
      if (!linear || linear->out != low_rank->y) continue;
      for (int32_t i = 0; i < low_rank->num_modules; ++i)
        parts_[static_cast<size_t>(low_rank->first_module + i)] = {linear->weight, linear->bias};
    }
  }
}

std::vector<float> BaseWeights::bias(int32_t module) const {
  const io::AdapterModule& m = file_.plan().modules[static_cast<size_t>(module)];
  const io::WeightId id = parts_[static_cast<size_t>(module)].bias;
  std::vector<float> bias;
  for (int64_t n = 0; id != io::kNone && n < m.n; ++n)
    bias.push_back(kernels::weight_at(file_.weight(id), 0, m.column + n));
  return bias;
}

std::vector<float> BaseWeights::row_lengths(const ChangedWeight& changed) const {
  const io::AdapterModule& m = file_.plan().modules[static_cast<size_t>(changed.module)];
  const kernels::WeightView weight =
      file_.weight(parts_[static_cast<size_t>(changed.module)].weight);
  const auto k = static_cast<size_t>(m.k), rank = changed.a.size() / k;
  NEREID_CHECK(changed.b.size() == rank * static_cast<size_t>(m.n));
  std::vector<float> a;
  for (const BF16 x : changed.a) a.push_back(to_float(x));
  std::vector<float> row(k), lengths;
  for (int64_t n = 0; n < m.n; ++n) {
    for (size_t c = 0; c < k; ++c)
      row[c] = kernels::weight_at(weight, m.column + n, static_cast<int64_t>(c));
    for (size_t j = 0; j < rank; ++j) {
      const float factor = changed.scale * to_float(changed.b[static_cast<size_t>(n) * rank + j]);
      for (size_t c = 0; c < k; ++c) row[c] += factor * a[j * k + c];
    }
    double sum = 0;
    for (const float x : row) sum += double{x} * x;
    lengths.push_back(static_cast<float>(std::sqrt(sum)));
  }
  return lengths;
}

}  // namespace nereid::runtime
