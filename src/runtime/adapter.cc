// Adapters from the tensors of requests, and what all adapters have in common.
#include "runtime/adapter.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "runtime/adapter_builder.h"
#include "runtime/lora_module_names.h"

namespace nereid::runtime {
namespace {

StatusOr<int32_t> find_module(int32_t id, int32_t layer, const AdapterBounds& bounds) {
  ASSIGN_OR_RETURN(const std::string_view name, lora_module_name(id));
  for (size_t i = 0; i < bounds.modules.size(); ++i)
    if (lora_module_of(bounds.modules[i].name) == LoraModuleId{id, layer})
      return static_cast<int32_t>(i);
  return invalid_argument("the model has no module {} ({}) in layer {}", id, name, layer);
}

}  // namespace

Status AdapterBuilder::check_rank(std::string_view module, int64_t rank) const {
  if (rank >= 1 && rank <= bounds_.max_rank) return ok();
  return invalid_argument("module '{}': rank {} is not in [1, {}] (max_adapter_size)", module, rank,
                          bounds_.max_rank);
}

Status AdapterBuilder::add(int32_t module, int64_t rank, double scale, std::vector<BF16> a,
                           std::span<const BF16> out) {
  const io::AdapterModule& m = bounds_.modules[static_cast<size_t>(module)];
  RETURN_IF_ERROR(check_rank(m.name, rank));
  if (std::ranges::find(parts_, module, &Part::module) != parts_.end())
    return invalid_argument("module '{}' is there twice", m.name);
  if (!std::isfinite(static_cast<float>(scale)))
    return invalid_argument("module '{}': a scale of {}", m.name, scale);
  NEREID_CHECK(std::ssize(a) == rank * m.k && std::ssize(out) == rank * m.n);
  const auto finite = [](BF16 x) { return std::isfinite(to_float(x)); };
  if (!std::ranges::all_of(a, finite) || !std::ranges::all_of(out, finite))
    return invalid_argument("module '{}': a weight is not a finite number", m.name);
  Part part{module, static_cast<int32_t>(rank), static_cast<float>(scale), std::move(a)};
  for (int64_t j = 0; j < rank; ++j)
    for (int64_t n = 0; n < m.n; ++n)
      part.weights.push_back(out[static_cast<size_t>(n * rank + j)]);
  parts_.push_back(std::move(part));
  return ok();
}

std::shared_ptr<const Adapter> AdapterBuilder::finish(uint64_t task_id) {
  std::ranges::sort(parts_, {}, &Part::module);
  Adapter adapter{.task_id = task_id};
  for (const Part& part : parts_) {
    adapter.matrices.push_back({part.module, part.rank, part.scale});
    adapter.weights.insert(adapter.weights.end(), part.weights.begin(), part.weights.end());
  }
  uint64_t key = hash64(&task_id, sizeof(task_id));
  key = hash64(adapter.matrices.data(), std::span(adapter.matrices).size_bytes(), key);
  key = hash64(adapter.weights.data(), std::span(adapter.weights).size_bytes(), key);
  adapter.key = std::max<uint64_t>(key, 1);
  return std::make_shared<const Adapter>(std::move(adapter));
}

StatusOr<std::shared_ptr<const Adapter>> adapter_of(const LoraConfig& lora,
                                                    const AdapterBounds& bounds) {
  constexpr size_t kColumns = 3;
  if (lora.config.empty() || lora.config.size() % kColumns != 0)
    return invalid_argument("lora config: {} numbers are not rows of {}", lora.config.size(),
                            kColumns);
  const size_t rows = lora.config.size() / kColumns, length = lora.weights.size() / rows;
  if (lora.weights.size() != rows * length)
    return invalid_argument("lora weights: {} numbers are not {} rows", lora.weights.size(), rows);
  AdapterBuilder builder(bounds);
  for (size_t i = 0; i < rows; ++i) {
    const auto add = [&]() -> Status {
      const int32_t* const row = &lora.config[i * kColumns];
      ASSIGN_OR_RETURN(const int32_t module, find_module(row[0], row[1], bounds));
      const io::AdapterModule& m = bounds.modules[static_cast<size_t>(module)];
      const int64_t rank = row[2];
      RETURN_IF_ERROR(builder.check_rank(m.name, rank));
      const auto a = static_cast<size_t>(rank * m.k), b = static_cast<size_t>(rank * m.n);
      if (a + b > length)
        return invalid_argument("module '{}' [{}, {}] of rank {} needs {} weights, a row has {}",
                                m.name, m.n, m.k, rank, a + b, length);
      std::vector<BF16> all;
      for (const float x : std::span(lora.weights).subspan(i * length, length))
        all.push_back(to_bf16(x));
      if (std::ranges::any_of(std::span(all).subspan(a + b), [](BF16 x) { return x.bits != 0; }))
        return invalid_argument("module '{}' [{}, {}] of rank {} has {} weights, the row has more",
                                m.name, m.n, m.k, rank, a + b);
      const std::vector<BF16> out(all.begin() + static_cast<ptrdiff_t>(a),
                                  all.begin() + static_cast<ptrdiff_t>(a + b));
      all.resize(a);
      return builder.add(module, rank, 1, std::move(all), out);
    };
    if (Status status = add(); !status.ok())
      return annotate(status, fmt::format("lora config row {}", i));
  }
  return builder.finish(lora.task_id);
}

}  // namespace nereid::runtime
