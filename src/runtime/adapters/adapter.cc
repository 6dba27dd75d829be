// Adapters from the tensors of requests, and the common parts of all adapters.
#include "runtime/adapters/adapter.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/hash.h"
#include "exec/adapter_pool.h"
#include "runtime/adapters/adapter_builder.h"
#include "runtime/adapters/adapter_modules.h"

namespace nereid::runtime {
namespace {

// Transposed: [rank, k] -> [k, rank].
std::vector<BF16> turned(const std::vector<BF16>& a, int64_t rank, int64_t k) {
  std::vector<BF16> out;
  out.reserve(a.size());
  for (int64_t c = 0; c < k; ++c)
    for (int64_t j = 0; j < rank; ++j) out.push_back(a[static_cast<size_t>(j * k + c)]);
  return out;
}

}  // namespace

Status AdapterBuilder::check_rank(std::string_view module, int64_t rank) const {
  if (rank >= 1 && rank <= bounds_.max_rank) return ok();
  return invalid_argument("module '{}': rank {} is not in [1, {}] (max_adapter_size)", module, rank,
                          bounds_.max_rank);
}

Status AdapterBuilder::add(int32_t module, int64_t rank, double scale, std::vector<BF16> a,
                           std::span<const BF16> out, std::span<const float> factors) {
  const io::AdapterModule& m = bounds_.modules[static_cast<size_t>(module)];
  RETURN_IF_ERROR(check_rank(m.source, rank));
  if (!there_.insert(module).second) return invalid_argument("module '{}' appears twice", m.source);
  if (!std::isfinite(static_cast<float>(scale)))
    return invalid_argument("module '{}': a scale of {}", m.source, scale);
  NEREID_CHECK(std::ssize(a) == rank * m.k && std::ssize(out) == rank * m.n);
  const auto finite = [](BF16 x) { return std::isfinite(to_float(x)); };
  if (!std::ranges::all_of(a, finite) || !std::ranges::all_of(out, finite))
    return invalid_argument("module '{}': a weight is not a finite number", m.source);
  if (m.of_tokens) a = turned(a, rank, m.k);
  Part part{module, static_cast<int32_t>(rank), static_cast<float>(scale), std::move(a)};
  for (int64_t j = 0; j < rank; ++j)
    for (int64_t n = 0; n < m.n; ++n)
      part.weights.push_back(out[static_cast<size_t>(n * rank + j)]);
  if (!factors.empty()) RETURN_IF_ERROR(add_gain(factors, part));
  parts_.push_back(std::move(part));
  return ok();
}

// DoRA: gain = factor - 1 (small, so bf16 loses little); shift = -gain * bias, because DoRA does
// not scale the product's bias.
Status AdapterBuilder::add_gain(std::span<const float> factors, Part& part) const {
  const io::AdapterModule& m = bounds_.modules[static_cast<size_t>(part.module)];
  NEREID_CHECK(std::ssize(factors) == m.n);
  if (!bounds_.base)
    return invalid_argument("module '{}': DoRA needs the weights of the model", m.source);
  const std::vector<float> bias = bounds_.base->bias(part.module);
  std::vector<BF16> shift;
  for (size_t n = 0; n < factors.size(); ++n) {
    const BF16 gain = to_bf16(factors[n] - 1);
    part.weights.push_back(gain);
    shift.push_back(to_bf16(bias.empty() ? 0 : -to_float(gain) * bias[n]));
    if (!std::isfinite(to_float(gain)) || !std::isfinite(to_float(shift.back())))
      return invalid_argument("module '{}': a magnitude is not a finite number", m.source);
  }
  part.weights.insert(part.weights.end(), shift.begin(), shift.end());
  part.has_gain = true;
  return ok();
}

StatusOr<std::shared_ptr<const Adapter>> AdapterBuilder::finish(uint64_t task_id) {
  std::ranges::sort(parts_, {}, &Part::module);
  Adapter adapter{.task_id = task_id};
  for (const Part& part : parts_) {
    adapter.matrices.push_back({part.module, part.rank, part.scale, part.has_gain ? 1 : 0});
    adapter.weights.insert(adapter.weights.end(), part.weights.begin(), part.weights.end());
  }
  if (const int64_t page = bounds_.page_numbers; page > 0) {
    const int64_t numbers = exec::adapter_numbers(bounds_.modules, adapter.matrices);
    const int64_t pages = exec::adapter_pages(numbers, page);
    if (pages > bounds_.num_pages)
      return invalid_argument(
          "lora: task id {} takes {} pages of {} bytes on the device, whose cache has {} "
          "(num_device_module_layers, device_cache_fraction)",
          task_id, pages, page * static_cast<int64_t>(sizeof(BF16)), bounds_.num_pages);
    adapter.num_pages = static_cast<int32_t>(pages);
  }
  uint64_t key = hash64(&task_id, sizeof(task_id));
  key = hash64(adapter.matrices.data(), std::span(adapter.matrices).size_bytes(), key);
  key = hash64(adapter.weights.data(), std::span(adapter.weights).size_bytes(), key);
  adapter.key = std::max<uint64_t>(key, 1);
  return std::make_shared<const Adapter>(std::move(adapter));
}

namespace {

// The modules of a config row: one, or one per expert.
StatusOr<std::vector<int32_t>> modules_of(int32_t id, int32_t layer,
                                          const AdapterModules& modules) {
  ASSIGN_OR_RETURN(const std::string_view name, lora_module_name(id));
  std::vector<int32_t> found;
  if (const auto module = modules.find({id, layer})) found.push_back(*module);
  for (int32_t expert = 0; expert < modules.num_experts(layer); ++expert)
    if (const auto module = modules.find({id, layer, expert})) found.push_back(*module);
  if (found.empty())
    return invalid_argument("the model has no module {} ({}) in layer {}", id, name, layer);
  return found;
}

// Adds a row of an adapter's tensors; `weights`: a, then b of the module; for experts a of all,
// then b of all.
Status add_row(std::span<const int32_t> row, std::span<const float> weights,
               const AdapterBounds& bounds, const AdapterModules& names, AdapterBuilder& builder) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> modules, modules_of(row[0], row[1], names));
  const io::AdapterModule& m = bounds.modules[static_cast<size_t>(modules[0])];
  const int64_t rank = row[2];
  RETURN_IF_ERROR(builder.check_rank(m.source, rank));
  const int32_t is_dora = row.size() > 3 ? row[3] : 0;
  if (is_dora != 0 && is_dora != 1)
    return invalid_argument("module '{}': DoRA is {}, not 0 or 1", m.source, is_dora);
  if (is_dora && (modules.size() > 1 || lora_module_of(m.source)->expert >= 0))
    return invalid_argument("module '{}': DoRA of experts is not supported", m.source);
  const int64_t n = m.num_source_rows();
  const auto a = static_cast<size_t>(rank * m.k), b = static_cast<size_t>(rank * n);
  const size_t all = modules.size() * (a + b) + static_cast<size_t>(is_dora * n);
  if (all > weights.size())
    return invalid_argument("module '{}' [{}, {}] of rank {}{} needs {} weights, a row has {}",
                            m.source, n, m.k, rank, is_dora ? " with DoRA" : "", all,
                            weights.size());
  std::vector<BF16> rounded;
  for (const float x : weights) rounded.push_back(to_bf16(x));
  if (std::ranges::any_of(std::span(rounded).subspan(all), [](BF16 x) { return x.bits != 0; }))
    return invalid_argument("module '{}' [{}, {}] of rank {}{} has {} weights, the row has more",
                            m.source, n, m.k, rank, is_dora ? " with DoRA" : "", all);
  std::vector<float> factors;
  if (is_dora) factors = rows_of(m, weights.subspan(all - static_cast<size_t>(n), n), 1);
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto own = std::span(rounded).subspan(i * a, a);
    const std::span<const BF16> out = std::span(rounded).subspan(modules.size() * a + i * b, b);
    RETURN_IF_ERROR(builder.add(modules[i], rank, 1, std::vector<BF16>(own.begin(), own.end()),
                                rows_of(bounds.modules[static_cast<size_t>(modules[i])], out, rank),
                                factors));
  }
  return ok();
}

}  // namespace

StatusOr<std::shared_ptr<const Adapter>> adapter_of(const LoraConfig& lora,
                                                    const AdapterBounds& bounds) {
  if (lora.columns != 3 && lora.columns != 4)
    return invalid_argument("lora config: {} columns, allowed are 3 and 4", lora.columns);
  const auto columns = static_cast<size_t>(lora.columns);
  if (lora.config.empty() || lora.config.size() % columns != 0)
    return invalid_argument("lora config: {} numbers are not rows of {}", lora.config.size(),
                            columns);
  const size_t rows = lora.config.size() / columns, length = lora.weights.size() / rows;
  if (lora.weights.size() != rows * length)
    return invalid_argument("lora weights: {} numbers are not {} rows", lora.weights.size(), rows);
  const AdapterModules modules(bounds.modules);
  AdapterBuilder builder(bounds);
  for (size_t i = 0; i < rows; ++i) {
    const Status status =
        add_row(std::span(lora.config).subspan(i * columns, columns),
                std::span(lora.weights).subspan(i * length, length), bounds, modules, builder);
    if (!status.ok()) return annotate(status, fmt::format("lora config row {}", i));
  }
  return builder.finish(lora.task_id);
}

}  // namespace nereid::runtime
