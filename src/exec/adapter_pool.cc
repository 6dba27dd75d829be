// Checks and loads of adapters.
#include "exec/adapter_pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/round_up.h"

namespace nereid::exec {
namespace {

constexpr size_t kLoadAlignment = 64;

// Numbers of a module's matrices, with what aligns the next module's.
int64_t numbers_of(const io::AdapterModule& m, const AdapterMatrix& matrix) {
  return round_up(matrix.rank * (m.k + m.n) + matrix.has_gain * 2 * m.n, kAdapterAlignment);
}

}  // namespace

int64_t adapter_numbers(std::span<const io::AdapterModule> modules,
                        std::span<const AdapterMatrix> matrices) {
  int64_t numbers = 0;
  for (const AdapterMatrix& matrix : matrices)
    numbers += numbers_of(modules[static_cast<size_t>(matrix.module)], matrix);
  return numbers;
}

int64_t adapter_pages(int64_t numbers, int64_t page_numbers) {
  return std::max<int64_t>(1, round_up(numbers, page_numbers) / page_numbers);
}

size_t AdapterPool::bytes(std::span<const io::AdapterModule> modules, const RunnerLimits& limits) {
  const size_t table = modules.size() * sizeof(kernels::AdapterMatrix);
  return static_cast<size_t>(limits.num_adapters) * table +
         static_cast<size_t>(limits.num_adapter_pages * limits.adapter_page_numbers) * sizeof(BF16);
}

StatusOr<AdapterPool> AdapterPool::create(std::span<const io::AdapterModule> modules,
                                          const RunnerLimits& limits, Device& device) {
  AdapterPool pool;
  pool.device_ = &device;
  pool.limits_ = limits;
  pool.areas_.resize(static_cast<size_t>(limits.depth));
  if (limits.num_adapters == 0) return pool;
  const auto places = static_cast<size_t>(limits.num_adapters);
  pool.modules_.assign(modules.begin(), modules.end());
  pool.held_.resize(places);
  ASSIGN_OR_RETURN(pool.weights_,
                   device.allocate(bytes(modules, limits) - places * pool.table_bytes()));
  ASSIGN_OR_RETURN(pool.table_, device.allocate(places * pool.table_bytes()));
  return pool;
}

size_t AdapterPool::num_weights(const AdapterMatrix& matrix) const {
  const io::AdapterModule& m = modules_[static_cast<size_t>(matrix.module)];
  return static_cast<size_t>(matrix.rank * (m.k + m.n) + matrix.has_gain * 2 * m.n);
}

Status AdapterPool::check(const AdapterMatrix& matrix, int32_t former) const {
  if (matrix.module <= former || static_cast<size_t>(matrix.module) >= modules_.size())
    return invalid_argument("module {} is not in [{}, {})", matrix.module, former + 1,
                            modules_.size());
  if (matrix.rank < 1 || matrix.rank > limits_.max_adapter_rank)
    return invalid_argument("module {}: rank {} is not in [1, {}]", matrix.module, matrix.rank,
                            limits_.max_adapter_rank);
  if (!std::isfinite(matrix.scale))
    return invalid_argument("module {}: the scale is not a number", matrix.module);
  if (matrix.has_gain != 0 && matrix.has_gain != 1)
    return invalid_argument("module {}: has_gain is {}, not 0 or 1", matrix.module,
                            matrix.has_gain);
  return ok();
}

StatusOr<AdapterPool::Pages> AdapterPool::take(const AdapterLoad& load,
                                               std::span<const AdapterMatrix>& matrices,
                                               size_t& weights) const {
  if (load.num_matrices < 0 || static_cast<size_t>(load.num_matrices) > matrices.size())
    return invalid_argument("{} matrices, {} are left", load.num_matrices, matrices.size());
  const auto own = matrices.first(static_cast<size_t>(load.num_matrices));
  int32_t former = -1;
  for (const AdapterMatrix& matrix : own) {
    RETURN_IF_ERROR(check(matrix, former));
    if (num_weights(matrix) > weights)
      return invalid_argument("{} weights are left for {}", weights, num_weights(matrix));
    weights -= num_weights(matrix);
    former = matrix.module;
  }
  matrices = matrices.subspan(own.size());
  const int64_t pages = adapter_pages(adapter_numbers(modules_, own), limits_.adapter_page_numbers);
  if (load.first_page < 0 || pages > limits_.num_adapter_pages - load.first_page)
    return invalid_argument("pages [{}, {} + {}) are not in [0, {})", load.first_page,
                            load.first_page, pages, limits_.num_adapter_pages);
  return Pages{load.first_page, static_cast<int32_t>(pages)};
}

void AdapterPool::hold(int32_t adapter, const Pages& pages, std::vector<Pages>& held) {
  for (Pages& other : held)
    if (other.first < pages.end() && pages.first < other.end()) other = {};
  held[static_cast<size_t>(adapter)] = pages;
}

Status AdapterPool::check(const StepView& step) const {
  if (limits_.num_adapters == 0 && step.adapter_loads.empty() && step.adapter_matrices.empty() &&
      step.adapter_weights.empty())
    return ok();  // StepData::pack() has seen that no row has an adapter
  auto matrices = step.adapter_matrices;
  size_t left = step.adapter_weights.size();
  std::vector<Pages> held = held_;
  for (const AdapterLoad& load : step.adapter_loads) {
    if (load.adapter < 0 || load.adapter >= limits_.num_adapters)
      return invalid_argument("load of adapter {}, which is not in [0, {})", load.adapter,
                              limits_.num_adapters);
    const auto pages = take(load, matrices, left);
    if (!pages.ok())
      return annotate(pages.status(), fmt::format("load of adapter {}", load.adapter));
    hold(load.adapter, *pages, held);
  }
  if (!matrices.empty() || left > 0)
    return invalid_argument("{} matrices and {} weights belong to no adapter", matrices.size(),
                            left);
  for (const StepRow& row : step.rows)
    if (row.adapter >= 0 && held[static_cast<size_t>(row.adapter)].count == 0)
      return invalid_argument("adapter {} of slot {} is in no place", row.adapter, row.slot);
  return ok();
}

Status AdapterPool::stage(const StepView& step, int32_t index) {
  Area& area = areas_[static_cast<size_t>(index)];
  area.uploads.clear(), area.tables.clear();
  area.staging = {};
  if (step.adapter_loads.empty()) return ok();
  const size_t weight_bytes = round_up(step.adapter_weights.size_bytes(), kLoadAlignment);
  ASSIGN_OR_RETURN(area.staging, device_->allocate_host(weight_bytes +
                                                        step.adapter_loads.size() * table_bytes()));
  std::memcpy(area.staging.data(), step.adapter_weights.data(), step.adapter_weights.size_bytes());
  size_t from = 0, table_at = weight_bytes;
  const AdapterMatrix* matrix = step.adapter_matrices.data();
  for (const AdapterLoad& load : step.adapter_loads) {
    auto* const table = reinterpret_cast<kernels::AdapterMatrix*>(area.staging.bytes() + table_at);
    std::fill_n(table, modules_.size(), kernels::AdapterMatrix());
    int64_t begin = load.first_page * limits_.adapter_page_numbers;
    for (int32_t i = 0; i < load.num_matrices; ++i, ++matrix) {
      const auto m = static_cast<size_t>(matrix->module);
      const int64_t b = begin + matrix->rank * modules_[m].k;
      table[m] = {.a = begin,
                  .b = b,
                  .gain = matrix->has_gain ? b + matrix->rank * modules_[m].n : -1,
                  .rank = matrix->rank,
                  .column = static_cast<int32_t>(modules_[m].column),
                  .cols = static_cast<int32_t>(modules_[m].n),
                  .scale = matrix->scale};
      const size_t bytes = num_weights(*matrix) * sizeof(BF16);
      area.uploads.push_back({static_cast<size_t>(begin) * sizeof(BF16), from, bytes});
      from += bytes;
      begin += numbers_of(modules_[m], *matrix);
    }
    area.tables.push_back(
        {static_cast<size_t>(load.adapter) * table_bytes(), table_at, table_bytes()});
    table_at += table_bytes();
  }
  return ok();
}

void AdapterPool::keep(const StepView& step) {
  auto matrices = step.adapter_matrices;
  size_t left = step.adapter_weights.size();
  for (const AdapterLoad& load : step.adapter_loads)
    hold(load.adapter, take(load, matrices, left).value(), held_);
}

Status AdapterPool::run(int32_t index, Stream& stream) const {
  const Area& area = areas_[static_cast<size_t>(index)];
  for (const Upload& u : area.uploads)
    RETURN_IF_ERROR(stream.copy(weights_.bytes() + u.to, area.staging.bytes() + u.offset, u.bytes));
  for (const Upload& u : area.tables)
    RETURN_IF_ERROR(stream.copy(table_.bytes() + u.to, area.staging.bytes() + u.offset, u.bytes));
  return ok();
}

void AdapterPool::add_to(kernels::StepView& step) const {
  step.adapter_matrices = static_cast<const kernels::AdapterMatrix*>(table_.data());
  step.adapter_weights = static_cast<const BF16*>(weights_.data());
  step.num_adapter_modules = static_cast<int32_t>(modules_.size());
}

}  // namespace nereid::exec
